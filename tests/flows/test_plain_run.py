"""One message becomes one turn and one answer, on the embedded server with a fake Hermes."""

import asyncio
import json
import sqlite3

import pytest

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import ResolvedCredential, ToolEnd, TurnEnd, TurnOutcome, Usage
from bothy_hermes.state_files import read_status
from bothy_hermes.wire_words import KeyType, MessageRole, RunState
from tests.fakes.adapter_kit import OPTIONS, world
from tests.fakes.runtime import FakeRuntime, echo


def flow(tmp_path, steps, runtime=None, **options):
    """Run `steps(world)` in a world of its own."""

    async def scenario():
        async with world(tmp_path, runtime, **options) as made:
            return await steps(made)

    return asyncio.run(scenario())


def test_a_message_becomes_a_turn_and_an_answer(tmp_path):
    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "hello there")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert made.texts(thread, run_id) == [("answer", "You said: hello there")]
        (turn,) = made.runtime.turns
        assert turn.thread_id == thread
        assert turn.run_id == run_id
        assert turn.user_id == made.ada

    flow(tmp_path, steps)


def test_steps_drafts_interim_text_and_answer_are_watched(tmp_path):
    async def script(_turn, events):
        events.on_session("20261130_120000_abcdef01")
        await events.on_interim("I will look.")
        events.on_status("is running ls")
        await asyncio.sleep(0.12)
        events.on_tool_end(ToolEnd("is running ls", failed=False))
        events.on_draft("There are")
        await asyncio.sleep(0.12)
        events.on_usage(Usage("anthropic", "m", 10, 5, 3, None))
        events.on_usage(Usage("anthropic", "m", 1, 1, None, None, "USD", 7))
        await events.on_answer("There are two files.")

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "look")
        view = await made.ended(run_id)
        assert made.texts(thread, run_id) == [
            ("interim", "I will look."),
            ("answer", "There are two files."),
        ]
        assert [(step.title, str(step.state)) for step in view.document.steps] == [
            ("is running ls", "completed")
        ]
        assert view.document.version > 1

    flow(tmp_path, steps, FakeRuntime(script))


def test_decision_7_a_rewritten_answer_is_written_once_at_the_end(tmp_path):
    """Hermes rewrites its answer as often as it likes; people get one message and one last version."""

    async def script(_turn, events):
        message = await events.on_answer("a first version")
        for version in ("a second version", "the last version"):
            events.on_edit(message, version)

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "write")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert made.texts(thread, run_id) == [("answer", "the last version")]
        (message,) = [one for one in made.instance.messages(thread) if one.role is MessageRole.ANSWER]
        assert message.version == 2

    flow(tmp_path, steps, FakeRuntime(script))


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (TurnOutcome.FAILED, RunState.FAILED, "runtime_error"),
        (TurnOutcome.CANCELLED, RunState.FAILED, "interrupted"),
        (TurnOutcome.NOT_RUN, RunState.FAILED, "runtime_busy"),
    ],
)
def test_a_turn_that_did_not_succeed_fails_its_run(tmp_path, outcome, state, reason):
    async def script(_turn, _events):
        return TurnEnd(outcome, "401")

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "fail please")
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (state, reason)
        assert made.texts(thread, run_id) == []

    flow(tmp_path, steps, FakeRuntime(script))


@pytest.mark.parametrize("outcome", [TurnOutcome.EMPTY, TurnOutcome.COMPLETED])
def test_a_silent_turn_ends_with_our_own_line(tmp_path, outcome):
    """Whatever Hermes calls it: a completed run in which nothing was said says so."""

    async def script(_turn, _events):
        return TurnEnd(outcome)

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "say nothing")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        ((role, text),) = made.texts(thread, run_id)
        assert role == "answer"
        assert "without an answer" in text

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_runtime_that_breaks_ends_the_run(tmp_path):
    async def script(_turn, _events):
        raise RuntimeError("a bug in the runtime")

    async def steps(made):
        run_id = made.say(made.thread(), "break")
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "runtime_error")
        made.runtime.script = echo
        after = await made.ended(made.say(made.thread(), "still there?"))
        assert after.run.state is RunState.COMPLETED

    flow(tmp_path, steps, FakeRuntime(script))


def test_two_threads_do_not_wait_for_each_other(tmp_path):
    """Each turn gets its own thread's words, and neither waits for the other."""
    both = asyncio.Barrier(2)

    async def script(turn, events):
        await asyncio.wait_for(both.wait(), 10)
        await events.on_answer(turn.user_text[::-1])

    async def steps(made):
        threads = [made.thread(), made.thread()]
        runs = [made.say(thread, word) for thread, word in zip(threads, ["alpha", "omega"], strict=True)]
        for run_id in runs:
            await made.ended(run_id)
        assert made.texts(threads[0], runs[0]) == [("answer", "ahpla")]
        assert made.texts(threads[1], runs[1]) == [("answer", "agemo")]

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_second_message_during_a_run_becomes_the_next_run(tmp_path):
    release = asyncio.Event()

    async def script(turn, events):
        if "first" in turn.user_text:
            await release.wait()
        await events.on_answer(turn.user_text)

    async def steps(made):
        thread = made.thread()
        first = made.say(thread, "the first")
        await made.in_state(first, RunState.RUNNING)
        made.say(thread, "the second")
        await asyncio.sleep(0.1)
        assert len(made.runtime.turns) == 1
        release.set()
        await made.ended(first)
        await made.until(lambda: len(made.instance.runs(thread)) == 2)
        second = next(view.run.id for view in made.instance.runs(thread) if view.run.id != first)
        await made.ended(second)
        assert made.texts(thread, second) == [("answer", "the second")]

    flow(tmp_path, steps, FakeRuntime(script))


def test_decision_4_an_unknown_mode_never_starts_a_run(tmp_path):
    """Nobody pays for a turn of which nobody can tell who pays."""

    async def steps(made):
        made.runtime.credential = ResolvedCredential(None, KeyType.UNKNOWN)
        run_id = made.say(made.thread(), "who pays?")
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "billing_mode_mismatch")
        assert view.run.started_at is None
        assert made.runtime.turns == []

    flow(tmp_path, steps)


def test_decision_5_stronger_tools_than_granted_never_start_a_run(tmp_path):
    options = ServerOptions(tool_class="chat", run_update_min_interval_ms=50)

    async def steps(made):
        run_id = made.say(made.thread(), "what may you do?")
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "tool_class_exceeded")
        assert made.runtime.turns == []

    flow(tmp_path, steps, options=options)


def test_a_cancelled_run_interrupts_its_turn(tmp_path):
    async def script(_turn, events):
        events.on_status("is sleeping")
        await asyncio.sleep(3600)

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "sleep")
        await made.in_state(run_id, RunState.RUNNING)
        made.instance.cancel_run(made.ada, run_id)
        await made.until(lambda: run_id in made.runtime.interrupted)
        view = await made.ended(run_id)
        assert view.run.state is RunState.CANCELLED
        assert made.texts(thread, run_id) == []

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_run_left_by_a_dead_adapter_is_ended_at_the_next_start(tmp_path):
    async def script(_turn, events):
        await events.on_interim("half of it")
        await asyncio.sleep(3600)

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "never ends")
        await made.in_state(run_id, RunState.RUNNING)
        await made.until(lambda: made.texts(thread, run_id) != [])
        await made.kill_adapter()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "adapter_restarted")
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps, FakeRuntime(script))


def test_a_message_that_waits_while_the_adapter_is_away_is_done_after_its_start(tmp_path):
    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "anybody?")
        await made.start_adapter()
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps, start=False)


def test_a_clean_stop_ends_what_runs_as_interrupted(tmp_path):
    async def script(_turn, _events):
        await asyncio.sleep(3600)

    async def steps(made):
        run_id = made.say(made.thread(), "long")
        await made.in_state(run_id, RunState.RUNNING)
        await made.stop_adapter()
        view = made.instance.run(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "interrupted")

    flow(tmp_path, steps, FakeRuntime(script))


def test_after_a_run_the_adapters_files_hold_nothing_that_was_said(tmp_path):
    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "the secret is xyzzy")
        await made.ended(run_id)
        await made.stop_adapter()
        for path in (tmp_path / "adapter").rglob("*"):
            if path.is_file():
                assert b"xyzzy" not in path.read_bytes(), path.name
                assert b"eyJ" not in path.read_bytes(), path.name
        rows = sqlite3.connect(tmp_path / "adapter" / "state.sqlite3").execute("SELECT count(*) FROM outbox")
        assert rows.fetchone() == (0,)

    flow(tmp_path, steps)


def test_the_status_file_says_how_the_adapter_is(tmp_path):
    async def steps(made):
        await made.until(lambda: read_status(tmp_path / "adapter") is not None)
        status = read_status(tmp_path / "adapter")
        assert status["heartbeat"]["state"] == "online"
        assert "xyzzy" not in json.dumps(status)

    flow(tmp_path, steps)


def test_at_most_so_many_turns_as_slots(tmp_path):
    """The server holds the others back; the ninth run of eight slots stays queued there."""
    release = asyncio.Event()

    async def script(turn, events):
        await release.wait()
        await events.on_answer(turn.user_text)

    async def steps(made):
        runs = [made.say(made.thread(), f"message {index}") for index in range(4)]
        await made.until(lambda: len(made.runtime.turns) == 2)
        await asyncio.sleep(0.2)
        assert len(made.runtime.turns) == 2
        states = sorted(str(made.instance.run(run_id).run.state) for run_id in runs)
        assert states == ["queued", "queued", "running", "running"]
        release.set()
        for run_id in runs:
            assert (await made.ended(run_id)).run.state is RunState.COMPLETED

    keys = {"hermes_adapter.max_active_runs": 2}
    flow(tmp_path, steps, FakeRuntime(script), options=OPTIONS, **keys)
