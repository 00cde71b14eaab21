"""How texts of other people stand in a turn: in blocks that they cannot leave.

Layer: rules. Every line that the adapter writes begins with a mark that is drawn anew for each turn;
whatever comes from people, files or the server's records stands between two such lines, or quoted
inside one. A text cannot hold the mark: nobody could know it, and where it stands in a text all the
same it is taken out. What the blocks are about is `context`'s subject.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from .plain_text import one_line, repair, reveal_hidden

BOUNDARY_BYTES = 12
"""96 random bits: more than all texts of a turn together could guess at."""

NAME_CHARS = 200
"""Characters of a name in a line of the adapter; longer ones are cut."""

TAKEN_OUT = "[…]"
"""What stands in a text where it held the mark of its own turn."""

_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n")
_HIDDEN = re.compile(rb"\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xf3\xa0[\x80\x81]")
"""In UTF-8: the second set of control characters, line separators, tag letters."""


def new_boundary(random_bytes: Callable[[int], bytes]) -> str:
    """Draw a boundary for one turn.

    Args:
        random_bytes: Gives that many unpredictable bytes.
    """
    return random_bytes(BOUNDARY_BYTES).hex()


class Rendering:
    """Lines of the adapter and blocks between them, in the order in which they are added.

    Args:
        boundary: The turn's boundary.
    """

    def __init__(self, boundary: str) -> None:
        self._boundary = boundary
        self._parts: list[str] = []
        self.mark = f"={boundary}="
        """How every line of the adapter begins."""

    def text(self, text: str) -> None:
        """Add a text of the adapter's own, outside of every block."""
        self._parts.append(text)

    def line(self, *fields: str) -> None:
        """Add a line of the adapter.

        Args:
            fields: Words of the adapter, or what `quoted` made of others'.
        """
        self._parts.append(f"{self.mark} {' | '.join(fields)}")

    def block(self, *fields: str, content: str) -> None:
        """Add a text of somebody else under a line that says what it is."""
        self.line(*fields)
        self._parts.append(self.contained(content))
        self.line("end")

    def quoted(self, text: str) -> str:
        """Return a name as one quoted, visible piece of a line."""
        line = json.dumps(one_line(text, NAME_CHARS), ensure_ascii=False)
        return line.replace(self._boundary, TAKEN_OUT)

    def contained(self, text: str) -> str:
        """Return a text without what it must not hold: the mark, and characters nobody can see.

        Line ends become newlines; letters of every script, joiners and direction marks stay.
        """
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            return self.contained(repair(text))
        if len(data.translate(None, _CONTROLS)) != len(data) or _HIDDEN.search(data):
            text = reveal_hidden(text.replace("\r\n", "\n").replace("\r", "\n"))
        return text.replace(self._boundary, TAKEN_OUT)

    def __str__(self) -> str:
        return "\n".join(self._parts)
