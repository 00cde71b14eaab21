"""The tables of moves, and what may be seen of a stored value."""

import pytest

from bothy_hermes.store_values import (
    CLAIM_MOVES,
    CLOSED_ENTRIES,
    ENTRY_MOVES,
    ENTRY_STARTS,
    ClaimState,
    EntryState,
    OutboxCall,
)
from tests.fakes.store_kit import RUN

ENTRY_TABLE = {
    "settled": set(),
    "accepted": {"starting", "finishing", "done"},
    "starting": {"finishing", "done"},
    "finishing": {"done"},
    "done": set(),
}

CLAIM_TABLE = {
    "claimed": {"resolved", "answered"},
    "resolved": {"answered"},
    "answered": set(),
}


@pytest.mark.parametrize(
    ("moves", "states", "expected"),
    [(ENTRY_MOVES, EntryState, ENTRY_TABLE), (CLAIM_MOVES, ClaimState, CLAIM_TABLE)],
    ids=["entry", "claim"],
)
def test_the_moves_are_these(moves, states, expected):
    """Each table has every state and exactly the moves of the specification."""
    assert {str(state): {str(one) for one in moves[state]} for state in states} == expected


def test_a_closed_entry_has_no_move_and_an_open_one_has():
    """What counts as remembered only is exactly what nothing follows."""
    assert {state for state in EntryState if not ENTRY_MOVES[state]} == CLOSED_ENTRIES


def test_every_entry_state_can_be_reached():
    """No state of the table is dead; a run that is refused before its start begins with its end."""
    assert set(ENTRY_STARTS) == {"settled", "accepted", "finishing"}
    reached, waiting = set(), set(ENTRY_STARTS)
    while waiting:
        state = waiting.pop()
        reached.add(state)
        waiting |= ENTRY_MOVES[state] - reached
    assert reached == set(EntryState)


def test_a_call_does_not_show_its_body():
    """What people wrote is in no repr."""
    assert "words" not in repr(OutboxCall("k", RUN, "createMessage", body={"content": "words"}))
