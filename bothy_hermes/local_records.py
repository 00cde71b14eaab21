"""What the embedded server keeps: one frozen record per thing, written and read by the codec.

Layer: default. Records hold wire values where the protocol has one, and beside them what only the
server knows of the thing. They decide nothing; the rules are in `local_rules`.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from .codec import JsonObject, content, wire_type
from .secret import Secret
from .wire import (
    AllowEntry,
    Attachment,
    Cost,
    Heartbeat,
    Message,
    Metrics,
    Run,
    RunDocument,
    Skill,
    Transcript,
)
from .wire_events import Interaction
from .wire_words import ElementKind, InteractionStatus, TitleSource, Trust


class Role(StrEnum):
    """What a person is to the instance."""

    OWNER = "owner"
    MEMBER = "member"
    GUEST = "guest"
    """Writes from outside the members: the text counts as unverified."""


class CardState(StrEnum):
    """How far a card is; `local_rules.CARD_MOVES` holds the legal moves."""

    POSTED = "posted"
    """It can be used; no run waits on it yet, or not any more since it was opened again."""

    OPEN = "open"
    """A run waits on it."""

    ANSWERED = "answered"
    """The run went on after an interaction."""

    CLOSED = "closed"


class FollowupMark(StrEnum):
    """How far a follow-up came, as the server sees it."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    ABSORBED = "absorbed"


@wire_type()
class InstanceRecord:
    """The instance itself. `settings_version` counts the changes that the agent has to know."""

    id: UUID
    settings_version: int
    created_at: datetime
    nonces_required: bool = False


@wire_type()
class KeyRecord:
    """A signing key. A retired one still verifies; a hidden one is not in the published set."""

    kid: str
    private_pem: Secret
    active: bool
    published: bool


@wire_type()
class Person:
    """A person of the instance with the token of the people's side."""

    id: UUID
    name: str = content()
    role: Role
    approve_actions: bool
    token: Secret


@wire_type()
class AgentRecord:
    """The agent, its allow list, and what its credentials are checked against."""

    id: UUID
    name: str = content()
    owner_id: UUID
    token_digest: str
    dpop_jkt: str | None
    allow_version: int
    allow: tuple[AllowEntry, ...]


@wire_type()
class ChannelRecord:
    """A channel. In a served one the agent's runs are operator runs, elsewhere guest runs."""

    id: UUID
    name: str = content()
    served: bool
    prompt: str | None = content()
    skills: tuple[Skill, ...] = content()


@wire_type()
class ThreadRecord:
    """A thread. `epoch` counts the agent's sessions in it, so that a context knows what was delivered."""

    id: UUID
    channel_id: UUID
    title: str | None = content()
    title_source: TitleSource
    version: int
    session_ref: str | None
    session_version: int
    epoch: int
    created_at: datetime
    updated_at: datetime


@wire_type()
class MessageRecord:
    """A message, or another element of a thread's context.

    Attributes:
        asked_mode: The session mode that the writer asked for, for the run that it becomes.
        bind_ref: The session that goes with `bind`.
        followup: None for anything that was never a follow-up.
        followup_of: The run that it came during.
        session_epoch: The session whose turns have had it, None when none has.
        session_run: The run whose turn had it first.
        body_digest: Of the call that made it, to know a repetition.
        late: Whether it came after the run had ended without the agent.
    """

    message: Message
    element: ElementKind
    trust: Trust
    attachments: tuple[Attachment, ...]
    transcripts: tuple[Transcript, ...]
    asked_mode: str | None = None
    bind_ref: str | None = None
    followup: FollowupMark | None = None
    followup_of: UUID | None = None
    session_epoch: int | None = None
    session_run: UUID | None = None
    body_digest: str | None = None
    late: bool = False


@wire_type()
class CardRecord:
    """A card's progress.

    Attributes:
        claim: The accepted single-use interaction since the card could last be used.
        born_disabled: Components that the adapter made disabled; nothing enables them.
    """

    message_id: UUID
    run_id: UUID
    state: CardState
    claim: UUID | None = None
    born_disabled: tuple[UUID, ...] = ()


@wire_type()
class RunRecord:
    """A run and everything about it that is not on the wire.

    Attributes:
        bind_ref: The session that a `bind` run was asked to continue.
        epoch: The thread's session that its turn is in, 0 before the start and for guest runs.
        adapter_id: That of the connection on which the invocation was last sent.
        sent: Whether the invocation was ever sent.
        acked: Whether the invocation was acked.
        waited_ms: How long it could have been started and was not.
        ended_by_server: Whether the adapter did not ask for the end.
        reported: Whether the adapter's finishRun was taken.
    """

    run: Run
    document: RunDocument
    bind_ref: str | None = None
    epoch: int = 0
    adapter_id: UUID | None = None
    sent: bool = False
    acked: bool = False
    waited_ms: int = 0
    ended_by_server: bool = False
    reported: bool = False
    metrics: Metrics | None = None
    costs: tuple[Cost, ...] | None = None


@wire_type()
class InteractionRecord:
    """One use of a component, and the adapter's answer to it."""

    interaction: Interaction
    single_use: bool
    created_at: datetime
    status: InteractionStatus | None = None
    text: str | None = content(default=None)
    acked_at: datetime | None = None


@wire_type()
class EventRecord:
    """An event on its way. What it says is read from the records when it is sent.

    Attributes:
        subject_id: The message of a follow-up, the interaction, the person who ended a run.
        consumer: Fixed for events that belong to no run; the others follow their run's consumer.
        attempt: How often it was sent.
        sent_to: The consumers it was sent to.
        settled_at: When it was acked or withdrawn.
    """

    id: UUID
    type: str
    created_at: datetime
    run_id: UUID | None = None
    thread_id: UUID | None = None
    subject_id: UUID | None = None
    consumer: str | None = None
    attempt: int = 0
    sent_to: tuple[str, ...] = ()
    settled_at: datetime | None = None


@wire_type()
class AdapterSeen:
    """An adapter, and when it was last heard of; None for a consumer without one so far."""

    adapter_id: UUID | None
    seen_at: datetime


@wire_type()
class ConsumerRecord:
    """A consumer that has connected or sent a heartbeat, and the last signs of its adapters."""

    name: str
    adapter_id: UUID | None
    seen_at: datetime
    heartbeat_at: datetime | None = None
    heartbeat: Heartbeat | None = None
    former: tuple[AdapterSeen, ...] = ()


@wire_type()
class FileRecord:
    """A file of a thread; its bytes lie beside the database under the same ID."""

    attachment: Attachment
    thread_id: UUID
    transcript: Transcript | None = None


@wire_type()
class RepeatRecord:
    """The last accepted call of one operation on one resource, to answer its repetition."""

    key: str
    digest: str
    run_id: UUID
    at: datetime
    answer: JsonObject = content()
