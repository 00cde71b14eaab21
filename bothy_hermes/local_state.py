"""The server's records in memory, changed in units that are durable as a whole or did not happen.

Layer: default. A unit holds the lock, writes down how to undo each change, hands all changed records
to the store in one call, and only then lets anybody hear of them. It knows no rule of the protocol.
Everything is held in memory: this server is for one machine and one team, not for years of a company.
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


@dataclass(frozen=True, slots=True)
class Row(Generic[R]):
    """A record and its place: the number under which its key was first put."""

    place: int
    record: R


Commit = Callable[[Sequence[RecordChange]], None]
Group = Callable[[Any], Hashable]


class Table(Generic[R]):
    """Records of one kind by key, in the order they were first put, with groups for quick questions."""

    def __init__(self, name: str, kind: type[R], touched: Callable[..., None], **groups: Group) -> None:
        self.name = name
        self.kind = kind
        self.read_key: Callable[[str], Key] = str if name in TEXT_KEYS else UUID
        self._rows: dict[Key, Row[R]] = {}
        self._touched = touched
        self._next = 0
        self._groups: Mapping[str, tuple[Group, dict[Hashable, set[Key]]]] = {
            group: (of, {}) for group, of in groups.items()
        }

    def get(self, key: Key | None) -> R | None:
        """Return a record, None when there is none."""
        row = None if key is None else self._rows.get(key)
        return None if row is None else row.record

    def need(self, key: Key) -> R:
        """Return a record that must exist."""
        return self._rows[key].record

    def all(self) -> tuple[R, ...]:
        """Return every record, oldest first."""
        return _in_order(self._rows.values())

    def group(self, name: str, value: Hashable) -> tuple[R, ...]:
        """Return the records of one group, oldest first."""
        return _in_order(self._rows[key] for key in self._groups[name][1].get(value, ()))

    def put(self, key: Key, record: R) -> R:
        """Write a record inside a unit and return it."""
        before = self._rows.get(key)
        self._touched(self, key, before)
        self.set_row(key, Row(self._take_place() if before is None else before.place, record))
        return record

    def delete(self, key: Key) -> None:
        """Remove a record inside a unit."""
        self._touched(self, key, self._rows[key])
        self.set_row(key, None)

    def load(self, key: Key, record: R) -> None:
        """Take up a stored record behind those that were taken up before."""
        self.set_row(key, Row(self._take_place(), record))

    def set_row(self, key: Key, row: Row[R] | None) -> None:
        """Set what is under a key, with its place among the others: for undoing."""
        before = self._rows.get(key)
        for of, members in self._groups.values():
            if before is not None:
                _leave(members, of(before.record), key)
            if row is not None:
                members.setdefault(of(row.record), set()).add(key)
        if row is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = row

    def _take_place(self) -> int:
        self._next += 1
        return self._next


def _in_order(rows: Iterable[Row[R]]) -> tuple[R, ...]:
    return tuple(row.record for row in sorted(rows, key=lambda row: row.place))


def _leave(members: dict[Hashable, set[Key]], value: Hashable, key: Key) -> None:
    members[value].discard(key)
    if not members[value]:
        del members[value]


Undo = tuple[Table[Any], Key, "Row[Any] | None"]
"""Where a unit changed something, and what was there before."""


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
        self._undo: list[Undo] | None = None
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
            tables[table].load(key, record)

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
                for table, key, row in reversed(self._undo):
                    table.set_row(key, row)
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

    def _touch(self, table: Table[Any], key: Key, row: Row[Any] | None) -> None:
        assert self._undo is not None, "records change inside a unit"
        self._undo.append((table, key, row))

    def _finish(self, undo: Sequence[Undo]) -> bool:
        touched = {(table.name, key): table for table, key, _ in undo}
        if touched:
            self._commit(
                [RecordChange(name, str(key), table.get(key)) for (name, key), table in touched.items()]
            )
        return bool(touched)
