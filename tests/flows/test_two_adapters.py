"""Two adapters under one name, as after a copied profile on another machine: nothing is done twice."""

import asyncio

from bothy_hermes.wire_words import RunState
from tests.fakes.adapter_kit import World, world
from tests.fakes.runtime import FakeRuntime


def test_a_second_adapter_takes_over_and_leaves_the_firsts_turn_alone(tmp_path):
    """The one that comes later serves; what the first has begun it brings to its end; each answer is one."""
    release = asyncio.Event()

    async def script(turn, events):
        if "wait" in turn.user_text:
            await release.wait()
        await events.on_answer(f"first heard {turn.user_text}")

    async def other(turn, events):
        await events.on_answer(f"second heard {turn.user_text}")

    async def steps(first):
        second = World(first.server, FakeRuntime(other), tmp_path / "second", judge=first.judge)
        thread = first.thread()
        begun = first.say(thread, "wait for me")
        await first.until(lambda: first.runtime.turns != [])
        second.loop = second.new_loop(second.settings())
        second.task = asyncio.ensure_future(second.loop.run())
        await first.until(second.loop._recovered.is_set)
        runs = [(where, first.say(where, "hello")) for where in (first.thread(), first.thread())]
        for where, run_id in runs:
            await second.ended(run_id)
            assert first.texts(where, run_id) == [("answer", "second heard hello")]
        assert first.instance.run(begun).run.state is RunState.RUNNING
        release.set()
        assert (await first.ended(begun)).run.state is RunState.COMPLETED
        assert first.texts(thread, begun) == [("answer", "first heard wait for me")]
        assert len(first.runtime.turns) + len(second.runtime.turns) == 3
        await second.stop_adapter()

    async def scenario():
        async with world(tmp_path, FakeRuntime(script)) as made:
            await steps(made)

    asyncio.run(scenario())
