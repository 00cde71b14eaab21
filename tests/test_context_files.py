"""Which attachments are read, and what their bytes become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.context_files import MAX_FETCHED_FILES, decode_file, files_to_fetch
from bothy_hermes.wire_words import ScanStatus
from tests.fakes.contexts import TRIGGER, attachment, context, element, new_id, trigger


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, True),
        ({"media_type": "TEXT/Markdown; charset=utf-8"}, True),
        ({"media_type": "application/json"}, True),
        ({"media_type": "application/json ; charset=utf-8"}, True),
        ({"size_bytes": 1}, True),
        ({"scan": ScanStatus.SKIPPED}, True),
        ({"scan": ScanStatus.PENDING}, False),
        ({"scan": ScanStatus.INFECTED}, False),
        ({"media_type": "application/jsonlines"}, False),
        ({"media_type": "image/png", "name": "notes.txt"}, False),
        ({"media_type": "application/octet-stream; text/plain"}, False),
        ({"media_type": ""}, False),
        ({"size_bytes": 0}, False),
    ],
    ids=[
        "text",
        "markdown",
        "json",
        "json with a charset",
        "one byte",
        "skipped",
        "pending",
        "infected",
        "lines",
        "image",
        "forged",
        "none",
        "empty",
    ],
)
def test_only_scanned_texts_are_fetched(changes, wanted):
    """The declared type and the scanner decide, not the name."""
    ctx = context(trigger(attachments=(attachment(7, **changes),)))

    assert files_to_fetch(ctx, TRIGGER, limit_bytes=10) == ((new_id(7),) if wanted else ())


def test_nothing_is_fetched_twice_or_from_what_the_session_has():
    """Delivered elements are left out, the trigger never is, and what follows it comes by itself."""
    ctx = context(
        element(1, attachments=(attachment(11),), already_delivered=True),
        element(2, attachments=(attachment(12), attachment(12))),
        trigger(attachments=(attachment(13),), already_delivered=True),
        element(100, attachments=(attachment(14),)),
    )

    assert files_to_fetch(ctx, TRIGGER, limit_bytes=10) == (new_id(12), new_id(13))


def test_a_limit_of_zero_fetches_nothing():
    """An operator who wants no file contents in turns gets none."""
    ctx = context(trigger(attachments=(attachment(7),)))

    assert files_to_fetch(ctx, TRIGGER, limit_bytes=0) == ()


def test_of_very_many_files_the_youngest_are_read():
    """A thread full of files does not hold the turn up with hundreds of requests."""
    ctx = context(*(element(n, attachments=(attachment(n),)) for n in range(1, 90)), trigger())
    found = files_to_fetch(ctx, TRIGGER, limit_bytes=10)

    assert found == tuple(new_id(n) for n in range(90 - MAX_FETCHED_FILES, 90))


@pytest.mark.parametrize(
    ("data", "limit", "text", "cut"),
    [
        (b"abc", 3, "abc", False),
        (b"abcd", 3, "abc", True),
        ("aé".encode(), 2, "a", True),
        ("aé".encode(), 3, "aé", False),
        ("a\U0001f600b".encode(), 4, "a", True),
        (b"\xef\xbb\xbfabc", 10, "abc", False),
        ("\ufeffaé".encode("utf-16-le"), 10, "aé", False),
        ("\ufeffaé".encode("utf-16-be"), 5, "a", True),
        (b"a valid line\xff and more", 50, "a valid line\ufffd and more", False),
        (b"twenty letters and \xc3", 50, "twenty letters and \ufffd", False),
        (b"NUL in a long line\x00 stays", 50, "NUL in a long line\x00 stays", False),
        (b"", 5, "", False),
    ],
    ids=[
        "fits",
        "cut",
        "in-two",
        "whole",
        "in-four",
        "bom",
        "utf16",
        "utf16-cut",
        "bad",
        "bad-end",
        "nul",
        "empty",
    ],
)
def test_bytes_become_text_up_to_a_whole_character(data, limit, text, cut):
    """The limit counts bytes, and what crosses it is left out whole."""
    found = decode_file(data, limit)

    assert (found.text, found.cut, found.readable) == (text, cut, True)


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" * 4,
        b"\xff\xd8\xff\xe0\x00\x10JFIF",
        b"\x00" * 20,
        bytes(range(128, 256)),
    ],
    ids=["png", "jpeg", "zeros", "high"],
)
def test_what_is_no_text_is_not_read(data):
    """An image that calls itself text gives no text, whatever the server said of it."""
    found = decode_file(data, 100)

    assert (found.text, found.readable) == ("", False)


@given(st.text(max_size=50), st.integers(1, 200))
def test_a_cut_text_is_the_beginning_of_the_text(text, limit):
    """Nothing is changed, nothing is added, and at most three bytes of the limit stay unused."""
    data = text.replace("\x00", "").replace("\ufffd", "").encode()
    found = decode_file(data, limit)

    assert data.removeprefix(b"\xef\xbb\xbf").startswith(found.text.encode())
    assert found.cut == (len(data) > limit)
    assert len(found.text.encode()) >= min(len(data), limit) - 6


@given(st.binary(max_size=100), st.integers(1, 60))
def test_any_bytes_give_something_that_can_be_sent(data, limit):
    """No bytes at all break the reading."""
    decode_file(data, limit).text.encode("utf-8")


def test_content_stays_out_of_repr():
    """What stood in a file is in no log line."""
    assert "secret" not in repr(decode_file(b"secret", 10))
