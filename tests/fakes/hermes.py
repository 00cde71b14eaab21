"""Stand-ins for the modules of Hermes that the adapter's Hermes rooms import.

`installed(monkeypatch)` puts them in the place of the real ones, which may or may not be there, and
returns the state that they share: what was called, what they answer. Only what the adapter uses is
here, with Hermes' own names and signatures.
"""

import contextvars
import copy
import sys
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

HOME = "/profiles/one"

OPTIONAL = (
    "gateway.platforms.event",
    "agent.anthropic_credentials",
    "agent.anthropic_adapter",
    "agent.credential_pool",
    "agent.display",
    "hermes_cli.auth",
)
"""Modules that a version of Hermes may not have; a test can take one away."""


class MessageType(Enum):
    TEXT = "text"


class ProcessingOutcome(Enum):
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"


@dataclass
class MessageEvent:
    """The event of 0.20 and later."""

    text: str
    message_type: Any = None
    source: Any = None
    message_id: str | None = None
    channel_prompt: str | None = None
    internal: bool = False
    allow_gateway_control: bool = True
    _gateway_accepted: bool = field(default=False, init=False)


@dataclass
class OldMessageEvent:
    """The event of 0.19, which cannot be kept from being a command."""

    text: str
    message_type: Any = None
    source: Any = None
    message_id: str | None = None
    channel_prompt: str | None = None
    internal: bool = False


@dataclass
class SendResult:
    success: bool
    message_id: str | None = None
    error: str | None = None


@dataclass
class PlatformConfig:
    """The platform's block."""

    extra: dict = field(default_factory=dict)
    home_channel: Any = None


@dataclass
class PlatformEntry:
    """What a platform is registered with."""

    name: str
    label: str
    adapter_factory: Any
    check_fn: Any
    is_connected: Any = None
    install_hint: str = ""
    allowed_users_env: str = ""
    allow_all_env: str = ""
    allow_update_command: bool = True
    max_message_length: int = 0
    platform_hint: str = ""
    emoji: str = ""


class Agent:
    """An agent at work, which keeps a text until it can take it."""

    def __init__(self):
        self.pending = None

    def steer(self, text):
        self.pending = text
        return True

    def _drain_pending_steer(self):
        text, self.pending = self.pending, None
        return text


class Runner:
    """The gateway's runner, as far as the platform looks at it."""

    def __init__(self, *, busy_mode="steer"):
        self._startup_restore_in_progress = False
        self._busy_input_mode = busy_mode
        self.turns = {}
        self._agent_cache = {}
        self.queued = {}
        self.sessions = {}
        self.rows = {}
        self.session_store = SimpleNamespace(peek_session_id=self.sessions.get)
        self._session_db = self

    def _peek_session_state(self, session_key):
        return SimpleNamespace(turn=self.turns.get(session_key)) if session_key in self.turns else None

    def _overflow_queue(self, session_key):
        return self.queued.get(session_key)

    async def get_session(self, session_id):
        return self.rows.get(session_id)

    def works(self, session_key, agent, message_id=None):
        """Have an agent be at work on a message."""
        ctx = SimpleNamespace(inbound_message_id=message_id)
        self.turns[session_key] = SimpleNamespace(agent=agent, ctx=ctx)


class OldBasePlatformAdapter:
    """The part of Hermes' base class that the platform stands on, as 0.19 and 0.20 have it."""

    gateway_runner = None

    def __init__(self, config, platform):
        self.config = config
        self.platform = platform
        self._active_sessions = {}
        self._pending_messages = {}
        self.handled = []
        self.states = []
        self.reported = 0
        self.on_handle = None

    async def connect(self, *, is_reconnect=False):
        raise NotImplementedError

    async def disconnect(self):
        raise NotImplementedError

    async def cancel_background_tasks(self):
        """Hermes ends what it has begun."""

    def build_source(self, chat_id, **fields):
        return SimpleNamespace(chat_id=chat_id, **fields)

    async def handle_message(self, event):
        self.handled.append(event)
        event._gateway_accepted = True
        if self.on_handle is not None:
            await self.on_handle(event)

    def _mark_connected(self):
        self.states.append("connected")

    def _mark_disconnected(self):
        self.states.append("disconnected")

    def _set_fatal_error(self, code, message, *, retryable):
        self.states.append(("fatal", message, retryable))

    async def _notify_fatal_error(self):
        self.reported += 1


class BasePlatformAdapter(OldBasePlatformAdapter):
    """The same from 0.21 on."""

    def _event_session_key(self, event):
        return f"agent:main:bothy:dm:{event.source.chat_id}:{event.source.thread_id}"

    async def _send_exec_approval_prompt(self, prompt):
        return SendResult(success=False)


@dataclass
class HermesState:
    """What the stand-ins answer and what they were asked."""

    env: contextvars.ContextVar = field(default_factory=lambda: contextvars.ContextVar("env", default=None))
    home: contextvars.ContextVar = field(default_factory=lambda: contextvars.ContextVar("home", default=HOME))
    config: dict = field(default_factory=dict)
    runtime: Any = None
    requested: str = "anthropic"
    auth_types: dict = field(default_factory=dict)
    pools: dict = field(default_factory=dict)
    toolsets: Any = frozenset({"todo"})
    clarifies: list = field(default_factory=list)
    approvals: list = field(default_factory=list)
    confirms: dict = field(default_factory=dict)
    resolved: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    locks: dict = field(default_factory=dict)
    pid: int = 100
    modules: dict = field(default_factory=dict)

    def in_thread(self, thread_id):
        """Set the context variables of a turn in a thread."""
        self.env.set({"HERMES_SESSION_THREAD_ID": str(thread_id)})


def _module(state, name, **members):
    module = ModuleType(name)
    for key, value in members.items():
        setattr(module, key, value)
    state.modules[name] = module
    return module


def _gateway(state):
    def get_session_env(name, default=""):
        return (state.env.get() or {}).get(name, default)

    def build_session_key(source):
        return f"agent:main:bothy:dm:{source.chat_id}:{source.thread_id}"

    def acquire_scoped_lock(scope, identity, metadata=None):
        before = state.locks.get((scope, identity))
        if before is not None and before["pid"] != state.pid:
            return False, before
        state.locks[scope, identity] = {"pid": state.pid, "metadata": metadata}
        return True, before

    def release_scoped_lock(scope, identity):
        if state.locks.get((scope, identity), {}).get("pid") == state.pid:
            del state.locks[scope, identity]

    _module(state, "gateway")
    _module(state, "gateway.run", _redact_approval_command=lambda command: command.replace("s3cret", "***"))
    _module(
        state,
        "gateway.config",
        Platform=lambda key: SimpleNamespace(value=key),
        PlatformConfig=PlatformConfig,
    )
    _module(state, "gateway.platform_registry", PlatformEntry=PlatformEntry)
    _module(state, "gateway.platforms")
    _module(
        state,
        "gateway.platforms.base",
        BasePlatformAdapter=BasePlatformAdapter,
        SendResult=SendResult,
        MessageEvent=MessageEvent,
        MessageType=MessageType,
    )
    _module(state, "gateway.platforms.event", MessageEvent=MessageEvent, MessageType=MessageType)
    _module(state, "gateway.session", build_session_key=build_session_key)
    _module(state, "gateway.session_context", get_session_env=get_session_env)
    _module(
        state,
        "gateway.status",
        acquire_scoped_lock=acquire_scoped_lock,
        release_scoped_lock=release_scoped_lock,
    )
    _module(state, "hermes_constants", get_hermes_home=state.home.get)


def _hermes_cli(state):
    def resolve_runtime_provider(**asked):
        state.asked.append(asked)
        answer = state.runtime(**asked) if callable(state.runtime) else state.runtime
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def platform_tools(_config, _platform, *, include_default_mcp_servers):
        assert include_default_mcp_servers
        if isinstance(state.toolsets, BaseException):
            raise state.toolsets
        return set(state.toolsets)

    _module(state, "hermes_cli", __version__="0.21.5.post2")
    _module(
        state,
        "hermes_cli.config",
        load_config=lambda: copy.deepcopy(state.config),
        load_config_readonly=lambda: state.config,
    )
    _module(
        state,
        "hermes_cli.runtime_provider",
        resolve_runtime_provider=resolve_runtime_provider,
        resolve_requested_provider=lambda _name: state.requested,
    )
    _module(state, "hermes_cli.tools_config", _get_platform_tools=platform_tools)
    _module(
        state,
        "hermes_cli.auth",
        resolve_provider=lambda name: name,
        PROVIDER_REGISTRY=_Registry(state),
        has_usable_secret=lambda key: len(key.strip()) >= 4 and key != "changeme",
    )


class _Registry:
    def __init__(self, state):
        self._state = state

    def get(self, name):
        kind = self._state.auth_types.get(name)
        return None if kind is None else SimpleNamespace(auth_type=kind)


def _agent(state):
    def is_oauth(key):
        return not key.startswith("sk-ant-api") and key.startswith(("sk-ant-", "eyJ", "cc-"))

    def phrase(tool, args):
        return f"is using {tool} {args['command']}…" if args and "command" in args else f"is using {tool}…"

    _module(state, "agent")
    _module(state, "agent.secret_scope", is_multiplex_active=lambda: False)
    _module(state, "agent.anthropic_credentials", _is_oauth_token=is_oauth)
    _module(state, "agent.anthropic_adapter", _is_oauth_token=is_oauth)
    _module(
        state,
        "agent.credential_pool",
        load_pool=lambda name: SimpleNamespace(entries=lambda: list(state.pools.get(name, ()))),
    )
    _module(state, "agent.display", build_status_phrase=phrase)


def _tools(state):
    def resolve_clarify(clarify_id, response):
        state.resolved.append(("clarify", clarify_id, response))
        for entry in state.clarifies:
            if entry.clarify_id == clarify_id:
                state.clarifies.remove(entry)
                return True
        return False

    def clear(session_key):
        mine = [entry for entry in state.clarifies if entry.session_key == session_key]
        for entry in mine:
            state.clarifies.remove(entry)
            state.resolved.append(("clarify", entry.clarify_id, ""))
        return len(mine)

    def pending_confirm(session_key):
        confirm_id = state.confirms.get(session_key)
        return None if confirm_id is None else {"confirm_id": confirm_id}

    async def resolve_confirm(session_key, confirm_id, choice):
        if state.confirms.get(session_key) != confirm_id:
            return None
        del state.confirms[session_key]
        state.resolved.append(("confirm", confirm_id, choice))
        return "done"

    _module(state, "tools")
    _module(
        state,
        "tools.clarify_gateway",
        resolve_gateway_clarify=resolve_clarify,
        clear_session=clear,
        _entries=_Clarifies(state),
    )
    _module(state, "tools.slash_confirm", resolve=resolve_confirm, get_pending=pending_confirm)


class _Clarifies:
    def __init__(self, state):
        self._state = state

    def get(self, clarify_id):
        return next((entry for entry in self._state.clarifies if entry.clarify_id == clarify_id), None)


def _approvals(state):
    def listing(session_key):
        return [dict(entry) for entry in state.approvals if entry["session_key"] == session_key]

    def resolve_approval(session_key, choice, resolve_all=False, reason=None, request_id=None):
        for entry in state.approvals:  # Hermes takes the oldest one where it is given no ID
            if entry["session_key"] == session_key and (not request_id or request_id == entry["request_id"]):
                state.approvals.remove(entry)
                state.resolved.append(("approval", entry["request_id"], choice))
                return 1
        return 0

    def withdraw(session_key, request_id, cause):
        assert cause
        gone = [entry for entry in state.approvals if entry["request_id"] == request_id]
        for entry in gone:
            state.approvals.remove(entry)
            state.resolved.append(("withdrawn", request_id, session_key))
        return bool(gone)

    _module(
        state,
        "tools.approval",
        list_gateway_approvals=listing,
        resolve_gateway_approval=resolve_approval,
        withdraw_gateway_approval=withdraw,
    )


def hook_patience(state, monkeypatch, seconds):
    """Have Hermes give a hook up after some time, as from 0.21 on."""
    module = _module(state, "hermes_cli.plugins", _resolve_hook_callback_timeout=lambda: seconds)
    monkeypatch.setitem(sys.modules, "hermes_cli.plugins", module)


def priced(state, *, shipped, amount):
    """A module of prices: what is shipped, and what a request would cost."""

    def estimate(_model, usage, *, provider, base_url):
        assert usage == {
            "input_tokens": 1000,
            "output_tokens": 0,
            "cache_read_tokens": 0,
            "cache_write_tokens": 0,
            "request_count": 1,
        }
        return SimpleNamespace(amount_usd=None if amount is None else Decimal(amount))

    return _module(
        state,
        "agent.usage_pricing",
        resolve_billing_route=lambda model, **_where: SimpleNamespace(model=model),
        _lookup_official_docs_pricing=lambda route: route if shipped else None,
        CanonicalUsage=dict,
        estimate_usage_cost=estimate,
    )


def old_approvals(state, session_key, *commands):
    """Have commands wait as in 0.19: entries of a queue, without IDs; returns the queues and the entries."""
    entries = [
        SimpleNamespace(data={"command": command}, result=None, event=threading.Event())
        for command in commands
    ]
    module = state.modules["tools.approval"]
    del module.list_gateway_approvals
    module._lock = threading.Lock()
    module._gateway_queues = {session_key: list(entries)}
    module.resolve_gateway_approval = lambda _session_key, _choice, resolve_all=False: 0
    return module._gateway_queues, entries


def installed(monkeypatch, *, without=()):
    """Put the stand-ins in place for one test.

    Args:
        monkeypatch: Puts everything back afterwards.
        without: Modules, or `module:member`, that this Hermes does not have.
    """
    state = HermesState()
    for make in (_gateway, _hermes_cli, _agent, _tools, _approvals):
        make(state)
    for missing in without:
        name, _, member = missing.partition(":")
        if member:
            delattr(state.modules[name], member)
        else:
            state.modules[name] = None
    for name, module in state.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent and module is not None:
            monkeypatch.setattr(state.modules[parent], child, module, raising=False)
    return state


def credential(token, *, auth_type="api_key", source="env:ANTHROPIC_API_KEY"):
    """An entry of a pool."""
    return SimpleNamespace(access_token=token, auth_type=auth_type, source=source)
