"""Where a text may be cut without breaking a character that people see as one.

Layer: rules. The extended grapheme clusters of Unicode's UAX #29 as far as the standard library's
character database carries them: combining marks, variation selectors, joiner sequences, skin tones,
flags of both kinds, Hangul syllables, conjuncts. Where the database lacks a property the answer is
"do not cut": a cluster may come out larger than the standard's, never smaller.
"""

from __future__ import annotations

import unicodedata

_FIRST_COMBINING = "\u0300"
"""Below it nothing but the pair CR LF belongs together."""

_JOINER = "\u200d"
_NON_JOINER = "\u200c"
_VIRAMA_CLASS = 9
"""Canonical combining class of the marks that bind the next consonant."""

_PREPENDED = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"
    "\U000110bd\U000110cd\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011d46\U00011f02"
)
"""Signs that are written before the character they belong to (property Prepend)."""

_EXTRA_EXTENDING = frozenset("\u0e33\u0eb3\uff9e\uff9f")
"""Letters that Unicode counts as part of the character before them."""

_CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp"})
_MARK_CATEGORIES = frozenset({"Mn", "Me", "Mc"})


def is_boundary(text: str, index: int, floor: int = 0) -> bool:
    """Whether a text may be cut before the character at an index.

    Args:
        text: The text.
        index: A position from 0 to the text's length; both ends are boundaries.
        floor: A boundary at or before the index; nothing before it is looked at.
    """
    if not 0 < index < len(text):
        return True
    before, after = text[index - 1], text[index]
    if after < _FIRST_COMBINING and before < _FIRST_COMBINING:
        return not (before == "\r" and after == "\n")
    if _extends(after):
        return _is_control(before)
    if _is_control(after) or _is_control(before):
        return True
    return not (
        before == _JOINER
        or before in _PREPENDED
        or _same_syllable(before, after)
        or _same_conjunct(text, index, floor)
        or _same_flag(text, index, floor)
    )


def boundary_before(text: str, index: int, floor: int = 0) -> int:
    """Return the last boundary at or before an index.

    A single cluster that reaches from `floor` over the index has none; it is then cut at the index
    itself, because a limit has to hold even against a letter with a thousand accents.

    Args:
        text: The text.
        index: Where the cut has to be at the latest.
        floor: A boundary that must lie before the cut, so that something is cut off.
    """
    for position in range(min(index, len(text)), floor, -1):
        if is_boundary(text, position, floor):
            return position
    return index


def _extends(char: str) -> bool:
    """Whether a character belongs to the one before it, whatever that is."""
    return (
        unicodedata.category(char) in _MARK_CATEGORIES
        or char in _EXTRA_EXTENDING
        or char in (_JOINER, _NON_JOINER)
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # tags of a subdivision's flag
    )


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in _CONTROL_CATEGORIES and char not in _PREPENDED and not _extends(char)


def _same_syllable(before: str, after: str) -> bool:
    """Whether two Hangul letters stand in one syllable (rules GB6 to GB8)."""
    first, second = _hangul(before), _hangul(after)
    return second in _HANGUL_FOLLOWS.get(first, "")


def _hangul(char: str) -> str:
    """The Hangul kind of a character: L, V, T, the syllables A (LV) and B (LVT), or nothing."""
    if "\uac00" <= char <= "\ud7a3":
        return "A" if (ord(char) - 0xAC00) % 28 == 0 else "B"
    for kind, start, end in _HANGUL_LETTERS:
        if start <= char <= end:
            return kind
    return "-"


_HANGUL_FOLLOWS = {"L": "LVAB", "V": "VT", "A": "VT", "T": "T", "B": "T"}
_HANGUL_LETTERS = (
    ("L", "\u1100", "\u115f"),
    ("V", "\u1160", "\u11a7"),
    ("T", "\u11a8", "\u11ff"),
    ("L", "\ua960", "\ua97c"),
    ("V", "\ud7b0", "\ud7c6"),
    ("T", "\ud7cb", "\ud7fb"),
)


def _same_conjunct(text: str, index: int, floor: int) -> bool:
    """Whether a virama among the marks before the index binds the letter at it (rule GB9c)."""
    if unicodedata.category(text[index]) != "Lo":
        return False
    for position in range(index - 1, floor - 1, -1):
        char = text[position]
        if unicodedata.combining(char) == _VIRAMA_CLASS:
            return True
        if not _extends(char):
            return False
    return False


def _same_flag(text: str, index: int, floor: int) -> bool:
    """Whether the index stands inside a pair of regional indicators (rules GB12 and GB13)."""
    if not _is_regional(text[index]):
        return False
    start = index
    while start > floor and _is_regional(text[start - 1]):
        start -= 1
    return (index - start) % 2 == 1


def _is_regional(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"
