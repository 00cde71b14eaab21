"""Long answers as several messages, each within the limit, none broken where people would see it.

Layer: rules. A cut is made at the end of a paragraph, else of a line, a sentence or a word, else
between graphemes. A block of code that a cut goes through is closed before it and opened again behind
it, under its own info string, by the rules of CommonMark's fences. Nothing of the text is dropped:
without the added fences the parts are the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from .graphemes import boundary_before
from .plain_text import repair

LEAST_LIMIT = 4
"""Bytes: the longest character in UTF-8 has to fit."""

FENCE_SHARE = 4
"""Added fences take at most that fraction of a part; a longer one is not repeated."""

_FENCE_LINE = re.compile(
    r"^(?P<prefix>[ \t]{0,40}(?:(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])[ \t]{0,20}){0,10})"
    r"(?P<fence>`{3,}|~{3,})(?P<info>[^\n]{0,200})$",
    re.MULTILINE,
)
"""A line that opens or closes a block of code, in quotes and lists as well."""

_LIST_MARKER = re.compile(r"[-*+]|\d{1,9}[.)]")
_SENTENCE_END = re.compile(r"[.!?…؟۔]['\")\]»”’]{0,3}\s|[。！？]")  # noqa: RUF001  # full-width marks end sentences, too


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a text.

    Attributes:
        opening: The line that opens again a block of code of the part before; mostly empty.
        body: The text's own characters.
        closing: The fence that closes a block of code which goes on in the next part; mostly empty.
    """

    opening: str = field(repr=False)
    body: str = field(repr=False)
    closing: str = field(repr=False)

    def __str__(self) -> str:
        return self.opening + self.body + self.closing


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of code in a text: where its lines begin and end, and how it is opened and closed.

    Without `opening` and `closing` its fences are too long to be repeated.
    """

    start: int
    first_line: int
    closing_line: int
    end: int
    opening: str = field(repr=False)
    closing: str = field(repr=False)

    def mended_at(self, cut: int) -> bool:
        """Whether a cut goes through its code, and its fences may be added there."""
        return bool(self.closing) and self.first_line <= cut <= self.closing_line and cut < self.end


def split_message(text: str, limit_bytes: int) -> list[str]:
    """Split a text into parts.

    Args:
        text: The text, Markdown; lone surrogates in it become U+FFFD.
        limit_bytes: The most bytes of UTF-8 a part may have.

    Returns:
        At least one part, in order.

    Raises:
        ValueError: The limit is below `LEAST_LIMIT`.
    """
    return [str(piece) for piece in cut_pieces(text, limit_bytes)]


def cut_pieces(text: str, limit_bytes: int) -> list[Piece]:
    """Split a text as `split_message` does, and tell what was added.

    Raises:
        ValueError: The limit is below `LEAST_LIMIT`.
    """
    if limit_bytes < LEAST_LIMIT:
        raise ValueError(f"a limit of at least {LEAST_LIMIT} bytes is needed")
    text = repair(text)
    if len(text.encode()) <= limit_bytes:
        return [Piece("", text, "")]
    return list(_pieces(text, limit_bytes))


def _pieces(text: str, limit_bytes: int) -> Iterator[Piece]:
    blocks = list(_blocks(text, limit_bytes))
    position, opening = 0, ""
    while True:
        room = limit_bytes - len(opening.encode())
        if _fitting(text, position, room) == len(text):
            yield Piece(opening, text[position:], "")
            return
        cut, block = _cut(text, position, room, blocks)
        yield Piece(opening, text[position:cut], _closing(text, cut, block))
        position, opening = cut, block.opening if block else ""


def _cut(text: str, start: int, room: int, blocks: list[_Block]) -> tuple[int, _Block | None]:
    """Find where a part ends, and the block of code that goes on behind it.

    The room for a closing fence is known only when the place is; looking again with that room taken
    off ends, because it only ever grows, up to the longest fence.
    """
    reserve = 0
    while True:
        end = _fitting(text, start, room - reserve)
        near = _between(blocks, start, end)
        cut = _best_place(text, start, end, near)
        block = next((one for one in near if one.mended_at(cut)), None)
        needed = len(_closing(text, cut, block).encode())
        if needed <= reserve:
            return cut, block
        reserve = needed


def _closing(text: str, cut: int, block: _Block | None) -> str:
    if block is None:
        return ""
    return block.closing if text[cut - 1] == "\n" else f"\n{block.closing}"


def _fitting(text: str, start: int, room: int) -> int:
    """The end of what fits into the room, in whole characters."""
    data = text[start : start + room].encode()
    return start + len(data[:room].decode("utf-8", "ignore"))


# Places -------------------------------------------------------------------------------------------


def _best_place(text: str, start: int, end: int, blocks: list[_Block]) -> int:
    """The best cut in the later half of what fits: a part is never wastefully short."""
    half = start + (end - start) // 2
    found = (
        _paragraph_end(text, half, end, blocks)
        or _line_end(text, half, end, blocks)
        or _sentence_end(text, half, end)
        or _word_end(text, half, end)
        or end
    )
    return _off_fences(boundary_before(text, found, start), start, blocks)


def _paragraph_end(text: str, half: int, end: int, blocks: list[_Block]) -> int:
    """Behind the last blank line, or at an edge of the last block of code; 0 when there is neither."""
    edges = [edge for block in blocks for edge in (block.start, block.end) if half < edge <= end]
    blank = text.rfind("\n\n", half, end)
    if blank >= 0 and not any(block.start < blank + 2 < block.end for block in blocks):
        edges.append(blank + 2)
    return max(edges, default=0)


def _line_end(text: str, half: int, end: int, blocks: list[_Block]) -> int:
    """Behind the last line, but not so that a block of code is left empty on one side."""
    unwanted = {edge for block in blocks for edge in (block.first_line, block.closing_line)}
    newline = text.rfind("\n", half, end)
    while newline >= 0 and newline + 1 in unwanted:
        newline = text.rfind("\n", half, newline)
    return newline + 1


def _sentence_end(text: str, half: int, end: int) -> int:
    last = 0
    for match in _SENTENCE_END.finditer(text, half, end):
        last = match.end()
    return last


def _word_end(text: str, half: int, end: int) -> int:
    window = text[half:end]
    if window[-1:].isspace():
        return end
    tail = window.rsplit(None, 1)[-1] if window else ""
    return end - len(tail) if len(tail) < len(window) else 0


def _off_fences(cut: int, start: int, blocks: list[_Block]) -> int:
    """Move a cut that would break a fence's own line to that line's beginning."""
    for block in blocks:
        for line, line_end in ((block.start, block.first_line), (block.closing_line, block.end)):
            if start < line < cut < line_end:
                return line
    return cut


# Blocks of code -----------------------------------------------------------------------------------


def _blocks(text: str, limit_bytes: int) -> Iterator[_Block]:
    """Go through a text's blocks of code; one that is never closed ends with the text."""
    opener: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text):
        if opener is None:
            opener = line if _opens(line) else None
        elif _closes(line, opener):
            yield _block(opener, line.start(), min(line.end() + 1, len(text)), limit_bytes)
            opener = None
    if opener is not None:
        yield _block(opener, len(text), len(text), limit_bytes)


def _between(blocks: list[_Block], start: int, end: int) -> list[_Block]:
    """The blocks that have something between two places; the list is in order and has no overlaps."""
    first = bisect_right(blocks, start, key=lambda block: block.end)
    behind = bisect_right(blocks, end, key=lambda block: block.start)
    return blocks[first:behind]


def _opens(line: re.Match[str]) -> bool:
    return line["fence"][0] == "~" or "`" not in line["info"]


def _closes(line: re.Match[str], opener: re.Match[str]) -> bool:
    return line["fence"].startswith(opener["fence"]) and not line["info"].strip()


def _block(opener: re.Match[str], closing_line: int, end: int, limit_bytes: int) -> _Block:
    # A list's marker opens its item again; inside the item its width is indentation.
    inner = _LIST_MARKER.sub(lambda marker: " " * len(marker[0]), opener["prefix"])
    opening = f"{opener['prefix']}{opener['fence']}{opener['info'].rstrip()}\n"
    closing = f"{inner}{opener['fence']}"
    if len(f"{opening}\n{closing}".encode()) * FENCE_SHARE > limit_bytes:
        opening = closing = ""
    return _Block(
        start=opener.start(),
        first_line=min(opener.end() + 1, end),
        closing_line=closing_line,
        end=end,
        opening=opening,
        closing=closing,
    )
