"""Text from outside, made safe to stand on a line: nothing hidden, nothing that breaks the line.

Layer: rules. People and models put into names, titles and commands whatever a string can hold. Here
line breaks become spaces, characters that act instead of being read become visible, and lone
surrogates, which no UTF-8 can carry, become U+FFFD. Letters of every script, joiners and the
direction marks of ordinary right-to-left text stay as they are.
"""

from __future__ import annotations

import re

from .graphemes import boundary_before

ELLIPSIS = "…"
"""Ends a text that was cut."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = re.compile(
    "\U0001f3f4[\U000e0020-\U000e007e]{1,16}\U000e007f"  # a subdivision's flag: the tags are its spelling
    "|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\U000e0000-\U000e007f]+"
)
"""Control characters but tab and newline, and tag letters, which a model reads and nobody sees."""

_REORDERING = re.compile("[\u202a-\u202e\u2066-\u2069]+")
"""What makes a text look different from what it says: overrides, embeddings and isolates."""

_PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    0x7F: "\u2421",
    **{
        code: f"⟨U+{code:04X}⟩"
        for codes in (
            range(0x80, 0xA0),
            range(0x2028, 0x202F),
            range(0x2066, 0x206A),
            range(0xE0000, 0xE0080),
        )
        for code in codes
    },
}
"""What stands for a character that cannot be seen: its control picture, else its number."""


def repair(text: str) -> str:
    """Join surrogates that belong together and replace each lone one by U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def reveal_hidden(text: str) -> str:
    """Make control characters and hidden tag letters visible; tab and newline stay."""
    return _HIDDEN.sub(_picture, text)


def reveal_order(text: str) -> str:
    """Make the characters visible that reorder what stands beside them."""
    return _REORDERING.sub(_picture, text)


def one_line(text: str, max_chars: int) -> str:
    """Return a text as one visible line of at most that many characters.

    White space of any kind becomes one space; what is cut off leaves an ellipsis.
    """
    line = " ".join(repair(text).split())
    if not line.isprintable():
        line = reveal_order(reveal_hidden(line))
    return cut(line, max_chars)


def cut(text: str, max_chars: int) -> str:
    """Cut a text to that many characters, between graphemes, with an ellipsis at the end."""
    if len(text) <= max_chars:
        return text
    end = boundary_before(text, max_chars - len(ELLIPSIS))
    return text[:end] + ELLIPSIS


def _picture(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith("\U0001f3f4") else found.translate(_PICTURES)
