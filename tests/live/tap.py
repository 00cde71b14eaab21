"""A plugin around the plugin, for recording: it writes down what Hermes calls and what it is handed.

`install` makes a placed profile's plugin the inner one of this file, which Hermes then loads instead.
The adapter and the hooks work as ever; each call is written before it is made.
"""

import functools
import inspect
import json
import shutil
import threading
from enum import Enum
from pathlib import Path

CALLS = "calls.jsonl"
INNER = "inner"

HERMES_CALLS = (
    "connect",
    "disconnect",
    "send",
    "edit_message",
    "delete_message",
    "send_draft",
    "send_clarify",
    "send_exec_approval",
    "_send_exec_approval_prompt",
    "send_slash_confirm",
    "set_status_text",
    "on_processing_start",
    "on_processing_complete",
)
"""What Hermes calls of a platform, but for the many questions that have no effect."""

OWN_CALLS = ("handle_message",)
"""What the platform calls of Hermes."""

_lock = threading.Lock()


def install(plugin):
    """Put this file around a plugin that was copied into a profile.

    Returns:
        The file that the calls are written to.
    """
    inner = plugin / INNER
    inner.mkdir()
    for path in list(plugin.iterdir()):
        if path != inner:
            shutil.move(path, inner / path.name)
    shutil.copy(inner / "plugin.yaml", plugin / "plugin.yaml")
    shutil.copy(__file__, plugin / "__init__.py")
    return plugin / CALLS


def register(ctx):
    """Hermes calls this; the inner plugin registers through a context that listens."""
    from . import inner  # the plugin that this file was put around

    inner.register(TappedContext(ctx))


class TappedContext:
    """Hermes' plugin context, with a tap at what is registered."""

    def __init__(self, ctx):
        self._ctx = ctx

    def __getattr__(self, name):
        return getattr(self._ctx, name)

    def register_hook(self, name, callback):
        @functools.wraps(callback)
        def tapped(**payload):
            _write("hook", name, payload)
            return callback(**payload)

        self._ctx.register_hook(name, tapped)

    def register_platform(self, *, adapter_factory, **entry):
        def build(config):
            adapter = adapter_factory(config)
            for name in (*HERMES_CALLS, *OWN_CALLS):
                if hasattr(adapter, name):
                    setattr(adapter, name, _tapped(getattr(adapter, name)))
            return adapter

        self._ctx.register_platform(adapter_factory=build, **entry)


def _tapped(method):
    kind = "own" if method.__name__ in OWN_CALLS else "call"
    signature = inspect.signature(method)

    def note(arguments, named):
        _write(kind, method.__name__, signature.bind(*arguments, **named).arguments)

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def tapped(*arguments, **named):
            note(arguments, named)
            return await method(*arguments, **named)
    else:

        @functools.wraps(method)
        def tapped(*arguments, **named):
            note(arguments, named)
            return method(*arguments, **named)

    return tapped


def _write(kind, name, arguments):
    on_loop = threading.current_thread() is threading.main_thread()
    row = {
        "kind": kind,
        "name": name,
        "thread": "loop" if on_loop else "worker",
        "bothy_thread": _context_thread(),
        "arguments": {key: plain(value) for key, value in arguments.items()},
    }
    with _lock, Path(__file__).with_name(CALLS).open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def _context_thread():
    """The thread of the turn that Hermes is at, as a platform finds it."""
    from gateway.session_context import get_session_env

    return get_session_env("HERMES_SESSION_THREAD_ID") or None


def plain(value):
    """A value of Hermes as JSON; of its objects only what a platform may care about."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    found = {name: getattr(value, name) for name in ATTRIBUTES if hasattr(value, name)}
    # A tool call of Hermes is its own `function`.
    return {name: plain(one) for name, one in found.items() if one is not value}


ATTRIBUTES = (
    "text",
    "message_id",
    "internal",
    "allow_gateway_control",
    "source",
    "platform",
    "chat_id",
    "chat_type",
    "thread_id",
    "user_id",
    "user_name",
    "content",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "type",
)
"""Attributes of an event, its source, an assistant's message and its tool calls."""
