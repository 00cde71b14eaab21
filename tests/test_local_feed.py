"""The people's event stream, reader by reader."""

import asyncio
import dataclasses
import json
from uuid import UUID

from bothy_hermes.local_changes import KEPT_CHANGES, ChangeLog
from bothy_hermes.local_feed import KEEPALIVE, Feed
from bothy_hermes.local_people_wire import AgentView, Position

AGENT = AgentView(
    id=UUID(int=9),
    display_name="Hermes",
    owner_id=UUID(int=8),
    online=True,
    connected=True,
    degraded_reasons=(),
)
THING, OTHER = UUID(int=1), UUID(int=2)


class World:
    """A log of changes whose things are numbers, and the agent as it is now."""

    def __init__(self, keepalive=5.0):
        self.log = ChangeLog(first=1_000)
        self.values = {}
        self.agent = AGENT
        self.feed = Feed(self.log, self.describe, lambda: self.agent, keepalive_seconds=keepalive)

    def describe(self, change):
        value = self.values.get(change.id)
        return None if value is None else (change.kind, Position(position=value))

    def change(self, thing, value):
        self.values[thing] = value
        self.log.add([("thread", thing)])


async def events(chunks, count):
    """Read so many events, without comments."""
    found = []
    async for chunk in chunks:
        if chunk != KEEPALIVE:
            lines = dict(line.split(": ", 1) for line in chunk.decode().strip().split("\n"))
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
        if len(found) == count:
            return found
    raise AssertionError(f"the stream ended after {found}")


def named(found, name="thread"):
    return [(number, value["position"]) for number, event, value in found if event == name]


def test_a_reader_hears_what_came_after_its_place_and_then_what_comes():
    async def scenario():
        world = World()
        world.change(THING, 1)
        world.change(OTHER, 2)
        chunks = world.feed.read(since=1_000)
        first = await events(chunks, 2)
        world.change(THING, 3)
        return first, await events(chunks, 1)

    first, then = asyncio.run(scenario())
    assert named(first) == [(1_001, 2)]
    assert named(then) == [(1_002, 3)]


def test_a_change_from_another_thread_wakes_the_reader():
    async def scenario():
        world = World()
        chunks = world.feed.read(since=999)
        await events(chunks, 1)
        waiting = asyncio.ensure_future(events(chunks, 1))
        await asyncio.sleep(0)
        await asyncio.to_thread(world.change, THING, 7)
        return await asyncio.wait_for(waiting, 2)

    assert named(asyncio.run(scenario())) == [(1_000, 7)]


def test_what_changed_often_meanwhile_is_told_once_as_it_is_now():
    async def scenario():
        world = World()
        chunks = world.feed.read(since=999)
        await events(chunks, 1)
        for value in range(50):
            world.change(THING, value)
        world.change(OTHER, 100)
        return await events(chunks, 2)

    assert named(asyncio.run(scenario())) == [(1_049, 49), (1_050, 100)]


def test_a_place_that_nobody_can_continue_from_starts_anew():
    async def scenario(since):
        world = World()
        world.change(THING, 1)
        return (await events(world.feed.read(since), 1))[0]

    for since in (0, 998, 1_001, 10**17):
        assert asyncio.run(scenario(since)) == (1_000, "reset", {"position": 1_000})


def test_a_reader_that_falls_too_far_behind_is_ended():
    async def scenario():
        world = World()
        chunks = world.feed.read(since=999)
        await events(chunks, 1)
        for value in range(KEPT_CHANGES + 1):
            world.change(THING, value)
        left = [chunk async for chunk in chunks]
        return left, world.feed.readers

    left, readers = asyncio.run(scenario())
    assert [chunk for chunk in left if chunk != KEEPALIVE] == []
    assert readers == 0


def test_a_silent_stream_says_that_it_is_there():
    async def scenario():
        world = World(keepalive=0.01)
        chunks = world.feed.read(since=999)
        await events(chunks, 1)
        return await anext(chunks)

    assert asyncio.run(scenario()) == KEEPALIVE


def test_a_difference_of_the_agent_is_an_event_without_a_change():
    async def scenario():
        world = World(keepalive=0.01)
        chunks = world.feed.read(since=999)
        first = await events(chunks, 1)
        world.agent = dataclasses.replace(AGENT, online=False)
        return first + await events(chunks, 1)

    found = asyncio.run(scenario())
    assert [(number, event, value["online"]) for number, event, value in found] == [
        (999, "agent", True),
        (999, "agent", False),
    ]


def test_a_thing_that_is_gone_is_passed_over():
    async def scenario():
        world = World()
        world.log.add([("message", THING)])
        world.change(OTHER, 5)
        return await events(world.feed.read(since=999), 2)

    assert named(asyncio.run(scenario())) == [(1_001, 5)]


def test_a_closed_reader_is_forgotten():
    async def scenario():
        world = World()
        chunks = world.feed.read(since=999)
        await anext(chunks)
        before = world.feed.readers
        await chunks.aclose()
        return before, world.feed.readers, len(world.log._listeners)

    assert asyncio.run(scenario()) == (1, 0, 0)
