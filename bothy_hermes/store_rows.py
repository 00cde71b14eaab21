"""The statements of the state file: values to rows, rows to values, and each change's own rule.

Layer: edges. Every function works inside a transaction that somebody else opens and commits; a rule that
is broken raises before anything half-done can be committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from .codec import dump_json, format_time, load_json, parse_time
from .errors import IllegalMove
from .store_cards import card_gone, move_claim, put_card
from .store_columns import of_rows, read_one, to_id, to_text
from .store_values import (
    CLOSED_ENTRIES,
    ENTRY_MOVES,
    ENTRY_STARTS,
    CallDone,
    CallFailed,
    CardGone,
    Change,
    ClaimMove,
    EntryMove,
    EntryState,
    InboxEntry,
    OpenCard,
    OutboxCall,
    StoredCall,
    Taken,
    ThreadSession,
)
from .wire_words import EventType

ENTRY_MACHINE = "inbox entry"
"""How `IllegalMove` names the entries' state machine."""

_ENTRY = "SELECT event_id, event_type, run_id, thread_id, subject_id, jti, state, created_at FROM inbox"
_CALL = "SELECT sequence, key, run_id, operation, target_id, if_match, body FROM outbox"

_CLOSED = ", ".join(f"'{state}'" for state in sorted(CLOSED_ENTRIES))
_BUSY_RUNS = (
    f"SELECT run_id FROM inbox WHERE state NOT IN ({_CLOSED}) AND run_id IS NOT NULL "  # noqa: S608  # our words
    "UNION SELECT run_id FROM outbox"
)

_REMEMBERED_OF_RUNS = ("cards", "claims")
"""Tables whose rows are kept for as long as their run has something to do, and then by age."""


# The inbox ----------------------------------------------------------------------------------------


def take_event(connection: sqlite3.Connection, entry: InboxEntry) -> Taken:
    """Put an entry and bind its token's ID to the event.

    Raises:
        IllegalMove: An entry does not begin in that state.
    """
    if entry.state not in ENTRY_STARTS:
        raise IllegalMove(ENTRY_MACHINE, "none", entry.state)
    if entry_of(connection, entry.event_id) is not None:
        return Taken.KNOWN
    if entry.jti is not None and not _bind(connection, entry.jti, entry):
        return Taken.REPLAYED
    moment = format_time(entry.created_at)
    connection.execute(
        "INSERT INTO inbox "
        "(event_id, event_type, run_id, thread_id, subject_id, jti, state, created_at, changed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            str(entry.event_id),
            entry.event_type,
            to_text(entry.run_id),
            to_text(entry.thread_id),
            to_text(entry.subject_id),
            entry.jti,
            entry.state,
            moment,
            moment,
        ),
    )
    return Taken.NEW


def _bind(connection: sqlite3.Connection, jti: str, entry: InboxEntry) -> bool:
    connection.execute(
        "INSERT OR IGNORE INTO token_ids (jti, event_id, created_at) VALUES (?, ?, ?)",
        (jti, str(entry.event_id), format_time(entry.created_at)),
    )
    bound = connection.execute("SELECT event_id FROM token_ids WHERE jti = ?", (jti,)).fetchone()
    return bool(bound[0] == str(entry.event_id))


def entry_of(connection: sqlite3.Connection, event_id: UUID) -> InboxEntry | None:
    """The entry of an event."""
    return read_one(connection, f"{_ENTRY} WHERE event_id = ?", (str(event_id),), _entry)


def inbox_ids(connection: sqlite3.Connection) -> list[UUID]:
    """The IDs of every remembered event and of every run that one is about."""
    return _ids(connection, "SELECT event_id FROM inbox UNION SELECT run_id FROM inbox")


def _ids(connection: sqlite3.Connection, query: str, *values: str) -> list[UUID]:
    return [found for row in connection.execute(query, values) if (found := _id(row)) is not None]


def entry_of_run(connection: sqlite3.Connection, run_id: UUID) -> InboxEntry | None:
    """The entry of the invocation that offered a run."""
    where = f"{_ENTRY} WHERE run_id = ? AND event_type = ? ORDER BY position DESC"
    return read_one(connection, where, (str(run_id), EventType.INVOCATION), _entry)


def open_entries(connection: sqlite3.Connection) -> list[InboxEntry]:
    """Entries with something left to do, in the order in which they were taken."""
    rows = connection.execute(f"{_ENTRY} WHERE state NOT IN ({_CLOSED}) ORDER BY position")
    return [_entry(row) for row in rows]


def forget_entry(connection: sqlite3.Connection, event_id: UUID) -> None:
    """Forget an event: delivered again, it is new. Its token stays bound to it."""
    connection.execute("DELETE FROM inbox WHERE event_id = ?", (str(event_id),))


def _move_entry(connection: sqlite3.Connection, move: EntryMove, moment: str) -> None:
    row = connection.execute("SELECT state FROM inbox WHERE event_id = ?", (str(move.event_id),)).fetchone()
    if row is None or move.state not in ENTRY_MOVES[_state(row)]:
        raise IllegalMove(ENTRY_MACHINE, row[0] if row else "none", move.state)
    connection.execute(
        "UPDATE inbox SET state = ?, changed_at = ? WHERE event_id = ?",
        (move.state, moment, str(move.event_id)),
    )


# The outbox ---------------------------------------------------------------------------------------


def calls(connection: sqlite3.Connection, run_id: UUID | None) -> list[StoredCall]:
    """The calls of a run, or of all runs, in the order in which they were put."""
    if run_id is None:
        return [_call(row) for row in connection.execute(f"{_CALL} ORDER BY sequence")]
    rows = connection.execute(f"{_CALL} WHERE run_id = ? ORDER BY sequence", (str(run_id),))
    return [_call(row) for row in rows]


def _put_call(connection: sqlite3.Connection, call: OutboxCall, _moment: str) -> None:
    connection.execute(
        "INSERT INTO outbox (key, run_id, operation, target_id, if_match, body) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (key) DO NOTHING",
        (
            call.key,
            str(call.run_id),
            call.operation,
            to_text(call.target_id),
            call.if_match,
            dump_json(call.body),
        ),
    )


def _call_done(connection: sqlite3.Connection, done: CallDone, _moment: str) -> None:
    connection.execute("DELETE FROM outbox WHERE sequence = ?", (done.sequence,))


def _call_failed(connection: sqlite3.Connection, failed: CallFailed, _moment: str) -> None:
    gone = connection.execute("DELETE FROM outbox WHERE sequence = ?", (failed.sequence,))
    if gone.rowcount:
        connection.execute(
            "INSERT INTO counters (name, value) VALUES (?, 1) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1",
            (failed.word,),
        )


def outbox_mark(connection: sqlite3.Connection) -> tuple[bool, int]:
    """Whether the outbox is empty, and the last sequence that it ever gave."""
    empty = not connection.execute("SELECT EXISTS (SELECT 1 FROM outbox)").fetchone()[0]
    last = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    return empty, int(last[0]) if last else 0


# What is remembered of a thread -------------------------------------------------------------------


def session_of(connection: sqlite3.Connection, thread_id: UUID) -> ThreadSession | None:
    """The Hermes session of a thread."""
    query = "SELECT session_id, parent_id FROM sessions WHERE thread_id = ?"
    return read_one(connection, query, (str(thread_id),), lambda row: ThreadSession(thread_id, *row))


def _put_session(connection: sqlite3.Connection, session: ThreadSession, moment: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO sessions (thread_id, session_id, parent_id, changed_at) VALUES (?, ?, ?, ?)",
        (str(session.thread_id), session.session_id, session.parent_id, moment),
    )


# Changes, age and what exists once ----------------------------------------------------------------

_APPLY: Mapping[type, Callable[[sqlite3.Connection, Any, str], None]] = {
    OutboxCall: _put_call,
    EntryMove: _move_entry,
    ClaimMove: move_claim,
    CallDone: _call_done,
    CallFailed: _call_failed,
    OpenCard: put_card,
    CardGone: card_gone,
    ThreadSession: _put_session,
}


def apply(connection: sqlite3.Connection, change: Change, moment: str) -> None:
    """Write one change.

    Raises:
        IllegalMove: A move that the entry or the claim does not have.
    """
    _APPLY[type(change)](connection, change, moment)


def old_inbox_ids(connection: sqlite3.Connection, settled_before: datetime) -> list[UUID]:
    """The events that `prune` forgets, and the runs that no other event is about."""
    old = f"state IN ({_CLOSED}) AND changed_at < ?"
    moment = format_time(settled_before)
    return [
        *_ids(connection, f"SELECT event_id FROM inbox WHERE {old}", moment),  # noqa: S608  # our words
        *_ids(
            connection,
            f"SELECT run_id FROM inbox WHERE {old} "  # noqa: S608  # our words
            f"EXCEPT SELECT run_id FROM inbox WHERE NOT ({old})",
            moment,
            moment,
        ),
    ]


def prune(connection: sqlite3.Connection, settled_before: datetime, unused_before: datetime) -> int:
    """Forget what was closed or used before these moments.

    Args:
        connection: The connection.
        settled_before: For events, token IDs and what belongs to runs that have nothing left to do.
        unused_before: For the sessions of threads.

    Returns:
        How many rows went.
    """
    settled, unused = format_time(settled_before), format_time(unused_before)
    gone = connection.execute(
        f"DELETE FROM inbox WHERE state IN ({_CLOSED}) AND changed_at < ?",  # noqa: S608  # our words
        (settled,),
    ).rowcount
    gone += connection.execute(
        "DELETE FROM token_ids WHERE created_at < ? AND event_id NOT IN (SELECT event_id FROM inbox)",
        (settled,),
    ).rowcount
    for table in _REMEMBERED_OF_RUNS:
        gone += connection.execute(
            f"DELETE FROM {table} WHERE changed_at < ? AND run_id NOT IN ({_BUSY_RUNS})",  # noqa: S608  # our words
            (settled,),
        ).rowcount
    gone += connection.execute("DELETE FROM sessions WHERE changed_at < ?", (unused,)).rowcount
    return gone


def counters(connection: sqlite3.Connection) -> Mapping[str, int]:
    """What was counted, by its word."""
    return dict(connection.execute("SELECT name, value FROM counters ORDER BY name").fetchall())


def made_once(connection: sqlite3.Connection, name: str, value: str) -> str:
    """Keep a value under a name unless there is one; return the one that is kept."""
    connection.execute("INSERT OR IGNORE INTO meta (name, value) VALUES (?, ?)", (name, value))
    return str(connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()[0])


def keep(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Keep a value under a name, in the place of the one that was there."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


# Rows to values -----------------------------------------------------------------------------------


@of_rows
def _entry(row: Any) -> InboxEntry:
    event_id, event_type, run_id, thread_id, subject_id, jti, state, created_at = row
    return InboxEntry(
        event_id=UUID(event_id),
        event_type=event_type,
        run_id=to_id(run_id),
        thread_id=to_id(thread_id),
        jti=jti,
        state=EntryState(state),
        created_at=parse_time(created_at, "created_at"),
        subject_id=to_id(subject_id),
    )


@of_rows
def _state(row: Any) -> EntryState:
    return EntryState(row[0])


@of_rows
def _id(row: Any) -> UUID | None:
    return to_id(row[0])


@of_rows
def _call(row: Any) -> StoredCall:
    sequence, key, run_id, operation, target_id, if_match, body = row
    call = OutboxCall(key, UUID(run_id), operation, to_id(target_id), if_match, load_json(body))
    return StoredCall(sequence, call)
