"""Judging one delivered event and carrying the verdict out.

Layer: flows. Asks the questions that `intake` lists, in its order, and does what its verdict says:
remember durably first, ack then, work last. An event that cannot be judged now is neither remembered
nor acked, so that the server delivers it again.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from .bothy_gateway import Delivery
from .bothy_keys import KeyRing
from .codec import parse
from .defaults import LOGGER_NAME
from .errors import ProblemAnswer, StateError, TokenRefused, TransportError, WireError
from .handler import Handler
from .intake import ACCEPTED, STEPS, Action, Answer, Step, Verdict, judge
from .proof import Proof
from .run_calls import finish_call, response_call
from .run_cards import NOT_BELIEVED, failed
from .services import Services
from .store import EntryState, InboxEntry, OutboxCall, Taken
from .tokens import RunClaims, key_id, verify_run_token
from .wire import AllowList, FinishRun, Metrics
from .wire_events import (
    ConfigChangedEvent,
    Event,
    EventPayload,
    FollowupEvent,
    InteractionEvent,
    Invocation,
    RunEndedEvent,
    parse_payload,
)
from .wire_words import EventType, Outcome, TriggerKind

_log = logging.getLogger(LOGGER_NAME)

MALFORMED_TYPE = "malformed"
"""The type under which an event is remembered whose own cannot be read."""


WORKING = frozenset({EventType.INVOCATION, EventType.INTERACTION})
"""Events that are remembered as open until something was done for them."""


@dataclass(slots=True)
class Inquiry:
    """One event while it is judged.

    Attributes:
        delivery: The delivery, for the ack.
        arrived_at: When it arrived, on the monotonic clock.
        event_id: The event's ID.
        kind: Its type, None for a malformed event or a type of another version.
        event: The envelope, None when it is malformed.
        payload: The payload, None until it was read.
        claims: What the token proves, None until it was verified.
        proof: What Hermes would do now, asked once for the event.
    """

    delivery: Delivery
    arrived_at: float
    event_id: UUID
    kind: EventType | None = None
    event: Event | None = None
    payload: EventPayload | None = None
    claims: RunClaims | None = None
    proof: Proof | None = None


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
        self._keys = keys
        self._handler = handler
        self._agent_id = agent_id
        self._jkt = jkt
        self._config_changed = config_changed
        self._allow_list: AllowList | None = None
        self._questions: Mapping[Step, Callable[[Inquiry], Awaitable[Answer]]] = {
            Step.SCHEMA: self._ask_schema,
            Step.KNOWN: self._ask_known,
            Step.TOKEN: self._ask_token,
            Step.ALLOW_LIST: self._ask_allow_list,
            Step.TRIGGER: self._ask_trigger,
            Step.BILLING_MODE: self._ask_billing_mode,
            Step.TOOL_CLASS: self._ask_tool_class,
        }
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
        inquiry = _open(delivery, arrived_at)
        if inquiry is None:
            return
        try:
            if inquiry.kind is None:
                await self._put_aside(inquiry)
                return
            verdict = await self._judge(inquiry, inquiry.kind)
            await self._actions[verdict.action](inquiry, verdict)
        except StateError as error:
            _log.error("event %s: left for redelivery: %s", inquiry.event_id, error)

    async def _put_aside(self, inquiry: Inquiry) -> None:
        """An event without a type of this version: a malformed one is settled, a new one ignored."""
        if inquiry.event is None:
            await self._remember(inquiry, self._entry(inquiry, EntryState.SETTLED))
        else:
            _log.info("event %s: a type of another version is ignored", inquiry.event_id)
            await inquiry.delivery.ack(inquiry.event_id)

    async def _judge(self, inquiry: Inquiry, kind: EventType) -> Verdict:
        for step in STEPS[kind]:
            answer = await self._questions[step](inquiry)
            verdict = judge(kind, step, answer)
            if verdict is not None:
                _log.info("event %s (%s): %s -> %s", inquiry.event_id, kind, answer, verdict.action)
                return verdict
        return ACCEPTED

    # Questions ------------------------------------------------------------------------------------

    async def _ask_schema(self, inquiry: Inquiry) -> Answer:
        assert inquiry.event is not None
        try:
            inquiry.payload = parse_payload(inquiry.event)
        except WireError as error:
            _log.warning("event %s: malformed: %s", inquiry.event_id, error)
            return Answer.MALFORMED
        return Answer.PASS

    async def _ask_known(self, inquiry: Inquiry) -> Answer:
        entry = await self._services.store.entry(inquiry.event_id)
        return Answer.PASS if entry is None else Answer.KNOWN

    async def _ask_token(self, inquiry: Inquiry) -> Answer:
        assert inquiry.event is not None
        token = inquiry.event.token
        assert token is not None  # parse_payload refuses these event types without one
        try:
            keys = await self._keys.keys_for(key_id(token), inquiry.arrived_at)
            if keys is None:
                return Answer.NO_KEYS
            inquiry.claims = verify_run_token(
                token,
                keys,
                issuer=self._services.settings.instance_id,
                audience=self._agent_id,
                jkt=self._jkt,
                now=self._services.api.server_now(),
            )
            _check_binding(inquiry.claims, inquiry.payload)
        except TokenRefused as refusal:
            _log.warning("event %s: %s", inquiry.event_id, refusal)
            return Answer.BAD_TOKEN
        return Answer.PASS

    async def _ask_allow_list(self, inquiry: Inquiry) -> Answer:
        assert inquiry.claims is not None
        known = self._allow_list
        try:
            fresh = await self._services.api.get_allow_list(
                self._agent_id, known.version if known is not None else None
            )
        except ProblemAnswer as problem:
            return Answer.NO_LIST if problem.status == HTTPStatus.NOT_FOUND else Answer.NO_ANSWER
        except (TransportError, WireError):
            return Answer.NO_ANSWER
        self._allow_list = listed = fresh or known
        if listed is None:
            return Answer.NO_ANSWER  # "not modified" of a list nobody has
        allowed = listed.allows(inquiry.claims.sub, inquiry.claims.run_kind)
        return Answer.PASS if allowed else Answer.NOT_LISTED

    async def _ask_trigger(self, inquiry: Inquiry) -> Answer:
        assert isinstance(inquiry.payload, Invocation)
        kinds = {inquiry.payload.trigger_kind, inquiry.payload.run.trigger_kind}
        return Answer.PASS if kinds == {TriggerKind.MESSAGE} else Answer.NOT_A_MESSAGE

    async def _ask_billing_mode(self, inquiry: Inquiry) -> Answer:
        assert inquiry.claims is not None
        inquiry.proof = await self._services.prover.now()
        return Answer.PASS if inquiry.proof.spends(inquiry.claims.billing_mode) else Answer.DIFFERS

    async def _ask_tool_class(self, inquiry: Inquiry) -> Answer:
        assert inquiry.claims is not None
        assert inquiry.proof is not None
        within = inquiry.proof.stays_within(inquiry.claims.tool_class)
        return Answer.PASS if within else Answer.EXCEEDED

    # Actions --------------------------------------------------------------------------------------

    async def _accept(self, inquiry: Inquiry, _verdict: Verdict) -> None:
        working = inquiry.kind in WORKING
        entry = self._entry(inquiry, EntryState.ACCEPTED if working else EntryState.SETTLED)
        if await self._remember(inquiry, entry):
            await self._do(inquiry, entry)

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
            # The token's ID belongs to another event: whatever the token says is not believed.
            _log.warning("event %s: run token refused (replayed)", inquiry.event_id)
            await self._services.store.take_event(_without_token(entry))
        await inquiry.delivery.ack(inquiry.event_id)
        return taken is Taken.NEW

    def _entry(self, inquiry: Inquiry, state: EntryState) -> InboxEntry:
        run_id, thread_id = _of_run(inquiry.payload)
        return InboxEntry(
            event_id=inquiry.event_id,
            event_type=inquiry.kind or MALFORMED_TYPE,
            run_id=run_id,
            thread_id=thread_id,
            jti=inquiry.claims.jti if inquiry.claims is not None else None,
            state=state,
            created_at=self._services.clock.now(),
            subject_id=_subject(inquiry.payload),
        )


def _open(delivery: Delivery, arrived_at: float) -> Inquiry | None:
    """Read the envelope; None when not even the event's ID can be read."""
    try:
        event = parse(Event, delivery.event)
    except WireError as error:
        event_id = _id_of(delivery.event)
        _log.warning("event %s: malformed: %s", event_id or "without an ID", error)
        if event_id is None:
            return None
        return Inquiry(delivery, arrived_at, event_id)
    kind = EventType(event.type) if event.type in list(EventType) else None
    return Inquiry(delivery, arrived_at, event.id, kind, event)


def _id_of(event: Mapping[str, Any]) -> UUID | None:
    try:
        return UUID(str(event.get("id")))
    except ValueError:
        return None


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


def _check_binding(claims: RunClaims, payload: EventPayload | None) -> None:
    """The token must speak of the same run, thread and person as the payload.

    Raises:
        TokenRefused: It speaks of something else.
    """
    said: tuple[object, ...]
    proven: tuple[object, ...]
    match payload:
        case Invocation():
            run = payload.run
            said = (run.id, run.thread_id, run.channel_id, run.kind, run.run_starter)
            proven = (claims.run_id, claims.thread_id, claims.channel_id, claims.run_kind, claims.sub)
        case FollowupEvent():
            said = (payload.run_id, payload.thread_id, payload.author_id)
            proven = (claims.run_id, claims.thread_id, claims.sub)
        case InteractionEvent():
            said = (payload.interaction.run_id, payload.interaction.operator_id)
            proven = (claims.run_id, claims.sub)
        case _:
            return
    if said != proven:
        raise TokenRefused("binding")


def _without_token(entry: InboxEntry) -> InboxEntry:
    return dataclasses.replace(entry, jti=None, state=EntryState.SETTLED)
