"""What a run of each kind costs in commits and requests, as a reviewed snapshot: a change needs a reason.

Each durable step is counted as a commit of its own, as it is when nothing else waits to be written. What
an adapter does for itself (heartbeats, its start) is no run's and not counted.
"""

import asyncio
from collections import Counter

import pytest

from bothy_hermes import store_writer
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import BusyMode, Prompt, PromptKind, ResolvedCredential, ToolEnd
from bothy_hermes.wire_words import KeyType, MessageKind, RunState
from tests.fakes.adapter_kit import World, world
from tests.fakes.runtime import FakeRuntime

OPTIONS = ServerOptions(run_update_min_interval_ms=600_000)
"""Patches only where the protocol wants one: the first at once, and before a wait and the end."""

OWN = frozenset({"getJwks", "getMe", "openGateway", "listRuns", "putHeartbeat"})
PROMPT = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))


@pytest.fixture(autouse=True)
def _each_step_a_commit(monkeypatch):
    monkeypatch.setattr(store_writer, "MAX_BATCH", 1)


class CountingWorld(World):
    """A world that counts the requests of runs."""

    def new_loop(self, settings):
        """The usual adapter; its transport counts."""
        loop = super().new_loop(settings)
        self.requests = Counter()
        send = loop._transport.send

        async def counted(request, *, timeout):
            self.requests[request.operation] += request.operation not in OWN
            return await send(request, timeout=timeout)

        loop._transport.send = counted
        return loop

    def commits(self):
        """The adapter's commits so far."""
        return self.loop._handler._services.store.commits

    async def patched(self, run_id):
        """Wait until the first patch of a run is there."""
        await self.until(lambda: self.instance.run(run_id).document.steps)


def counted(tmp_path, script, steps):
    """Count one run behind another one that fetched what is kept."""

    async def scenario():
        runtime = FakeRuntime()
        async with world(tmp_path, runtime, options=OPTIONS, kind=CountingWorld) as made:
            thread = made.thread()
            await made.ended(made.say(thread, "warm up"))
            runtime.script = script
            made.requests.clear()
            before = made.commits()
            await steps(made, thread)
            requests = {name: count for name, count in sorted(made.requests.items()) if count}
            return {"commits": made.commits() - before, "requests": requests}

    return asyncio.run(scenario())


def test_a_plain_run(tmp_path, snapshot):
    async def script(_turn, events):
        await events.on_answer("done")

    async def steps(made, thread):
        await made.ended(made.say(thread, "hello"))

    assert counted(tmp_path, script, steps) == snapshot


def test_a_run_with_tools_and_an_interim_text(tmp_path, snapshot):
    async def steps(made, thread):
        shown = asyncio.Event()

        async def script(_turn, events):
            events.on_status("is running ls")
            await shown.wait()
            events.on_tool_end(ToolEnd("is running ls", failed=False))
            await events.on_interim("There are files.")
            for number in range(10):
                events.on_status(f"is running step {number}")
                events.on_status(None)
            await events.on_answer("done")

        made.runtime.script = script
        run_id = made.say(thread, "look")
        await made.patched(run_id)
        shown.set()
        await made.ended(run_id)

    assert counted(tmp_path, None, steps) == snapshot


def test_a_run_whose_card_is_answered(tmp_path, snapshot):
    async def steps(made, thread):
        async def script(_turn, events):
            waiting = made.runtime.waiting[PROMPT.hermes_id] = asyncio.get_running_loop().create_future()
            await events.on_card(PROMPT)
            await events.on_answer(await waiting)

        made.runtime.script = script
        run_id = made.say(thread, "ask")
        await made.in_state(run_id, RunState.WAITING_INPUT)
        await made.until(lambda: made.requests["awaitRunInput"] and made.requests["updateRun"])
        card = next(one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD)
        made.instance.use_component(made.ada, card.id, card.components[0].id)
        await made.ended(run_id)

    assert counted(tmp_path, None, steps) == snapshot


def test_a_run_that_takes_a_text(tmp_path, snapshot):
    async def steps(made, thread):
        taken = asyncio.get_running_loop().create_future()

        async def steer(_run_id, _text, message_id):
            taken.set_result(message_id)
            return True

        async def script(_turn, events):
            message_id = await taken
            await made.until(lambda: made.requests["reportFollowup"])
            events.on_text_seen(message_id)
            await events.on_answer("done")

        made.runtime.busy_mode, made.runtime.on_steer = BusyMode.STEER, steer
        made.runtime.script = script
        run_id = made.say(thread, "begin")
        await made.until(lambda: made.runtime.turns[-1].run_id == run_id)
        made.say(thread, "and this")
        await made.ended(run_id)

    assert counted(tmp_path, None, steps) == snapshot


def test_a_run_that_is_refused(tmp_path, snapshot):
    async def steps(made, thread):
        made.runtime.credential = ResolvedCredential(None, KeyType.UNKNOWN)
        await made.ended(made.say(thread, "who pays?"))

    assert counted(tmp_path, None, steps) == snapshot
