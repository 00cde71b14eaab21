"""How texts of other people stand in a turn: in blocks that they cannot leave.

Layer: rules. Every line that the adapter writes begins with a mark; whatever comes from people, files or
the server's records stands between two such lines, or quoted inside one. A text is collected first, the
mark is computed from all of it with a secret, and only then it is written: whoever adds a word gets
another mark, so no text can hold its own. What the blocks are about is `context`'s subject.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum

from .plain_text import one_line, repair, reveal_hidden

SECRET_BYTES = 32
"""A secret as long as the digest, so that guessing it is no easier than guessing a mark's digest."""

BOUNDARY_BYTES = 12
"""96 bits of the digest: more than all texts of a turn together could guess at."""

NAME_CHARS = 200
"""Characters of a name in a line of the adapter; longer ones are cut."""

MARK = "{mark}"
"""Stands for the mark in the adapter's own words."""

_CONTROLS = bytes(code for code in (*range(0x20), 0x7F) if code not in b"\t\n")
_HIDDEN = re.compile(rb"\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xf3\xa0[\x80\x81]")
"""In UTF-8: the second set of control characters, line separators, tag letters."""


class _Kind(Enum):
    """What a part of a rendering is; the value is its tag in the digest."""

    OWN = b"o"
    LINE = b"l"
    WORDS = b"w"


class Rendering:
    """The adapter's lines and the texts between them, in the order in which they are added."""

    def __init__(self) -> None:
        self._parts: list[tuple[_Kind, str]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._parts

    @property
    def has_lines(self) -> bool:
        """Whether the mark stands in it."""
        return any(kind is _Kind.LINE for kind, _ in self._parts)

    def paragraph(self) -> None:
        """Leave a blank line between what stands there and what comes."""
        if self._parts:
            self.own("")

    def own(self, text: str) -> None:
        """Add words of the adapter's own, in which `MARK` stands for the mark; nothing of anybody else."""
        self._parts.append((_Kind.OWN, text))

    def line(self, *fields: str) -> None:
        """Add a line of the adapter.

        Args:
            fields: Words of the adapter, or what `quoted` made of others'.
        """
        self._parts.append((_Kind.LINE, " | ".join(fields)))

    def words(self, content: str) -> None:
        """Add a text of somebody else outside of every block."""
        self._parts.append((_Kind.WORDS, contained(content)))

    def block(self, *fields: str, content: str) -> None:
        """Add a text of somebody else under a line that says what it is."""
        self.line(*fields)
        self.words(content)
        self.line("end")

    def texts(self) -> Iterator[str]:
        """Yield every part as it will stand there, without marks."""
        return (text for _, text in self._parts)

    def feed(self, digest: hmac.HMAC) -> None:
        """Add every part to a digest, with its kind and length, so that no two renderings read alike."""
        for kind, text in self._parts:
            data = text.encode("utf-8")
            digest.update(b"%b%d:" % (kind.value, len(data)))
            digest.update(data)

    def written(self, boundary: str) -> str:
        """Return the whole text.

        Args:
            boundary: What `boundary_of` computed for it.
        """
        mark = f"={boundary}="
        return "\n".join(_written(kind, text, mark) for kind, text in self._parts)


def _written(kind: _Kind, text: str, mark: str) -> str:
    if kind is _Kind.LINE:
        return f"{mark} {text}"
    return text.replace(MARK, mark) if kind is _Kind.OWN else text


def boundary_of(secret: bytes, place: str, renderings: Iterable[Rendering], beside: Iterable[str]) -> str:
    """Compute the boundary of one turn's texts.

    The same texts have the same boundary, so that what did not change reads the same in the next turn.
    Without the secret nobody can tell it beforehand.

    Args:
        secret: `SECRET_BYTES` random bytes that never leave the process.
        place: Where the texts are read: what is learnt in one place says nothing about another.
        renderings: Every text in which the boundary marks lines.
        beside: Other texts that the model has or may have seen, none of which may hold the boundary.
    """
    texts = [*beside]
    digest = hmac.new(secret, place.encode("utf-8") + b"\0", "sha256")
    for rendering in renderings:
        rendering.feed(digest)
        digest.update(b".")
        texts += rendering.texts()
    return unheld(digest, texts)


def unheld(digest: hmac.HMAC, texts: Iterable[str]) -> str:
    """Return the first boundary of a digest that no text holds."""
    texts = tuple(texts)
    while True:
        digest.update(b"!")
        boundary = digest.hexdigest()[: 2 * BOUNDARY_BYTES]
        if not any(boundary in text for text in texts):
            return boundary


def quoted(text: str) -> str:
    """Return a name as one quoted, visible piece of a line."""
    return json.dumps(one_line(text, NAME_CHARS), ensure_ascii=False)


def contained(text: str) -> str:
    """Return a text without the characters that nobody can see.

    Line ends become newlines; letters of every script, joiners and direction marks stay.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        return contained(repair(text))
    if len(data.translate(None, _CONTROLS)) != len(data) or _HIDDEN.search(data):
        return reveal_hidden(text.replace("\r\n", "\n").replace("\r", "\n"))
    return text
