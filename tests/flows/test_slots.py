"""At most so many turns as slots; what is over them waits at the server, and gets its turn."""

import asyncio

from bothy_hermes.runtime import Prompt, PromptKind, ResolvedCredential
from bothy_hermes.wire_words import KeyType, RunState
from tests.fakes.intake_kit import events_of, flow
from tests.fakes.runtime import FakeRuntime

CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))


class Turns:
    """Turns that wait each for its own release."""

    def __init__(self):
        self.running = {}
        self.most = 0

    async def script(self, turn, events):
        release = self.running[turn.run_id] = asyncio.Event()
        self.most = max(self.most, len(self.running))
        try:
            await release.wait()
        finally:
            del self.running[turn.run_id]
        await events.on_answer("done")


def states(made, runs):
    return [made.instance.run(run_id).run.state for run_id in runs]


def test_the_ninth_run_of_eight_blocked_ones_waits_at_the_server(tmp_path):
    """It is not even offered; the moment a slot is free it runs."""
    turns = Turns()

    async def steps(made):
        runs = [made.say(made.thread(), f"message {number}") for number in range(8)]
        await made.until(lambda: len(turns.running) == 8)
        ninth = made.say(made.thread(), "the ninth")
        await asyncio.sleep(0.3)
        assert states(made, [ninth]) == [RunState.QUEUED]
        assert events_of(made, ninth)[0].attempt == 0
        assert ninth not in turns.running
        turns.running[runs[3]].set()
        await made.until(lambda: ninth in turns.running)
        assert turns.most == 8
        for release in list(turns.running.values()):
            release.set()
        for run_id in [*runs, ninth]:
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED

    flow(tmp_path, steps, FakeRuntime(turns.script))


def test_a_run_that_waits_for_a_person_holds_its_slot(tmp_path):
    """Hermes holds the turn open: it is a turn like any other."""

    async def script(turn, events):
        if "ask" in turn.user_text:
            await events.on_card(CLARIFY)
            await script.release.wait()
        await events.on_answer("done")

    script.release = asyncio.Event()

    async def steps(made):
        asking = made.say(made.thread(), "ask me")
        await made.in_state(asking, RunState.WAITING_INPUT)
        waiting = made.say(made.thread(), "me too")
        await asyncio.sleep(0.2)
        assert states(made, [waiting]) == [RunState.QUEUED]
        script.release.set()
        assert (await made.ended(waiting)).run.state is RunState.COMPLETED
        await made.ended(asking)

    flow(tmp_path, steps, FakeRuntime(script), **{"hermes_adapter.max_active_runs": 1})


def test_refused_runs_hold_no_slot(tmp_path):
    """Twenty refusals through one slot, and then a run that may."""

    async def steps(made):
        made.runtime.credential = ResolvedCredential(None, KeyType.UNKNOWN)
        refused = [made.say(made.thread(), "who pays?") for _ in range(20)]
        for run_id in refused:
            assert (await made.ended(run_id)).run.reason == "billing_mode_mismatch"
        made.runtime.credential = ResolvedCredential("anthropic", KeyType.API_KEY)
        assert (await made.ended(made.say(made.thread(), "hello"))).run.state is RunState.COMPLETED

    flow(tmp_path, steps, **{"hermes_adapter.max_active_runs": 1})


def test_many_messages_go_through_few_slots_once_each(tmp_path):
    """Forty threads, three slots: never more than three turns at once, each message one turn."""
    running, most = set(), []

    async def script(turn, events):
        running.add(turn.run_id)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.discard(turn.run_id)
        await events.on_answer(f"You said: {turn.user_text}")

    async def steps(made):
        threads = [made.thread() for _ in range(40)]
        runs = [made.say(thread, f"message {number}") for number, thread in enumerate(threads)]
        for number, (thread, run_id) in enumerate(zip(threads, runs, strict=True)):
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED
            assert made.texts(thread, run_id) == [("answer", f"You said: message {number}")]
        assert max(most) <= 3
        assert len(made.runtime.turns) == 40

    flow(tmp_path, steps, FakeRuntime(script), **{"hermes_adapter.max_active_runs": 3})


def test_a_slot_of_a_run_that_was_cancelled_is_free(tmp_path):
    turns = Turns()

    async def steps(made):
        first = made.say(made.thread(), "long")
        await made.until(lambda: first in turns.running)
        second = made.say(made.thread(), "next")
        made.instance.cancel_run(made.ada, first)
        await made.until(lambda: second in turns.running)
        turns.running[second].set()
        assert (await made.ended(second)).run.state is RunState.COMPLETED
        assert (await made.ended(first)).run.state is RunState.CANCELLED

    flow(tmp_path, steps, FakeRuntime(turns.script), **{"hermes_adapter.max_active_runs": 1})
