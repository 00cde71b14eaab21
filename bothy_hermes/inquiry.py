"""One event while it is judged: what is known about it, and how each question is answered.

Layer: flows. Answers the questions that `intake` lists, of which some go to the server (keys, allow list)
and some to Hermes (mode, class). It decides nothing: what an answer means is `intake`'s table, and what
is done about it is `admission`'s part.
"""

from __future__ import annotations

import asyncio
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
from .errors import BothyError, ProblemAnswer, TokenRefused, WireError
from .intake import Answer, Step
from .proof import Proof
from .services import Services
from .tokens import RunClaims, open_token
from .wire import AllowList
from .wire_events import (
    TOKEN_EVENTS,
    Event,
    EventPayload,
    FollowupEvent,
    InteractionEvent,
    Invocation,
    parse_payload,
)
from .wire_words import EventType, TriggerKind

_log = logging.getLogger(LOGGER_NAME)


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
        asked: The question what Hermes would do now, asked once for the event.
        proof: Its answer, None until it is needed.
        taken: Whether it is remembered as decided.
    """

    delivery: Delivery
    arrived_at: float
    event_id: UUID
    kind: EventType | None = None
    event: Event | None = None
    payload: EventPayload | None = None
    claims: RunClaims | None = None
    asked: asyncio.Task[Proof] | None = None
    proof: Proof | None = None
    taken: bool = False

    @property
    def is_believed(self) -> bool:
        """Whether what the payload says is proven, or needs no proof."""
        return self.claims is not None or self.kind not in TOKEN_EVENTS


class Inquirer:
    """Answers the questions about events.

    Args:
        services: Rooms and settings.
        keys: The server's keys.
        agent_id: The expected audience of every token.
        jkt: The thumbprint every token must be bound to, None without a DPoP key.
    """

    def __init__(self, services: Services, keys: KeyRing, *, agent_id: UUID, jkt: str | None) -> None:
        self._services = services
        self._keys = keys
        self._agent_id = agent_id
        self._jkt = jkt
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

    async def ask(self, step: Step, inquiry: Inquiry) -> Answer:
        """Answer one question; what was found stays in the inquiry.

        Raises:
            BothyError: It cannot be answered now, and the event cannot be judged.
        """
        return await self._questions[step](inquiry)

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
            opened = open_token(token)
            keys = await self._keys.keys_for(opened.key_id, inquiry.arrived_at)
            if keys is None:
                return Answer.NO_KEYS
            claims = opened.verify(
                keys,
                issuer=self._services.settings.instance_id,
                audience=self._agent_id,
                jkt=self._jkt,
                now=self._services.api.server_now(),
            )
            self._check_agent(inquiry.event.agent_id, inquiry.payload)
            _check_binding(claims, inquiry.payload)
        except TokenRefused as refusal:
            _log.warning("event %s: %s", inquiry.event_id, refusal)
            return Answer.BAD_TOKEN
        inquiry.claims = claims
        return Answer.PASS

    async def _ask_allow_list(self, inquiry: Inquiry) -> Answer:
        assert inquiry.claims is not None
        inquiry.asked = self._services.prover.asked()  # answered while the server is
        known = self._allow_list
        try:
            fresh = await self._services.api.get_allow_list(
                self._agent_id, known.version if known is not None else None
            )
        except ProblemAnswer as problem:
            return Answer.NO_LIST if problem.status == HTTPStatus.NOT_FOUND else Answer.NO_ANSWER
        except BothyError as error:
            _log.warning("event %s: the allow list could not be asked: %s", inquiry.event_id, error)
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
        assert inquiry.asked is not None  # with the allow list
        inquiry.proof = await asyncio.shield(inquiry.asked)
        return Answer.PASS if inquiry.proof.spends(inquiry.claims.billing_mode) else Answer.DIFFERS

    async def _ask_tool_class(self, inquiry: Inquiry) -> Answer:
        assert inquiry.claims is not None
        assert inquiry.proof is not None
        within = inquiry.proof.stays_within(inquiry.claims.tool_class)
        return Answer.PASS if within else Answer.EXCEEDED

    def _check_agent(self, agent_id: UUID, payload: EventPayload | None) -> None:
        """The audience of the token is the agent that the event and its run are for.

        Raises:
            TokenRefused: They are another's.
        """
        named = {agent_id, payload.run.agent_id if isinstance(payload, Invocation) else agent_id}
        if named != {self._agent_id}:
            raise TokenRefused("binding")


def open_inquiry(delivery: Delivery, arrived_at: float) -> Inquiry | None:
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
