"""The adapter's memory: events taken, calls still to be made, cards, sessions.

Layer: edges. One SQLite file for one profile, written by one thread (`store_writer`), every method one
commit that is on disk before the method returns. Holds identifiers only; what must still be sent is in
the outbox and leaves no trace in the file once it was sent. Never holds a run token. Only the holder of
`store_lock.StateLock` opens it.

Neighbours: `store_values` (the values and the tables of legal moves), `store_rows` and `store_cards`
(statements), `store_schema` (tables), `store_file` (permissions, what errors mean), `store_health` (who is
told of them).
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, final
from uuid import UUID

from . import store_cards as card_rows
from . import store_rows as rows
from .clock import Clock
from .codec import format_time
from .errors import StateError
from .store_columns import of_rows
from .store_file import open_database
from .store_health import StoreHealth, Tell
from .store_schema import known_version
from .store_values import (
    CallDone,
    CallFailed,
    CardGone,
    Change,
    Claim,
    Claimed,
    ClaimMove,
    ClaimState,
    EntryMove,
    EntryState,
    InboxEntry,
    OpenCard,
    OutboxCall,
    StoredCall,
    Taken,
    ThreadSession,
)
from .store_writer import Writer

__all__ = [
    "CallDone",
    "CallFailed",
    "CardGone",
    "Change",
    "Claim",
    "ClaimMove",
    "ClaimState",
    "Claimed",
    "EntryMove",
    "EntryState",
    "InboxEntry",
    "OpenCard",
    "OutboxCall",
    "Store",
    "StoredCall",
    "Taken",
    "ThreadSession",
]

P = ParamSpec("P")
T = TypeVar("T")

SETTLED_LIFE = timedelta(hours=48)
"""How long a decided event is remembered: the server delivers none older than 24 h."""

SESSION_LIFE = timedelta(days=365)
"""How long an unused thread's session is remembered: the server names it anyway, this is for when it
names none."""

_ADAPTER_ID = "adapter_id"
_own_id = of_rows(UUID)
_PROBE = "probed_at"


def _nobody(_trouble: StateError | None) -> None:
    return None


@final
class Store:
    """The open state file; made by `open`.

    Every method raises `StateError` when the disk does not take or give what is asked; nothing of the
    call was done then, and the next one is tried afresh. Cancelling a call never undoes it. Calls of a
    `patient` view wait instead until the disk takes them.
    """

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        health: StoreHealth,
        known: set[UUID],
        *,
        patient: bool = False,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._health = health
        # Events and runs that the file remembers, and a little more: others are not looked for in it.
        self._known = known
        self._is_patient = patient

    @classmethod
    async def open(cls, directory: Path, clock: Clock, tell: Tell = _nobody) -> Store:
        """Open a directory's state file, made when it is missing.

        Args:
            directory: The state directory.
            clock: Time, and the first adapter ID.
            tell: Told when the disk stops taking what is written, and when it does again.

        Raises:
            StateTooNew: A newer version wrote it.
            StateError: It cannot be used.
        """
        writer = Writer(functools.partial(open_database, directory), _Scrubber(), known_version)
        await writer.start()
        known = set(await writer.run(rows.inbox_ids))
        return cls(writer, clock, StoreHealth(writer, clock, tell), known)

    def patient(self) -> Store:
        """The same file for work that can only wait: what the disk refuses now is tried until it is taken."""
        return Store(self._writer, self._clock, self._health, self._known, patient=True)

    @property
    def trouble(self) -> StateError | None:
        """What the disk refused last, None since it took something again."""
        return self._health.trouble

    async def close(self) -> None:
        """Finish what was asked for and close the file; later calls raise `StateError`."""
        await self._writer.close()

    @property
    def commits(self) -> int:
        """How many transactions changed something so far, for measures."""
        return self._writer.commits

    async def probe(self) -> None:
        """Write something of no meaning: whether the disk takes it tells whether a trouble is over."""
        await self._run(rows.keep, _PROBE, self._moment())

    async def check(self) -> None:
        """Look whether a newer version of the adapter has taken the file over; then it is left to it.

        Never waits, in a patient view neither.

        Raises:
            StateTooNew: One has; from now on nothing is read or written until the file is as it was.
            StateError: It cannot be looked at.
        """
        await self._health.attempt(self._writer.check, patient=False)

    async def adapter_id(self) -> UUID:
        """The adapter's own ID, made once and kept in the file."""
        return _own_id(await self._run(rows.made_once, _ADAPTER_ID, str(self._clock.new_id())))

    async def record(self, *changes: Change) -> None:
        """Write changes in their order as one durable step: all of them or none.

        Raises:
            IllegalMove: A move that its entry or claim does not have.
        """
        await self._run(_apply_all, changes, self._moment())

    # Events

    async def take_event(self, entry: InboxEntry, calls: Sequence[Change] = ()) -> Taken:
        """Take an event: its entry, its token's ID and what is to be written with it, in one commit.

        Nothing is written unless the answer is `Taken.NEW`.

        Raises:
            IllegalMove: An entry does not begin in that state.
        """
        # First of all: who is cancelled from here on does not undo the taking.
        self._known.update(one for one in (entry.event_id, entry.run_id) if one is not None)
        return await self._run(_take, entry, calls, self._moment())

    async def entry(self, event_id: UUID) -> InboxEntry | None:
        """The entry of an event; None when the event is not remembered."""
        if event_id not in self._known:
            return None
        return await self._run(rows.entry_of, event_id)

    async def entry_of_run(self, run_id: UUID) -> InboxEntry | None:
        """The entry of the invocation that offered a run; None when none is remembered."""
        if run_id not in self._known:
            return None
        return await self._run(rows.entry_of_run, run_id)

    async def open_entries(self) -> list[InboxEntry]:
        """Entries with something left to do, in the order in which they were taken."""
        return await self._run(rows.open_entries)

    async def move_entry(self, event_id: UUID, state: EntryState, calls: Sequence[Change] = ()) -> None:
        """Move an entry and write what belongs to the move, in one commit.

        Raises:
            IllegalMove: The entry has no such move, or there is no such entry.
        """
        await self.record(EntryMove(event_id, state), *calls)

    async def forget_entry(self, event_id: UUID) -> None:
        """Forget an event, so that it is new when it is delivered again."""
        await self._run(rows.forget_entry, event_id)
        self._known.discard(event_id)

    # Calls

    async def put_calls(self, calls: Sequence[OutboxCall]) -> None:
        """Put calls into the outbox; one whose key is there already is left as it is."""
        await self.record(*calls)

    async def calls(self, run_id: UUID | None = None) -> list[StoredCall]:
        """The calls of a run, or of all runs, in the order in which they were put."""
        return await self._run(rows.calls, run_id)

    async def call_done(
        self,
        sequence: int,
        *,
        entry: tuple[UUID, EntryState] | None = None,
        also: Sequence[Change] = (),
    ) -> None:
        """Remove a call that was answered, and write what its answer means, in one commit.

        Args:
            sequence: The call; one that is gone already is no error.
            entry: An entry that moves with it.
            also: Whatever else is to be written with it.

        Raises:
            IllegalMove: A move that its entry or claim does not have.
        """
        await self.record(CallDone(sequence), *_moves(entry), *also)

    async def call_failed(
        self,
        sequence: int,
        word: str,
        *,
        entry: tuple[UUID, EntryState] | None = None,
        also: Sequence[Change] = (),
    ) -> None:
        """Remove a call that can never succeed and count it under a fixed word, in one commit.

        Args:
            sequence: The call; one that is gone already is no error and not counted.
            word: Under which it is counted.
            entry: An entry that moves with it.
            also: Whatever else is to be written with it.

        Raises:
            IllegalMove: A move that its entry or claim does not have.
        """
        await self.record(CallFailed(sequence, word), *_moves(entry), *also)

    async def counters(self) -> Mapping[str, int]:
        """How often what was counted, over the life of the file."""
        return await self._run(rows.counters)

    # Cards

    async def claim(self, callback_id: UUID, card_id: str, run_id: UUID) -> Claimed:
        """Take a card's answer for one callback, so that no other can be given to Hermes."""
        wanted = Claim(callback_id, card_id, run_id, ClaimState.CLAIMED)
        return await self._run(card_rows.claim, wanted, self._moment())

    async def claim_of(self, callback_id: UUID) -> Claim | None:
        """The claim of a callback: which step was reached."""
        return await self._run(card_rows.claim_of, callback_id)

    async def card(self, card_id: str) -> OpenCard | None:
        """The open card with this `client_msg_id`."""
        return await self._run(card_rows.card_of, card_id)

    async def card_of_message(self, message_id: UUID) -> OpenCard | None:
        """The open card that the server holds as this message."""
        return await self._run(card_rows.card_of_message, message_id)

    async def cards(self, run_id: UUID | None = None) -> list[OpenCard]:
        """The open cards of a run, or of all runs."""
        return await self._run(card_rows.cards, run_id)

    # Sessions

    async def get_session(self, thread_id: UUID) -> ThreadSession | None:
        """The Hermes session of a thread."""
        return await self._run(rows.session_of, thread_id)

    # Age

    async def prune(self, now: datetime) -> int:
        """Forget what is settled and old enough; returns how many rows went."""
        forgotten, gone = await self._run(_prune, now - SETTLED_LIFE, now - SESSION_LIFE)
        self._known.difference_update(forgotten)
        return gone

    async def _run(
        self, job: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def work(connection: sqlite3.Connection) -> T:
            return job(connection, *args, **kwargs)

        return await self._health.attempt(lambda: self._writer.run(work), patient=self._is_patient)

    def _moment(self) -> str:
        return format_time(self._clock.now())


def _moves(entry: tuple[UUID, EntryState] | None) -> tuple[EntryMove, ...]:
    return () if entry is None else (EntryMove(*entry),)


def _apply_all(connection: sqlite3.Connection, changes: Sequence[Change], moment: str) -> None:
    for change in changes:
        rows.apply(connection, change, moment)


def _take(connection: sqlite3.Connection, entry: InboxEntry, changes: Sequence[Change], moment: str) -> Taken:
    taken = rows.take_event(connection, entry)
    if taken is Taken.NEW:
        _apply_all(connection, changes, moment)
    return taken


def _prune(connection: sqlite3.Connection, settled: datetime, unused: datetime) -> tuple[list[UUID], int]:
    return rows.old_inbox_ids(connection, settled), rows.prune(connection, settled, unused)


@final
class _Scrubber:
    """Leaves nothing of sent calls in the files: runs when the outbox has become empty.

    SQLite overwrites in the file what is deleted there; the log beside it still holds the pages as they
    were written, until a checkpoint empties it.
    """

    def __init__(self) -> None:
        self._clean_at: int | None = None  # the outbox's last sequence when it was scrubbed

    def __call__(self, connection: sqlite3.Connection) -> None:
        empty, last = rows.outbox_mark(connection)
        if not empty or last == self._clean_at:
            return
        busy, _log, _done = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if not busy:
            self._clean_at = last
