"""The bodies and answers of the people's side, each member with its limits.

Layer: default. Values that people and agents share (messages, runs, attachments) are the protocol's
own, with what only people see added. Request bodies are closed: an unknown member is a mistake of the
caller and is said. The calls are in `local_people`, and docs/people-api.md shows them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from .codec import Size, Text, content, wire_type
from .local_records import FollowupMark, Role
from .wire import AllowEntry, Attachment, ClientMessageId, Content, Message, Principal, RunView, Skill
from .wire_words import (
    MAX_OPTION_VALUE_CHARS,
    MAX_TITLE_CHARS,
    DegradedReason,
    InteractionStatus,
    SessionMode,
    TitleSource,
)

MAX_NAME_CHARS = 80
"""Characters of a person's, channel's or skill's name: one line beside other things."""

EXCERPT_CHARS = 80
"""Characters of a thread's first message that stand in for a title: one line of a list."""

MAX_FILES = 10
"""Files of one message."""

MAX_SKILLS = 20
"""Skills of one channel: they all enter every turn."""

MAX_REFERENCE_CHARS = 200
"""Characters of a session's name."""

MAX_FILE_NAME_CHARS = 255
"""Characters of a file's name, as most file systems have it."""

Name = Annotated[str, Text(1, MAX_NAME_CHARS, pattern=r"[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f]")]
"""A line that does not end in a space."""

Title = Annotated[str, Text(1, MAX_TITLE_CHARS, pattern=r"[^\x00-\x1f\x7f-\x9f]*")]
FileName = Annotated[str, Text(1, MAX_FILE_NAME_CHARS)]
MediaType = Annotated[str, Text(1, 127, pattern=r"[A-Za-z0-9.+_-]+/[A-Za-z0-9.+_-]+(; ?[ -~]*)?")]


# What people see ----------------------------------------------------------------------------------


@wire_type()
class AgentView:
    """The agent as people see it: one of its consumers has shown a sign of life, has a connection."""

    id: UUID
    display_name: str = content()
    owner_id: UUID
    online: bool
    connected: bool
    degraded_reasons: tuple[DegradedReason, ...]


@wire_type()
class MeView:
    """Who the login token belongs to, and what the page has to know before anything else."""

    id: UUID
    name: str = content()
    role: Role
    approve_actions: bool
    instance_id: UUID
    agent: AgentView
    max_content_bytes: int
    position: int


@wire_type()
class PeopleChannel:
    """A channel; in a served one the agent works by configuration, elsewhere it is a guest."""

    id: UUID
    name: str = content()
    served: bool


@wire_type()
class PeopleThread:
    """A thread; `updated_at` moves with what is written in it, `excerpt` is how its first message begins."""

    id: UUID
    channel_id: UUID
    title: str | None = content()
    excerpt: str | None = content()
    title_source: TitleSource
    version: int
    updated_at: datetime


@wire_type()
class PeopleMessage(Message):
    """A message with what only people see of it.

    `followup` is how far a message came that was written while the agent worked; `late` marks an
    agent's message that came after its run had ended without it.
    """

    attachments: tuple[Attachment, ...]
    followup: FollowupMark | None
    late: bool


@wire_type()
class PeopleInteraction:
    """One person's use of a component, with the agent's answer once there is one."""

    id: UUID
    thread_id: UUID
    run_id: UUID
    message_id: UUID
    component_id: UUID
    operator: Principal
    values: tuple[str, ...] = content()
    status: InteractionStatus | None
    text: str | None = content()
    created_at: datetime


@wire_type()
class ChannelList:
    """Every channel."""

    channels: tuple[PeopleChannel, ...]


@wire_type()
class ThreadList:
    """Every thread, and the runs that have not ended in them."""

    threads: tuple[PeopleThread, ...]
    active_runs: tuple[RunView, ...]
    position: int


@wire_type()
class ThreadPage:
    """A stretch of a thread, oldest message first; `earlier` says whether more comes before it."""

    thread: PeopleThread
    messages: tuple[PeopleMessage, ...]
    runs: tuple[RunView, ...]
    interactions: tuple[PeopleInteraction, ...]
    earlier: bool
    position: int


@wire_type()
class PostedMessage:
    """A person's message, with the run it became or the run that it came during."""

    message: PeopleMessage
    run_id: UUID | None
    followup_of: UUID | None


@wire_type()
class Position:
    """How far the changes have come; a reader starts there."""

    position: int


# What people send ---------------------------------------------------------------------------------


@wire_type(closed=True)
class Nothing:
    """A body without members."""


@wire_type(closed=True)
class NewThread:
    """A thread to begin; without a channel in the first one."""

    channel_id: UUID | None = None
    title: Title | None = content(default=None)


@wire_type(closed=True)
class NewMessage:
    """A message to post. The same `client_msg_id` is the same message, however often it is sent."""

    client_msg_id: ClientMessageId
    content: Content = content()
    session_mode: SessionMode | None = None
    bind_ref: Annotated[str, Text(1, MAX_REFERENCE_CHARS)] | None = None
    attachments: Annotated[tuple[UUID, ...], Size(0, MAX_FILES)] | None = None


@wire_type(closed=True)
class UseComponent:
    """The use of a component: no value for a button, one for a select."""

    component_id: UUID
    values: Annotated[tuple[Annotated[str, Text(1, MAX_OPTION_VALUE_CHARS)], ...], Size(0, 1)] = content()


# The administrator's side -------------------------------------------------------------------------


@wire_type()
class PersonView:
    """A person, without the login token."""

    id: UUID
    name: str = content()
    role: Role
    approve_actions: bool


@wire_type()
class LoginView:
    """A person with the login token, for an owner to hand over."""

    person: PersonView
    token: str = content()


@wire_type()
class AdminChannel:
    """A channel with what the agent is told there."""

    id: UUID
    name: str = content()
    served: bool
    prompt: str | None = content()
    skills: tuple[Skill, ...]


@wire_type()
class AdminView:
    """Everything that an owner can change."""

    people: tuple[PersonView, ...]
    allow_list: tuple[AllowEntry, ...]
    channels: tuple[AdminChannel, ...]
    require_nonces: bool


@wire_type(closed=True)
class NewPerson:
    """A person to add."""

    name: Name = content()
    role: Role = Role.MEMBER
    approve_actions: bool = False


@wire_type(closed=True)
class ChangePerson:
    """What a person is and may."""

    role: Role
    approve_actions: bool


@wire_type(closed=True)
class SetAllowEntry(AllowEntry):
    """For which kinds of runs a person may address the agent."""


@wire_type(closed=True)
class SetAllowList:
    """Who may address the agent; whoever is not named may not."""

    entries: Annotated[tuple[SetAllowEntry, ...], Size(0, 1000)]


@wire_type(closed=True)
class NewChannel:
    """A channel to add."""

    name: Name = content()
    served: bool = True


@wire_type(closed=True)
class SetSkill:
    """A text that the agent is told in a channel, under a name."""

    name: Name = content()
    text: Content = content()


@wire_type(closed=True)
class SetChannel:
    """What the agent is told in a channel."""

    prompt: Content | None = content(default=None)
    skills: Annotated[tuple[SetSkill, ...], Size(0, MAX_SKILLS)] = content(default=())


@wire_type(closed=True)
class SetTitle:
    """A title that a person gives: the agent does not change it any more. None leaves it to the agent."""

    title: Title | None = content()


@wire_type(closed=True)
class SetNonces:
    """Whether the agent's proofs need a nonce of the server."""

    required: bool
