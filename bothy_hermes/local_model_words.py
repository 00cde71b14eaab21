"""The words of the scripted model: what each does, as a table that people read too.

Layer: default. Pure: the state of a conversation in, one `Reply` out; `local_model_script` reads that
state from a request. Every text says with `LABEL` that no model wrote it. `words_table` is what the
README and `demo --help` show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

LABEL = "[script]"
"""Starts every text of the scripted model, so that nobody takes it for a model's."""

LONG_ANSWER_CHARS = 8_000
"""Characters of the answer to `long` without a number: several screens, one message."""

MAX_ANSWER_CHARS = 2_000_000
"""Most characters that `long` writes: eight messages of the protocol's limit."""

SLOW_SECONDS = 5.0
"""Seconds before the first word of `slow` without a number: longer than two polls of anything."""

MAX_WAIT_SECONDS = 600.0
"""Longest wait that `slow` and `sleep` take: a script is never the reason why a process hangs."""

STREAM_PIECE_SECONDS = 0.15
"""Seconds between two pieces of a text that is to be seen growing."""

STEERED = re.compile(r"\[OUT-OF-BAND USER MESSAGE.*?\](.*?)\[/OUT-OF-BAND USER MESSAGE\]", re.DOTALL)
"""A text that a person sent while the turn ran: in a tool's result, or as a message behind it."""

WORD = re.compile(r"[A-Za-z0-9]+")
"""What counts as a word in a message."""


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call that the reply asks for."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answers with.

    Attributes:
        text: What is said; said before the calls when there are any.
        calls: Tool calls, in order.
        wait_seconds: How long nothing comes at first.
        piece_seconds: The pause between two pieces of the text when it is streamed.
        status: The HTTP status; with another than 200 `text` is the error's sentence.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    wait_seconds: float = 0.0
    piece_seconds: float = 0.0
    status: int = 200


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of a conversation that decides about the next reply.

    Attributes:
        text: The person's last message, without what Hermes added.
        rest: What stands after the word in it.
        step: How many replies the script has given since that message.
        results: What the tools answered since then.
        earlier: The person's messages before it, oldest first.
        tools: Names of the tools that the request offers.
    """

    text: str
    rest: str
    step: int
    results: tuple[str, ...]
    earlier: tuple[str, ...]
    tools: frozenset[str]

    def number(self, default: float, most: float) -> float:
        """The number that follows the word, within bounds."""
        found = re.match(r"\s*(\d+)", self.rest)
        return min(float(found.group(1)), most) if found else default


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the script.

    Attributes:
        name: The word, as a person writes it.
        what: What happens then, for people.
        reply: Makes the reply of one step.
        toolset: The toolset that the word needs, None for none.
    """

    name: str
    what: str
    reply: Callable[[Turn], Reply]
    toolset: str | None = None


def words_table(toolsets: Collection[str]) -> list[tuple[str, str]]:
    """The words that an agent with these toolsets can act on, and what they do, for help texts."""
    return [(word.name, word.what) for word in WORDS if word.toolset is None or word.toolset in toolsets]


# What the words do --------------------------------------------------------------------------------


def say(text: str, *, wait_seconds: float = 0.0, piece_seconds: float = 0.0) -> Reply:
    """Make a reply of a text, which says that it is a script's."""
    return Reply(text=f"{LABEL} {text}", wait_seconds=wait_seconds, piece_seconds=piece_seconds)


def hello(turn: Turn) -> Reply:
    """Make the reply to a message without a word."""
    return _after_tools(turn) or say(
        "Hello! I am not a model but a script that answers by words: "
        "say tool, note, stream, or another word that `demo --help` lists."
    )


def _after_tools(turn: Turn) -> Reply | None:
    """The reply once tools have answered: what they said, and what a person sent meanwhile."""
    if not turn.results:
        return None
    heard = [note.strip().splitlines()[-1] for text in turn.results for note in STEERED.findall(text)]
    texts = [STEERED.sub("", text) for text in turn.results]
    said = " | ".join(_result_text(text) for text in texts if text.strip())
    extra = f" Meanwhile you said: {' | '.join(heard)}" if heard else ""
    return say(f"The tool said: {said}{extra}")


def _result_text(result: str) -> str:
    """The readable part of one tool result."""
    try:
        value = json.loads(result)
    except ValueError:
        value = None
    text = result
    if isinstance(value, dict):
        answers = [one.get("user_response") for one in value.get("responses") or ()]
        said = value.get("output") or value.get("error") or ", ".join(map(str, answers))
        text = said or value.get("user_response") or result
    return " ".join(str(text).split())[:500]


def _with_calls(*calls: Call, text: str = "") -> Callable[[Turn], Reply]:
    """A word that calls tools once and then tells what they said."""

    def reply(turn: Turn) -> Reply:
        if turn.step:
            return _after_tools(turn) or say("The tools said nothing.")
        return Reply(
            text=f"{LABEL} {text}" if text else "",
            calls=tuple(_reachable(call, turn.tools) for call in calls),
            piece_seconds=STREAM_PIECE_SECONDS if text else 0.0,
        )

    return reply


def _reachable(call: Call, tools: frozenset[str]) -> Call:
    """The call as this request allows it: Hermes keeps rarely used tools behind `tool_call`."""
    if call.name in tools or "tool_call" not in tools:
        return call
    return Call("tool_call", {"name": call.name, "arguments": dict(call.arguments)})


def _terminal(command: str) -> Call:
    return Call("terminal", {"command": command})


def _sleep(turn: Turn) -> Reply:
    seconds = int(turn.number(3, MAX_WAIT_SECONDS))
    return _with_calls(_terminal(f"sleep {seconds} && echo slept {seconds} s"))(turn)


def _stream(_turn: Turn) -> Reply:
    lines = "\n\n".join(
        f"Line {number} of an answer that grows while you watch it." for number in range(1, 6)
    )
    return say(lines, piece_seconds=STREAM_PIECE_SECONDS)


def _long(turn: Turn) -> Reply:
    chars = int(turn.number(LONG_ANSWER_CHARS, MAX_ANSWER_CHARS))
    # No line twice: Hermes 0.22 takes a text of equal lines for a model that runs in circles, and stops it.
    line = "Line {:>6} of an answer that is as long as you asked for.\n"
    count = chars // len(line.format(0)) + 1
    return Reply(text=f"{LABEL} {''.join(map(line.format, range(1, count + 1)))}"[:chars])


def _slow(turn: Turn) -> Reply:
    seconds = turn.number(SLOW_SECONDS, MAX_WAIT_SECONDS)
    return say(f"This answer took {seconds:.0f} s.", wait_seconds=seconds)


def _repeat(turn: Turn) -> Reply:
    return say(turn.rest.strip() or "Nothing to repeat.")


def _history(turn: Turn) -> Reply:
    if not turn.earlier:
        return say("This is the first message of our conversation.")
    said = " | ".join(" ".join(text.split())[:200] for text in turn.earlier)
    return say(f"Before this message you said: {said}")


def _fail(status: int, text: str) -> Callable[[Turn], Reply]:
    return lambda _turn: Reply(text=f"{LABEL} {text}", status=status)


_TODO = Call(
    "todo_list",
    {
        "todos": [
            {"id": "1", "content": "Read the question", "status": "completed"},
            {"id": "2", "content": "Answer it", "status": "in_progress"},
        ]
    },
)

_CLARIFY = Call(
    "clarify",
    {"questions": [{"question": "Which colour shall it be?", "choices": ["Blue", "Green", "Red"]}]},
)

_OPEN_QUESTION = Call("clarify", {"questions": [{"question": "What shall I call it?"}]})

_CHECKLIST = Call(
    "clarify",
    {
        "questions": [
            {"question": "Which of them?", "choices": ["Salt, pepper", "Oil", "Bread"], "multi_select": True}
        ]
    },
)


def _dangerous(name: str) -> Call:
    """A harmless command that looks dangerous to Hermes, and says that it ran."""
    return _terminal(f"rm -rf ./bothy-{name}-does-not-exist && echo {name} ran")


def _approve(turn: Turn) -> Reply:
    named = WORD.search(turn.rest)
    return _with_calls(_dangerous(named.group() if named else "demo"))(turn)


def _delegate(turn: Turn) -> Reply:
    return _with_calls(_delegation(turn.rest.strip() or "Say hello and stop."))(turn)


def _delegation(*goals: str) -> Call:
    return Call("delegate_task", {"tasks": [{"goal": goal} for goal in goals]})


WORDS: tuple[Word, ...] = (
    Word("stream", "a text that grows while you watch", _stream),
    Word("tool", "one terminal command", _with_calls(_terminal("echo hello from the terminal")), "terminal"),
    Word(
        "note",
        "a text, then a terminal command, then the answer",
        _with_calls(_terminal("echo noted"), text="First I look at the machine."),
        "terminal",
    ),
    Word(
        "parallel",
        "two terminal commands at once",
        _with_calls(_terminal("sleep 1 && echo one"), _terminal("echo two")),
        "terminal",
    ),
    Word("sleep", "a terminal command of 3 seconds, or of 20: `sleep 20`", _sleep, "terminal"),
    Word("todo", "a task list", _with_calls(_TODO), "todo"),
    Word(
        "approve",
        "a harmless command that Hermes asks a person about first",
        _approve,
        "terminal",
    ),
    Word(
        "approvals",
        "two such commands at once, of two subagents",
        _with_calls(_delegation("approve first", "approve second")),
        "delegation",
    ),
    Word("clarify", "a question with three choices", _with_calls(_CLARIFY), "clarify"),
    Word("question", "a question without choices", _with_calls(_OPEN_QUESTION), "clarify"),
    Word(
        "checklist",
        "a question to which several choices may be the answer",
        _with_calls(_CHECKLIST),
        "clarify",
    ),
    Word(
        "delegate", "a subagent, or one with a word of its own: `delegate approve`", _delegate, "delegation"
    ),
    Word("long", f"an answer of {LONG_ANSWER_CHARS} characters, or of 300000: `long 300000`", _long),
    Word("slow", f"an answer after {SLOW_SECONDS:.0f} seconds, or after 20: `slow 20`", _slow),
    Word("empty", "an empty answer", lambda _turn: Reply()),
    Word("repeat", "says what follows: `repeat some words`", _repeat),
    Word("history", "tells what you said before", _history),
    Word("error401", "the model's server refuses the key", _fail(401, "This key is not accepted.")),
    Word("error500", "the model's server fails", _fail(500, "The server has failed.")),
)
"""Every word, in the order in which people read them; the first one in a message counts."""
