"""Waits grow, spread, and never undercut what the server asked for."""

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.backoff import MAX_RETRY_AFTER_SECONDS, Backoff, parse_http_date, parse_retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def highest(_low, high):
    return high


def test_ceilings_double_up_to_the_cap():
    """The ceilings run from the base to the cap."""
    backoff = Backoff(0.5, 30.0, highest)
    assert [backoff.next_delay() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert backoff.failures == 9


def test_reset_starts_anew():
    """After a reset the shortest ceiling counts again."""
    backoff = Backoff(0.5, 30.0, highest)
    for _ in range(20):
        backoff.next_delay()
    backoff.reset()
    assert (backoff.failures, backoff.next_delay()) == (0, 0.5)


def test_the_jitter_is_full():
    """A wait lies anywhere between nothing and the ceiling."""
    asked = []
    backoff = Backoff(0.5, 30.0, lambda low, high: asked.append((low, high)) or low)
    assert [backoff.next_delay() for _ in range(3)] == [0, 0, 0]
    assert asked == [(0.0, 0.5), (0.0, 1.0), (0.0, 2.0)]


def test_ten_thousand_failures_overflow_nothing():
    """The exponent is clamped before the power."""
    backoff = Backoff(0.5, 30.0, highest)
    assert {backoff.next_delay() for _ in range(10_000)} <= {0.5, 1, 2, 4, 8, 16, 30}


@settings(max_examples=40)
@given(st.floats(0, 900), st.integers(0, 100), st.integers())
def test_a_wait_is_never_shorter_than_asked_for(asked, failures, seed):
    """With `Retry-After` the jitter lies on top, below the ceiling."""
    backoff = Backoff(0.5, 30.0, random.Random(seed).uniform)
    for _ in range(failures):
        backoff.next_delay()
    assert asked <= backoff.next_delay(asked) <= asked + 30.0


def test_an_absurd_request_is_capped():
    """A typing error on the server does not silence the adapter for a year."""
    assert Backoff(0.5, 30.0, lambda _low, _high: 0.0).next_delay(31_536_000) == MAX_RETRY_AFTER_SECONDS
    assert Backoff(0.5, 30.0, lambda _low, _high: 0.0).next_delay(-5) == 0.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("30", 30.0),
        (" 30 ", 30.0),
        ("-1", None),
        ("1.5", None),
        ("+3", None),
        ("٣", None),
        ("1e3", None),
        ("soon", None),
        ("", None),
        ("9" * 400, None),
        ("Mon, 30 Nov 2026 12:00:45 GMT", 45.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("Monday, 30-Nov-26 12:00:10 GMT", 10.0),
        ("Mon Nov 30 12:00:20 2026", 20.0),
        ("Mon, 30 Nov 2026 25:61:00 GMT", None),
        ("Mon, 99 Nov 2026 12:00:00 GMT", None),
        ("Mon, 30 Nov 99999 12:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2300", None),
        ("Mon, 01 Jan 0001 00:00:00 +2300", 0.0),
    ],
)
def test_retry_after_is_read_in_both_forms(value, seconds):
    """Seconds or a date; what nobody can read counts as not there."""
    assert parse_retry_after(value, NOW) == seconds


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text):
    """Whatever a header holds, the result is None or a number of seconds."""
    seconds = parse_retry_after(text, NOW)
    assert seconds is None or seconds >= 0


@settings(max_examples=40)
@given(st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1)))  # noqa: DTZ001  # hypothesis wants naive bounds
def test_dates_survive_the_way_through_a_header(moment):
    """What a server writes as a date is read as the same second."""
    aware = moment.replace(tzinfo=UTC, microsecond=0)
    assert parse_http_date(format_datetime(aware, usegmt=True)) == aware
    assert parse_retry_after(format_datetime(NOW + timedelta(seconds=7), usegmt=True), NOW) == 7.0
