"""How far the work on a run is, and how it can end there."""

import pytest

from bothy_hermes.errors import IllegalMove
from bothy_hermes.run_stages import STAGE_MOVES, START_REFUSALS, TURN_ENDS, Stage, check_stage
from bothy_hermes.runtime import TurnOutcome
from bothy_hermes.wire_words import Outcome

LEGAL = {
    ("accepted", "preparing"),
    ("accepted", "ending"),
    ("preparing", "starting"),
    ("preparing", "ending"),
    ("starting", "turn"),
    ("starting", "ending"),
    ("turn", "ending"),
    ("ending", "over"),
}


@pytest.mark.parametrize("source", list(Stage))
@pytest.mark.parametrize("target", list(Stage))
def test_the_work_moves_forwards_and_never_past_its_end(source, target):
    if (source, target) in LEGAL:
        assert check_stage(source, target) is target
    else:
        with pytest.raises(IllegalMove, match="run work"):
            check_stage(source, target)


def test_every_stage_has_its_moves():
    assert set(STAGE_MOVES) == set(Stage)


@pytest.mark.parametrize("outcome", list(TurnOutcome))
def test_every_end_of_a_turn_ends_its_run(outcome):
    """A failed run has a reason, a completed one none; nothing a turn does cancels a run."""
    found, reason = TURN_ENDS[outcome]
    assert found is not Outcome.CANCELLED
    assert (reason is None) == (found is Outcome.COMPLETED)


def test_a_start_is_refused_for_its_evidence_alone():
    """Those refusals leave the run queued: the adapter ends it with the same word."""
    assert {str(code): str(reason) for code, reason in START_REFUSALS.items()} == {
        "billing_mode_mismatch": "billing_mode_mismatch",
        "tool_class_exceeded": "tool_class_exceeded",
    }
