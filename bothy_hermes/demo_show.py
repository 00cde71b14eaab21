"""What the demo prints: the live box as it changes, for people as lines, for programs as JSON.

Layer: doors. Pure but for the stream it writes to. It reads run views as a person's client gets them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

Json = Mapping[str, Any]

DRAFT_CHARS = 100
"""Characters of the growing answer that one line shows: its end, where the change is."""

_MARKS = {"running": "…", "completed": "✓", "failed": "✗"}


class BoxView:
    """One run's live box as it was last shown."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}

    def changes(self, view: Json) -> list[str]:
        """The lines for what is new since the last call."""
        fresh = {name: line for name, line in _parts(view) if self._shown.get(name) != line}
        self._shown.update(fresh)
        return [line for line in fresh.values() if line]


def _parts(view: Json) -> Iterator[tuple[str, str]]:
    """The visible parts of a box, each with a name under which a later one replaces it."""
    run, document = view["run"], view["document"]
    reason = f" ({run['reason']})" if run["reason"] else ""
    yield "state", f"run {run['state']}{reason}"
    for step in document["steps"]:
        yield f"step {step['id']}", f"  {_MARKS.get(step['state'], '?')} {step['title']}"
    yield "status", f"  {document['status_line']}" if document["status_line"] else ""
    excerpt = " ".join((document["last_text_excerpt"] or "").split())
    yield "draft", f"  > {excerpt[-DRAFT_CHARS:]}" if excerpt else ""


class Show:
    """Where the demo's lines go.

    Args:
        out: The stream.
        as_json: One JSON object a line instead of text.
    """

    def __init__(self, out: TextIO, *, as_json: bool) -> None:
        self._out = out
        self._as_json = as_json
        self._box = BoxView()

    def stage(self, text: str) -> None:
        """Tell what is being done."""
        self._write({"stage": text} if self._as_json else text)

    def farewell(self, text: str) -> None:
        """Tell what is done at the end; for programs the result stays the last line."""
        if not self._as_json:
            self._write(text)

    def run(self, view: Json) -> None:
        """Show a run as it is now; nothing when it looks as before."""
        lines = self._box.changes(view)
        if self._as_json and lines:
            self._write({"state": view["run"]["state"], "box": view["document"]})
        elif lines:
            self._write("\n".join(lines))

    def card(self, message: Json) -> None:
        """Show what the agent asks people, with the choices."""
        labels = [
            option["label"]
            for one in message["components"]
            for option in one["options"] or [{"label": one["label"]}]
        ]
        if self._as_json:
            self._write({"card": message["content"], "choices": labels})
            return
        lines = [f"  ? {line}" for line in message["content"].splitlines() if line.strip()]
        self._write("\n".join([*lines, f"  ? [{'] ['.join(labels)}]" if labels else "  ? (write an answer)"]))

    def result(self, view: Json, answer: str) -> None:
        """Show how the run ended and what was answered."""
        if self._as_json:
            self._write({"run": view["run"], "answer": answer})
        else:
            self._write(f"\n{answer}" if answer else "\n(no answer)")

    def _write(self, value: Json | str) -> None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._out.write(text + "\n")
        self._out.flush()
