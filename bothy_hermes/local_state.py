"""The server's records in memory, changed in units that are durable as a whole or did not happen.

Layer: default. A unit holds the lock, writes down how to undo each change, hands all changed records
to the store in one call, and only then lets anybody hear of them. It knows no rule of the protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import UUID

from .clock import Clock
from .local_changes import ChangeKind, ChangeLog
from .local_records import (
    AgentRecord,
    CardRecord,
    ChannelRecord,
    ConsumerRecord,
    EventRecord,
    FileRecord,
    InstanceRecord,
    InteractionRecord,
    KeyRecord,
    MessageRecord,
    Person,
    RepeatRecord,
    RunRecord,
    ThreadRecord,
)

R = TypeVar("R")
Key = str | UUID

TEXT_KEYS = frozenset({"key", "consumer", "repeat"})
"""Tables whose keys are names; the others have IDs."""


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record as a unit leaves it; None when it is gone."""

    table: str
    key: str
    record: Any | None


Commit = Callable[[Sequence[RecordChange]], None]
Group = Callable[[Any], Hashable]


class Table(Generic[R]):
    """Records of one kind by key, in the order they were first put, with groups for quick questions."""

    def __init__(self, name: str, kind: type[R], touched: Callable[..., None], **groups: Group) -> None:
        self.name = name
        self.kind = kind
        self.read_key: Callable[[str], Key] = str if name in TEXT_KEYS else UUID
        self._rows: dict[Key, R] = {}
        self._touched = touched
        self._groups: Mapping[str, tuple[Group, dict[Hashable, dict[Key, None]]]] = {
            group: (of, {}) for group, of in groups.items()
        }

    def get(self, key: Key | None) -> R | None:
        """Return a record, None when there is none."""
        return None if key is None else self._rows.get(key)

    def need(self, key: Key) -> R:
        """Return a record that must exist."""
        return self._rows[key]

    def all(self) -> tuple[R, ...]:
        """Return every record."""
        return tuple(self._rows.values())

    def group(self, name: str, value: Hashable) -> tuple[R, ...]:
        """Return the records of one group, oldest first."""
        return tuple(self._rows[key] for key in self._groups[name][1].get(value, ()))

    def put(self, key: Key, record: R) -> R:
        """Write a record inside a unit and return it."""
        self._touched(self, key, self._rows.get(key))
        self.set_row(key, record)
        return record

    def delete(self, key: Key) -> None:
        """Remove a record inside a unit."""
        self._touched(self, key, self._rows[key])
        self.set_row(key, None)

    def set_row(self, key: Key, record: R | None) -> None:
        """Change a record without a unit: for loading and for undoing."""
        before = self._rows.get(key)
        for of, members in self._groups.values():
            old = of(before) if before is not None else None
            new = of(record) if record is not None else None
            if before is not None and (record is None or old != new):
                members[old].pop(key)
                if not members[old]:
                    del members[old]
            if record is not None and (before is None or old != new):
                members.setdefault(new, {})[key] = None
        if record is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = record


class State:
    """All tables, the lock, and the unit that is open.

    Args:
        clock: For the sequence numbers of changes, which go on after a restart.
        commit: Makes changed records durable; raises when it cannot, and then nothing changed.
    """

    def __init__(self, clock: Clock, commit: Commit) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.changes = ChangeLog(int(clock.now().timestamp() * 1000))
        self._commit = commit
        self._undo: list[tuple[Table[Any], Key, Any]] | None = None
        self._notes: dict[tuple[ChangeKind, UUID], None] = {}
        touched = self._touch
        self.instances = Table("instance", InstanceRecord, touched)
        self.keys = Table("key", KeyRecord, touched)
        self.people = Table("person", Person, touched)
        self.agents = Table("agent", AgentRecord, touched)
        self.channels = Table("channel", ChannelRecord, touched)
        self.threads = Table("thread", ThreadRecord, touched)
        self.messages = Table(
            "message",
            MessageRecord,
            touched,
            thread=lambda row: row.message.thread_id,
            run=lambda row: row.message.run_id,
            call=lambda row: (row.message.run_id, row.message.author.id, row.message.client_msg_id),
            writer=lambda row: (row.message.author.id, row.message.client_msg_id),
            followup=lambda row: row.followup_of,
        )
        self.cards = Table("card", CardRecord, touched, run=lambda row: row.run_id)
        self.runs = Table(
            "run",
            RunRecord,
            touched,
            thread=lambda row: row.run.thread_id,
            ended=lambda row: row.run.state.ended,
            active=lambda row: None if row.run.state.ended else row.run.thread_id,
        )
        self.interactions = Table(
            "interaction",
            InteractionRecord,
            touched,
            message=lambda row: row.interaction.message_id,
        )
        self.events = Table(
            "event",
            EventRecord,
            touched,
            settled=lambda row: row.settled_at is not None,
            run=lambda row: row.run_id,
        )
        self.consumers = Table("consumer", ConsumerRecord, touched)
        self.files = Table("file", FileRecord, touched)
        self.repeats = Table("repeat", RepeatRecord, touched)

    @property
    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table by the name under which its records are stored."""
        found = (one for one in vars(self).values() if isinstance(one, Table))
        return {table.name: table for table in found}

    @property
    def instance(self) -> InstanceRecord:
        """The instance's own record."""
        return self.instances.all()[0]

    @property
    def agent(self) -> AgentRecord:
        """The one agent of this instance."""
        return self.agents.all()[0]

    def load(self, rows: Iterable[tuple[str, Key, Any]]) -> None:
        """Take up stored records, in the order in which they were first written."""
        tables = self.tables
        for table, key, record in rows:
            tables[table].set_row(key, record)

    @contextmanager
    def unit(self) -> Iterator[None]:
        """Hold the lock and make the changes inside one whole: all durable, or none happened.

        Units inside a unit belong to it.
        """
        with self.lock:
            if self._undo is not None:
                yield
                return
            self._undo = []
            try:
                yield
                touched = self._finish(self._undo)
            except BaseException:
                for table, key, before in reversed(self._undo):
                    table.set_row(key, before)
                self._notes.clear()
                raise
            finally:
                self._undo = None
            notes = tuple(self._notes)
            self._notes.clear()
        if touched:
            self.changes.add(notes)

    def note(self, kind: ChangeKind, thing: UUID) -> None:
        """Say what people should hear of when the open unit is durable."""
        self._notes[kind, thing] = None

    def _touch(self, table: Table[Any], key: Key, before: Any) -> None:
        assert self._undo is not None, "records change inside a unit"
        self._undo.append((table, key, before))

    def _finish(self, undo: Sequence[tuple[Table[Any], Key, Any]]) -> bool:
        touched = {(table.name, key): table for table, key, _ in undo}
        if touched:
            self._commit(
                [RecordChange(name, str(key), table.get(key)) for (name, key), table in touched.items()]
            )
        return bool(touched)
