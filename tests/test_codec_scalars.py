"""The kinds of single values: what each limit counts, which spellings are read, what is kept."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes import codec_scalars
from bothy_hermes.codec import parse, wire_type
from bothy_hermes.codec_scalars import SCALARS, Text, format_time, parse_time
from bothy_hermes.errors import WireError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T12:00:00Z", datetime(2026, 11, 30, 12, tzinfo=UTC)),
        ("2026-11-30T12:00:00.5Z", datetime(2026, 11, 30, 12, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-30T12:00:00.123456789Z", datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)),
        ("2028-02-29T23:59:59.000001Z", datetime(2028, 2, 29, 23, 59, 59, 1, tzinfo=UTC)),
    ],
)
def test_a_time_is_read(text, expected):
    """With up to nine digits of a second; what is finer than a microsecond is cut."""
    assert parse_time(text, "at") == expected


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T12:00:00",
        "2026-11-30T12:00:00+00:00",
        "2026-11-30 12:00:00Z",
        "2026-11-30t12:00:00z",
        "2026-11-30T12:00Z",
        "2026-02-30T12:00:00Z",
        "2026-11-30T12:00:60Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T12:00:00.Z",
        "2026-11-30T12:00:00.1234567890Z",
        "2026-11-30T12:00:00Z\n",
        "\u0662026-11-30T12:00:00Z",
        "2026-11-30T12:00:00.\u0661Z",
        1764504000,
        None,
    ],
)
def test_another_spelling_of_a_time_is_refused(text):
    """RFC 3339 in UTC with Z and nothing else."""
    with pytest.raises(WireError, match=r"^at: expected an RFC 3339 time in UTC with Z$"):
        parse_time(text, "at")


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_a_written_time_is_read_as_the_same_moment(moment):
    """In UTC, with microseconds, sorting as it passes."""
    try:
        text = format_time(moment)
    except OverflowError:  # the first and the last hours of the calendar have no UTC
        return
    assert parse_time(text, "at") == moment


def test_an_early_year_is_written_with_four_digits():
    """Without them the server could not read its own record of a step that began then."""
    assert format_time(datetime(1, 2, 3, tzinfo=UTC)) == "0001-02-03T00:00:00.000000Z"


def test_a_time_without_a_zone_is_not_written():
    """It would name another moment elsewhere."""
    with pytest.raises(ValueError, match="without a zone"):
        format_time(datetime(2026, 11, 30, 12))  # noqa: DTZ001  # what is refused


# Texts and IDs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "good", "bad"),
    [
        (Text(max_bytes=4), "\U0001f600", "\U0001f600x"),
        (Text(max_chars=1), "\U0001f600", "ab"),
        (Text(pattern="[a-z]+"), "abc", "abc\n"),
        (Text(pattern="a|b"), "b", "ab"),
        (Text(min_chars=2), "ab", "\U0001f600"),
    ],
)
def test_a_texts_limits_count_what_they_say(limit, good, bad):
    """Bytes of UTF-8, code points, and a pattern of the whole text."""

    @wire_type()
    class One:
        text: Annotated[str, limit]

    assert parse(One, {"text": good}).text == good
    with pytest.raises(WireError, match=r"^text: "):
        parse(One, {"text": bad})


def test_an_id_is_read_once_and_what_is_refused_is_not_kept():
    """The same text gives the same value; what anybody could write, of any size, stays nowhere."""
    read = SCALARS[UUID](())
    text = "0192f4a0-7b1c-7000-8000-00000000c0de"
    assert read(text) is read(text)
    kept = codec_scalars._uuid.cache_info().currsize
    for bad in ("x" * 10_000, text.upper(), f"{text}\n", None, 5, [text], {}):
        with pytest.raises(WireError):
            read(bad)
    assert codec_scalars._uuid.cache_info().currsize == kept
