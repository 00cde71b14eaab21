"""From Hermes' hooks to facts about one turn, on whatever thread Hermes calls them.

Layer: hermes. Hooks fire for the whole process, so each payload is first asked whose it is: this
platform, this profile's home, a thread of ours. The hooks of model requests ask the gate first, which
may hold Hermes' thread; apart from that nothing here waits, raises or keeps a payload, and the fact is
handed to the adapter's loop in the order in which Hermes spoke.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from . import hermes_versions
from .defaults import LOGGER_NAME
from .runtime import Usage
from .turn_facts import (
    ApprovalOver,
    Asked,
    Ended,
    Fact,
    Ids,
    Payee,
    Replied,
    Requested,
    RequestFailed,
    ToolReturned,
    ToolSentence,
    word_of,
)

_log = logging.getLogger(LOGGER_NAME)

Payload = Mapping[str, Any]

Held = Mapping[UUID, str]
"""Texts of people that the model was not shown yet, by their messages."""

STEER_MARK = "OUT-OF-BAND USER MESSAGE"
"""What Hermes puts before and behind a text that it hands into a turn."""

BRIDGE = "tool_call"
"""The tool through which the model calls those that Hermes does not show it."""

SUBAGENT = "subagent"
"""The platform under which Hermes runs the agents that a turn delegates to."""


SPENDING_HOOKS = frozenset({"pre_api_request", "post_api_request"})
"""The hooks that name whom a model request pays: before it, and once more behind it, for what an
abandoned hook may have let through."""


def thread_of_context() -> UUID | None:
    """Return the thread of the turn that Hermes is at, None outside of one of ours."""
    from gateway.session_context import get_session_env

    return parse_id(get_session_env("HERMES_SESSION_THREAD_ID"))


def home_of_context() -> str:
    """Return the home of the profile that Hermes is at; several live in one process.

    With links resolved: Hermes names the same home by its variable or by its place.
    """
    from hermes_constants import get_hermes_home

    return os.path.realpath(str(get_hermes_home()))


def parse_id(value: object) -> UUID | None:
    """Return an ID that Hermes carried for us, None for anything else."""
    try:
        return UUID(str(value)) if value else None
    except ValueError:
        return None


class HookReceiver:
    """Reads the payloads of hooks and passes on what belongs to this platform.

    Args:
        platform_key: The platform's name in Hermes.
        home: The home of the profile that this platform serves.
        deliver: Takes a fact about a thread; called on Hermes' thread.
        held: Tells which texts of a thread are looked for in what the model is shown; called there too.
        admit: Tells whether a model request in a thread's context, of a session of Hermes, may leave;
            called there too, and may take its time.
        thread_of_subagent: Tells in which thread a session is that of a subagent; called there too.
    """

    def __init__(
        self,
        platform_key: str,
        home: str,
        deliver: Callable[[UUID, Fact], None],
        held: Callable[[UUID], Held],
        *,
        admit: Callable[[UUID, Payee, str], bool],
        thread_of_subagent: Callable[[str], UUID | None],
    ) -> None:
        self._platforms = frozenset({platform_key, SUBAGENT})
        self._home = home
        self._deliver = deliver
        self._held = held
        self._admit = admit
        self._thread_of_subagent = thread_of_subagent

    def hear(self, name: str, payload: Payload) -> None:
        """Take one hook call. Never raises: an error here would be Hermes' to report."""
        try:
            self._hear(name, payload)
        except Exception as error:  # noqa: BLE001  # the payload's shape is Hermes', any error is possible
            _log.warning("hook %s: not understood (%s)", name, type(error).__name__)

    def _hear(self, name: str, payload: Payload) -> None:
        read = READERS.get(name)
        if read is None or payload.get("platform", SUBAGENT) not in self._platforms:
            return
        thread = self._thread_of(payload)
        if thread is None:
            return
        session = str(payload.get("session_id") or "")
        leaves = name not in SPENDING_HOOKS or self._admit(thread, _payee(payload), session)
        # A request that does not leave shows the model nothing.
        if leaves or name != "pre_api_request":
            self._deliver(thread, read(payload, self._held(thread)))

    def _thread_of(self, payload: Payload) -> UUID | None:
        """The thread of ours that a hook speaks of, None when it is none of ours."""
        thread = thread_of_context()
        if thread is not None:
            return thread if home_of_context() == self._home else None
        # 0.19 runs a subagent on a thread without its turn's context.
        if payload.get("platform") != SUBAGENT:
            return None
        return self._thread_of_subagent(str(payload.get("session_id") or ""))


def _payee(payload: Payload) -> Payee:
    provider, base_url, api_mode = (
        str(payload.get(name) or "") for name in ("provider", "base_url", "api_mode")
    )
    return Payee(provider, base_url, api_mode)


def _ids(payload: Payload) -> Ids:
    return Ids(
        session_id=str(payload.get("session_id") or ""),
        task_id=str(payload.get("task_id") or ""),
        turn_id=str(payload.get("turn_id") or ""),
    )


def _read_asked(payload: Payload, held: Held) -> Fact:
    seen = texts_shown([payload.get("user_message")], held) if held else ()
    return Asked(_ids(payload), subagent=payload.get("platform") == SUBAGENT, seen=seen)


def _read_requested(payload: Payload, held: Held) -> Fact:
    rows = payload.get("request_messages")
    seen = texts_shown(_newest(rows), held, rows) if held and isinstance(rows, list) else ()
    return Requested(_ids(payload), seen=seen)


def _newest(rows: list[Any]) -> list[Any]:
    """What the model has not answered yet: the rows after its last one."""
    spoken = [index for index, row in enumerate(rows) if _member(row, "role") == "assistant"]
    return rows[spoken[-1] + 1 :] if spoken else rows


def texts_shown(rows: list[Any], held: Held, earlier: Sequence[Any] = ()) -> tuple[UUID, ...]:
    """Return the messages of those texts that rows of a request hold.

    A text that was handed into a turn carries its message's ID, or stands between Hermes' marks (0.19,
    0.20); as a turn of its own it is the whole row.

    Args:
        rows: Messages of a request, or a turn's first text.
        held: The texts to look for.
        earlier: Every message of the request: Hermes may put a text behind a tool's result of long ago.
            Only the ID proves it there, the same words may have been said before.
    """
    texts = [text for row in rows for text in _strings(row)]
    all_texts = texts + [text for row in earlier for text in _strings(row)]
    return tuple(
        message_id
        for message_id, words in held.items()
        if any(str(message_id) in text for text in all_texts)
        or any(_shows(text, words.strip()) for text in texts)
    )


def _shows(text: str, words: str) -> bool:
    return words in text and (STEER_MARK in text or words == text.strip())


def _strings(row: Any) -> list[str]:
    """The texts of a row, in any of the forms in which Hermes' interfaces put them."""
    if isinstance(row, str):
        return [row]
    if isinstance(row, list):
        return [text for one in row for text in _strings(one)]
    if isinstance(row, Mapping):
        return [text for key in ("content", "text", "output") for text in _strings(row.get(key))]
    return []


def _member(row: Any, name: str) -> Any:
    return row.get(name) if isinstance(row, Mapping) else None


def _read_replied(payload: Payload, _held: Held) -> Fact:
    message = payload.get("assistant_message")
    calls = payload.get("assistant_tool_call_count")
    text = getattr(message, "content", None)
    return Replied(
        ids=_ids(payload),
        tool_calls=calls if isinstance(calls, int) else None,
        text=text if isinstance(text, str) else "",
        usage=_read_usage(payload),
        tools=tuple(_read_calls(getattr(message, "tool_calls", None))),
    )


def _read_calls(calls: Any) -> list[ToolSentence]:
    found = []
    for call in calls if isinstance(calls, (list, tuple)) else ():
        function = getattr(call, "function", call)
        name = getattr(function, "name", None)
        if isinstance(name, str):
            arguments = _read_arguments(getattr(function, "arguments", None))
            if name == BRIDGE and isinstance(_member(arguments, "name"), str):
                name, arguments = arguments["name"], arguments.get("arguments")
            found.append(ToolSentence(name, hermes_versions.status_sentences(name, arguments)))
    return found


def _read_arguments(raw: Any) -> Any:
    if not isinstance(raw, str):
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _read_usage(payload: Payload) -> Usage | None:
    usage = payload.get("usage")
    if not isinstance(usage, Mapping):
        return None
    model = payload.get("response_model") or payload.get("model")
    amount = hermes_versions.estimated_micros(
        str(payload.get("model") or ""), usage, payload.get("provider"), payload.get("base_url")
    )
    return Usage(
        provider=str(payload.get("provider") or "unknown"),
        model=str(model or "unknown"),
        tokens_in=_count(usage, "input_tokens"),
        tokens_out=_count(usage, "output_tokens"),
        tokens_cache_read=_count(usage, "cache_read_tokens"),
        tokens_cache_write=_count(usage, "cache_write_tokens"),
        currency="USD" if amount is not None else None,
        amount_micros=amount,
    )


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _read_failure(payload: Payload, _held: Held) -> Fact:
    status = payload.get("status_code")
    reason = payload.get("reason")
    return RequestFailed(
        ids=_ids(payload),
        status=status if isinstance(status, int) else None,
        reason=word_of(reason if isinstance(reason, str) else None),
    )


def _read_tool(payload: Payload, _held: Held) -> Fact:
    tool = str(payload.get("tool_name") or "")
    call = ToolSentence(tool, hermes_versions.status_sentences(tool, payload.get("args")))
    return ToolReturned(_ids(payload), call, failed=payload.get("status", "ok") != "ok")


def _read_ended(payload: Payload, _held: Held) -> Fact:
    reason = payload.get("turn_exit_reason")
    return Ended(
        ids=_ids(payload),
        completed=payload.get("completed") is True,
        failed=payload.get("failed") is True,
        interrupted=payload.get("interrupted") is True,
        exit_reason=reason if isinstance(reason, str) else None,
    )


def _read_approval(payload: Payload, _held: Held) -> Fact:
    return ApprovalOver(timed_out=payload.get("choice") == "timeout")


READERS: Mapping[str, Callable[[Payload, Held], Fact]] = {
    "pre_llm_call": _read_asked,
    "pre_api_request": _read_requested,
    "post_api_request": _read_replied,
    "api_request_error": _read_failure,
    "post_tool_call": _read_tool,
    "on_session_end": _read_ended,
    "post_approval_response": _read_approval,
}
"""The hooks that tell about a turn: what `entry` declares."""
