"""How long it takes from the server's decision to what it asks for: an event, a click, a cancellation.

The embedded server and the adapter run in this process. What network and disk take by themselves is taken
off: one bare frame, one bare call, and the time in which something was being written or read meanwhile.
"""

import asyncio
import contextlib
import json
import time

from bothy_hermes import local_gateway
from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.handler import Handler
from bothy_hermes.runtime import Prompt, PromptKind
from bothy_hermes.wire_words import MessageKind
from tests.bench.bare import Disk, network_seconds
from tests.bench.figures import at_most, median
from tests.fakes.adapter_kit import World, world
from tests.fakes.runtime import FakeRuntime

ROUNDS = 40


class Unjudged(World):
    """A world whose wire nobody looks at."""

    def new_loop(self, settings):
        """An adapter as it is."""
        return AdapterLoop(settings, self.runtime, self.clock, self.state_dir)


class Timed(FakeRuntime):
    """A Hermes that asks or waits as its message says, and notes when it was reached."""

    def __init__(self):
        super().__init__(self.turn)
        self.at = {}
        self.prompts = 0

    async def turn(self, turn, events):
        """Ask one question, wait for ever, or answer at once."""
        if "ask" in turn.user_text:
            self.prompts += 1
            name = f"prompt{self.prompts}"
            self.waiting[name] = asyncio.get_running_loop().create_future()
            waiting = self.waiting[name]
            await events.on_card(Prompt(PromptKind.CLARIFY, name, "k", "Which?", ("red", "blue")))
            await waiting
        elif "wait" in turn.user_text:
            await asyncio.sleep(3600)
        await events.on_answer("done")

    async def answer_prompt(self, prompt, answer):
        """Note the moment."""
        self.at["answer"] = time.perf_counter()
        return await super().answer_prompt(prompt, answer)

    async def interrupt(self, run_id):
        """Note the moment."""
        self.at.setdefault("interrupt", time.perf_counter())
        await super().interrupt(run_id)


@contextlib.contextmanager
def watched():
    """Note when event frames are sent and when invocations are begun: two maps by run."""
    sent, begun = {}, {}
    send_text, begin = local_gateway.Connection.send_text, Handler.begin

    def timed_send(self, text):
        at = time.perf_counter()
        send_text(self, text)
        frame = json.loads(text)
        if frame["op"] == "event" and frame["event"]["type"] == "agent.invocation":
            sent[frame["event"]["payload"]["run"]["id"]] = at

    def timed_begin(self, entry, invocation, token):
        begun[str(invocation.run.id)] = time.perf_counter()
        begin(self, entry, invocation, token)

    local_gateway.Connection.send_text, Handler.begin = timed_send, timed_begin
    try:
        yield sent, begun
    finally:
        local_gateway.Connection.send_text, Handler.begin = send_text, begin


async def events(made, disk):
    """Seconds from each invocation's frame to its handler, without the disk's."""
    with watched() as (sent, begun):
        for _ in range(ROUNDS):
            await made.ended(made.say(made.thread(), "hello"))
    return [begun[run] - sent[run] - disk.seconds(sent[run], begun[run]) for run in begun]


async def click(made, disk):
    """Seconds from an accepted click to Hermes, without the disk's."""
    thread = made.thread()
    run_id = made.say(thread, "ask")
    await made.until(lambda: made.instance.run(run_id).open_cards)
    card = next(one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD)
    await asyncio.sleep(0.02)
    await asyncio.to_thread(made.instance.use_component, made.ada, card.id, card.components[0].id)
    accepted = time.perf_counter()
    await made.ended(run_id)
    answered = made.runtime.at["answer"]
    return answered - accepted - disk.seconds(accepted, answered)


async def cancellation(made):
    """Seconds from a person's cancellation to Hermes."""
    run_id = made.say(made.thread(), "wait")
    await made.until(lambda: made.runtime.turns and made.runtime.turns[-1].run_id == run_id)
    await asyncio.sleep(0.02)
    made.runtime.at.clear()
    await asyncio.to_thread(made.instance.cancel_run, made.ada, run_id)
    cancelled = time.perf_counter()
    await made.ended(run_id)
    return made.runtime.at["interrupt"] - cancelled


async def latencies(directory):
    """Medians of everything, in milliseconds."""
    with Disk() as disk:
        async with world(directory, Timed(), kind=Unjudged) as made:
            await made.ended(made.say(made.thread(), "warm up"))
            network = sum(await network_seconds())
            event = median(await events(made, disk)) - network
            clicks = median([await click(made, disk) for _ in range(ROUNDS)]) - network
            cancelled = median([await cancellation(made) for _ in range(ROUNDS)])
    return [max(0.0, seconds) * 1000 for seconds in (event, clicks, cancelled)]


def measure(directory):
    """The figures."""
    event, clicks, cancelled = asyncio.run(latencies(directory))
    return [
        at_most("event frame sent to handler called, beyond network and disk", event, 15, "ms"),
        at_most("click accepted to Hermes answered, beyond network and disk", clicks, 15, "ms"),
        at_most("cancellation to Hermes interrupted", cancelled, 50, "ms"),
    ]
