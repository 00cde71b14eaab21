"""Recorded Hermes: from what the tap wrote to a cassette, and the shape in which two of them are compared.

A cassette is a JSON Lines file below `cassettes/plugin/`. Its rows are the calls in Hermes' order, with
IDs numbered by their first appearance, times and counts set to fixed values, and of each hook only the
values that the plugin reads; every other value is replaced by the name of its type.
"""

import json
import re
from pathlib import Path

CASSETTES = Path(__file__).parents[1] / "cassettes" / "plugin"

READ_OF_HOOKS = frozenset(
    {
        "api_call_count",
        "args",
        "assistant_message",
        "assistant_tool_call_count",
        "choice",
        "completed",
        "error_type",
        "failed",
        "finish_reason",
        "interrupted",
        "is_first_turn",
        "model",
        "new_session_id",
        "old_session_id",
        "parent_session_id",
        "platform",
        "provider",
        "reason",
        "response_model",
        "retryable",
        "session_id",
        "status",
        "status_code",
        "surface",
        "task_id",
        "tool_call_id",
        "tool_name",
        "turn_exit_reason",
        "turn_id",
        "usage",
    }
)
"""Members of hook payloads whose values are kept; the others hold prompts, contents and paths."""

_PATTERNS = (
    ("id", re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")),
    ("session", re.compile(r"\d{8}_\d{6}_[0-9a-f]{6,8}")),
    ("call", re.compile(r"call_[0-9a-f]{8,}")),
    ("turn", re.compile(r"(?<=:)[0-9a-f]{8}(?![0-9A-Za-z-])")),
    ("hex", re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")),
)
LARGEST_COUNT = 1_000_000
"""A larger number is no count but an ID of a running process (a draft's)."""

DRAFT = "send_draft"

_URL = re.compile(r"https?://[^\s\"'<>]+")
_PATH = re.compile(r"(?<![\w.<])/(?:[\w.+-]+/)*[\w.+-]+")


class Stable:
    """Replaces what differs from one recording to the next, the same thing by the same name."""

    def __init__(self):
        self._names = {}
        self._counts = {}
        self._numbers = {}

    def text(self, text):
        for kind, pattern in _PATTERNS:
            text = pattern.sub(lambda found, kind=kind: self._name(kind, found.group()), text)
        return _PATH.sub("<path>", _URL.sub("<url>", text))

    def _name(self, kind, value):
        if value not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[value] = f"<{kind} {self._counts[kind]}>"
        return self._names[value]

    def value(self, value):
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and value > LARGEST_COUNT:
            return self._numbers.setdefault(value, len(self._numbers) + 1)
        if isinstance(value, bool | int | None):
            return value
        if isinstance(value, float):
            return 0.0
        if isinstance(value, list):
            return [self.value(one) for one in value]
        return {key: self.value(one) for key, one in value.items()}


def stabilize(rows):
    """Make the rows of a cassette from the rows of the tap."""
    stable = Stable()
    return [stable.value(_kept(row)) for row in rows]


def _kept(row):
    if row["kind"] != "hook":
        return row
    values = sorted(row["arguments"].items())
    kept = {
        key: _hook_value(key, value) if key in READ_OF_HOOKS else type_word(value) for key, value in values
    }
    return {**row, "arguments": kept}


def _hook_value(key, value):
    """A value that the plugin reads; token counts depend on the machine's names and become fixed ones."""
    if key == "usage" and isinstance(value, dict):
        return {name: 10 * place for place, name in enumerate(sorted(value), start=1)}
    return value


def type_word(value):
    """The name of a JSON value's type."""
    return f"<{type(value).__name__}>"


def shape(rows):
    """What must not change from one recording to the next: which calls come, from where, with what.

    Calls of different threads overtake each other, so each kind of call on each kind of thread has an
    order of its own. Drafts are left out (`drafts`).
    """
    lanes = {}
    for row in rows:
        if row["name"] != DRAFT:
            lanes.setdefault(f"{row['kind']} on {row['thread']}", []).append(_call(row))
    return lanes


def drafts(rows):
    """The different forms of a growing text's calls.

    How often it is told before it is complete, and whether at all, depends on the machine.
    """
    return {json.dumps(_call(row)) for row in rows if row["name"] == DRAFT}


def _call(row):
    return [row["name"], row["bothy_thread"] is not None, _shape(row["arguments"])]


def _shape(value):
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in sorted(value.items())}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return value if isinstance(value, bool) or value is None else type_word(value)


def read_rows(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
