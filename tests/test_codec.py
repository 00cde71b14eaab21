"""Strict reading and plain writing of JSON, for types of every kind that the protocol uses."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.codec import (
    JsonObject,
    Known,
    Range,
    Size,
    Text,
    content,
    dump,
    dump_json,
    is_closed,
    load_json,
    members,
    omittable,
    parse,
    split_annotation,
    wire_type,
)
from bothy_hermes.errors import WireError
from bothy_hermes.secret import Secret

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@wire_type(closed=True)
class Inner:
    name: Annotated[str, Text(1, 3)] = content()


@wire_type()
class Everything:
    """One member of every kind."""

    text: str
    secret: Secret
    number: Annotated[int, Range(1, 9)]
    flag: bool
    id: UUID
    at: datetime
    colour: Colour
    known: Annotated[str, Known(("a", "b"))]
    inner: Inner
    many: Annotated[tuple[Inner, ...], Size(0, 2)]
    carried: JsonObject
    anything: Any
    nullable: Annotated[str, Text(max_chars=5)] | None
    optional: int | None = None
    left_out: str | None = omittable()


GOOD = {
    "text": "t",
    "secret": "s",
    "number": 5,
    "flag": True,
    "id": "00000000-0000-4000-8000-000000000001",
    "at": "2026-11-30T12:00:00.000000Z",
    "colour": "red",
    "known": "c",
    "inner": {"name": "n"},
    "many": [{"name": "a"}, {"name": "b"}],
    "carried": {"x": [1, {"y": None}]},
    "anything": [1.5],
    "nullable": None,
}


def refused(change, value=None):
    """The place and the words of the refusal of a changed value."""
    with pytest.raises(WireError) as caught:
        parse(Everything, change if value is None else value)
    return caught.value.path, caught.value.problem


# Bytes and texts ----------------------------------------------------------------------------------


@given(JSON)
def test_what_is_written_is_read_again(value):
    """Every JSON value, through text and through bytes."""
    try:
        text = dump_json(value)
    except WireError:
        assert "\\ud" in json.dumps(value)  # a lone surrogate, which UTF-8 cannot hold
        return
    assert load_json(text) == value
    assert load_json(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nul",
        "{'a': 1}",
        "[1,]",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "[-1e999]",
        '{"a": 1, "a": 1}',
        '{"x": {"a": 1, "b": 2, "a": 3}}',
        "[" * 100_000,
        "\ufeff{}",
        b"\xff",
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf{}",
        '"\u05d0"'.encode("utf-16"),
        '"\u05d0"'.encode("utf-32"),
        "[" + "9" * 5000 + "]",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_json_of_the_protocol_is_refused(text):
    """Broken, ambiguous, not UTF-8, not finite, too deep: one error, which repeats nothing of the text."""
    with pytest.raises(WireError) as caught:
        load_json(text)
    assert caught.value.problem in {"expected JSON in UTF-8", "an object names a member twice"}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", {"a": ["\udfff"]}, {1, 2}, object(), b"x"]
)
def test_what_utf8_json_cannot_hold_is_not_written(value):
    """The caller hears of it before anything is sent."""
    with pytest.raises(WireError):
        dump_json(value)


def test_json_is_written_compactly_and_readably():
    """No spaces, no escapes of what UTF-8 can say."""
    assert dump_json({"a": [1, "שלום\n"]}) == '{"a":[1,"שלום\\n"]}'


# Types --------------------------------------------------------------------------------------------


def test_a_value_of_every_kind_comes_back():
    """Reading makes typed values, writing makes the same JSON; missing is null or nothing."""
    read = parse(Everything, GOOD)
    assert (read.id.version, read.id.int & 0xFF, read.colour, read.known) == (4, 1, Colour.RED, "c")
    assert read.at == datetime(2026, 11, 30, 12, tzinfo=UTC)
    assert read.secret.reveal() == "s"
    assert read.many == (Inner(name="a"), Inner(name="b"))
    assert dump(read) == {**GOOD, "optional": None}
    assert dump(parse(Everything, {**GOOD, "left_out": "here"}))["left_out"] == "here"


@pytest.mark.parametrize(
    ("name", "value", "path", "problem"),
    [
        ("text", 1, "text", "expected a string"),
        ("text", "\ud800", "text", "holds a lone surrogate"),
        ("text", None, "text", "is null"),
        ("secret", None, "secret", "is null"),
        ("secret", ["s"], "secret", "expected a string"),
        ("number", 0, "number", "is not within 1 to 9"),
        ("number", 10, "number", "is not within 1 to 9"),
        ("number", True, "number", "expected a whole number"),
        ("number", 5.0, "number", "expected a whole number"),
        ("number", "5", "number", "expected a whole number"),
        ("flag", 1, "flag", "expected true or false"),
        ("flag", "true", "flag", "expected true or false"),
        ("id", "x", "id", "expected a UUID in lower case"),
        ("id", "00000000-0000-4000-8000-00000000000A", "id", "expected a UUID in lower case"),
        ("id", "{00000000-0000-4000-8000-000000000001}", "id", "expected a UUID in lower case"),
        ("id", "00000000000040008000000000000001", "id", "expected a UUID in lower case"),
        ("at", "yesterday", "at", "expected an RFC 3339 time in UTC with Z"),
        ("colour", "green", "colour", "is none of red, blue"),
        ("colour", 1, "colour", "expected a string"),
        ("inner", [], "inner", "expected an object"),
        ("inner", {}, "inner.name", "is missing"),
        ("inner", {"name": ""}, "inner.name", "is shorter than 1 character(s)"),
        ("inner", {"name": "abcd"}, "inner.name", "has 4 characters, allowed are 3"),
        ("inner", {"name": "n", "secret plan": 1}, "inner", "has 1 unknown member(s)"),
        ("many", {}, "many", "expected a list"),
        ("many", [{"name": "n"}] * 3, "many", "has 3 items, allowed are 0 to 2"),
        ("many", [{"name": "n"}, {"name": 1}], "many[1].name", "expected a string"),
        ("many", [None], "many[0]", "is null"),
        ("carried", [], "carried", "expected an object"),
        ("carried", None, "carried", "is null"),
        ("nullable", "123456", "nullable", "has 6 characters, allowed are 5"),
        ("optional", "1", "optional", "expected a whole number"),
        ("left_out", None, "left_out", "is never null, leave it out"),
    ],
)
def test_a_mistake_is_named_by_place_and_expectation(name, value, path, problem):
    """Where, and what was expected; never what stood there."""
    assert refused({**GOOD, name: value}) == (path, problem)


@pytest.mark.parametrize("name", ["text", "nullable", "carried", "anything"])
def test_a_member_without_a_default_must_be_there(name):
    """Also one that may be null, and one that may be anything."""
    assert refused({key: value for key, value in GOOD.items() if key != name}) == (name, "is missing")


@pytest.mark.parametrize("value", [None, [], "text", 1])
def test_only_an_object_is_a_wire_value(value):
    """Anything else is refused at its place."""
    with pytest.raises(WireError) as caught:
        parse(Inner, value, "somewhere")
    assert (caught.value.path, caught.value.problem) == ("somewhere", "expected an object")


@given(JSON)
def test_no_value_makes_reading_fail_otherwise(value):
    """Whatever JSON comes, the answer is a value or a `WireError`."""
    for name in GOOD:
        try:
            parse(Everything, {**GOOD, name: value})
        except WireError as error:
            assert error.path.startswith(name)  # noqa: PT017  # both outcomes are right


def test_limits_of_both_places_of_an_optional_hold():
    """`Annotated` inside and around an optional are both heeded."""
    assert split_annotation(Annotated[str, Text(1)] | None) == (str, (Text(1),), True)
    assert split_annotation(Annotated[str | None, Text(2)]) == (str, (Text(2),), True)
    assert split_annotation(int) == (int, (), False)


def test_members_tell_what_a_schema_needs():
    """Order, presence and omission of each member."""
    told = {member.name: (member.required, member.omit) for member in members(Everything)}
    assert list(told) == [*GOOD, "optional", "left_out"]
    assert told["nullable"] == (True, False)
    assert told["optional"] == (False, False)
    assert told["left_out"] == (False, True)
    assert (is_closed(Inner), is_closed(Everything)) == (True, False)


def test_a_wire_value_does_not_change_and_is_built_by_name():
    """Frozen, slotted, keyword only."""
    value = Inner(name="n")
    with pytest.raises(AttributeError):
        value.name = "m"
    with pytest.raises(TypeError):
        Inner("n")
    assert not hasattr(value, "__dict__")
    assert "n'" not in repr(value)


def test_dumping_writes_every_kind_of_value():
    """Also inside of objects and lists that are carried."""
    at = datetime(2026, 11, 30, tzinfo=UTC)
    value = {"a": (Secret("s"), UUID(int=1), Colour.BLUE, at, 1, True, None, 1.5, Inner(name="n"))}
    assert dump(value) == {
        "a": [
            "s",
            "00000000-0000-0000-0000-000000000001",
            "blue",
            "2026-11-30T00:00:00.000000Z",
            1,
            True,
            None,
            1.5,
            {"name": "n"},
        ]
    }
    assert type(dump(Colour.BLUE)) is str
