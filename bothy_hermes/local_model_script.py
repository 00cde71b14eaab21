"""From a chat-completions request to what the scripted model answers.

Layer: default. Pure: a request body in, one `Reply` out, which `local_model` carries over HTTP. It finds
the person's word in the conversation (`local_model_words` does the rest) and answers the requests that
Hermes makes for itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .local_model_words import STEERED, WORD, WORDS, Call, Reply, Turn, Word, hello, say

_NOTES = re.compile(r"\[(?:System note|IMPORTANT|Runtime note):.*?\]", re.DOTALL)
"""What Hermes adds to a person's message."""

_BY_NAME = {word.name: word for word in WORDS}


def decide(body: Mapping[str, Any]) -> Reply:
    """Choose the reply to one chat-completions request."""
    messages = [one for one in body.get("messages", ()) if isinstance(one, Mapping)]
    aside = _auxiliary(messages, body)
    if aside is not None:
        return aside
    turn, word = _read_turn(messages, _tool_names(body))
    reply = word.reply(turn) if word else hello(turn)
    return replace(reply, calls=tuple(_as_offered(call, body) for call in reply.calls))


def _as_offered(call: Call, body: Mapping[str, Any]) -> Call:
    """The call in the form that this Hermes takes: 0.19 has a question by itself, and another task list."""
    if call.name == "todo_list" and "todo" in _tool_names(body):
        return Call("todo", call.arguments)
    questions = call.arguments.get("questions")
    return Call(call.name, questions[0]) if questions and "question" in _parameters(body, call.name) else call


def _parameters(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a request says that a tool takes, nothing when it does not say."""
    for tool in body.get("tools") or ():
        function = tool.get("function", {}) if isinstance(tool, Mapping) else {}
        if function.get("name") == name:
            found: Mapping[str, Any] = function.get("parameters", {}).get("properties", {})
            return found
    return {}


# Reading a request --------------------------------------------------------------------------------


def _read_turn(messages: Sequence[Mapping[str, Any]], tools: frozenset[str]) -> tuple[Turn, Word | None]:
    said = [
        index
        for index, one in enumerate(messages)
        if one.get("role") == "user" and not _is_steered(_content(one))
    ]
    since = messages[said[-1] + 1 :] if said else ()
    texts = [_person_text(messages[index]) for index in said] or [""]
    word, rest = _find_word(texts[-1])
    turn = Turn(
        text=texts[-1],
        rest=rest,
        step=sum(one.get("role") == "assistant" for one in since),
        results=tuple(_content(one) for one in since if one.get("role") in {"tool", "user"}),
        earlier=tuple(texts[:-1]),
        tools=tools,
    )
    return turn, word


def _find_word(text: str) -> tuple[Word | None, str]:
    """The first word of the script in a text, and what follows it."""
    for found in WORD.finditer(text):
        word = _BY_NAME.get(found.group().lower())
        if word is not None:
            return word, text[found.end() :]
    return None, ""


def _person_text(message: Mapping[str, Any]) -> str:
    return _NOTES.sub("", _content(message)).strip()


def _is_steered(text: str) -> bool:
    """Whether a message is no turn of the person's own, but was put into the running one."""
    return bool(STEERED.search(text)) and not STEERED.sub("", text).strip()


def _content(message: Mapping[str, Any]) -> str:
    """A message's text, from either of the two forms that the interface allows."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ""


def _tool_names(body: Mapping[str, Any]) -> frozenset[str]:
    tools = body.get("tools") or ()
    return frozenset(str(tool.get("function", {}).get("name")) for tool in tools if isinstance(tool, Mapping))


# Hermes' own questions ----------------------------------------------------------------------------


def _auxiliary(messages: Sequence[Mapping[str, Any]], body: Mapping[str, Any]) -> Reply | None:
    """The reply to a request that Hermes makes for itself; None for a turn of a conversation."""
    if body.get("tools"):
        return None
    asked = " ".join(_content(one) for one in messages if one.get("role") == "system")
    asked = asked or _content(messages[0] if messages else {})
    for mark, reply in _ASIDES.items():
        if mark in asked:
            return reply(messages)
    return None


def _title(messages: Sequence[Mapping[str, Any]]) -> Reply:
    words = WORD.findall(_person_text(messages[-1]))[:5]
    return Reply(text=json.dumps({"title": " ".join(["Script:", *words]) if words else "Script"}))


def _bare_title(messages: Sequence[Mapping[str, Any]]) -> Reply:
    """The title as 0.19 wants it: no JSON around it, made of what stands after the person's name."""
    said = _person_text(messages[-1]).removeprefix("User:").partition("Assistant:")[0]
    return Reply(text=json.loads(_title([{"content": said}]).text)["title"])


_ASIDES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], Reply]] = {
    "You name chat sessions": _title,
    "Generate a short, descriptive title": _bare_title,
    "APPROVE, DENY, or ESCALATE": lambda _messages: Reply(text="ESCALATE"),
    "You are a summarization agent": lambda _messages: say("A conversation with the scripted model."),
}
"""How Hermes' own requests are known, by a phrase of their instructions, and what answers them.

A smart approval is never decided by a script: a person is asked.
"""
