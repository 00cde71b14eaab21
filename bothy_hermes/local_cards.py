"""Cards and interactions: what a run waits on, and what people do with it (sections 7 and 10).

Layer: default. A run waits exactly while one of its cards is open; that is derived here and nowhere
else. The legal moves of a card are `local_rules.CARD_MOVES`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from uuid import UUID

from .local_core import Core
from .local_options import ACK_GRACE_SECONDS
from .local_records import CardRecord, CardState, InteractionRecord, MessageRecord, RunRecord
from .local_rules import (
    Refused,
    check_card_move,
    check_evidence,
    check_values,
    conflict,
    forbidden,
    invalid,
    may_use,
    not_found,
    run_ended,
)
from .wire import AwaitRunInput, Component, InteractionResponse, Message, ResumeRun
from .wire_events import Interaction
from .wire_words import (
    CloseReason,
    EventType,
    InteractionStatus,
    ProblemCode,
    ResumeCause,
    RunState,
)


class Cards:
    """The cards of all runs.

    Args:
        core: Records, clock and options.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    # The adapter's calls ---------------------------------------------------------------------------

    def await_input(self, run: RunRecord, body: AwaitRunInput) -> RunRecord:
        """Open a card: the run waits on it."""
        card = self._card_of(run, body.message_id)
        if card.state is CardState.OPEN:
            raise conflict(ProblemCode.CARD_OPEN, "the run waits on this card already", violation=True)
        if card.state is not CardState.POSTED:
            raise conflict(ProblemCode.CARD_CLOSED, "the card takes no answer any more", violation=True)
        self._move(card, CardState.OPEN)
        if body.status_line is not None:
            document = dataclasses.replace(
                run.document, version=run.document.version + 1, status_line=body.status_line
            )
            run = dataclasses.replace(run, document=document)
        if run.run.state is RunState.RUNNING:
            return self._core.move_run(run, RunState.WAITING_INPUT)
        return self._core.put_run(run)

    def resume(self, run: RunRecord, body: ResumeRun) -> RunRecord:
        """End the wait of one card."""
        card = self._card_of(run, body.message_id)
        self._check_cause(run, card, body)
        check_evidence(run, body.billing_mode, body.tool_class)
        if body.cause is ResumeCause.INTERACTION:
            self._move(card, CardState.ANSWERED)
        else:
            answered = body.cause is ResumeCause.FOLLOWUP
            self._close(card, CloseReason.ANSWERED if answered else CloseReason.EXPIRED)
        if self._core.open_cards(run.run.id):
            return self._core.put_run(run)
        return self._core.move_run(run, RunState.RUNNING)

    def close(self, run: RunRecord, message_id: UUID, reason: CloseReason) -> tuple[Message, bool]:
        """Close a card that the run does not wait on.

        Returns:
            The card, and whether this call closed it.
        """
        card = self._card_of(run, message_id)
        if card.state is CardState.CLOSED:
            return self._state.messages.need(message_id).message, False
        if card.state is CardState.OPEN:
            raise conflict(ProblemCode.CARD_OPEN, "the run waits on this card", violation=True)
        unanswered = self._unanswered(card)
        if unanswered is not None:
            if self._core.passed(unanswered.acked_at, ACK_GRACE_SECONDS):
                raise conflict(
                    ProblemCode.CARD_OPEN, "an interaction was acked and not answered", violation=True
                )
            return self._state.messages.need(message_id).message, False
        return self._close(card, reason).message, True

    def respond(self, run: RunRecord, interaction_id: UUID, body: InteractionResponse) -> InteractionRecord:
        """Take the adapter's answer to an interaction."""
        record = self._state.interactions.get(interaction_id)
        if record is None:
            raise not_found("no such interaction")
        if record.interaction.run_id != run.run.id:
            raise forbidden("the interaction is another run's")
        if record.status is not None:
            raise conflict(ProblemCode.INTERACTION_ANSWERED, "it was answered before", violation=True)
        self._check_response(record, body)
        record = dataclasses.replace(record, status=body.status, text=body.text)
        self._state.interactions.put(interaction_id, record)
        self._state.note("interaction", interaction_id)
        card = self._state.cards.need(record.interaction.message_id)
        if body.reopen and card.claim == interaction_id:
            self._reopen(card)
        return record

    def close_all(self, run_id: UUID) -> None:
        """Close every card of a run that ends: answered ones as answered, the others as cancelled."""
        for card in self._state.cards.group("run", run_id):
            if card.state is not CardState.CLOSED:
                answered = card.state is CardState.ANSWERED
                self._close(card, CloseReason.ANSWERED if answered else CloseReason.CANCELLED)

    # People ----------------------------------------------------------------------------------------

    def use(
        self, person_id: UUID, message_id: UUID, component_id: UUID, values: Sequence[str]
    ) -> InteractionRecord:
        """Take a person's use of a component and put it on its way; refused people use nothing up."""
        person = self._core.person(person_id)
        record = self._core.message(message_id)
        card = self._state.cards.get(message_id)
        component = next((one for one in record.message.components if one.id == component_id), None)
        if card is None or component is None:
            raise Refused(404, ProblemCode.NOT_FOUND, "no such component")
        run = self._core.run(card.run_id)
        if run.run.state.ended:
            raise run_ended()
        if card.state is CardState.CLOSED or component.disabled:
            raise conflict(ProblemCode.CARD_CLOSED, "the component takes no answer any more")
        if not may_use(component, person, run.run.run_starter, self._state.agent.owner_id):
            raise Refused(403, ProblemCode.FORBIDDEN, "this person may not use the component")
        check_values(component, values)
        return self._accept(run, card, component, person_id, values)

    def _accept(
        self, run: RunRecord, card: CardRecord, component: Component, person_id: UUID, values: Sequence[str]
    ) -> InteractionRecord:
        made = InteractionRecord(
            interaction=Interaction(
                id=self._core.clock.new_ordered_id(),
                run_id=run.run.id,
                message_id=card.message_id,
                component_id=component.id,
                custom_id=component.custom_id,
                values=tuple(values),
                operator_id=person_id,
            ),
            single_use=component.single_use,
            created_at=self._core.now(),
        )
        self._state.interactions.put(made.interaction.id, made)
        self._state.note("interaction", made.interaction.id)
        self._core.emit(EventType.INTERACTION, run=run, subject_id=made.interaction.id)
        if component.single_use:
            self._state.cards.put(card.message_id, dataclasses.replace(card, claim=made.interaction.id))
            self._set_disabled(card.message_id, disabled=True)
        return made

    # Steps -----------------------------------------------------------------------------------------

    def _card_of(self, run: RunRecord, message_id: UUID) -> CardRecord:
        message = self._core.message(message_id).message
        if message.run_id != run.run.id:
            raise forbidden("the message is not of this run")
        card = self._state.cards.get(message_id)
        if card is None:
            raise invalid("the message is no card")
        return card

    def _check_cause(self, run: RunRecord, card: CardRecord, body: ResumeRun) -> None:
        with_followup = body.followup_message_id is not None
        if with_followup != (body.cause is ResumeCause.FOLLOWUP):
            raise invalid("followup_message_id belongs to the cause followup, and only there")
        if card.state is not CardState.OPEN:
            raise conflict(ProblemCode.RUN_NOT_WAITING, "the card awaits nothing", violation=True)
        if body.cause is ResumeCause.INTERACTION:
            happened = card.claim is not None
        elif body.cause is ResumeCause.FOLLOWUP:
            message = self._state.messages.get(body.followup_message_id)
            happened = message is not None and message.followup_of == run.run.id
        else:
            happened = True
        if not happened:
            raise conflict(ProblemCode.RUN_NOT_WAITING, "nothing of the cause happened", violation=True)

    def _check_response(self, record: InteractionRecord, body: InteractionResponse) -> None:
        if body.status is InteractionStatus.FAILED:
            return
        if body.reopen:
            raise invalid("reopen belongs to failed")
        card = self._state.cards.need(record.interaction.message_id)
        if record.single_use and card.state in (CardState.OPEN, CardState.POSTED):
            raise conflict(
                ProblemCode.RUN_NOT_WAITING, "acknowledged before the run was resumed", violation=True
            )

    def _unanswered(self, card: CardRecord) -> InteractionRecord | None:
        found = self._state.interactions.group("message", card.message_id)
        return next((one for one in found if one.status is None and one.single_use), None)

    def _reopen(self, card: CardRecord) -> None:
        if card.state is CardState.CLOSED:
            return
        card = dataclasses.replace(card, claim=None)
        if card.state is CardState.ANSWERED:
            self._move(card, CardState.POSTED)
        else:
            self._state.cards.put(card.message_id, card)
        self._set_disabled(card.message_id, disabled=False)
        for operation in ("awaitRunInput", "resumeRun", "closeCard"):
            key = f"{operation}:{card.message_id}"
            if self._state.repeats.get(key) is not None:
                self._state.repeats.delete(key)

    def _move(self, card: CardRecord, state: CardState) -> None:
        check_card_move(card.state, state)
        self._state.cards.put(card.message_id, dataclasses.replace(card, state=state))

    def _close(self, card: CardRecord, reason: CloseReason) -> MessageRecord:
        self._move(card, CardState.CLOSED)
        record = self._state.messages.need(card.message_id)
        message = dataclasses.replace(record.message, closed=reason, version=record.message.version + 1)
        return self._core.put_message(dataclasses.replace(record, message=message))

    def _set_disabled(self, message_id: UUID, *, disabled: bool) -> None:
        fixed = self._state.cards.need(message_id).born_disabled
        record = self._state.messages.need(message_id)
        components = tuple(
            dataclasses.replace(one, disabled=disabled or None)
            if one.single_use and one.id not in fixed
            else one
            for one in record.message.components
        )
        message = dataclasses.replace(
            record.message, components=components, version=record.message.version + 1
        )
        self._core.put_message(dataclasses.replace(record, message=message))
