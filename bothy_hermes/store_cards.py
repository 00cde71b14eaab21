"""The statements about cards: which are open, and who answers them.

Layer: edges. A card is claimed once; how far a claim came is a state that moves by its table. Works inside
a transaction that somebody else opens and commits.
"""

from __future__ import annotations

import sqlite3
from typing import Any
from uuid import UUID

from .errors import IllegalMove
from .store_columns import of_rows, read_one, to_id, to_text
from .store_values import CLAIM_MOVES, CardGone, Claim, Claimed, ClaimMove, ClaimState, OpenCard

CLAIM_MACHINE = "claim"
"""How `IllegalMove` names the claims' state machine."""

_CARD = "SELECT card_id, run_id, message_id FROM cards"
_CLAIM = "SELECT callback_id, card_id, run_id, state FROM claims"


def claim(connection: sqlite3.Connection, wanted: Claim, moment: str) -> Claimed:
    """Take a card's answer, once."""
    known = connection.execute("SELECT 1 FROM claims WHERE callback_id = ?", (str(wanted.callback_id),))
    if known.fetchone():
        return Claimed.KNOWN
    if not connection.execute("SELECT 1 FROM cards WHERE card_id = ?", (wanted.card_id,)).fetchone():
        return Claimed.GONE
    if connection.execute("SELECT 1 FROM claims WHERE card_id = ?", (wanted.card_id,)).fetchone():
        return Claimed.TAKEN
    connection.execute(
        "INSERT INTO claims (callback_id, card_id, run_id, state, changed_at) VALUES (?, ?, ?, ?, ?)",
        (str(wanted.callback_id), wanted.card_id, str(wanted.run_id), ClaimState.CLAIMED, moment),
    )
    return Claimed.NEW


def claim_of(connection: sqlite3.Connection, callback_id: UUID) -> Claim | None:
    """The claim of an interaction or a follow-up."""
    return read_one(connection, f"{_CLAIM} WHERE callback_id = ?", (str(callback_id),), _claim)


def move_claim(connection: sqlite3.Connection, move: ClaimMove, moment: str) -> None:
    """Move a claim.

    Raises:
        IllegalMove: The claim has no such move, or there is no such claim.
    """
    held = claim_of(connection, move.callback_id)
    if held is None or move.state not in CLAIM_MOVES[held.state]:
        raise IllegalMove(CLAIM_MACHINE, held.state if held else "none", move.state)
    connection.execute(
        "UPDATE claims SET state = ?, changed_at = ? WHERE callback_id = ?",
        (move.state, moment, str(move.callback_id)),
    )


def card_of(connection: sqlite3.Connection, card_id: str) -> OpenCard | None:
    """The open card with this `client_msg_id`."""
    return read_one(connection, f"{_CARD} WHERE card_id = ?", (card_id,), _card)


def card_of_message(connection: sqlite3.Connection, message_id: UUID) -> OpenCard | None:
    """The open card that the server holds as this message."""
    return read_one(connection, f"{_CARD} WHERE message_id = ?", (str(message_id),), _card)


def cards(connection: sqlite3.Connection, run_id: UUID | None) -> list[OpenCard]:
    """The open cards of a run, or of all runs."""
    if run_id is None:
        return [_card(row) for row in connection.execute(f"{_CARD} ORDER BY card_id")]
    rows = connection.execute(f"{_CARD} WHERE run_id = ? ORDER BY card_id", (str(run_id),))
    return [_card(row) for row in rows]


def put_card(connection: sqlite3.Connection, card: OpenCard, moment: str) -> None:
    """Put a card in the place of the one with its ID."""
    connection.execute(
        "INSERT OR REPLACE INTO cards (card_id, run_id, message_id, changed_at) VALUES (?, ?, ?, ?)",
        (card.card_id, str(card.run_id), to_text(card.message_id), moment),
    )


def card_gone(connection: sqlite3.Connection, gone: CardGone, _moment: str) -> None:
    """Remove a card; its claims are remembered."""
    connection.execute("DELETE FROM cards WHERE card_id = ?", (gone.card_id,))


@of_rows
def _card(row: Any) -> OpenCard:
    card_id, run_id, message_id = row
    return OpenCard(card_id, UUID(run_id), to_id(message_id))


@of_rows
def _claim(row: Any) -> Claim:
    callback_id, card_id, run_id, state = row
    return Claim(UUID(callback_id), card_id, UUID(run_id), ClaimState(state))
