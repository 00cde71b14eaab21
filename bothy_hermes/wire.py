"""The protocol's values: what answers and request bodies hold, each member with its limits.

Layer: values. With `wire_words` (enumerations, limits), `wire_events` (events, frames) and
`wire_operations` (the calls) the one source of truth of the protocol for client and embedded
server; docs/protocol.md is the text it follows, and section numbers are that page's. `codec` reads
and writes these values, `wire_schema` prints them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from .codec import JsonObject, Known, Range, Size, Text, content, omittable, wire_type
from .secret import Secret
from .wire_words import (
    MAX_CLIENT_MSG_ID_CHARS,
    MAX_COMPONENTS,
    MAX_CONTENT_BYTES,
    MAX_CUSTOM_ID_CHARS,
    MAX_EXCERPT_CHARS,
    MAX_LABEL_CHARS,
    MAX_OPTION_VALUE_CHARS,
    MAX_PATCH_OPERATIONS,
    MAX_RESPONSE_CHARS,
    MAX_STATUS_CHARS,
    MAX_STEP_TITLE_CHARS,
    MAX_STEPS,
    MAX_TITLE_CHARS,
    BillingMode,
    BindFailure,
    Capability,
    CloseReason,
    ComponentKind,
    ComponentStyle,
    DegradedReason,
    ElementKind,
    EvidenceMethod,
    FollowupState,
    HeartbeatState,
    InteractionStatus,
    KeyType,
    MessageKind,
    MessageRole,
    Outcome,
    PrincipalKind,
    Reason,
    Restriction,
    ResumeCause,
    RunKind,
    RunState,
    ScanStatus,
    ServerReason,
    SessionMode,
    StepKind,
    StepState,
    TitleSource,
    ToolClass,
    TriggerKind,
    Trust,
)

MAX_WHOLE_NUMBER = 2**53 - 1
"""Up to here all readers of JSON agree about a number (RFC 8259, section 6), and a state file can hold it."""

ConsumerName = Annotated[str, Text(1, 100, pattern=r"[A-Za-z0-9._-]+")]
Count = Annotated[int, Range(0, MAX_WHOLE_NUMBER)]
Version = Annotated[int, Range(0, MAX_WHOLE_NUMBER)]
FromOne = Annotated[int, Range(1, MAX_WHOLE_NUMBER)]
ClientMessageId = Annotated[str, Text(1, MAX_CLIENT_MSG_ID_CHARS)]
Content = Annotated[str, Text(max_bytes=MAX_CONTENT_BYTES)]
StatusLine = Annotated[str, Text(max_chars=MAX_STATUS_CHARS)]
TriggerKindText = Annotated[str, Known(tuple(TriggerKind))]
SessionModeText = Annotated[str, Known(tuple(SessionMode))]
ToolClassText = Annotated[str, Known(tuple(ToolClass))]
ReasonText = Annotated[str, Known((*Reason, *ServerReason))]


# Values that several bodies share -----------------------------------------------------------------


@wire_type()
class Principal:
    """A person or an agent."""

    id: UUID
    kind: PrincipalKind
    display_name: str = content()


@wire_type()
class Evidence:
    """What kind of credential the next turn spends with; never a value of it (section 11)."""

    provider: str | None = None
    key_type: KeyType
    method: EvidenceMethod


@wire_type()
class AgentSession:
    """The Hermes session that the server names for the thread; version 0 means none yet."""

    external_session_ref: str | None
    version: Version


@wire_type()
class Run:
    """One piece of work of an agent in a thread (section 7)."""

    id: UUID
    thread_id: UUID
    channel_id: UUID
    agent_id: UUID
    run_starter: UUID
    kind: RunKind
    trigger_kind: TriggerKindText
    trigger_message_id: UUID | None
    state: RunState
    reason: ReasonText | None
    session_mode: SessionModeText
    tool_class: ToolClassText
    billing_mode: BillingMode
    consumer: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@wire_type(closed=True)
class StepDetail:
    """More about a step: only what Hermes itself would have shown."""

    preview: str = content()


@wire_type(closed=True)
class Step:
    """One line of the live box."""

    id: Annotated[str, Text(1, MAX_CUSTOM_ID_CHARS)]
    kind: StepKind
    title: Annotated[str, Text(max_chars=MAX_STEP_TITLE_CHARS)] = content()
    state: StepState
    started_at: datetime | None = None
    finished_at: datetime | None = None
    detail: StepDetail | None = None


@wire_type(closed=True)
class RunDocument:
    """The live box: what people watch while a run works. Version counts from 1."""

    version: FromOne
    status_line: StatusLine | None = content(default=None)
    steps: Annotated[tuple[Step, ...], Size(0, MAX_STEPS)]
    last_text_excerpt: Annotated[str, Text(max_chars=MAX_EXCERPT_CHARS)] | None = content(default=None)


@wire_type()
class RunView:
    """A run with its live box and the cards that await an answer."""

    run: Run
    document: RunDocument
    open_cards: tuple[UUID, ...]


@wire_type()
class Option:
    """One choice of a select."""

    value: Annotated[str, Text(1, MAX_OPTION_VALUE_CHARS)]
    label: Annotated[str, Text(1, MAX_LABEL_CHARS)] = content()


@wire_type()
class ComponentCreate:
    """A component as the adapter asks for it."""

    custom_id: Annotated[str, Text(1, MAX_CUSTOM_ID_CHARS)]
    kind: ComponentKind
    label: Annotated[str, Text(1, MAX_LABEL_CHARS)] = content()
    style: ComponentStyle | None = None
    options: Annotated[tuple[Option, ...], Size(1)] | None = None
    single_use: bool
    restricted_to: Restriction
    required_capability: Capability | None = None
    disabled: bool | None = None


@wire_type()
class Component:
    """A component as the server keeps it, with the ID it made."""

    id: UUID
    custom_id: Annotated[str, Text(1, MAX_CUSTOM_ID_CHARS)]
    kind: ComponentKind
    label: Annotated[str, Text(1, MAX_LABEL_CHARS)] = content()
    style: ComponentStyle | None = None
    options: tuple[Option, ...] | None = None
    single_use: bool
    restricted_to: Restriction
    required_capability: Capability | None = None
    disabled: bool | None = None


@wire_type()
class Part:
    """Which part of a long answer a message is; `index` counts from 0."""

    index: Count
    last: bool


@wire_type()
class Message:
    """A message as the server keeps it."""

    id: UUID
    thread_id: UUID
    run_id: UUID | None
    kind: MessageKind
    role: MessageRole | None
    content: str = content()
    part: Part | None
    reply_to: UUID | None
    author: Principal
    components: tuple[Component, ...]
    version: Version
    client_msg_id: str | None
    closed: CloseReason | None
    created_at: datetime


# Answers of reads ---------------------------------------------------------------------------------


@wire_type()
class Me:
    """Who the token belongs to."""

    id: UUID
    kind: PrincipalKind
    display_name: str = content()
    owner_id: UUID | None
    instance_id: UUID
    dpop_jkt: str | None
    settings_version: Version


@wire_type()
class KeySetBody:
    """The server's public keys as a JWK set."""

    keys: tuple[JsonObject, ...]


@wire_type()
class AllowEntry:
    """For which kinds of runs a principal may address the agent."""

    principal_id: UUID
    run_kinds: tuple[RunKind, ...]


@wire_type()
class AllowList:
    """Who may address the agent; nobody else may, the owner included."""

    version: Version
    entries: tuple[AllowEntry, ...]

    def allows(self, principal: UUID, kind: RunKind) -> bool:
        """Whether a principal may open runs of a kind."""
        return any(one.principal_id == principal and kind in one.run_kinds for one in self.entries)


@wire_type()
class Skill:
    """A text that a channel's manager gives the agent."""

    name: str = content()
    text: str = content()


@wire_type()
class ServedChannelConfig:
    """What the managers of a served channel tell the agent."""

    settings_version: Version
    prompt: str | None = content()
    skills: tuple[Skill, ...]


@wire_type()
class ThreadView:
    """A thread in a context; `version` changes with title and title_source only."""

    id: UUID
    title: str | None = content()
    title_source: TitleSource
    version: Version


@wire_type()
class ChannelView:
    """A channel in a context."""

    id: UUID
    name: str = content()


@wire_type()
class Starter:
    """The person who started the run."""

    id: UUID
    display_name: str = content()


@wire_type()
class Attachment:
    """A file of a message."""

    id: UUID
    name: str = content()
    media_type: str = content()
    size_bytes: Count
    scan_status: ScanStatus


@wire_type()
class Transcript:
    """The text of a voice attachment."""

    attachment_id: UUID
    text: str = content()
    trust: Trust


@wire_type()
class ContextElement:
    """One element of a run's context."""

    id: UUID
    kind: ElementKind
    author: Principal | None
    trust: Trust
    created_at: datetime
    already_delivered: bool
    content: str = content()
    attachments: tuple[Attachment, ...]
    transcripts: tuple[Transcript, ...]


@wire_type()
class RunContext:
    """Everything a turn may know of its thread, oldest element first (section 9)."""

    run: Run
    thread: ThreadView
    channel: ChannelView
    starter: Starter
    elements: tuple[ContextElement, ...]
    truncated: bool


# Request bodies and their answers -----------------------------------------------------------------


@wire_type()
class StartRun:
    """The evidence with which a run starts."""

    billing_mode: BillingMode
    billing_evidence: Evidence
    tool_class: ToolClassText


@wire_type()
class ResumeRun:
    """The evidence with which a waiting run goes on, and why it does."""

    cause: ResumeCause
    message_id: UUID
    followup_message_id: UUID | None = None
    billing_mode: BillingMode
    billing_evidence: Evidence
    tool_class: ToolClassText


@wire_type()
class TokenAnswer:
    """A renewed run token."""

    token: Secret


@wire_type()
class UpdateRun:
    """A JSON Patch of the run document and the version it was computed from."""

    base_version: FromOne
    patch: Annotated[tuple[JsonObject, ...], Size(0, MAX_PATCH_OPERATIONS)] = content()


@wire_type()
class DocumentVersion:
    """The run document's version after a patch."""

    version: FromOne


@wire_type()
class CreateMessage:
    """A message of a run. The same `client_msg_id` is the same message, however often it is sent."""

    client_msg_id: ClientMessageId
    kind: MessageKind
    role: MessageRole
    content: Content = content()
    reply_to: UUID | None = None
    part: Part | None = None
    components: Annotated[tuple[ComponentCreate, ...], Size(0, MAX_COMPONENTS)] | None = None


@wire_type()
class UpdateMessage:
    """A new content of an own text message."""

    content: Content = content()


@wire_type()
class AwaitRunInput:
    """The card that the run waits on."""

    message_id: UUID
    status_line: StatusLine | None = content(default=None)


@wire_type()
class CloseCard:
    """Why a card takes no answer any more."""

    reason: CloseReason


@wire_type()
class Followup:
    """How far a follow-up came; request and answer."""

    state: FollowupState


@wire_type()
class InteractionResponse:
    """The adapter's answer to an interaction."""

    status: InteractionStatus
    text: Annotated[str, Text(max_chars=MAX_RESPONSE_CHARS)] | None = content(default=None)
    reopen: bool | None = None


@wire_type()
class InteractionView:
    """An interaction after it was answered."""

    id: UUID
    status: InteractionStatus
    text: str | None = content()


@wire_type()
class Metrics:
    """What a run took; None is unknown."""

    duration_ms: Count | None = None
    model_requests: Count | None = None
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cache_read: Count | None = None
    tokens_cache_write: Count | None = None


@wire_type()
class Cost:
    """What one provider's model cost in one currency; `amount_micros` in millionths, None unknown."""

    provider: str
    model: str
    currency: Annotated[str, Text(3, 3, pattern="[A-Z]{3}")]
    tokens_in: Count | None = None
    tokens_out: Count | None = None
    tokens_cache_read: Count | None = None
    tokens_cache_write: Count | None = None
    amount_micros: Count | None = None
    estimated: bool


@wire_type()
class FinishRun:
    """How a run ended. `costs` is None where the server books none."""

    outcome: Outcome
    reason: Annotated[str, Known(tuple(Reason))] | None = None
    metrics: Metrics
    costs: tuple[Cost, ...] | None = None


@wire_type()
class ReportAgentSession:
    """The Hermes session that a thread's turn ran on."""

    external_session_ref: str
    started: bool
    bind_failed: BindFailure | None = None


@wire_type()
class SetThreadTitle:
    """The title that Hermes gave the conversation."""

    title: Annotated[str, Text(1, MAX_TITLE_CHARS)] = content()


# Heartbeat (section 12): closed on every level, optional members are left out ---------------------


@wire_type(closed=True)
class Capabilities:
    """What the adapter can do at this moment."""

    components: bool
    clarify: bool
    approvals: bool
    title: bool
    followups: bool


@wire_type(closed=True)
class Release:
    """A program whose version is known: the adapter itself."""

    name: str
    version: str


@wire_type(closed=True)
class Software:
    """A program and its version, which is left out where it cannot be told."""

    name: str
    version: str | None = omittable()


@wire_type(closed=True)
class HeartbeatEvidence:
    """The evidence of the mode that the adapter reports."""

    provider: str | None = omittable()
    key_type: KeyType
    method: EvidenceMethod


@wire_type(closed=True)
class HeartbeatDetails:
    """How the adapter is, in detail."""

    degraded_reasons: tuple[DegradedReason, ...] | None = omittable()
    capabilities: Capabilities
    active_runs: Count
    adapter: Release
    runtime: Software
    protocol_version: int


@wire_type(closed=True)
class Heartbeat:
    """The adapter's sign of life, schema `agent_heartbeat.v1`."""

    state: HeartbeatState
    runtime_version: str | None = omittable()
    reported_billing_mode: BillingMode | None = omittable()
    billing_modes_supported: tuple[BillingMode, ...] | None = omittable()
    billing_evidence: HeartbeatEvidence
    reported_tool_class: ToolClassText
    details: HeartbeatDetails
