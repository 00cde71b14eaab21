"""The server's time is carried by the monotonic clock, and not believed when it is absurd."""

import logging
from datetime import timedelta

import pytest

from bothy_hermes.errors import ClockRefused
from bothy_hermes.server_clock import ServerClock
from tests.fakes.clock import START, FakeClock


def seconds(amount):
    return timedelta(seconds=amount)


def test_before_any_statement_it_is_the_local_time():
    """An adapter that heard nothing yet has only its own clock."""
    fake = FakeClock()
    clock = ServerClock(fake.clock)
    fake.move(5)
    assert clock.now() == START + seconds(5)


def test_a_statement_is_carried_on_by_the_monotonic_clock():
    """A step of the wall clock changes nothing."""
    fake = FakeClock()
    clock = ServerClock(fake.clock)
    assert clock.observe(START + seconds(40)) == 40.0
    fake.move(10)
    fake.step_wall(-3600)
    assert clock.now() == START + seconds(50)


@pytest.mark.parametrize("skew", [-600, -31, 0, 600])
def test_within_ten_minutes_the_server_is_believed(skew):
    """Both limits are inside."""
    clock = ServerClock(FakeClock().clock)
    assert clock.observe(START + seconds(skew)) == skew
    assert clock.now() == START + seconds(skew)


@pytest.mark.parametrize("skew", [-601, 601, 86_400 * 365])
def test_beyond_ten_minutes_nothing_is_judged(skew):
    """The refusal says by how much, and moves nothing."""
    clock = ServerClock(FakeClock().clock)
    assert clock.observe(START + seconds(skew)) == 0.0
    assert clock.refused
    with pytest.raises(ClockRefused) as caught:
        clock.now()
    assert caught.value.skew == skew
    assert clock.estimate() == START


def test_a_clock_that_was_set_is_believed_again():
    """The next statement within ten minutes ends the refusal."""
    fake = FakeClock()
    clock = ServerClock(fake.clock)
    clock.observe(START + seconds(7200))
    fake.step_wall(7200)
    clock.observe(START + seconds(7201))
    assert not clock.refused
    assert clock.now() == START + seconds(7201)


def test_a_shift_is_measured_against_the_carried_time():
    """What counts for a second try is how far an answer moved the time that the proof was made with."""
    fake = FakeClock()
    clock = ServerClock(fake.clock)
    clock.observe(START + seconds(100))
    fake.move(10)
    assert clock.observe(START + seconds(145)) == 35.0


def test_a_skew_over_thirty_seconds_is_said_once(caplog):
    """A drifting clock is worth one line, not one for each answer."""
    clock = ServerClock(FakeClock().clock)
    with caplog.at_level(logging.WARNING, "bothy_hermes"):
        clock.observe(START + seconds(30))
        assert caplog.messages == []
        for _ in range(5):
            clock.observe(START - seconds(31))
    assert caplog.messages == ["the server's clock differs from this machine's by -31 s"]


def test_a_refusal_is_said_once(caplog):
    """The operator reads what to do, once for each time it becomes true."""
    clock = ServerClock(FakeClock().clock)
    with caplog.at_level(logging.WARNING, "bothy_hermes"):
        for _ in range(5):
            clock.observe(START + seconds(1000))
    assert len(caplog.messages) == 1
    assert "+1000 s" in caplog.messages[0]
