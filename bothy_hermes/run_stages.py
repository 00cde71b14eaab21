"""How far the work on a run is, and how it can end there.

Layer: rules. The tables that `runs` follows: the legal moves between its stages, what each end of a turn
makes of its run, and which refusals of a start are reasons of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .errors import IllegalMove
from .runtime import TurnOutcome
from .wire_words import Outcome, ProblemCode, Reason


class Stage(StrEnum):
    """How far the work on a run is."""

    ACCEPTED = "accepted"
    PREPARING = "preparing"
    STARTING = "starting"
    TURN = "turn"
    ENDING = "ending"
    OVER = "over"


STAGE_MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.ACCEPTED: frozenset({Stage.PREPARING, Stage.ENDING}),
    Stage.PREPARING: frozenset({Stage.STARTING, Stage.ENDING}),
    Stage.STARTING: frozenset({Stage.TURN, Stage.ENDING}),
    Stage.TURN: frozenset({Stage.ENDING}),
    Stage.ENDING: frozenset({Stage.OVER}),
    Stage.OVER: frozenset(),
}
"""Every legal move of the work on a run."""

TURN_ENDS: Mapping[TurnOutcome, tuple[Outcome, Reason | None]] = {
    TurnOutcome.COMPLETED: (Outcome.COMPLETED, None),
    TurnOutcome.EMPTY: (Outcome.COMPLETED, None),
    TurnOutcome.FAILED: (Outcome.FAILED, Reason.RUNTIME_ERROR),
    TurnOutcome.CANCELLED: (Outcome.FAILED, Reason.INTERRUPTED),
    TurnOutcome.NOT_RUN: (Outcome.FAILED, Reason.RUNTIME_BUSY),
}
"""How a run ends after a turn that nobody else ended."""

START_REFUSALS: Mapping[str | None, Reason] = {
    ProblemCode.BILLING_MODE_MISMATCH: Reason.BILLING_MODE_MISMATCH,
    ProblemCode.TOOL_CLASS_EXCEEDED: Reason.TOOL_CLASS_EXCEEDED,
}
"""Answers to startRun and resumeRun about a run's evidence: the reason with which the adapter ends it."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run is to end, when something other than its turn decided that."""

    outcome: Outcome
    reason: Reason | None


class RunOver(Exception):  # carries a decision through the steps, not an error
    """The run ends here, for a reason that is already known.

    Attributes:
        end: How.
    """

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


def check_stage(source: Stage, target: Stage) -> Stage:
    """Return the stage to enter.

    Raises:
        IllegalMove: The table has no such move.
    """
    if target not in STAGE_MOVES[source]:
        raise IllegalMove("run work", source, target)
    return target
