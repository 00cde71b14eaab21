"""Judging one delivered event and carrying the verdict out.

Layer: flows. Has the questions that `intake` lists answered (`inquiry`), in its order, and does what its
verdict says: remember durably first, ack then, work last. An event that cannot be judged now is neither
remembered nor acked, so that the server delivers it again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from .bothy_gateway import Delivery
from .bothy_keys import KeyRing
from .defaults import LOGGER_NAME
from .errors import BothyError, StateError
from .handler import Handler
from .inquiry import Inquirer, Inquiry, open_inquiry
from .intake import ACCEPTED, STEPS, Action, Answer, Step, Verdict, judge
from .run_calls import finish_call, response_call
from .run_cards import NOT_BELIEVED, failed
from .services import Services
from .store import EntryState, InboxEntry, OutboxCall, Taken
from .wire import FinishRun, Metrics
from .wire_events import (
    ConfigChangedEvent,
    Event,
    EventPayload,
    FollowupEvent,
    InteractionEvent,
    Invocation,
    RunEndedEvent,
)
from .wire_words import EventType, Outcome

_log = logging.getLogger(LOGGER_NAME)

MALFORMED_TYPE = "malformed"
"""The type under which an event is remembered whose own cannot be read."""

WORKING = frozenset({EventType.INVOCATION, EventType.INTERACTION})
"""Events that are remembered as open until something was done for them."""

FORGETTABLE = frozenset({EntryState.ACCEPTED, EntryState.STARTING})
"""States of an offer that a restart may forget, because the run waits for another adapter."""


class Admission:
    """The one place where events are taken.

    Args:
        services: Rooms and settings.
        keys: The server's keys.
        handler: What is done for accepted events.
        agent_id: The expected audience of every token.
        jkt: The thumbprint every token must be bound to, None without a DPoP key.
        config_changed: Called for `agent.config_changed`.
    """

    def __init__(
        self,
        services: Services,
        keys: KeyRing,
        handler: Handler,
        *,
        agent_id: UUID,
        jkt: str | None,
        config_changed: Callable[[], None],
    ) -> None:
        self._services = services
        self._handler = handler
        self._config_changed = config_changed
        self._inquirer = Inquirer(services, keys, agent_id=agent_id, jkt=jkt)
        self._actions: Mapping[Action, Callable[[Inquiry, Verdict], Awaitable[None]]] = {
            Action.ACCEPT: self._accept,
            Action.ACK: self._ack_only,
            Action.SETTLE: self._settle,
            Action.FAIL_RUN: self._fail_run,
            Action.STOP_TURN: self._stop_turn,
            Action.REOPEN: self._reopen,
            Action.LEAVE: self._leave,
        }

    async def take(self, delivery: Delivery, arrived_at: float) -> None:
        """Judge one delivery; never raises for what an event can cause.

        Args:
            delivery: The delivered event.
            arrived_at: When it arrived, on the monotonic clock.
        """
        inquiry = open_inquiry(delivery, arrived_at)
        if inquiry is None:
            return
        try:
            if inquiry.kind is None:
                await self._put_aside(inquiry)
                return
            verdict = await self._judge(inquiry, inquiry.kind)
            await self._actions[verdict.action](inquiry, verdict)
        except BothyError as error:
            what = "its work broke off" if inquiry.taken else "left for redelivery"
            _log.error("event %s: %s: %s", inquiry.event_id, what, error)

    async def ack_decided(self, delivery: Delivery) -> bool:
        """Ack an event that was decided for good, without a look at anything but its ID.

        What the last process still owes may be the answer to the very event that it could not ack any
        more: the server takes the answer only after the ack. An offer that was accepted waits: after a
        restart it may have to be forgotten.

        Returns:
            Whether it was acked; otherwise it is to be judged.
        """
        inquiry = open_inquiry(delivery, 0.0)
        if inquiry is None:
            return False
        try:
            entry = await self._services.store.entry(inquiry.event_id)
        except StateError as error:
            _log.error("event %s: left for redelivery: %s", inquiry.event_id, error)
            return False
        if entry is None or (entry.state in FORGETTABLE and entry.event_type == EventType.INVOCATION):
            return False
        await delivery.ack(inquiry.event_id)
        return True

    async def _put_aside(self, inquiry: Inquiry) -> None:
        """An event without a type of this version: a malformed one is settled, a new one ignored."""
        if inquiry.event is None:
            await self._remember(inquiry, self._entry(inquiry, EntryState.SETTLED))
        else:
            _log.info("event %s: a type of another version is ignored", inquiry.event_id)
            await inquiry.delivery.ack(inquiry.event_id)

    async def _judge(self, inquiry: Inquiry, kind: EventType) -> Verdict:
        for step in STEPS[kind]:
            answer = await self._inquirer.ask(step, inquiry)
            verdict = judge(kind, step, answer)
            if verdict is not None:
                _log.info("event %s (%s): %s -> %s", inquiry.event_id, kind, answer, verdict.action)
                return verdict
        return ACCEPTED

    # Actions --------------------------------------------------------------------------------------

    async def _accept(self, inquiry: Inquiry, verdict: Verdict) -> None:
        if await self._is_offered_again(inquiry):
            await self._settle(inquiry, verdict)
            return
        working = inquiry.kind in WORKING
        entry = self._entry(inquiry, EntryState.ACCEPTED if working else EntryState.SETTLED)
        if await self._remember(inquiry, entry):
            await self._do(inquiry, entry)

    async def _is_offered_again(self, inquiry: Inquiry) -> bool:
        """Whether another event has offered the run before: begun twice, it would be done twice."""
        if not isinstance(inquiry.payload, Invocation):
            return False
        entry = await self._services.store.entry_of_run(inquiry.payload.run.id)
        if entry is None or entry.event_id == inquiry.event_id:
            return False
        _log.warning("event %s: another event has offered its run", inquiry.event_id)
        return True

    async def _do(self, inquiry: Inquiry, entry: InboxEntry) -> None:
        payload, event = inquiry.payload, inquiry.event
        assert event is not None
        match payload:
            case Invocation():
                self._handler.begin(entry, payload, event.token)
            case FollowupEvent():
                self._take_token(payload.run_id, event)
                await self._handler.followup(payload)
            case InteractionEvent():
                self._take_token(payload.interaction.run_id, event)
                await self._handler.interaction(entry, payload.interaction, event.token)
            case RunEndedEvent():
                self._handler.run_ended(payload)
            case ConfigChangedEvent():
                self._config_changed()

    def _take_token(self, run_id: UUID, event: Event) -> None:
        if event.token is not None:
            self._handler.take_token(run_id, event.token)

    async def _ack_only(self, inquiry: Inquiry, _verdict: Verdict) -> None:
        await inquiry.delivery.ack(inquiry.event_id)

    async def _settle(self, inquiry: Inquiry, _verdict: Verdict) -> None:
        await self._remember(inquiry, self._entry(inquiry, EntryState.SETTLED))

    async def _fail_run(self, inquiry: Inquiry, verdict: Verdict) -> None:
        assert isinstance(inquiry.payload, Invocation)
        assert inquiry.event is not None
        if await self._is_offered_again(inquiry):
            await self._settle(inquiry, verdict)
            return
        run_id = inquiry.payload.run.id
        end = FinishRun(outcome=Outcome.FAILED, reason=verdict.reason, metrics=Metrics())
        entry = self._entry(inquiry, EntryState.FINISHING)
        if await self._remember(inquiry, entry, finish_call(run_id, end)):
            self._handler.send_leftovers(run_id, inquiry.event.token, entry.event_id)

    async def _stop_turn(self, inquiry: Inquiry, verdict: Verdict) -> None:
        assert isinstance(inquiry.payload, FollowupEvent)
        if await self._remember(inquiry, self._entry(inquiry, EntryState.SETTLED)):
            self._handler.end_run(inquiry.payload.run_id, Outcome.FAILED, verdict.reason)

    async def _reopen(self, inquiry: Inquiry, _verdict: Verdict) -> None:
        """Whoever clicked is not believed; the card is given back, with the run's own token."""
        assert isinstance(inquiry.payload, InteractionEvent)
        used = inquiry.payload.interaction
        response = response_call(used.run_id, used.id, failed(NOT_BELIEVED, reopen=True))
        if await self._remember(inquiry, self._entry(inquiry, EntryState.SETTLED), response):
            self._handler.send_owed(used.run_id)

    async def _leave(self, inquiry: Inquiry, _verdict: Verdict) -> None:
        _log.warning("event %s: left for redelivery", inquiry.event_id)

    async def _remember(self, inquiry: Inquiry, entry: InboxEntry, *calls: OutboxCall) -> bool:
        """Store the decision, ack it, and tell whether it is the first one of this event."""
        taken = await self._services.store.take_event(entry, calls)
        if taken is Taken.REPLAYED:
            await self._disbelieve(inquiry)
            return False
        inquiry.taken = True
        await inquiry.delivery.ack(inquiry.event_id)
        return taken is Taken.NEW

    async def _disbelieve(self, inquiry: Inquiry) -> None:
        """The token's ID belongs to another event: it proves nothing about this one."""
        assert inquiry.kind is not None
        _log.warning("event %s: run token refused (replayed)", inquiry.event_id)
        inquiry.claims = None
        verdict = judge(inquiry.kind, Step.TOKEN, Answer.BAD_TOKEN)
        assert verdict is not None
        await self._actions[verdict.action](inquiry, verdict)

    def _entry(self, inquiry: Inquiry, state: EntryState) -> InboxEntry:
        run_id, thread_id = _of_run(inquiry.payload) if inquiry.is_believed else (None, None)
        return InboxEntry(
            event_id=inquiry.event_id,
            event_type=inquiry.kind or MALFORMED_TYPE,
            run_id=run_id,
            thread_id=thread_id,
            jti=inquiry.claims.jti if inquiry.claims is not None else None,
            state=state,
            created_at=self._services.clock.now(),
            subject_id=_subject(inquiry.payload) if inquiry.is_believed else None,
        )


def _of_run(payload: EventPayload | None) -> tuple[UUID | None, UUID | None]:
    match payload:
        case Invocation():
            return payload.run.id, payload.run.thread_id
        case FollowupEvent() | RunEndedEvent():
            return payload.run_id, payload.thread_id
        case InteractionEvent():
            return payload.interaction.run_id, None
    return None, None


def _subject(payload: EventPayload | None) -> UUID | None:
    return payload.interaction.id if isinstance(payload, InteractionEvent) else None
