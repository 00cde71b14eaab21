"""What the adapter uses of Hermes, public or private, in one table, and what of it is missing here.

Layer: hermes. Hermes promises a plugin little of this, so each start looks whether it is there: what
nothing can be done without is told to the server and the operator, and no run is taken, instead of one
after the other breaking. docs/versions.md prints the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

from .hermes_hooks import READERS


class Need(StrEnum):
    """What happens where something is missing."""

    CONNECT = "connect"
    """The platform does not connect: there is nothing yet with which the server could be told."""
    SERVE = "serve"
    """The server is told `runtime_contract_missing`, and no run is taken."""
    NOTHING = "nothing"
    """There is a way without it."""


@dataclass(frozen=True, slots=True)
class Use:
    """One thing of Hermes that the adapter uses.

    Attributes:
        need: What happens without it.
        what_for: What it is used for.
        places: Where it may be, one of them is enough: `module:name`, `module:Class.name`, or
            `object:name` for an object of a running gateway.
        names: Parameters that the adapter passes, fields that it reads, members that it counts on.
    """

    need: Need
    what_for: str
    places: tuple[str, ...]
    names: tuple[str, ...] = ()


OBJECTS = frozenset({"platform", "runner", "store", "database", "agent"})
"""The owners in the table that are no modules; `agent` alone names both."""

_BASE = "gateway.platforms.base:BasePlatformAdapter"

USES = (
    # The platform.
    Use(Need.CONNECT, "the platform's name as Hermes' own value", ("gateway.config:Platform",)),
    Use(Need.CONNECT, "the base class of the platform", (_BASE,), ("config", "platform")),
    Use(Need.CONNECT, "the adapter's keys", ("gateway.config:PlatformConfig",), ("extra", "home_channel")),
    Use(
        Need.CONNECT,
        "what a call of Hermes is answered",
        ("gateway.platforms.base:SendResult",),
        ("success", "message_id", "error"),
    ),
    Use(
        Need.CONNECT,
        "the platform is registered",
        ("gateway.platform_registry:PlatformEntry",),
        (
            "name",
            "label",
            "adapter_factory",
            "check_fn",
            "is_connected",
            "install_hint",
            "allowed_users_env",
            "allow_all_env",
            "allow_update_command",
            "max_message_length",
            "platform_hint",
            "emoji",
        ),
    ),
    Use(Need.CONNECT, "the platform is up", (f"{_BASE}._mark_connected",)),
    Use(Need.CONNECT, "the platform is down", (f"{_BASE}._mark_disconnected",)),
    Use(Need.CONNECT, "why the platform is not up", (f"{_BASE}._set_fatal_error",), ("retryable",)),
    Use(Need.CONNECT, "Hermes tries the platform again", (f"{_BASE}._notify_fatal_error",)),
    Use(Need.CONNECT, "the gateway stops", (f"{_BASE}.cancel_background_tasks",)),
    Use(Need.CONNECT, "the profile's directory", ("hermes_constants:get_hermes_home",)),
    Use(
        Need.CONNECT,
        "one token, one process",
        ("gateway.status:acquire_scoped_lock",),
        ("scope", "identity", "metadata"),
    ),
    Use(Need.CONNECT, "one token, one process", ("gateway.status:release_scoped_lock",)),
    Use(
        Need.CONNECT,
        "Hermes' configuration",
        ("hermes_cli.config:load_config_readonly", "hermes_cli.config:load_config"),
    ),
    Use(Need.NOTHING, "Hermes' version, for people to read", ("hermes_cli:__version__",)),
    # What Hermes calls: a method that it has given up is one that nobody calls any more.
    Use(Need.CONNECT, "Hermes brings the platform up", (f"{_BASE}.connect",), ("is_reconnect",)),
    Use(Need.CONNECT, "Hermes takes the platform down", (f"{_BASE}.disconnect",)),
    Use(Need.SERVE, "Hermes begins with a message", (f"{_BASE}.on_processing_start",), ("event",)),
    Use(
        Need.SERVE,
        "Hermes is done with a message",
        (f"{_BASE}.on_processing_complete",),
        ("event", "outcome"),
    ),
    Use(
        Need.SERVE,
        "Hermes sends a text",
        (f"{_BASE}.send",),
        ("chat_id", "content", "reply_to", "metadata"),
    ),
    Use(Need.SERVE, "Hermes asks a question", (f"{_BASE}.send_clarify",), ("clarify_id", "session_key")),
    Use(
        Need.SERVE,
        "Hermes asks for a yes to a command of its own",
        (f"{_BASE}.send_slash_confirm",),
        ("confirm_id", "session_key"),
    ),
    Use(Need.SERVE, "Hermes lets the server decide who may speak", (f"{_BASE}.enforces_own_access_policy",)),
    Use(Need.NOTHING, "Hermes rewrites a text", (f"{_BASE}.edit_message",), ("message_id", "finalize")),
    Use(Need.NOTHING, "Hermes shows a text that grows", (f"{_BASE}.send_draft",), ("content", "metadata")),
    Use(Need.NOTHING, "whether it may", (f"{_BASE}.supports_draft_streaming",)),
    Use(Need.NOTHING, "Hermes says which tool is at work", (f"{_BASE}.set_status_text",), ("text",)),
    Use(Need.NOTHING, "whether it does", (f"{_BASE}.supports_status_text",)),
    Use(Need.NOTHING, "a turn waits for its subagents", (f"{_BASE}.supports_async_delivery",)),
    Use(Need.NOTHING, "Hermes tries a text again (from 0.21 on)", (f"{_BASE}._send_retry_is_final",)),
    # Turns.
    Use(Need.SERVE, "the gateway's runner", (f"{_BASE}.gateway_runner",)),
    Use(Need.SERVE, "a message is handed in", (f"{_BASE}.handle_message",), ("event",)),
    Use(
        Need.SERVE,
        "who wrote a message, and where",
        (f"{_BASE}.build_source",),
        ("chat_id", "chat_type", "user_id", "user_name", "thread_id", "message_id"),
    ),
    Use(
        Need.SERVE,
        "a message",
        ("gateway.platforms.event:MessageEvent", "gateway.platforms.base:MessageEvent"),
        ("text", "message_type", "source", "message_id", "channel_prompt", "internal"),
    ),
    Use(
        Need.NOTHING,
        "a person's text is no command (in 0.19 an invisible sign before it)",
        ("gateway.platforms.event:MessageEvent", "gateway.platforms.base:MessageEvent"),
        ("allow_gateway_control",),
    ),
    Use(
        Need.NOTHING,
        "whether Hermes took a message (from 0.21 on)",
        ("gateway.platforms.event:MessageEvent._gateway_accepted",),
    ),
    Use(
        Need.SERVE,
        "a message is a text",
        ("gateway.platforms.event:MessageType.TEXT", "gateway.platforms.base:MessageType.TEXT"),
    ),
    Use(
        Need.SERVE,
        "a turn was cancelled",
        (
            "gateway.platforms.event:ProcessingOutcome.CANCELLED",
            "gateway.platforms.base:ProcessingOutcome.CANCELLED",
        ),
    ),
    Use(
        Need.SERVE,
        "Hermes' key of a thread",
        (f"{_BASE}._event_session_key", "gateway.session:build_session_key"),
    ),
    Use(Need.SERVE, "the thread in whose turn Hermes calls", ("gateway.session_context:get_session_env",)),
    Use(Need.SERVE, "the turns that Hermes guards", ("platform:_active_sessions",)),
    Use(Need.SERVE, "texts that wait behind a turn", ("platform:_pending_messages",)),
    Use(Need.NOTHING, "more of them (from 0.21 on)", ("runner:_overflow_queue",)),
    Use(Need.SERVE, "whether Hermes takes messages yet", ("runner:_startup_restore_in_progress",)),
    Use(
        Need.SERVE,
        "what a text does during a turn",
        ("runner:_effective_busy_input_mode", "runner:_busy_input_mode"),
    ),
    Use(
        Need.SERVE, "the agent at work in a thread", ("runner:_peek_session_state", "runner:_running_agents")
    ),
    Use(Need.SERVE, "the same before Hermes shows it", ("runner:_agent_cache",)),
    Use(
        Need.NOTHING,
        "the state of a thread (from 0.21 on)",
        ("gateway.session_state:SessionState",),
        ("turn",),
    ),
    Use(
        Need.NOTHING, "the turn in it (from 0.21 on)", ("gateway.session_state:TurnState",), ("agent", "ctx")
    ),
    Use(Need.SERVE, "what Hermes tells of a turn", ("hermes_cli.plugins:VALID_HOOKS",), tuple(READERS)),
    Use(
        Need.NOTHING,
        "how long Hermes waits for a hook (from 0.21 on)",
        ("hermes_cli.plugins:_resolve_hook_callback_timeout",),
    ),
    Use(Need.NOTHING, "the sentence that a step begins with", ("agent.display:build_status_phrase",)),
    # The agent.
    Use(Need.SERVE, "a text is handed into a turn", ("run_agent:AIAgent.steer",), ("text",)),
    Use(Need.SERVE, "a text is taken back", ("run_agent:AIAgent._drain_pending_steer",)),
    Use(
        Need.SERVE,
        "an agent is stopped before it sends",
        ("run_agent:AIAgent.hard_interrupt", "run_agent:AIAgent.interrupt"),
    ),
    Use(Need.SERVE, "which agent is in a session", ("agent:session_id",)),
    Use(Need.SERVE, "the key that an agent holds", ("agent:api_key",)),
    Use(Need.SERVE, "an agent's subagents", ("agent:_active_children",)),
    Use(
        Need.NOTHING,
        "a stopped request is a streamed one (in 0.19 made when set)",
        ("agent:_disable_streaming",),
    ),
    # Prompts.
    Use(
        Need.SERVE,
        "a question is answered",
        ("tools.clarify_gateway:resolve_gateway_clarify",),
    ),
    Use(Need.SERVE, "whether several answers are allowed", ("tools.clarify_gateway:_entries",)),
    Use(Need.SERVE, "questions of a turn that ended", ("tools.clarify_gateway:clear_session",)),
    Use(Need.SERVE, "a command is allowed or denied", ("tools.approval:resolve_gateway_approval",)),
    Use(
        Need.NOTHING,
        "by its ID (in 0.19 by its place in the queue)",
        ("tools.approval:resolve_gateway_approval",),
        ("request_id",),
    ),
    Use(
        Need.SERVE,
        "which commands wait",
        ("tools.approval:list_gateway_approvals", "tools.approval:_gateway_queues"),
    ),
    Use(Need.NOTHING, "the queue's lock (of use in 0.19)", ("tools.approval:_lock",)),
    Use(
        Need.NOTHING,
        "commands of a turn that ended (from 0.21 on)",
        ("tools.approval:withdraw_gateway_approval",),
        ("session_key", "request_id", "cause"),
    ),
    Use(
        Need.NOTHING,
        "a command comes as a prompt (from 0.21 on)",
        (f"{_BASE}._send_exec_approval_prompt",),
        ("prompt",),
    ),
    Use(
        Need.NOTHING,
        "what such a prompt says (from 0.21 on)",
        ("gateway.platforms.base:ExecApprovalPrompt",),
        ("chat_id", "session_key", "command", "description", "actions", "metadata"),
    ),
    Use(Need.NOTHING, "a command as its prompt shows it", ("gateway.run:_redact_approval_command",)),
    Use(Need.SERVE, "which command asks for a yes", ("tools.slash_confirm:get_pending",)),
    Use(Need.SERVE, "a yes is given", ("tools.slash_confirm:resolve",)),
    # Sessions.
    Use(Need.SERVE, "Hermes' sessions", ("runner:session_store",)),
    Use(Need.SERVE, "the session of a thread", ("store:peek_session_id", "store:_entries")),
    Use(Need.SERVE, "the sessions' database", ("runner:_session_db",)),
    Use(Need.SERVE, "what a session is", ("database:get_session",)),
    # Money and tools.
    Use(
        Need.SERVE,
        "the provider of the next turn",
        ("hermes_cli.runtime_provider:resolve_requested_provider",),
    ),
    Use(
        Need.SERVE,
        "the credential of the next turn",
        ("hermes_cli.runtime_provider:resolve_runtime_provider",),
        ("requested", "explicit_api_key", "explicit_base_url"),
    ),
    Use(Need.SERVE, "Hermes' name of a provider", ("hermes_cli.auth:resolve_provider",)),
    Use(Need.SERVE, "how a provider is paid", ("hermes_cli.auth:PROVIDER_REGISTRY",)),
    Use(Need.NOTHING, "whether a key is one", ("hermes_cli.auth:has_usable_secret",)),
    Use(Need.SERVE, "keys that a turn can change to", ("agent.credential_pool:load_pool",)),
    Use(
        Need.NOTHING,
        "whether a key is a login",
        ("agent.anthropic_credentials:_is_oauth_token", "agent.anthropic_adapter:_is_oauth_token"),
    ),
    Use(Need.SERVE, "the model of a session", ("runner:_session_model_overrides",)),
    Use(Need.SERVE, "the same after a restart", ("store:get_model_override",)),
    Use(Need.SERVE, "the configuration of channels", ("runner:config",)),
    Use(
        Need.SERVE,
        "the model of a channel",
        ("gateway.run:_get_channel_override",),
        ("config", "platform", "chat_id", "thread_id"),
    ),
    Use(Need.NOTHING, "whether there are several profiles", ("agent.secret_scope:is_multiplex_active",)),
    Use(Need.NOTHING, "a profile's own variables", ("gateway.run:_profile_runtime_scope",)),
    Use(
        Need.SERVE,
        "the toolsets of the next turn",
        ("hermes_cli.tools_config:_get_platform_tools",),
        ("include_default_mcp_servers",),
    ),
    Use(
        Need.NOTHING,
        "what a request is estimated to cost",
        ("agent.usage_pricing:estimate_usage_cost",),
        ("provider", "base_url"),
    ),
    Use(
        Need.NOTHING,
        "the same",
        ("agent.usage_pricing:CanonicalUsage",),
        ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "request_count"),
    ),
    Use(
        Need.NOTHING,
        "whether the price is one that Hermes ships",
        ("agent.usage_pricing:resolve_billing_route",),
        ("provider", "base_url"),
    ),
    Use(Need.NOTHING, "the same", ("agent.usage_pricing:_lookup_official_docs_pricing",)),
)
"""Everything that the Hermes rooms use. Without a word about a version it is in all of 0.19 to 0.22."""

Objects = Mapping[str, object]
"""Objects of a running gateway by the names that the table gives them: `platform` is the platform object,
`runner` the gateway's runner, `store` its sessions, `database` theirs, `agent` an agent."""


def lacking(needs: Container[Need], objects: Objects) -> tuple[str, ...]:
    """Return the first place of each thing that this Hermes does not have; imports what it looks into.

    Args:
        needs: Which things are looked for.
        objects: What is there of a running gateway; of an object that is not, nothing is said.
    """
    return tuple(use.places[0] for use in USES if use.need in needs and not _is_there(use, objects))


def _is_there(use: Use, objects: Objects) -> bool:
    known = [place for place in use.places if _is_known(place, objects)]
    return not known or any(_fits(place, use.names, objects) for place in known)


def _is_known(place: str, objects: Objects) -> bool:
    """Whether it can be told: a module can always be looked for."""
    owner = place.partition(":")[0]
    return owner in objects or owner not in OBJECTS


def _fits(place: str, names: Iterable[str], objects: Objects) -> bool:
    owner, _, path = place.partition(":")
    try:
        found: Any = objects[owner] if owner in OBJECTS else import_module(owner)
        for name in path.split("."):
            found = getattr(found, name)
        known = _names_of(found) if names else ()
    except Exception:  # noqa: BLE001  # whatever a Hermes that has changed raises, it is not what was looked for
        return False
    return all(name in known for name in names)


def _names_of(found: Any) -> Container[str]:
    """The parameters of what can be called, else the members of a collection."""
    if not callable(found):
        members: Container[str] = found
        return members
    return inspect.signature(found).parameters
