"""What connections cost the server, and what runs that wait cost the adapter."""

import asyncio
import contextlib
import gc
import tracemalloc

from bothy_hermes.runtime import Prompt, PromptKind
from tests.bench.figures import at_most, for_information
from tests.bench.processes import Office, resident_bytes, server_process
from tests.fakes.agent import FakeAgent
from tests.fakes.runtime import FakeRuntime

GATEWAYS = 50
WAITING = 8
QUEUED = 200


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


async def waiting_runs(directory):
    """Bytes of the adapter for each waiting run and for the queue, and the queue's order."""
    runtime = Asking()
    with server_process(directory / "server") as (_, server):
        office = Office(server, runtime, directory / "adapter")
        await office.answer(await office.say("ask warm up"))
        await office.idle()
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
        await office.until(lambda: len(runtime.order) == QUEUED)
        await office.idle()
        await office.close()
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
