"""Text that stands on a line: visible, whole, and no longer than it may be."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.plain_text import cut, one_line, repair, reveal_hidden, reveal_order

ANY = st.text(st.characters(), max_size=60)  # surrogates included
FLAG = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\r\ntwo\u2028three\x0bfour\x85five", "one two three four five"),
        ("  a \t b  ", "a b"),
        ("a\x00b\x1bc\x7fd\x9be", "a␀b␛c␡d⟨U+009B⟩e"),
        ("invoice\u202egpj.exe", "invoice⟨U+202E⟩gpj.exe"),
        ("x\U000e0041\U000e0042", "x⟨U+E0041⟩⟨U+E0042⟩"),
        ("a\ud83d\ude00b\udfffc", "a\U0001f600b\ufffdc"),
        (
            "\u05e9\u05dc\u05d5\u05dd\u200f \u0645\u06cc\u200c\u062e",
            "\u05e9\u05dc\u05d5\u05dd\u200f \u0645\u06cc\u200c\u062e",
        ),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
        (FLAG, FLAG),
        ("", ""),
    ],
    ids=["breaks", "spaces", "controls", "override", "tags", "surrogates", "rtl", "family", "flag", "empty"],
)
def test_one_line_shows_what_is_there(text, line):
    """Breaks become spaces, what acts becomes visible, scripts and emoji stay."""
    assert one_line(text, 200) == line


@given(ANY, st.integers(1, 40))
def test_one_line_is_a_line_within_its_limit(text, limit):
    """No string at all makes a second line, an invisible order or a text that is too long."""
    line = one_line(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in line)
    assert not any(
        unicodedata.bidirectional(char) in {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI"} for char in line
    )
    assert one_line(line, limit) == line


@given(ANY)
def test_a_repaired_text_can_be_encoded(text):
    """Nothing that a string can hold is left that UTF-8 cannot carry; the rest is untouched."""
    repaired = repair(text)
    repaired.encode("utf-8")

    assert repaired == text or any("\ud800" <= char <= "\udfff" for char in text)
    assert repair(repaired) == repaired


@given(ANY)
def test_tab_and_newline_are_not_hidden(text):
    """A revealed text keeps its lines and columns, and no other control character."""
    found = reveal_hidden(text)

    assert (found.count("\n"), found.count("\t")) == (text.count("\n"), text.count("\t"))
    assert not any(unicodedata.category(char) == "Cc" and char not in "\n\t" for char in found)
    assert reveal_hidden(found) == found


def test_isolates_are_shown_where_order_matters():
    """A command that displays in another order than it runs is shown with its marks."""
    assert reveal_order("rm \u2066x\u2069") == "rm ⟨U+2066⟩x⟨U+2069⟩"


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("ae\u0301b", 3, "a…"), ("abc", 1, "…")],
    ids=["fits", "cut", "whole-grapheme", "tiny"],
)
def test_a_cut_leaves_an_ellipsis_and_whole_characters(text, limit, expected):
    """What is left never ends in half a character."""
    assert cut(text, limit) == expected
