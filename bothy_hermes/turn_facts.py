"""What Hermes' hooks tell about a turn, as facts.

Layer: values. A fact says whose request it speaks of and what happened, and carries no more of a
payload than the adapter acts on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from uuid import UUID

from .runtime import Usage
from .wire_words import KeyType

_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What of an exit reason is told on: its first word. What follows in brackets may hold anything."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Whose request a hook speaks of; an empty string is unknown.

    Attributes:
        session_id: Hermes' session.
        task_id: For the turn itself the session that it began with, another for work beside it.
        turn_id: Hermes' ID of the turn, its own for subagents and for reviews in the background.
    """

    session_id: str
    task_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Payee:
    """Whom a model request pays.

    Attributes:
        provider: Hermes' name of the provider, empty when it names none.
        base_url: The provider's server, empty when it names none.
        api_mode: The interface that is spoken with it.
        key_type: What kind of key the agent holds at this moment, None when that is not seen.
    """

    provider: str
    base_url: str = field(default="", repr=False)
    api_mode: str = ""
    key_type: KeyType | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """An agent begins a turn (`pre_llm_call`).

    Attributes:
        ids: Whose turn it is.
        subagent: Whether the agent works for another one.
        seen: Texts handed into the turn (by their messages) that it begins with.
    """

    ids: Ids
    subagent: bool = False
    seen: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Requested:
    """A model request goes out (`pre_api_request`).

    Attributes:
        ids: Whose request it is.
        seen: Texts handed into the turn (by their messages) that the model is shown with it.
    """

    ids: Ids
    seen: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Replied:
    """The model replied (`post_api_request`).

    Attributes:
        ids: Whose request it was.
        tool_calls: How many tools the reply calls; None is unknown and counts as none.
        text: The reply's text as the model wrote it.
        usage: What it cost, None when Hermes does not know.
        tools: The tools it calls with the sentences that Hermes will show for them.
    """

    ids: Ids
    tool_calls: int | None
    text: str = field(repr=False)
    usage: Usage | None = None
    tools: tuple[ToolSentence, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A model request failed (`api_request_error`).

    Attributes:
        ids: Whose request it was.
        status: The HTTP status of the model's server, None without an answer.
        reason: Hermes' word for it, None when it is no plain word.
    """

    ids: Ids
    status: int | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ToolSentence:
    """A tool call and the sentences that Hermes may show for it, the longer one first."""

    tool: str
    sentences: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool call ended (`post_tool_call`)."""

    ids: Ids
    call: ToolSentence
    failed: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """An agent ended a turn (`on_session_end`); Hermes 0.19 knows neither `failed` nor the reason."""

    ids: Ids
    completed: bool
    failed: bool
    interrupted: bool
    exit_reason: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApprovalOver:
    """An approval waits no longer (`post_approval_response`), whoever answered it or nobody.

    Attributes:
        timed_out: Whether Hermes stopped waiting for an answer.
    """

    timed_out: bool


Fact = Asked | Requested | Replied | RequestFailed | ToolReturned | Ended | ApprovalOver


def word_of(reason: str | None) -> str | None:
    """Return the first word of an exit reason, None when it does not start with a plain word.

    Examples:
        >>> word_of("text_response(finish_reason=stop)")
        'text_response'
        >>> word_of("Could not reach 10.0.0.1") is None
        True
    """
    found = _WORD.match(reason or "")
    return found.group() if found else None
