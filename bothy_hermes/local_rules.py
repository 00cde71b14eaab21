"""The referee: which moves are legal, what is refused with which code, what counts as a violation.

Layer: default. Pure: tables and functions from records to decisions, after docs/protocol.md (the sections
are named). Nothing here changes a record or speaks to anybody; `local_runs`, `local_cards` and their
neighbours carry out what is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from typing import Any
from uuid import UUID

from .errors import BothyError, IllegalMove
from .local_records import CardState, FollowupMark, MessageRecord, Person, Role, RunRecord
from .wire import Component, ComponentCreate, Cost, FinishRun, Part, RunDocument
from .wire_words import (
    RUN_MOVES,
    Capability,
    ComponentKind,
    Outcome,
    ProblemCode,
    Reason,
    Restriction,
    RunState,
    SessionMode,
    ToolClass,
)


class Refused(BothyError):
    """A call that the server does not do.

    Attributes:
        status: The HTTP status of the answer.
        code: The problem's code.
        why: A fixed sentence for the log; never what somebody sent.
        violation: Whether the protocol forbids the adapter to make such a call.
        extra: Further members of the problem.
    """

    def __init__(
        self,
        status: int,
        code: ProblemCode,
        why: str,
        *,
        violation: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, code, why)
        self.status = status
        self.code = code
        self.why = why
        self.violation = violation
        self.extra: Mapping[str, Any] = extra or {}

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.why}"


def conflict(code: ProblemCode, why: str, *, violation: bool = False, **extra: Any) -> Refused:
    """409: the state does not allow it."""
    return Refused(409, code, why, violation=violation, extra=extra)


def invalid(why: str, code: ProblemCode = ProblemCode.VALIDATION_FAILED) -> Refused:
    """422: the request itself is against the protocol."""
    return Refused(422, code, why, violation=True)


def not_found(why: str) -> Refused:
    """404: no such thing."""
    return Refused(404, ProblemCode.NOT_FOUND, why, violation=True)


def forbidden(why: str) -> Refused:
    """403: the token does not serve it."""
    return Refused(403, ProblemCode.FORBIDDEN, why, violation=True)


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that the protocol forbids the adapter and that it did all the same.

    Attributes:
        operation: The operation, or `gateway`.
        reason: A fixed sentence without any content.
    """

    operation: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}"


# Moves ---------------------------------------------------------------------------------------------

CARD_MOVES: Mapping[CardState, frozenset[CardState]] = {
    CardState.POSTED: frozenset({CardState.OPEN, CardState.CLOSED}),
    CardState.OPEN: frozenset({CardState.ANSWERED, CardState.CLOSED}),
    CardState.ANSWERED: frozenset({CardState.POSTED, CardState.CLOSED}),
    CardState.CLOSED: frozenset(),
}
"""Every legal move of a card (section 10); ANSWERED to POSTED is `reopen`."""

FOLLOWUP_MOVES: Mapping[FollowupMark, frozenset[FollowupMark]] = {
    FollowupMark.WAITING: frozenset({FollowupMark.DELIVERED, FollowupMark.ABSORBED}),
    FollowupMark.DELIVERED: frozenset({FollowupMark.ABSORBED}),
    FollowupMark.ABSORBED: frozenset(),
}
"""Every legal move of a follow-up (section 7). One that starts a later run is a follow-up no more."""


def check_run_move(source: RunState, target: RunState) -> None:
    """Hold a run to its table.

    Raises:
        IllegalMove: The table lacks the move.
    """
    if target not in RUN_MOVES[source]:
        raise IllegalMove("run", source, target)


def check_card_move(source: CardState, target: CardState) -> None:
    """Hold a card to its table.

    Raises:
        IllegalMove: The table lacks the move.
    """
    if target not in CARD_MOVES[source]:
        raise IllegalMove("card", source, target)


# Calls after the end of a run, and their repetitions (sections 3 and 7) ----------------------------


class AfterEnd(Enum):
    """What a changing call of a run meets when the run has ended."""

    RUN_ENDED = auto()
    """409 `run_ended`, a repetition as well."""

    OPEN = auto()
    """It is judged as if nothing had happened, a repetition first."""

    OWN = auto()
    """The operation has a rule of its own for it; a repetition goes first."""


AFTER_END: Mapping[str, AfterEnd] = {
    "startRun": AfterEnd.RUN_ENDED,
    "updateRun": AfterEnd.RUN_ENDED,
    "updateMessage": AfterEnd.RUN_ENDED,
    "awaitRunInput": AfterEnd.RUN_ENDED,
    "resumeRun": AfterEnd.RUN_ENDED,
    "setThreadTitle": AfterEnd.RUN_ENDED,
    "reportFollowup": AfterEnd.RUN_ENDED,
    "renewRunToken": AfterEnd.OWN,
    "createMessage": AfterEnd.OWN,
    "finishRun": AfterEnd.OWN,
    "reportAgentSession": AfterEnd.OPEN,
    "respondToInteraction": AfterEnd.OPEN,
    "closeCard": AfterEnd.OPEN,
}
"""Every changing operation that a run token serves."""

UNREPEATED = frozenset({"renewRunToken", "putHeartbeat", "createMessage"})
"""Without the general rule of repetitions: createMessage goes by its `client_msg_id`."""


def run_ended() -> Refused:
    """409: the run is over."""
    return conflict(ProblemCode.RUN_ENDED, "the run has ended")


# Evidence (section 11) -----------------------------------------------------------------------------

_CLASS_ORDER = {ToolClass.CHAT: 0, ToolClass.SCOPED: 1, ToolClass.HOST: 2}


def exceeds(actual: str, granted: str) -> bool:
    """Whether a tool class is above what was granted; an unknown one is above every class."""
    unknown = len(_CLASS_ORDER)
    rank = {str(name): order for name, order in _CLASS_ORDER.items()}
    return rank.get(actual, unknown) > rank.get(granted, -1)


def check_evidence(run: RunRecord, billing_mode: str, tool_class: str) -> None:
    """Refuse a turn on other money or with stronger tools than the run allows.

    Raises:
        Refused: 409 with the reason that the adapter then finishes the run with.
    """
    if billing_mode != run.run.billing_mode:
        raise conflict(ProblemCode.BILLING_MODE_MISMATCH, "the billing mode is not the run's")
    if exceeds(tool_class, run.run.tool_class):
        raise conflict(ProblemCode.TOOL_CLASS_EXCEEDED, "the tool class is above the run's")


# Bodies, where the schema alone does not say it (section 4) ----------------------------------------


def check_components(components: Sequence[ComponentCreate]) -> None:
    """Refuse a card that nobody could use.

    Raises:
        Refused: 422 `component_invalid`.
    """
    names = [component.custom_id for component in components]
    if len(set(names)) != len(names):
        raise invalid("two components have one custom_id", ProblemCode.COMPONENT_INVALID)
    for component in components:
        if (component.kind is ComponentKind.SELECT) != (component.options is not None):
            raise invalid("options belong to a select, and only there", ProblemCode.COMPONENT_INVALID)
        values = [option.value for option in component.options or ()]
        if len(set(values)) != len(values):
            raise invalid("two options have one value", ProblemCode.COMPONENT_INVALID)


def check_part(part: Part | None, before: Part | None) -> None:
    """Refuse a part of a long answer that does not follow the one before it.

    Raises:
        Refused: 422.
    """
    if part is None or part.index == 0:
        return
    if before is None or before.last or before.index != part.index - 1:
        raise invalid("a part does not follow the one before it")


def check_document(document: RunDocument, version: int) -> None:
    """Refuse a patched document that breaks what the schema cannot say.

    Raises:
        Refused: 422.
    """
    if document.version != version:
        raise invalid("a patch changed the document's version")
    ids = [step.id for step in document.steps]
    if len(set(ids)) != len(ids):
        raise invalid("two steps have one id")


def check_finish(body: FinishRun, *, any_reason: bool) -> None:
    """Refuse an end that does not say what it has to.

    Args:
        body: The call.
        any_reason: Whether the run was ended by the server, where the reason is not looked at.

    Raises:
        Refused: 422.
    """
    _check_costs(body.costs or ())
    if any_reason:
        return
    if body.outcome is Outcome.FAILED:
        if body.reason not in set(Reason):
            raise invalid("a failed run without a reason that an adapter may give")
    elif body.reason is not None:
        raise invalid("a reason without a failure")


def _check_costs(costs: Iterable[Cost]) -> None:
    rows = [(cost.provider, cost.model, cost.currency) for cost in costs]
    if len(set(rows)) != len(rows):
        raise invalid("two costs for one provider, model and currency")


# People (sections 7, 8 and 10) ---------------------------------------------------------------------


def may_use(component: Component, person: Person, run_starter: UUID, owner_id: UUID) -> bool:
    """Whether a person may use a component: the restriction and the capability, both."""
    restricted = {
        Restriction.RUN_STARTER: person.id == run_starter,
        Restriction.OWNER: person.id == owner_id,
        Restriction.ANYONE: True,
    }[component.restricted_to]
    capable = component.required_capability is not Capability.APPROVE_ACTIONS or person.approve_actions
    return restricted and capable


def check_values(component: Component, values: Sequence[str]) -> None:
    """Refuse a use whose values do not fit the component.

    Raises:
        Refused: 422.
    """
    if component.kind is ComponentKind.BUTTON:
        fits = not values
    else:
        fits = len(values) == 1 and values[0] in {option.value for option in component.options or ()}
    if not fits:
        raise Refused(422, ProblemCode.VALIDATION_FAILED, "the values do not fit the component")


def next_groups(left: Iterable[MessageRecord]) -> list[tuple[MessageRecord, ...]]:
    """Sort what a run left unabsorbed into the next runs: consecutive messages of one author."""
    return [tuple(group) for _, group in groupby(left, key=lambda one: one.message.author.id)]


def session_mode(asked: Iterable[str | None], *, first: bool) -> SessionMode:
    """Choose a run's session mode: the last one asked for, else `new` for the first run, else `resume`."""
    wanted = [one for one in asked if one is not None]
    if wanted:
        return SessionMode(wanted[-1])
    return SessionMode.NEW if first else SessionMode.RESUME


def writes_as_member(person: Person) -> bool:
    """Whether what a person writes counts as a member's text."""
    return person.role is not Role.GUEST
