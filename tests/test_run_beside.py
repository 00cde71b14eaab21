"""What is done beside a run's turn."""

import asyncio
import gc
from uuid import UUID

import pytest

from bothy_hermes.run_beside import Beside

RUN = UUID(int=7)


def test_what_breaks_beside_the_turn_is_logged_and_ends_nothing(caplog):
    async def breaks():
        raise ValueError("what a person wrote")

    async def story():
        async with asyncio.TaskGroup() as group:
            beside = Beside(RUN, group)
            beside.start(breaks())
            await asyncio.sleep(0.01)
            return "went on"

    assert asyncio.run(story()) == "went on"
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "ValueError" in caplog.text
    assert "what a person wrote" not in caplog.text


def test_the_work_waits_for_nothing_that_it_has_cancelled():
    async def story():
        async with asyncio.TaskGroup() as group:
            beside = Beside(RUN, group)
            for _ in range(3):
                beside.start(asyncio.Event().wait())
            await asyncio.sleep(0)
            beside.cancel()

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("steps", range(6))
def test_what_begins_while_the_work_breaks_off_is_given_up_in_order(steps):
    """A coroutine that nobody awaited or closed is a warning, and a warning fails this test."""

    async def thing():
        pass

    async def story():
        made = []

        async def work():
            async with asyncio.TaskGroup() as group:
                made.append(Beside(RUN, group))
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        made[0].start(thing())
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(story())
    gc.collect()
