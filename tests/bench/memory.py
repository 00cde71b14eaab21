"""What connections cost the server, and what runs that wait cost the adapter."""

import asyncio
import contextlib
import gc
import tracemalloc

from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.clock import system_clock
from bothy_hermes.config import load_settings
from bothy_hermes.runtime import Prompt, PromptKind
from tests.bench.figures import at_most, for_information
from tests.bench.processes import resident_bytes, server_process
from tests.fakes.adapter_kit import adapter_keys
from tests.fakes.agent import FakeAgent
from tests.fakes.people import PersonClient
from tests.fakes.runtime import FakeRuntime

GATEWAYS = 50
WAITING = 8
QUEUED = 200
SECONDS = 120.0
"""Until the measure gives up."""


def gateways(directory):
    """The server's memory with so many open gateways that have sent their heartbeat."""
    with server_process(directory / "server") as (pid, server), contextlib.ExitStack() as stack:
        before = resident_bytes(pid)
        for number in range(GATEWAYS):
            stack.enter_context(FakeAgent(server, consumer=f"consumer-{number}"))
        return before, resident_bytes(pid)


class Asking(FakeRuntime):
    """Asks in each turn that says so; other turns answer at once."""

    def __init__(self):
        super().__init__(self.turn)
        self.order = []

    async def turn(self, turn, events):
        """One turn."""
        self.order.append(turn.user_text)
        if turn.user_text.startswith("ask"):
            waiting = self.waiting[turn.user_text] = asyncio.get_running_loop().create_future()
            choices = ("red", "blue")
            await events.on_card(Prompt(PromptKind.CLARIFY, turn.user_text, "k", "Which?", choices))
            await waiting
        await events.on_answer("done")


class Office:
    """An adapter of this process at a server of another, and a person who writes."""

    def __init__(self, server, runtime, loop):
        self.runtime = runtime
        self.loop = loop
        self.person = PersonClient(server, server.people[0]["token"])

    async def ask(self, call):
        """Make a person's call without holding the adapter up."""
        return await asyncio.to_thread(call)

    async def say(self, text):
        """Write in a new thread; returns the thread."""
        thread = await self.ask(self.person.thread)
        await self.ask(lambda: self.person.post(thread, text))
        return thread

    async def until(self, condition):
        """Wait for something of this process."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110  # the other side is another process
                await asyncio.sleep(0.02)

    async def open_card(self, thread):
        """Wait for a thread's open card and return it."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.ask(lambda: self.person.get(f"/threads/{thread}"))
                cards = [one for one in found["messages"] if one["kind"] == "card"]
                if cards and found["runs"][0]["open_cards"]:
                    return cards[0]
                await asyncio.sleep(0.05)

    async def answer(self, thread):
        """Answer a thread's card."""
        card = await self.open_card(thread)
        await self.ask(lambda: self.person.use(card, card["components"][0]))


async def waiting_runs(directory):
    """Bytes of the adapter for each waiting run and for the queue, and the queue's order."""
    runtime = Asking()
    with server_process(directory / "server") as (_, server):
        keys = adapter_keys(server.api_url, server.instance_id, server.agent.token_file)
        loop = AdapterLoop(load_settings(keys), runtime, system_clock(), directory / "adapter")
        running = asyncio.ensure_future(loop.run())
        office = Office(server, runtime, loop)
        await office.answer(await office.say("ask warm up"))
        await office.until(lambda: loop._handler is not None and loop._handler.active_runs == 0)
        tracemalloc.start()
        before = _traced()
        threads = [await office.say(f"ask {number}") for number in range(WAITING)]
        for thread in threads:
            await office.open_card(thread)
        waiting = _traced()
        names = [f"queued {number:03}" for number in range(QUEUED)]
        for name in names:
            await office.say(name)
        await asyncio.sleep(0.5)
        queued = _traced()
        tracemalloc.stop()
        runtime.order.clear()
        for thread in threads:
            await office.answer(thread)
        await office.until(lambda: len(runtime.order) == QUEUED and loop._handler.active_runs == 0)
        await loop.stop()
        await running
    return (waiting - before) / WAITING, queued - waiting, _disorder(runtime.order, names)


def _traced():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _disorder(order, names):
    """By how many places a turn came before one that was written earlier, at most."""
    assert sorted(order) == names, "each once"
    return max(names.index(name) - place for place, name in enumerate(order))


def measure(directory):
    """The figures."""
    bare, full = gateways(directory / "gateways")
    per_run, queue, disorder = asyncio.run(waiting_runs(directory / "waiting"))
    return [
        at_most("embedded server with 50 open gateways", full / 1e6, 200, "MB"),
        for_information("the same without any", bare / 1e6, "MB"),
        at_most("adapter for each of 8 waiting runs", per_run / 1000, 100, "KB"),
        at_most("adapter for 200 queued runs", queue / 1000, 100, "KB"),
        at_most("places by which a queued run overtakes another", disorder, WAITING - 1, "places"),
    ]
