"""The order in which an event is judged, as one table.

Layer: rules. `admission` asks the questions and carries the verdicts out; this room only knows which
question comes when and what each answer means (docs/protocol.md, section 6). A step whose answer has
no row lets the event pass to the next step; an event that passes all of them is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .wire_words import EventType, Reason


class Step(StrEnum):
    """The questions, in the order in which they are asked."""

    SCHEMA = "schema"
    KNOWN = "known"
    TOKEN = "token"  # noqa: S105  # a step's name, not a password
    ALLOW_LIST = "allow_list"
    TRIGGER = "trigger"
    BILLING_MODE = "billing_mode"
    TOOL_CLASS = "tool_class"


class Answer(StrEnum):
    """What a question can bring to light beside `PASS`."""

    PASS = "pass"  # noqa: S105  # an answer's name, not a password
    MALFORMED = "malformed"
    KNOWN = "known"
    BAD_TOKEN = "bad_token"  # noqa: S105  # an answer's name, not a password
    NO_KEYS = "no_keys"
    NOT_LISTED = "not_listed"
    NO_LIST = "no_list"
    NO_ANSWER = "no_answer"
    NOT_A_MESSAGE = "not_a_message"
    DIFFERS = "differs"
    EXCEEDED = "exceeded"


class Action(StrEnum):
    """What is done with an event."""

    ACCEPT = "accept"
    """Remember it, ack it, do its work."""
    ACK = "ack"
    """It was decided before: ack it, nothing more."""
    SETTLE = "settle"
    """Remember it as decided, ack it, leave its run alone."""
    FAIL_RUN = "fail_run"
    """Remember it as decided together with the end of its run, ack it; nothing is started."""
    STOP_TURN = "stop_turn"
    """Remember it as decided, ack it, interrupt the run's turn and end the run."""
    REOPEN = "reopen"
    """Remember it as decided, ack it, and give the card back to the people."""
    LEAVE = "leave"
    """Neither remember nor ack it: it will be delivered again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with an event, and with which reason its run ends when it does."""

    action: Action
    reason: Reason | None = None


ACCEPTED = Verdict(Action.ACCEPT)
_ACK = Verdict(Action.ACK)
_SETTLE = Verdict(Action.SETTLE)
_LEAVE = Verdict(Action.LEAVE)

_ANY_EVENT = {
    (Step.SCHEMA, Answer.MALFORMED): _SETTLE,
    (Step.KNOWN, Answer.KNOWN): _ACK,
}
_TOKEN_EVENT = _ANY_EVENT | {
    (Step.TOKEN, Answer.BAD_TOKEN): _SETTLE,
    (Step.TOKEN, Answer.NO_KEYS): _LEAVE,
}

VERDICTS: Mapping[EventType, Mapping[tuple[Step, Answer], Verdict]] = {
    EventType.INVOCATION: _TOKEN_EVENT
    | {
        (Step.ALLOW_LIST, Answer.NOT_LISTED): Verdict(Action.FAIL_RUN, Reason.NOT_ALLOWED),
        (Step.ALLOW_LIST, Answer.NO_LIST): Verdict(Action.FAIL_RUN, Reason.ADAPTER_ERROR),
        (Step.ALLOW_LIST, Answer.NO_ANSWER): _LEAVE,
        (Step.TRIGGER, Answer.NOT_A_MESSAGE): Verdict(Action.FAIL_RUN, Reason.ADAPTER_ERROR),
        (Step.BILLING_MODE, Answer.DIFFERS): Verdict(Action.FAIL_RUN, Reason.BILLING_MODE_MISMATCH),
        (Step.TOOL_CLASS, Answer.EXCEEDED): Verdict(Action.FAIL_RUN, Reason.TOOL_CLASS_EXCEEDED),
    },
    EventType.FOLLOWUP: _TOKEN_EVENT
    | {
        (Step.ALLOW_LIST, Answer.NOT_LISTED): _SETTLE,
        (Step.ALLOW_LIST, Answer.NO_LIST): _SETTLE,
        (Step.ALLOW_LIST, Answer.NO_ANSWER): _LEAVE,
        (Step.BILLING_MODE, Answer.DIFFERS): Verdict(Action.STOP_TURN, Reason.BILLING_MODE_MISMATCH),
        (Step.TOOL_CLASS, Answer.EXCEEDED): Verdict(Action.STOP_TURN, Reason.TOOL_CLASS_EXCEEDED),
    },
    EventType.INTERACTION: _TOKEN_EVENT | {(Step.TOKEN, Answer.BAD_TOKEN): Verdict(Action.REOPEN)},
    EventType.RUN_ENDED: _ANY_EVENT,
    EventType.CONFIG_CHANGED: _ANY_EVENT,
}
"""What an answer means for an event of each type; a pair without a row passes."""

STEPS: Mapping[EventType, tuple[Step, ...]] = {
    EventType.INVOCATION: tuple(Step),
    EventType.FOLLOWUP: tuple(step for step in Step if step is not Step.TRIGGER),
    EventType.INTERACTION: (Step.SCHEMA, Step.KNOWN, Step.TOKEN),
    EventType.RUN_ENDED: (Step.SCHEMA, Step.KNOWN),
    EventType.CONFIG_CHANGED: (Step.SCHEMA, Step.KNOWN),
}
"""Which questions are asked for an event of each type, in this order."""


def judge(kind: EventType, step: Step, answer: Answer) -> Verdict | None:
    """Return the verdict of one answer, None when the event passes to the next step.

    Raises:
        ValueError: The answer does not belong to the step: silence must not count as consent.
    """
    if answer is Answer.PASS:
        return None
    verdict = VERDICTS[kind].get((step, answer))
    if verdict is None:
        raise ValueError(f"{kind}: {answer} is no answer to {step}")
    return verdict
