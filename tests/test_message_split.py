"""Long answers in parts: complete, within the limit, and readable each by itself."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.graphemes import is_boundary
from bothy_hermes.message_split import LEAST_LIMIT, cut_pieces, split_message
from bothy_hermes.plain_text import repair

PIECES = st.sampled_from(
    [
        "word ",
        "A sentence. ",
        "\n",
        "\n\n",
        "```python\n",
        "```\n",
        "````md\n",
        "~~~\n",
        "> ```sh\n> ls\n> ```\n",
        "- ```js\n",
        "x = 1\n",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "e\u0301",
        "\u05e9\u05dc\u05d5\u05dd ",
        "\u65e5\u672c\u8a9e\u3002",
        "\ud83d",
        "\r\n",
        "z" * 30,
    ]
)
TEXTS = st.lists(PIECES | st.text(st.characters(), max_size=4), max_size=60).map("".join)


def is_closed(text):
    """Whether every block of code in a text is closed, read as simply as it can be."""
    fence = None
    for line in text.split("\n"):
        found = re.match(r"[ >\-]*(`{3,}|~{3,})([^`]*)$", line)
        if found and fence is None:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence = None
    return fence is None


@given(TEXTS, st.integers(LEAST_LIMIT, 200))
@settings(max_examples=300)
def test_nothing_is_lost_and_no_part_is_too_long(text, limit):
    """Without the added fences the parts are the text, and each one fits, whatever the text is."""
    pieces = cut_pieces(text, limit)

    assert "".join(piece.body for piece in pieces) == repair(text)
    assert [str(piece) for piece in pieces] == split_message(text, limit)
    for piece in pieces:
        assert len(str(piece).encode("utf-8")) <= limit
        assert re.fullmatch(r"([ >-]*(`{3,}|~{3,})[^\n]*\n)?", piece.opening)
        assert re.fullmatch(r"(\n?[ >]*(`{3,}|~{3,}))?", piece.closing)
    assert all(piece.body for piece in pieces) or text == ""


@given(TEXTS, st.integers(100, 300))
def test_a_part_is_well_used(text, limit):
    """No part but the last is shorter than half of what it could hold, less the fences."""
    pieces = cut_pieces(text, limit)

    for piece in pieces[:-1]:
        assert len(str(piece).encode()) > limit // 8


@given(TEXTS, st.integers(100, 300))
def test_blocks_of_code_are_whole_in_each_part(text, limit):
    """Where the text closes its blocks, so does each part; what was closed is opened again."""
    pieces = cut_pieces(text, limit)
    if is_closed(repair(text)):
        assert all(is_closed(str(piece)) for piece in pieces)
    for before, after in itertools.pairwise(pieces):
        assert bool(before.closing) == bool(after.opening)
    assert (pieces[0].opening, pieces[-1].closing) == ("", "")


@given(TEXTS, st.integers(150, 300))
def test_no_grapheme_is_cut(text, limit):
    """Families, flags and accents stay whole, as no single one of them is longer than a part."""
    pieces = cut_pieces(text, limit)
    whole, position = repair(text), 0
    for piece in pieces:
        assert is_boundary(whole, position)
        position += len(piece.body)


@pytest.mark.parametrize(
    "cluster",
    [
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea",
        "e\u0301",
        "\u0915\u094d\u0937",
        "\r\n",
    ],
    ids=["family", "flag", "accent", "conjunct", "line-end"],
)
def test_a_text_without_words_is_cut_between_graphemes(cluster):
    """Where nothing else helps, whole characters are the last resort."""
    for limit in range(40, 60):
        for part in split_message(cluster * 100, limit):
            assert part == cluster * (len(part) // len(cluster))


def test_a_grapheme_longer_than_the_limit_is_cut_between_characters():
    """A letter with thousands of accents cannot make a part too long."""
    text = "z" + "\u0301" * 5000

    assert split_message(text, 100) == [text[:50], *[text[at : at + 50] for at in range(50, 5001, 50)]]


def test_content_stays_out_of_repr():
    """What was said is in no log line that shows a part."""
    assert "secret" not in repr(cut_pieces("```secret\n" + "a secret line\n" * 10 + "```", 60))


@pytest.mark.parametrize("text", ["", "short", "x" * 100], ids=["empty", "short", "exact"])
def test_what_fits_is_one_part(text):
    """There is always a part, and it is the text."""
    assert split_message(text, 100) == [text]


def test_a_limit_that_no_character_fits_is_refused():
    """The longest character of UTF-8 has four bytes."""
    with pytest.raises(ValueError, match="at least 4 bytes"):
        split_message("text", LEAST_LIMIT - 1)


def test_lone_surrogates_become_replacement_characters():
    """What UTF-8 cannot carry does not break the answer."""
    assert split_message("a\ud83d b", 4) == ["a\ufffd", " b"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("One para.\n\nAnother one. Yes.\n\nThird", ["One para.\n\nAnother one. Yes.\n\n", "Third"]),
        ("A line that is long\nA second line long", ["A line that is long\n", "A second line long"]),
        ("It is a text. And one more text to read", ["It is a text. And one more ", "text to read"]),
        ("Aa bb cc dd. Ee ff gg. Hhhhhh iiiiii jjjj", ["Aa bb cc dd. Ee ff gg. ", "Hhhhhh iiiiii jjjj"]),
        ("word another wordword wordwordword", ["word another wordword ", "wordwordword"]),
        ("x" * 40, ["x" * 30, "x" * 10]),
        ("\u65e5\u672c\u8a9e\u3002" * 4, ["\u65e5\u672c\u8a9e\u3002" * 2, "\u65e5\u672c\u8a9e\u3002" * 2]),
        ("Text here it is:\n```py\na = 1\n```\n", ["Text here it is:\n", "```py\na = 1\n```\n"]),
        (
            "A first paragraph.\n\nA line\nA line, a line",
            ["A first paragraph.\n\n", "A line\nA line, a line"],
        ),
        (f"```\n{'a' * 20}\nbbbb\n```\n", [f"```\n{'a' * 20}\n", "bbbb\n```\n"]),
        (f"Hi\n```python {'x' * 18}\ny\n```", ["Hi\n", f"```python {'x' * 18}\n", "y\n```"]),
    ],
    ids=[
        "paragraph",
        "line",
        "words",
        "sentence",
        "word",
        "nothing",
        "ideographs",
        "before-code",
        "paragraph-first",
        "code-end",
        "fence",
    ],
)
def test_the_best_place_is_taken(text, parts):
    """Paragraphs before lines, lines before sentences, sentences before words, words before letters."""
    assert split_message(text, 30) == parts


LINES = [f"line_{number} = {number}" for number in range(12)]
CODE = "\n".join(LINES) + "\n"
QUOTED = "".join(f"> {line}\n" for line in LINES)
INDENTED = "".join(f"   {line}\n" for line in LINES)


@pytest.mark.parametrize(
    "text",
    [
        f"Look:\n\n```python title=x\n{CODE}```\n\nDone.",
        f"~~~~\n{CODE}```\n{CODE}~~~~\n",
        f"> ```sh\n{QUOTED}> ```\n",
        f"1. ```js\n{INDENTED}   ```\n",
        f"```\n{CODE}",
        f"```\r\n{CODE}```\r\nEnd",
        f"```{'i' * 300}\n{CODE}```\n",
        f"``` `not a fence`\n{CODE}",
    ],
    ids=["info", "tildes", "quote", "list", "unclosed", "crlf", "long-info", "inline"],
)
def test_code_is_closed_and_opened_again(text, snapshot):
    """Each part of a block of code is a block of its own, with the same info string."""
    parts = split_message(text, 120)

    assert len(parts) > 1
    assert parts == snapshot


def test_a_fence_with_words_behind_it_closes_nothing():
    """Each part is read by itself, and none leaves the block open."""
    assert all(is_closed(part) for part in split_message(f"```\n{CODE}``` x\n{CODE}```\n", 120))


def test_a_closing_fence_never_makes_a_part_too_long():
    """The room for the fence is taken off before the cut is made, whatever the limit is."""
    for limit in range(50, 120):
        parts = split_message("````py\n" + "x = 1\n" * 60 + "````", limit)
        assert all(part.startswith("````py\n") and len(part) <= limit for part in parts)


def test_fences_are_left_out_where_they_would_not_fit():
    """With a tiny limit the text matters more than its looks."""
    assert "".join(split_message(f"```python\n{CODE}```", 12)) == f"```python\n{CODE}```"


@pytest.mark.parametrize(
    "piece",
    [
        "word ",
        "x",
        "\n",
        "```\n",
        "```\nx\n```\n",
        "\u0301",
        "\U0001f1e9",
        "\u200d\U0001f469",
        "> ",
        "- ",
        "\u0915\u094d",
        "`",
    ],
    ids=[
        "words",
        "x",
        "lines",
        "fences",
        "blocks",
        "accents",
        "flags",
        "joined",
        "quotes",
        "lists",
        "conjuncts",
        "ticks",
    ],
)
def test_time_grows_with_the_text(piece):
    """The longest message of anything is split in well under a second, also into small parts."""
    text = piece * (262_144 // len(piece.encode()))
    started = time.process_time()
    parts = split_message(text, 4096)

    assert time.process_time() - started < 1.0
    assert len(parts) < 250
