"""A person writes while a run works: into the turn where it is certain to be taken, else the next run."""

import asyncio

from bothy_hermes.runtime import BusyMode
from bothy_hermes.wire_words import RunState
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime


def flow(tmp_path, steps, script):
    async def scenario():
        async with world(tmp_path, FakeRuntime(script)) as made:
            return await steps(made)

    return asyncio.run(scenario())


class Steered:
    """A turn that takes texts into its next model request, until it stops taking them."""

    def __init__(self):
        self.taken = []
        self.release = asyncio.Event()
        self.open = True
        self.shown = True

    async def script(self, turn, events):
        self.events = events
        if "begin" not in turn.user_text:
            await events.on_answer(f"alone: {turn.user_text}")
            return
        await self.release.wait()
        if self.shown:
            for message_id, _ in self.taken:
                events.on_text_seen(message_id)
        await events.on_answer("together: " + ", ".join(text for _, text in self.taken))

    async def steer(self, _run_id, text, message_id):
        if not self.open:
            return False
        self.taken.append((message_id, text))
        return True


def begin(made, turn, mode=BusyMode.STEER):
    made.runtime.busy_mode = mode
    made.runtime.on_steer = turn.steer
    thread = made.thread()
    return thread, made.say(thread, "begin")


async def next_run(made, thread, first):
    await made.until(lambda: len(made.instance.runs(thread)) == 2)
    second = next(view.run.id for view in made.instance.runs(thread) if view.run.id != first)
    await made.ended(second)
    return second


def test_decision_8_a_steered_text_is_answered_in_its_run_and_opens_none(tmp_path):
    turn = Steered()

    async def steps(made):
        thread, run_id = begin(made, turn)
        await made.in_state(run_id, RunState.RUNNING)
        made.say(thread, "and this")
        await made.until(lambda: turn.taken != [])
        turn.release.set()
        await made.ended(run_id)
        assert made.texts(thread, run_id) == [("answer", "together: and this")]
        await asyncio.sleep(0.1)
        assert len(made.instance.runs(thread)) == 1

    flow(tmp_path, steps, turn.script)


def opens_the_next_run(tmp_path, turn, mode=BusyMode.STEER):
    """Have a text come during a turn that does not take it up: it is answered once, in a run of its own."""

    async def steps(made):
        thread, run_id = begin(made, turn, mode)
        await made.in_state(run_id, RunState.RUNNING)
        made.say(thread, "and this")
        if turn.open and mode is BusyMode.STEER:
            await made.until(lambda: turn.taken != [])
        else:
            await asyncio.sleep(0.1)
            assert turn.taken == []
        turn.release.set()
        await made.ended(run_id)
        second = await next_run(made, thread, run_id)
        assert made.texts(thread, second) == [("answer", "alone: and this")]
        assert len(made.instance.runs(thread)) == 2

    flow(tmp_path, steps, turn.script)


def test_decision_8_at_queue_nothing_enters_a_running_turn(tmp_path):
    opens_the_next_run(tmp_path, Steered(), BusyMode.QUEUE)


def test_decision_8_after_the_last_reply_a_text_opens_the_next_run(tmp_path):
    turn = Steered()
    turn.open = False
    opens_the_next_run(tmp_path, turn)


def test_a_text_that_the_model_never_saw_is_not_absorbed(tmp_path):
    """Handed over is not read: the text opens the next run, and is answered there."""
    turn = Steered()
    turn.shown = False
    opens_the_next_run(tmp_path, turn)


def test_five_quick_texts_are_each_taken_once(tmp_path):
    turn = Steered()

    async def steps(made):
        thread, run_id = begin(made, turn)
        await made.in_state(run_id, RunState.RUNNING)
        for index in range(5):
            made.say(thread, f"t{index}")
        await made.until(lambda: len(turn.taken) == 5)
        turn.release.set()
        await made.ended(run_id)
        assert sorted(text for _, text in turn.taken) == ["t0", "t1", "t2", "t3", "t4"]
        await asyncio.sleep(0.1)
        assert len(made.instance.runs(thread)) == 1

    flow(tmp_path, steps, turn.script)
