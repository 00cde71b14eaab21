"""An adapter ends and another begins on its state: what was accepted is done once, what was lost ends."""

import asyncio
import shutil

import pytest

from bothy_hermes import recovery
from bothy_hermes.local_agents import Fault
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import Prompt, PromptKind, ResolvedCredential
from bothy_hermes.wire_words import KeyType, MessageKind, RunState
from tests.fakes.intake_kit import disturb, events_of, flow, is_settled
from tests.fakes.runtime import FakeRuntime, echo

CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))
RESTARTED = (RunState.FAILED, "adapter_restarted")


class Blocked:
    """Turns that wait until they are let go."""

    def __init__(self):
        self.release = asyncio.Event()

    async def script(self, turn, events):
        await self.release.wait()
        await events.on_answer(f"You said: {turn.user_text}")


def end_of(view):
    return view.run.state, view.run.reason


async def nothing_is_left(made):
    store = made.loop._admission._services.store
    assert (await store.open_entries(), await store.calls()) == ([], [])


async def accepted(made, run_id):
    """Wait until a run was accepted here, and stop the work on it before its start."""
    await made.until(lambda: is_settled(made, run_id))


def stop_before_start(made):
    """Have every context wait: what is accepted does not start in this process."""
    never = asyncio.Event()

    async def read(*_args):
        await never.wait()

    object.__setattr__(made.loop._handler._services.context, "read", read)


def test_what_was_accepted_and_not_started_is_done_by_the_next(tmp_path):
    async def steps(made):
        stop_before_start(made)
        threads = [made.thread() for _ in range(3)]
        runs = [made.say(thread, f"message {number}") for number, thread in enumerate(threads)]
        for run_id in runs:
            await accepted(made, run_id)
        await made.kill_adapter()
        await made.start_adapter()
        for run_id in runs:
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 3
        await nothing_is_left(made)

    flow(tmp_path, steps)


def test_a_run_that_was_cancelled_while_nobody_was_there_is_not_done(tmp_path):
    async def steps(made):
        stop_before_start(made)
        run_id = made.say(made.thread(), "never mind")
        await accepted(made, run_id)
        await made.kill_adapter()
        made.instance.cancel_run(made.ada, run_id)
        await made.start_adapter()
        await made.until(lambda: is_settled(made, run_id, "run.ended"))
        await asyncio.sleep(0.1)
        assert made.instance.run(run_id).run.state is RunState.CANCELLED
        assert made.runtime.turns == []
        await nothing_is_left(made)

    flow(tmp_path, steps)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), "billing_mode_mismatch"),
        ("toolsets", None, "tool_class_exceeded"),
    ],
)
def test_what_changed_while_nobody_was_there_is_found_before_the_start(tmp_path, name, value, reason):
    """The run was accepted under another login, or with other tools."""

    async def steps(made):
        stop_before_start(made)
        run_id = made.say(made.thread(), "hello")
        await accepted(made, run_id)
        await made.kill_adapter()
        setattr(made.runtime, name, value)
        await made.start_adapter()
        view = await made.ended(run_id)
        assert end_of(view) == (RunState.FAILED, reason)
        assert view.run.started_at is None
        assert made.runtime.turns == []

    runtime = FakeRuntime(echo)
    runtime.toolsets = frozenset({"todo"})
    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, tool_class="scoped")
    flow(tmp_path, steps, runtime, options=options)


def test_turns_that_died_end_and_their_threads_go_on(tmp_path):
    """Eight at once; the next message of each thread is answered."""
    blocked = Blocked()

    async def steps(made):
        threads = [made.thread() for _ in range(8)]
        runs = [made.say(thread, "long") for thread in threads]
        await made.until(lambda: len(made.runtime.turns) == 8)
        await made.kill_adapter()
        blocked.release.set()
        await made.start_adapter()
        for run_id in runs:
            assert end_of(await made.ended(run_id)) == RESTARTED
        again = [made.say(thread, "again") for thread in threads]
        for run_id in again:
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 16
        await nothing_is_left(made)

    flow(tmp_path, steps, FakeRuntime(blocked.script))


def test_a_message_that_comes_right_after_the_restart_is_one_turn(tmp_path):
    """The thread's old run and the new message do not meet in two turns at once."""
    running = []

    async def script(turn, events):
        running.append(turn.run_id)
        assert len(running) == 1
        if "first" in turn.user_text:
            try:
                await asyncio.Event().wait()
            finally:
                running.remove(turn.run_id)
        await events.on_answer("done")
        running.remove(turn.run_id)

    async def steps(made):
        thread = made.thread()
        first = made.say(thread, "the first")
        await made.in_state(first, RunState.RUNNING)
        await made.until(lambda: running != [])
        await made.kill_adapter()
        made.say(thread, "the second")
        await made.start_adapter()
        assert end_of(await made.ended(first)) == RESTARTED
        await made.until(lambda: len(made.instance.runs(thread)) == 2)
        second = next(view.run.id for view in made.instance.runs(thread) if view.run.id != first)
        assert (await made.ended(second)).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 2

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_card_of_a_dead_turn_cannot_be_used_any_more(tmp_path):
    """Its run ends, which closes it; the person is not told that something happened."""

    async def script(turn, events):
        if "ask" in turn.user_text:
            await events.on_card(CLARIFY)
            await asyncio.Event().wait()
        await events.on_answer("done")

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "ask me")
        await made.until(lambda: made.instance.run(run_id).open_cards != ())
        await made.kill_adapter()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert end_of(view) == RESTARTED
        card = next(one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD)
        assert str(card.closed) == "cancelled"
        assert (await made.ended(made.say(thread, "go on"))).run.state is RunState.COMPLETED

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_clean_stop_leaves_nothing_for_the_next_to_end(tmp_path):
    blocked = Blocked()

    async def steps(made):
        run_id = made.say(made.thread(), "long")
        await made.until(lambda: made.runtime.turns != [])
        await made.stop_adapter()
        assert end_of(made.instance.run(run_id)) == (RunState.FAILED, "interrupted")
        blocked.release.set()
        await made.start_adapter()
        await nothing_is_left(made)
        assert end_of(made.instance.run(run_id)) == (RunState.FAILED, "interrupted")
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps, FakeRuntime(blocked.script))


@pytest.mark.parametrize(
    "fault", [Fault(wait=600), Fault.LOSE_AFTER, Fault.LOSE_BEFORE], ids=["slow", "taken", "lost"]
)
def test_an_answer_that_a_stop_caught_on_its_way_arrives_once(tmp_path, fault):
    """Hermes has heard that it was sent; whether the server had it or not, people read it once."""
    answered = asyncio.Event()

    async def script(_turn, events):
        await events.on_answer("the heron")
        answered.set()

    async def steps(made):
        end_of_fault = disturb(made, "createMessage", fault)
        thread = made.thread()
        run_id = made.say(thread, "which bird?")
        await answered.wait()
        await made.stop_adapter()
        end_of_fault()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert made.texts(thread, run_id) == [("answer", "the heron")]
        await nothing_is_left(made)
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps, FakeRuntime(script))


def test_messages_of_the_time_between_are_each_done_once(tmp_path):
    """A stop, messages from several threads, a start: in one thread they become one run."""

    async def steps(made):
        await made.stop_adapter()
        lonely = [made.thread() for _ in range(3)]
        runs = [made.say(thread, "hello") for thread in lonely]
        shared = made.thread()
        first = made.say(shared, "one")
        made.say(shared, "two")
        await made.start_adapter()
        for run_id in [*runs, first]:
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        await made.until(lambda: all(one.run.state.ended for one in made.instance.runs(shared)))
        turns = [turn for turn in made.runtime.turns if turn.thread_id == shared]
        said = " ".join(turn.user_text for turn in turns)
        assert (said.count("one"), said.count("two")) == (1, 1)
        assert len(made.runtime.turns) == len({turn.run_id for turn in made.runtime.turns})

    flow(tmp_path, steps)


def test_a_state_directory_that_was_lost_ends_what_ran_and_does_nothing_twice(tmp_path, monkeypatch):
    """Without its memory the adapter is another one: the old one's turns are gone when that is."""
    monkeypatch.setattr(recovery, "FOREIGN_SECONDS", 0.5)
    # The server's time is known to a second: the second look must come later than both together.
    monkeypatch.setattr(recovery, "FOREIGN_PAUSE_SECONDS", 2.0)
    blocked = Blocked()

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "long")
        await made.until(lambda: made.runtime.turns != [])
        await made.until(lambda: is_settled(made, run_id))
        await made.kill_adapter()
        shutil.rmtree(made.state_dir)
        blocked.release.set()
        await made.start_adapter()
        assert end_of(await made.ended(run_id)) == RESTARTED
        assert (await made.ended(made.say(thread, "again"))).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 2

    flow(tmp_path, steps, FakeRuntime(blocked.script))


def test_an_event_that_was_not_acked_and_is_not_remembered_is_done_after_a_lost_directory(tmp_path):
    async def steps(made):
        disturb(made, "getAllowList", Fault.answer(503))
        run_id = made.say(made.thread(), "hello")
        await made.until(lambda: events_of(made, run_id)[0].attempt >= 1)
        await made.kill_adapter()
        shutil.rmtree(made.state_dir)
        made.server.fault = None
        await made.start_adapter()
        assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps)


def test_an_adapter_that_restarts_again_and_again_gets_through(tmp_path):
    """Ten starts, a message before each end: nothing is lost, nothing doubled, nothing left."""

    async def steps(made):
        thread, runs = made.thread(), []
        for number in range(10):
            runs.append(made.say(made.thread() if number % 2 else thread, f"message {number}"))
            await asyncio.sleep(0.01 * (number % 4))
            await made.kill_adapter()
            await made.start_adapter()
        threads = made.instance.threads()
        await made.until(
            lambda: all(view.run.state.ended for one in threads for view in made.instance.runs(one.id))
        )
        views = [view for one in threads for view in made.instance.runs(one.id)]
        assert {end_of(view) for view in views} <= {(RunState.COMPLETED, None), RESTARTED}
        turns = [turn.run_id for turn in made.runtime.turns]
        assert len(turns) == len(set(turns))
        for view in views:
            answers = [text for role, text in made.texts(view.run.thread_id, view.run.id) if role == "answer"]
            assert len(answers) <= 1
            assert len(answers) == 1 or view.run.state is RunState.FAILED
        await made.until(lambda: not made.loop._handler._tasks)
        await nothing_is_left(made)

    flow(tmp_path, steps)
