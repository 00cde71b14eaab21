"""The one source of time, waiting, chance and IDs."""

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from bothy_hermes.clock import Clock, system_clock, within
from tests.fakes.clock import START, FakeClock


def fixed(now=START, byte=0xFF):
    """A clock whose chance is always the same byte."""
    return Clock(
        now=lambda: now,
        monotonic=lambda: 0.0,
        sleep=asyncio.sleep,
        uniform=lambda low, _high: low,
        random_bytes=lambda count: bytes([byte]) * count,
    )


@pytest.mark.parametrize("byte", [0x00, 0x55, 0xFF])
def test_a_new_id_is_a_random_uuid(byte):
    """Version and variant are set whatever the random bytes are, and the rest is those bytes."""
    made = fixed(byte=byte).new_id()
    assert (made.version, made.variant) == (4, uuid.RFC_4122)
    assert made.bytes[:6] == bytes([byte]) * 6


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_an_ordered_id_begins_with_its_time(byte):
    """Version 7: 48 bits of milliseconds, as RFC 9562 lays them out."""
    made = fixed(datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC), byte).new_ordered_id()
    assert made.hex[:12] == "017f22e279b0"
    assert (made.hex[12], made.variant) == ("7", uuid.RFC_4122)


def test_ordered_ids_sort_by_their_time():
    """A later millisecond is a larger ID, whatever chance says."""
    earlier = fixed(START, 0xFF).new_ordered_id()
    later = fixed(START + timedelta(milliseconds=1), 0x00).new_ordered_id()
    assert str(earlier) < str(later)


def test_the_system_clock_tells_the_time():
    """Aware, in UTC, going forwards, with real chance."""
    clock = system_clock()
    assert clock.now().utcoffset() == timedelta(0)
    assert abs((clock.now() - datetime.now(UTC)).total_seconds()) < 5
    assert clock.monotonic() <= clock.monotonic()
    assert len(clock.random_bytes(16)) == 16
    assert clock.random_bytes(16) != clock.random_bytes(16)
    assert all(2.0 <= clock.uniform(2.0, 3.0) <= 3.0 for _ in range(100))
    assert clock.new_id() != clock.new_id()


def test_a_sleep_of_the_system_clock_can_be_cancelled():
    """A wait ends with its task."""

    async def main():
        sleeping = asyncio.ensure_future(system_clock().sleep(3600))
        await asyncio.sleep(0)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping

    asyncio.run(main())


def test_the_fake_clock_wakes_sleepers_at_their_moment():
    """Each sleeper sees the time at which it was to wake, in order."""
    fake = FakeClock()
    woken = []

    async def sleeper(seconds):
        await fake.clock.sleep(seconds)
        woken.append((seconds, fake.clock.monotonic(), fake.clock.now() - START))

    async def main():
        tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3, 1, 2)]
        await fake.advance(2.5)
        assert [one[0] for one in woken] == [1, 2]
        await fake.advance(0.5)
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert woken == [(n, float(n), timedelta(seconds=n)) for n in (1, 2, 3)]


@pytest.mark.parametrize(("needs", "came"), [(1, True), (3, False)])
def test_a_wait_is_as_long_as_the_clock_says_at_most(needs, came):
    """What did not come in time is cancelled, and no sleeper stays behind."""
    fake = FakeClock()

    async def main():
        work = asyncio.ensure_future(fake.clock.sleep(needs))
        waiting = asyncio.ensure_future(within(fake.clock, work, 2))
        await fake.advance(2)
        assert await waiting is came
        await fake.advance(0)
        assert work.cancelled() is not came
        assert fake.sleepers == 0

    asyncio.run(main())


def test_work_that_is_shielded_goes_on_after_the_wait():
    """Only the wait is over."""
    fake = FakeClock()

    async def main():
        work = asyncio.ensure_future(fake.clock.sleep(5))
        waiting = asyncio.ensure_future(within(fake.clock, asyncio.shield(work), 2))
        await fake.advance(5)
        assert not await waiting
        await work

    asyncio.run(main())


def test_what_comes_at_the_last_moment_came():
    """The timer's end alone says nothing."""

    async def now(_seconds):
        return None

    clock = replace(FakeClock().clock, sleep=now)
    assert asyncio.run(within(clock, now(2), 2)) is True


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_no_timer_and_no_work_outlives_the_wait(end):
    """What came early, and a wait that somebody gave up, leave nobody asleep."""
    fake = FakeClock()

    async def main():
        work = asyncio.ensure_future(fake.clock.sleep(1))
        waiting = asyncio.ensure_future(within(fake.clock, work, 600))
        await fake.advance(1 if end == "done" else 0)
        if end == "cancelled":
            waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await fake.advance(0)
        assert work.done()
        assert fake.sleepers == 0

    asyncio.run(main())
