"""The protocol's events and gateway frames (sections 5 and 6).

Layer: values. An event is read in two steps, its envelope and then its payload by type, so that a
malformed one can still be settled by its ID.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from .codec import (
    JsonObject,
    Size,
    Text,
    content,
    dump,
    dump_json,
    load_json,
    parse,
    wire_type,
)
from .errors import WireError
from .secret import Secret
from .wire import (
    AgentSession,
    ConsumerName,
    Count,
    FromOne,
    ReasonText,
    Release,
    Run,
    SessionModeText,
    Software,
    TriggerKindText,
    Version,
)
from .wire_words import (
    CONTENT_EXCERPT_CHARS,
    MAX_CUSTOM_ID_CHARS,
    MAX_LISTED_RUNS,
    EventType,
    RunState,
)


@wire_type()
class Event:
    """What the gateway delivers, at least once. `payload` is read by its type, see `parse_payload`."""

    id: UUID
    type: str
    created_at: datetime
    attempt: FromOne
    agent_id: UUID
    token: Secret | None = None
    payload: JsonObject = content()


@wire_type()
class Invocation:
    """A run that the agent is asked to do."""

    run: Run
    message_id: UUID
    content_excerpt: Annotated[str, Text(max_chars=CONTENT_EXCERPT_CHARS)] = content()
    trigger_kind: TriggerKindText
    session_mode: SessionModeText
    agent_session: AgentSession
    settings_version: Version


@wire_type()
class FollowupEvent:
    """A message that came while a run was active."""

    run_id: UUID
    thread_id: UUID
    message_id: UUID
    author_id: UUID
    run_state: RunState


@wire_type()
class Interaction:
    """One person's use of one component."""

    id: UUID
    run_id: UUID
    message_id: UUID
    component_id: UUID
    custom_id: Annotated[str, Text(1, MAX_CUSTOM_ID_CHARS)]
    values: tuple[str, ...] = content()
    operator_id: UUID


@wire_type()
class InteractionEvent:
    """The payload of `interaction.created`."""

    interaction: Interaction


@wire_type()
class RunEndedEvent:
    """A run ended without the adapter's asking."""

    run_id: UUID
    thread_id: UUID
    state: RunState
    reason: ReasonText | None
    by: UUID | None


@wire_type()
class ConfigChangedEvent:
    """The server's settings of the agent changed."""

    settings_version: Version


EventPayload = Invocation | FollowupEvent | InteractionEvent | RunEndedEvent | ConfigChangedEvent

PAYLOADS: Mapping[EventType, type[Any]] = {
    EventType.INVOCATION: Invocation,
    EventType.FOLLOWUP: FollowupEvent,
    EventType.INTERACTION: InteractionEvent,
    EventType.RUN_ENDED: RunEndedEvent,
    EventType.CONFIG_CHANGED: ConfigChangedEvent,
}
"""The payload's type of each event type."""

TOKEN_EVENTS = frozenset({EventType.INVOCATION, EventType.FOLLOWUP, EventType.INTERACTION})
"""Event types that carry a run token."""


def parse_payload(event: Event) -> EventPayload | None:
    """Read an event's payload by its type; None for a type this version does not know.

    Raises:
        WireError: The payload does not follow the protocol, or a token is missing.
    """
    if event.type not in PAYLOADS:
        return None
    kind = EventType(event.type)
    if kind in TOKEN_EVENTS and event.token is None:
        raise WireError("token", "is missing")
    payload: EventPayload = parse(PAYLOADS[kind], event.payload, "payload")
    return payload


@wire_type()
class ListedRun:
    """A run that has not ended, as the adapter finds it after a restart."""

    run: Run
    invocation: Invocation
    open_cards: tuple[UUID, ...]
    adapter_id: UUID | None
    adapter_seen_at: datetime | None


@wire_type()
class RunList:
    """The runs of an agent, oldest first."""

    runs: Annotated[tuple[ListedRun, ...], Size(0, MAX_LISTED_RUNS)]


# Frames


@wire_type()
class HelloSettings:
    """Limits that this server sets."""

    run_update_min_interval_ms: Count
    max_content_bytes: FromOne
    costs_enabled: bool


@wire_type()
class Hello:
    """The server's first frame."""

    server_time: datetime
    protocol_version: int
    ack_timeout_ms: FromOne
    heartbeat_interval_ms: FromOne
    max_in_flight: FromOne
    settings: HelloSettings


@wire_type()
class Identify:
    """The adapter's first frame."""

    consumer: ConsumerName
    adapter_id: UUID
    protocol_version: int
    adapter: Release
    runtime: Software
    max_active_runs: FromOne


@wire_type()
class Ready:
    """The server takes the connection; `pending` events wait."""

    pending: Count


@wire_type()
class EventFrame:
    """One delivery. The event is read apart, so that a malformed one can still be acked."""

    event: JsonObject = content()


@wire_type()
class Ack:
    """The event was decided for good."""

    event_id: UUID


@wire_type()
class Goodbye:
    """The server is about to close the connection."""

    code: int
    reconnect: bool


Frame = Hello | Identify | Ready | EventFrame | Ack | Goodbye

SERVER_FRAMES: Mapping[str, type[Any]] = {
    "hello": Hello,
    "ready": Ready,
    "event": EventFrame,
    "goodbye": Goodbye,
}
"""Frames that a server sends, by `op`."""

ADAPTER_FRAMES: Mapping[str, type[Any]] = {"identify": Identify, "ack": Ack}
"""Frames that an adapter sends, by `op`."""

_OPS = {kind: op for table in (SERVER_FRAMES, ADAPTER_FRAMES) for op, kind in table.items()}


def frame_op(frame: Frame) -> str:
    """The `op` under which a frame travels."""
    return _OPS[type(frame)]


def dump_frame(frame: Frame) -> str:
    """Write one frame as it travels."""
    return dump_json({"op": frame_op(frame), **dump(frame)})


def parse_frame(text: str, table: Mapping[str, type[Any]]) -> Frame:
    """Read one frame.

    Args:
        text: The WebSocket message.
        table: `SERVER_FRAMES` or `ADAPTER_FRAMES`, what the other side may send.

    Raises:
        WireError: No JSON object, an `op` that the table lacks, or unusable members.
    """
    value = load_json(text)
    if not isinstance(value, Mapping):
        raise WireError("", "expected an object")
    op = value.get("op")
    if not isinstance(op, str) or op not in table:
        raise WireError("op", "is none of the known frames")
    frame: Frame = parse(table[op], value)
    return frame
