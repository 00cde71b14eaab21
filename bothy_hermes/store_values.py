"""What the state file remembers, as values, and the moves that its entries and claims may make.

Layer: values. `store` writes and reads these; nothing here touches a file. Everything is an identifier,
a word of a fixed set or a time, but for `OutboxCall.body`, which exists only until it was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from .codec import JsonObject


class EntryState(StrEnum):
    """How far the adapter is with an event."""

    SETTLED = "settled"
    """Decided for good when it came: nothing was or is to be done for it."""
    ACCEPTED = "accepted"
    """Durable here, acked, and still to be worked on."""
    STARTING = "starting"
    """startRun is being made or was made: the server may hold the run as running, Hermes have the turn."""
    FINISHING = "finishing"
    """The end is decided and waits in the outbox."""
    DONE = "done"
    """Nothing is left to do."""


ENTRY_STARTS = frozenset({EntryState.SETTLED, EntryState.ACCEPTED, EntryState.FINISHING})
"""States in which an entry may be written first; `FINISHING` is a run refused before its start."""

ENTRY_MOVES: Mapping[EntryState, frozenset[EntryState]] = {
    EntryState.SETTLED: frozenset(),
    EntryState.ACCEPTED: frozenset({EntryState.STARTING, EntryState.FINISHING, EntryState.DONE}),
    EntryState.STARTING: frozenset({EntryState.FINISHING, EntryState.DONE}),
    EntryState.FINISHING: frozenset({EntryState.DONE}),
    EntryState.DONE: frozenset(),
}
"""Every legal move of an inbox entry."""

CLOSED_ENTRIES = frozenset({EntryState.SETTLED, EntryState.DONE})
"""States after which an entry is only remembered."""


class Taken(StrEnum):
    """What became of an event that was offered to the inbox."""

    NEW = "new"
    """It is in the inbox now, with everything that was to be written with it."""
    KNOWN = "known"
    """It was there already; nothing was written."""
    REPLAYED = "replayed"
    """Its token's `jti` belongs to another event; nothing was written."""


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """An event that was decided.

    Attributes:
        event_id: The event.
        event_type: Its type, as the wire has it.
        run_id: The run it is about, None for events without one.
        thread_id: The thread it is about, None for events without one.
        jti: The ID of the token it came with, None for events without a token.
        state: How far the adapter is with it.
        created_at: When it was taken, by the adapter's clock.
        subject_id: The interaction it brought, None for other events.
    """

    event_id: UUID
    event_type: str
    run_id: UUID | None
    thread_id: UUID | None
    jti: str | None
    state: EntryState
    created_at: datetime
    subject_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class OutboxCall:
    """One call that is still to be made.

    Attributes:
        key: What makes it one intent (a message's `client_msg_id`, `finish:<run>`): put twice, it is
            one row, the first one.
        run_id: The run it belongs to; calls of one run are made in the order of their sequence.
        operation: The operation ID.
        target_id: The ID in the operation's path where that is not the run.
        if_match: The version for `If-Match`, None where the operation has none.
        body: The request's JSON.
    """

    key: str
    run_id: UUID
    operation: str
    target_id: UUID | None = None
    if_match: int | None = None
    body: JsonObject = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call of the outbox.

    Attributes:
        sequence: Its place; never used twice.
        call: The call.
    """

    sequence: int
    call: OutboxCall


class ClaimState(StrEnum):
    """Which step of answering a card was reached."""

    CLAIMED = "claimed"
    """The card's answer is taken; Hermes may or may not have heard of it."""
    RESOLVED = "resolved"
    """Hermes has taken it."""
    ANSWERED = "answered"
    """The server has the adapter's answer; the card is used up."""


CLAIM_MOVES: Mapping[ClaimState, frozenset[ClaimState]] = {
    ClaimState.CLAIMED: frozenset({ClaimState.RESOLVED, ClaimState.ANSWERED}),
    ClaimState.RESOLVED: frozenset({ClaimState.ANSWERED}),
    ClaimState.ANSWERED: frozenset(),
}
"""Every legal move of a claim: what one callback has taken no other ever gets."""


class Claimed(StrEnum):
    """What became of the wish to answer a card."""

    NEW = "new"
    """The card is claimed by this callback, and by no other ever again."""
    KNOWN = "known"
    """This callback has been here; its claim says how far it came."""
    TAKEN = "taken"
    """Another callback has the card."""
    GONE = "gone"
    """There is no such open card."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One answer to one card.

    Attributes:
        callback_id: The interaction, or the message of the follow-up, that answers.
        card_id: The card's `client_msg_id`.
        run_id: The run.
        state: Which step was reached.
    """

    callback_id: UUID
    card_id: str
    run_id: UUID
    state: ClaimState


@dataclass(frozen=True, slots=True)
class OpenCard:
    """A card that Hermes waits on.

    Attributes:
        card_id: Its `client_msg_id`.
        run_id: The run.
        message_id: The server's message, None until the card was delivered.
    """

    card_id: str
    run_id: UUID
    message_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class ThreadSession:
    """The Hermes session of a thread.

    Attributes:
        thread_id: The thread.
        session_id: Hermes' ID of the session.
        parent_id: The session it grew out of, None when it did not.
    """

    thread_id: UUID
    session_id: str
    parent_id: str | None = None


# Changes: what one durable step may consist of ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntryMove:
    """An inbox entry enters another state."""

    event_id: UUID
    state: EntryState


@dataclass(frozen=True, slots=True)
class ClaimMove:
    """A claim enters another state."""

    callback_id: UUID
    state: ClaimState


@dataclass(frozen=True, slots=True)
class CallDone:
    """A call was made and answered: its row goes."""

    sequence: int


@dataclass(frozen=True, slots=True)
class CallFailed:
    """A call can never succeed: its row goes, and is counted under a fixed word."""

    sequence: int
    word: str


@dataclass(frozen=True, slots=True)
class CardGone:
    """Nothing waits behind a card any more."""

    card_id: str


Change = OutboxCall | EntryMove | ClaimMove | CallDone | CallFailed | OpenCard | CardGone | ThreadSession
"""What `Store.record` writes: a value is put (replacing the one of the same ID), a move is made."""
