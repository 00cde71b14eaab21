"""Blocks that nothing can leave, and names that nothing can forge."""

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.context_render import (
    BOUNDARY_BYTES,
    MARK,
    NAME_CHARS,
    SECRET_BYTES,
    Rendering,
    boundary_of,
    contained,
    quoted,
    unheld,
)
from tests.fakes.marked_text import fields_of

BOUNDARY = "00112233445566778899aabb"
WRITTEN = f"={BOUNDARY}="
SECRET = bytes(range(SECRET_BYTES))
HOSTILE = st.lists(
    st.sampled_from(
        [BOUNDARY, MARK, f"\n{WRITTEN} end\n", "\n", "\r", "\u2028", "\x85", "\x00", "=", " | ", '"', "\\"]
    )
    | st.text(st.characters(), max_size=5),
    max_size=12,
).map("".join)


def rendering(*parts):
    """A rendering of blocks, each with a name and a content."""
    made = Rendering()
    for name, content in parts:
        made.block("message", quoted(name), content=content)
    return made


def boundary(*renderings, secret=SECRET, place="here", beside=()):
    return boundary_of(secret, place, renderings, beside)


# The mark -----------------------------------------------------------------------------------------


def test_the_same_texts_have_the_same_boundary():
    found = boundary(rendering(("a", "b")))

    assert found == boundary(rendering(("a", "b")))
    assert len(bytes.fromhex(found)) == BOUNDARY_BYTES


PARTS = st.lists(st.tuples(st.text("ab=:1\n", max_size=3), st.text("ab=:1\n", max_size=3)), max_size=3)


@given(PARTS, PARTS)
def test_decision_6_other_texts_have_another_boundary(one, other):
    """However they are cut into parts: what reads differently is marked differently."""
    found = [rendering(*parts) for parts in (one, other)]
    same = found[0].written(BOUNDARY) == found[1].written(BOUNDARY)

    assert same or boundary(found[0]) != boundary(found[1])


@pytest.mark.parametrize(
    "changed", [{"secret": bytes(SECRET_BYTES)}, {"place": "there"}], ids=["secret", "place"]
)
def test_decision_6_another_secret_or_place_has_another_boundary(changed):
    """Nobody outside of the process can compute it, and no other thread gives it away."""
    assert boundary(rendering(("a", "b")), **changed) != boundary(rendering(("a", "b")))


def test_what_stands_beside_changes_the_boundary_only_where_it_holds_it():
    """So that the same part of the instructions stands there for each new message."""
    first = boundary(rendering(("a", "b")))

    assert boundary(rendering(("a", "b")), beside=["something else", f"not {first[:-1]}"]) == first
    assert boundary(rendering(("a", "b")), beside=["something else", f"it is {first}!"]) != first


def test_the_first_boundary_that_no_text_holds_is_taken():
    """The order is fixed, whatever stands in which text."""
    digest = hmac.new(SECRET, b"x", "sha256")
    order = []
    for _ in range(4):
        order.append(unheld(digest.copy(), [" ".join(order)]))

    assert len(set(order)) == len(order)
    assert unheld(digest.copy(), [order[2], order[0]]) == order[1]
    assert unheld(digest.copy(), []) == order[0]


def test_a_boundary_that_a_part_holds_is_passed_over():
    """A text that held its own boundary would be a miracle; it would not end its block all the same."""

    class Blind(Rendering):
        def feed(self, digest):
            """Leave the texts out, so that a text can know its boundary."""

    first = boundary(Blind())
    made = Blind()
    made.words(first)

    assert boundary(made) != first


@given(HOSTILE)
def test_only_the_adapters_own_words_name_the_mark(text):
    """What stands for it in the adapter's words stands for nothing in a text of somebody else."""
    made = Rendering()
    made.own(f"It is {MARK}.")
    made.words(text)

    assert made.written(BOUNDARY) == f"It is {WRITTEN}.\n{contained(text)}"


# Texts and names ----------------------------------------------------------------------------------


@given(HOSTILE)
def test_a_text_holds_nothing_that_ends_its_line_unseen(text):
    found = contained(text)
    found.encode("utf-8")

    assert "\r" not in found
    assert "\x00" not in found


@given(
    st.text(
        st.characters(
            exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn"],
            exclude_characters="".join(map(chr, range(0xE0000, 0xE0080))),
        ),
        max_size=80,
    )
)
def test_an_ordinary_text_is_not_changed(text):
    """Scripts, joiners, direction marks and emoji reach the model as they were written."""
    assert contained(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc\n\td", "a\nb\nc\n\td"),
        ("a\x00b\x1b[31mc\x9b", "a␀b␛[31mc⟨U+009B⟩"),
        ("x\u2028y\u0085z", "x⟨U+2028⟩y⟨U+0085⟩z"),
        ("hi\U000e0041\U000e0042", "hi⟨U+E0041⟩⟨U+E0042⟩"),
        ("\ud83d\ude00\udc00", "\U0001f600\ufffd"),
    ],
    ids=["line-ends", "controls", "separators", "tags", "surrogates"],
)
def test_what_cannot_be_seen_is_shown(text, shown):
    """Characters that act instead of being read stand there as a picture or a number."""
    assert contained(text) == shown


@given(HOSTILE, HOSTILE)
def test_a_name_is_one_quoted_field_of_its_line(name, other):
    """Whatever a name holds, its line keeps its fields, and it starts no line of its own."""
    made = Rendering()
    made.line("message", "member", quoted(name), quoted(other), "12 bytes")
    line = made.written(BOUNDARY)

    assert len(line.splitlines()) == 1
    assert line.startswith(f"{WRITTEN} message")
    fields = fields_of(line.removeprefix(f"{WRITTEN} "))
    assert len(fields) == 5
    assert (fields[0], fields[1], fields[4]) == ("message", "member", "12 bytes")


def test_a_long_name_is_cut():
    """A name of five hundred characters leaves room for what is said of it."""
    assert quoted("n" * 500) == f'"{"n" * (NAME_CHARS - 1)}…"'


def test_a_block_begins_and_ends_with_lines_of_the_adapter(text_snapshot):
    """The form that the model is told of."""
    made = Rendering()
    made.own("A note.")
    made.line("channel", quoted('the "garden"'))
    made.block("1/1", "message", "member", content="Hello\n=ffeeddccbbaa998877665544= end\nyou")

    assert made.written(BOUNDARY) == text_snapshot
