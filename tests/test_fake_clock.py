"""The clock that tests hold in their hands keeps its word."""

import asyncio

import pytest

from tests.fakes.clock import START, FakeClock


def test_sleepers_wake_in_the_order_of_their_moments():
    """Each at its own time, also those that begin to sleep on the way."""
    fake = FakeClock()
    seen = []

    async def sleeper(name, *naps):
        for nap in naps:
            await fake.clock.sleep(nap)
            seen.append((name, fake.clock.monotonic()))

    async def story():
        tasks = [asyncio.create_task(sleeper("a", 3)), asyncio.create_task(sleeper("b", 1, 1, 5))]
        await fake.advance(2.5)
        assert seen == [("b", 1), ("b", 2)]
        await fake.advance(10)
        await asyncio.gather(*tasks)

    asyncio.run(story())
    assert seen == [("b", 1), ("b", 2), ("a", 3), ("b", 7)]
    assert fake.clock.monotonic() == 12.5


def test_a_cancelled_sleeper_is_forgotten():
    """It wakes nobody and holds nothing up."""
    fake = FakeClock()

    async def story():
        task = asyncio.create_task(fake.clock.sleep(5))
        await fake.advance(1)
        assert fake.sleepers == 1
        task.cancel()
        await fake.advance(0)
        assert fake.sleepers == 0
        await fake.advance(10)

    asyncio.run(story())


def test_a_sleeper_that_gave_up_wakes_nobody_before_their_time():
    """Time moves no further than it was asked to."""
    fake = FakeClock()

    async def story():
        early = asyncio.create_task(fake.clock.sleep(5))
        late = asyncio.create_task(fake.clock.sleep(60))
        await fake.advance(1)
        early.cancel()
        await fake.advance(10)
        assert not late.done()
        assert fake.clock.monotonic() == 11
        await fake.advance(49)
        assert late.done()

    asyncio.run(story())


def test_drive_moves_time_as_far_as_the_work_needs():
    """No further, and what the work returns or raises comes out."""
    fake = FakeClock()

    async def work():
        for nap in (100, 200):
            await fake.clock.sleep(nap)
        return "done"

    async def failing():
        await fake.clock.sleep(1)
        raise KeyError("x")

    assert asyncio.run(fake.drive(work())) == "done"
    assert fake.clock.monotonic() == 300
    with pytest.raises(KeyError):
        asyncio.run(fake.drive(failing()))


def test_drive_lets_threads_work():
    """Work in a thread takes no time of the clock."""
    fake = FakeClock()

    async def work():
        await asyncio.to_thread(lambda: None)
        await fake.clock.sleep(1)

    asyncio.run(fake.drive(work()))
    assert fake.clock.monotonic() == 1


def test_the_wall_clock_can_be_set_alone():
    """As a time service does; the monotonic clock does not notice."""
    fake = FakeClock()
    fake.step_wall(-60)
    assert (START - fake.clock.now()).total_seconds() == 60
    assert fake.clock.monotonic() == 0


def test_chance_comes_from_the_seed():
    """The upper bound, or with `spread` numbers that repeat with the seed."""
    assert FakeClock().clock.uniform(1, 2) == 2
    draws = [FakeClock(seed=7, spread=True).clock.uniform(0, 1) for _ in range(2)]
    assert draws[0] == draws[1] != FakeClock(seed=8, spread=True).clock.uniform(0, 1)
    assert FakeClock(seed=7).clock.new_id() == FakeClock(seed=7).clock.new_id()
