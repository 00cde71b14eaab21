"""One run from its acceptance to its end, whatever comes between."""

import asyncio
import dataclasses
import logging
from uuid import UUID

import pytest

from bothy_hermes import run_turn
from bothy_hermes.errors import TransportError
from bothy_hermes.handler import Handler
from bothy_hermes.recovery import Recovery
from bothy_hermes.run_stages import TURN_ENDS, Stage
from bothy_hermes.runs import FRESH_SECONDS, RunWork
from bothy_hermes.runtime import (
    BusyMode,
    Prompt,
    PromptKind,
    ResolvedCredential,
    ToolEnd,
    TurnEnd,
    TurnOutcome,
    Usage,
)
from bothy_hermes.store import EntryState
from bothy_hermes.wire_events import FollowupEvent, HelloSettings, RunList
from bothy_hermes.wire_operations import FINISH_RUN
from bothy_hermes.wire_words import KeyType, Outcome, Reason, RunState
from tests.fakes.clock import settle
from tests.fakes.contexts import context, trigger
from tests.fakes.edge_kit import AGENT, PERSON, RUN, THREAD
from tests.fakes.flow_kit import (
    ADAPTER,
    MESSAGE,
    FakeApi,
    ended,
    invocation,
    listed_run,
    refusal,
    with_rooms,
)
from tests.fakes.runtime import FakeRuntime, echo

SLOW = HelloSettings(run_update_min_interval_ms=60_000, max_content_bytes=262_144, costs_enabled=True)
"""A server that wants patches once a minute."""

OTHER = UUID("0192f4a0-7b1c-7000-8000-0000000000f9")
"""A message that came before `MESSAGE`."""

INTERRUPTED = (Outcome.FAILED, Reason.INTERRUPTED)


def end_of(made, run_id=RUN):
    end = made.api.finished.get(run_id)
    return None if end is None else (str(end.outcome), None if end.reason is None else str(end.reason))


async def begun(made, run=None, **changes):
    """A work on an accepted run, running; its task is `made.task`."""
    work = RunWork(made.services, await made.entry(), invocation(run, **changes), None)
    made.work, made.task = work, asyncio.ensure_future(work.work())
    return work


def working(tmp_path, steps=None, script=echo, *, before=None, run=None, **changes):
    """Work on a run to its end, while `steps(rooms, work)` happens; returns the rooms."""

    async def on_rooms(made):
        if before is not None:
            before(made)
        work = await begun(made, run, **changes)
        try:
            if steps is not None:
                await steps(made, work)
            async with asyncio.timeout(5):
                await made.fake.drive(made.task)
        finally:
            made.task.cancel()
        made.state = await made.state_of()
        made.left = await made.store.calls()
        return made

    return with_rooms(tmp_path, on_rooms, FakeRuntime(script))


def operations(made):
    return [name for name, *_ in made.api.calls]


async def waiting(_turn, _events):
    await asyncio.Event().wait()


# The usual way ------------------------------------------------------------------------------------


def test_a_run_is_read_started_done_and_ended(tmp_path):
    made = working(tmp_path)
    assert [one.content for one in made.api.messages] == [f"You said: {made.runtime.turns[0].user_text}"]
    assert end_of(made) == ("completed", None)
    assert (made.state, made.left) == (EntryState.DONE, [])
    assert made.work.stage is Stage.OVER
    assert [name for name in operations(made) if name != "update_run"] == [
        "get_run_context",
        "get_served_channel_config",
        "start_run",
        "create_message",
        "finish_run",
    ]


def test_the_start_is_on_disk_before_the_server_is_asked(tmp_path):
    """A crash in between must not look like a run that was never started."""
    seen = []

    def before(made):
        async def look(*_args):
            seen.append(await made.state_of())

        made.api.on["start_run"] = [look]

    working(tmp_path, before=before)
    assert seen == [EntryState.STARTING]


def test_the_start_is_noted_and_its_evidence_asked_for_while_the_context_is_read(tmp_path):
    """None of the three needs another one."""

    def before(made):
        async def look(*_args):
            await made.until(lambda: made.runtime.questions == 1)
            while await made.state_of() is not EntryState.STARTING:
                await settle()

        made.api.on["get_run_context"] = [look]

    made = working(tmp_path, before=before)
    assert end_of(made) == ("completed", None)
    assert made.runtime.questions == 1


def test_evidence_that_a_slow_context_made_old_is_asked_for_again(tmp_path):
    """Whose money it is may have changed meanwhile."""

    def before(made):
        async def look(*_args):
            await made.until(lambda: made.runtime.questions == 1)
            await settle()
            made.runtime.credential = ResolvedCredential("anthropic", KeyType.OAUTH)
            made.fake.move(FRESH_SECONDS + 0.1)

        made.api.on["get_run_context"] = [look]

    made = working(tmp_path, before=before)
    assert end_of(made) == ("failed", "billing_mode_mismatch")
    assert made.runtime.turns == []


def test_a_context_that_cannot_be_read_leaves_nothing_behind(tmp_path):
    """What was done meanwhile ends with the run."""
    made = working(
        tmp_path, before=lambda made: made.api.on.update(get_run_context=refusal(403, "forbidden"))
    )
    assert end_of(made) == ("failed", "adapter_error")
    assert (made.state, made.left) == (EntryState.DONE, [])


def test_the_last_patch_is_written_while_the_end_is_put_together(tmp_path):
    async def script(_turn, events):
        events.on_session("s")
        events.on_status("is looking")
        await settle()
        await events.on_answer("done")

    def before(made):
        object.__setattr__(made.services, "limits", lambda: SLOW)

        async def parent(_session_id):
            await made.until(lambda: len(made.api.named("update_run")) == 2)

        made.runtime.session_parent = parent

    async def steps(made, _work):
        done, _ = await asyncio.wait({made.task}, timeout=2)  # time stands still: no interval passes
        assert done

    made = working(tmp_path, steps, script, before=before, session_mode="resume")
    assert end_of(made) == ("completed", None)
    assert operations(made)[-1] == "finish_run"
    assert len(made.api.named("update_run")) == 2


def test_the_end_is_on_disk_before_the_server_hears_of_it(tmp_path):
    seen = []

    def before(made):
        async def look(*_args):
            seen.append((await made.state_of(), [one.call.operation for one in await made.store.calls()]))

        made.api.on["finish_run"] = [look]

    working(tmp_path, before=before)
    assert seen == [(EntryState.FINISHING, ["finishRun"])]


def test_nothing_is_said_about_a_run_after_its_end(tmp_path):
    """The box is brought up to date before, not after."""

    async def script(turn, events):
        events.on_status("is looking")
        await events.on_answer("done")
        events.on_status("is looking again")

    made = working(tmp_path, script=script)
    assert operations(made)[-1] == "finish_run"
    assert made.api.named("update_run") != []


def test_the_box_is_up_to_date_when_the_run_ends(tmp_path):
    """What came last is shown, however short it was before the end."""
    shown = []

    def before(made):
        def look(*_args):
            shown.extend(str(step.state) for step in made.api.documents[RUN].steps)

        made.api.on["finish_run"] = [look]
        object.__setattr__(made.services, "limits", lambda: SLOW)

    async def script(_turn, events):
        events.on_status("is looking")
        await settle()
        await events.on_answer("done")
        events.on_tool_end(ToolEnd("is looking", failed=False))

    async def steps(made, _work):
        await asyncio.wait({made.task}, timeout=5)  # time stands still: no interval passes

    working(tmp_path, steps, script, before=before)
    assert shown == ["completed"]


def test_decision_7_what_the_turn_cost_is_part_of_the_end(tmp_path):
    async def script(_turn, events):
        events.on_usage(Usage("anthropic", "m", 10, 5, None, None))
        events.on_usage(Usage("anthropic", "m", 1, 2, 7, None))
        await events.on_answer("done")

    end = working(tmp_path, script=script).api.finished[RUN]
    metrics = end.metrics
    assert (metrics.model_requests, metrics.tokens_in, metrics.tokens_out) == (2, 11, 7)
    assert [(cost.tokens_in, cost.tokens_cache_read) for cost in end.costs] == [(11, 7)]


def test_a_completed_run_in_which_nothing_was_said_says_so(tmp_path):
    async def silent(_turn, _events):
        return TurnEnd(TurnOutcome.EMPTY)

    made = working(tmp_path, script=silent)
    assert ["without an answer" in one.content for one in made.api.messages] == [True]
    assert end_of(made) == ("completed", None)


@pytest.mark.parametrize("outcome", list(TurnOutcome))
def test_every_end_of_a_turn_is_an_end_of_its_run(tmp_path, outcome):
    async def script(_turn, _events):
        return TurnEnd(outcome, "a word")

    wanted, reason = TURN_ENDS[outcome]
    assert end_of(working(tmp_path, script=script)) == (str(wanted), reason and str(reason))


# Ends that come from outside ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation", ["get_run_context", "get_served_channel_config", "start_run", "use_session"]
)
def test_an_end_before_the_turn_costs_no_turn(tmp_path, operation):
    """At each step between the acceptance and Hermes; the run ends without waiting for the step."""
    reached = asyncio.Event()

    def before(made):
        async def hang(*_args):
            reached.set()
            await asyncio.Event().wait()

        if operation == "use_session":
            made.runtime.use_session = hang
        else:
            made.api.on[operation] = [hang]

    async def steps(_made, work):
        await asyncio.wait_for(reached.wait(), 5)
        work.end_early(Outcome.FAILED, Reason.BILLING_MODE_MISMATCH)

    made = working(tmp_path, steps, before=before)
    assert made.runtime.turns == []
    assert end_of(made) == ("failed", "billing_mode_mismatch")
    assert (made.state, made.left) == (EntryState.DONE, [])


def test_an_end_before_the_first_step_costs_nothing(tmp_path):
    async def steps(_made, work):
        work.end_early(Outcome.CANCELLED, None)

    made = working(tmp_path, steps)
    assert made.runtime.turns == []
    assert made.api.named("start_run") == []
    assert end_of(made) == ("cancelled", None)


async def in_turn(made):
    await made.until(lambda: made.runtime.turns)
    await settle()


def test_an_end_during_the_turn_interrupts_it(tmp_path):
    async def steps(made, work):
        await in_turn(made)
        work.end_early(*INTERRUPTED)

    made = working(tmp_path, steps, waiting)
    assert made.runtime.interrupted == [RUN]
    assert end_of(made) == ("failed", "interrupted")


def test_the_first_who_ends_a_run_decides_how(tmp_path):
    async def steps(made, work):
        await in_turn(made)
        work.end_early(Outcome.CANCELLED, None)
        work.end_early(Outcome.FAILED, Reason.TOOL_CLASS_EXCEEDED)

    assert end_of(working(tmp_path, steps, waiting)) == ("cancelled", None)


def test_an_end_that_comes_after_the_turn_changes_nothing(tmp_path):
    """The answer is given; what is left is to say so."""

    def before(made):
        made.sending, made.let = asyncio.Event(), asyncio.Event()

        async def slow(*_args):
            made.sending.set()
            await made.let.wait()

        made.api.on["finish_run"] = [slow]

    async def steps(made, work):
        await asyncio.wait_for(made.sending.wait(), 5)
        work.end_early(*INTERRUPTED)
        made.let.set()

    made = working(tmp_path, steps, before=before)
    assert end_of(made) == ("completed", None)
    assert made.runtime.interrupted == []


@pytest.mark.parametrize("trouble", ["deaf", "broken"])
def test_a_turn_is_interrupted_until_it_ends(tmp_path, trouble, monkeypatch):
    """A turn that Hermes was just given does not hear the first; a call that fails is no interrupt."""
    monkeypatch.setattr(run_turn, "INTERRUPT_SECONDS", 0.01)
    tries = []

    def before(made):
        usual = made.runtime.interrupt

        async def interrupt(run_id):
            tries.append(run_id)
            if len(tries) < 4:
                if trouble == "broken":
                    raise RuntimeError("xyzzy")
                return
            await usual(run_id)

        made.runtime.interrupt = interrupt

    async def steps(made, work):
        await in_turn(made)
        work.end_early(*INTERRUPTED)

    made = working(tmp_path, steps, waiting, before=before)
    assert len(tries) == 4
    assert end_of(made) == ("failed", "interrupted")


def test_an_answer_that_came_despite_the_interrupt_is_not_lost(tmp_path):
    async def script(turn, events):
        try:
            await asyncio.Event().wait()
        finally:
            await events.on_answer("half of it")

    async def steps(made, work):
        await in_turn(made)
        work.end_early(*INTERRUPTED)

    made = working(tmp_path, steps, script)
    assert [one.content for one in made.api.messages] == ["half of it"]
    assert end_of(made) == ("failed", "interrupted")


@pytest.mark.parametrize(
    ("state", "end"),
    [
        (RunState.CANCELLED, ("cancelled", None)),
        (RunState.FAILED, ("failed", "adapter_error")),
        (RunState.COMPLETED, ("completed", None)),
    ],
)
@pytest.mark.parametrize("code", ["run_ended", "run_not_startable"])
def test_a_run_that_ended_at_the_server_first_ends_the_same_way(tmp_path, state, end, code):
    """The event that says so is still on its way."""

    def before(made):
        made.api.runs[RUN] = state
        made.api.on["start_run"] = [ended("startRun") if code == "run_ended" else refusal(409, code)]

    made = working(tmp_path, before=before)
    assert made.runtime.turns == []
    assert end_of(made) == end
    assert (made.state, made.left) == (EntryState.DONE, [])


def test_an_end_behind_a_refused_message_is_stored_as_a_failure(tmp_path):
    """A process that finds it on disk knows of no refusal."""
    stored = []

    async def script(_turn, events):
        await events.on_interim("I will look.")
        await script.made.until(lambda: script.made.api.named("create_message"))
        await script.made.until(nothing_is_owed)
        await events.on_answer("Five.")

    async def nothing_is_owed():
        return await script.made.store.calls() == []

    def before(made):
        script.made = made
        made.api.on["create_message"] = [refusal(422, "validation_failed", "createMessage")]

        async def look(_run_id, _body):
            stored.extend(
                one.call.body for one in await made.store.calls() if one.call.key.endswith("finishRun")
            )

        made.api.on["finish_run"] = [look]

    made = working(tmp_path, script=script, before=before)
    assert [(body["outcome"], body["reason"]) for body in stored] == [("failed", "adapter_error")]
    assert end_of(made) == ("failed", "adapter_error")


def test_a_run_of_which_nobody_can_say_how_it_ended_ends_all_the_same(tmp_path):
    def before(made):
        made.api.runs[RUN] = RunState.CANCELLED
        made.api.on["start_run"] = [ended("startRun")]
        made.api.on["get_run"] = refusal(404, "not_found")

    made = working(tmp_path, before=before)
    assert (made.state, made.left) == (EntryState.DONE, [])


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("billing_mode_mismatch", "billing_mode_mismatch"),
        ("tool_class_exceeded", "tool_class_exceeded"),
        ("validation_failed", "adapter_error"),
        ("forbidden", "adapter_error"),
    ],
)
def test_a_refused_start_ends_the_run_with_a_reason(tmp_path, code, reason):
    def before(made):
        made.api.on["start_run"] = refusal(409, code)

    made = working(tmp_path, before=before)
    assert made.runtime.turns == []
    assert end_of(made) == ("failed", reason)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), "billing_mode_mismatch"),
        ("toolsets", None, "tool_class_exceeded"),
    ],
)
def test_decision_4_mode_and_class_are_asked_again_before_the_start(tmp_path, name, value, reason):
    def before(made):
        setattr(made.runtime, name, value)

    made = working(tmp_path, before=before, run={"tool_class": "scoped" if name == "toolsets" else "host"})
    assert made.api.named("start_run") == []
    assert end_of(made) == ("failed", reason)


def test_an_unknown_session_mode_starts_nothing(tmp_path):
    made = working(tmp_path, session_mode="fork")
    assert operations(made) == ["finish_run"]
    assert end_of(made) == ("failed", "adapter_error")


# What breaks --------------------------------------------------------------------------------------


def broken(made, where):
    """Have one thing break; returns nothing, the run's end tells."""
    trouble = RuntimeError("xyzzy")
    if where == "context":
        made.api.context = context(trigger("What now?"))
    elif where in ("use_session", "start_turn", "session_parent"):

        async def breaks(*_args):
            raise trouble

        setattr(made.runtime, where, breaks)
    else:
        made.api.on[where] = trouble


@pytest.mark.parametrize(
    ("where", "end"),
    [
        ("context", ("failed", "adapter_error")),
        ("get_run_context", ("failed", "adapter_error")),
        ("start_run", ("failed", "adapter_error")),
        ("use_session", ("failed", "adapter_error")),
        ("start_turn", ("failed", "runtime_error")),
        ("session_parent", ("completed", None)),
        ("update_run", ("completed", None)),
    ],
)
def test_whatever_breaks_the_run_ends_with_a_reason(tmp_path, where, end, caplog):
    """And the log repeats no foreign text: it may hold what somebody wrote."""

    async def script(turn, events):
        events.on_session("s1")
        events.on_status("is looking")
        return await echo(turn, events)

    with caplog.at_level(logging.DEBUG):
        made = working(tmp_path, script=script, before=lambda made: broken(made, where))
    assert end_of(made) == end
    assert (made.state, made.left) == (EntryState.DONE, [])
    assert "xyzzy" not in caplog.text
    assert "What now?" not in caplog.text


def test_a_session_that_hermes_tells_nothing_of_does_not_hold_the_end_up(tmp_path, monkeypatch):
    """Its database may hang; a cancel could not reach the run any more."""
    monkeypatch.setattr("bothy_hermes.runs.REPORT_SECONDS", 0.05)

    async def script(turn, events):
        events.on_session("s1")
        return await echo(turn, events)

    def before(made):
        async def hang(_session_id):
            await asyncio.Event().wait()

        made.runtime.session_parent = hang

    assert end_of(working(tmp_path, script=script, before=before)) == ("completed", None)


def test_a_turn_that_is_cancelled_inside_hermes_is_a_failed_turn(tmp_path):
    """Nobody here has cancelled anything: the run's people see an end."""

    async def script(_turn, _events):
        raise asyncio.CancelledError

    assert end_of(working(tmp_path, script=script)) == ("failed", "runtime_error")


def test_a_context_that_cannot_be_had_ends_the_run(tmp_path):
    def before(made):
        made.api.on["get_run_context"] = TransportError("getRunContext", "too_large", sent=True)

    assert end_of(working(tmp_path, before=before)) == ("failed", "adapter_error")


# A disk that takes nothing ------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["get_run_context", "start_run", "create_message", "finish_run"])
def test_a_disk_that_takes_nothing_for_a_while_costs_nothing(tmp_path, operation):
    """From the middle of each call on; the turn goes on, and what is owed waits."""

    def before(made):
        async def fail(*_args):
            await made.read_only()

        made.api.on[operation] = [fail]

    async def steps(made, _work):
        await made.until(lambda: made.troubles)
        await made.until(lambda: made.fake.sleepers)
        assert not made.task.done()
        await made.read_only(on=False)

    made = working(tmp_path, steps, before=before)
    assert end_of(made) == ("completed", None)
    assert len(made.api.messages) == 1
    assert len(made.runtime.turns) == 1
    assert (made.state, made.left) == (EntryState.DONE, [])
    assert made.troubles[-1] is None


# Texts that come meanwhile ------------------------------------------------------------------------


def followup():
    return FollowupEvent(
        run_id=RUN, thread_id=THREAD, message_id=MESSAGE, author_id=PERSON, run_state=RunState.RUNNING
    )


@pytest.mark.parametrize(
    ("mode", "taken"), [(BusyMode.STEER, 1), (BusyMode.QUEUE, 0), (BusyMode.INTERRUPT, 0)]
)
def test_a_text_is_handed_in_only_where_hermes_takes_it_into_the_turn(tmp_path, mode, taken):
    texts = []

    def before(made):
        async def steer(_run_id, text, _message_id):
            texts.append(text)
            return True

        made.runtime.on_steer = steer
        made.runtime.busy_mode = mode

    async def steps(made, work):
        await in_turn(made)
        await work.followup(followup())
        work.end_early(*INTERRUPTED)

    working(tmp_path, steps, waiting, before=before)
    assert len(texts) == taken


def test_texts_are_handed_in_in_the_order_in_which_they_were_written(tmp_path):
    """Each is read by a request of its own, and the answer to the first may be the slower one."""
    taken = []

    def before(made):
        async def steer(_run_id, _text, message_id):
            taken.append(message_id)
            return True

        async def slowly():
            for _ in range(50):
                await asyncio.sleep(0)

        made.runtime.on_steer, made.runtime.busy_mode = steer, BusyMode.STEER
        made.api.context = context(trigger("one", id=OTHER), trigger("two", id=MESSAGE))
        made.api.on["get_run_context"] = [None, lambda _run_id: slowly()]

    async def steps(made, work):
        await in_turn(made)
        first = dataclasses.replace(followup(), message_id=OTHER)
        await asyncio.gather(work.followup(first), work.followup(followup()))
        work.end_early(*INTERRUPTED)

    working(tmp_path, steps, waiting, before=before)
    assert taken == [OTHER, MESSAGE]


@pytest.mark.parametrize(
    ("state", "answer"), [(RunState.RUNNING, None), (RunState.WAITING_INPUT, "What now?")]
)
def test_decision_8_what_was_written_before_a_question_is_no_answer_to_it(tmp_path, state, answer):
    """It was on its way when the card came: nobody had read the question."""
    asked = Prompt(PromptKind.CLARIFY, "c1", "k", "Which one?")

    async def script(_turn, events):
        script.future = script.runtime.waiting["c1"] = asyncio.get_running_loop().create_future()
        await events.on_card(asked)
        await asyncio.get_running_loop().create_future()

    def before(made):
        script.runtime = made.runtime

    async def steps(made, work):
        await in_turn(made)
        await made.until(work._live.cards.for_text)
        await work.followup(dataclasses.replace(followup(), run_state=state))
        assert (script.future.result() if script.future.done() else None) == answer
        work.end_early(*INTERRUPTED)

    working(tmp_path, steps, script, before=before)


@pytest.mark.parametrize(
    ("asked", "answer", "steered"),
    [
        (Prompt(PromptKind.CLARIFY, "c1", "k", "Which one?"), "What now?", []),
        (
            Prompt(PromptKind.APPROVAL, "c1", "k", choices=("once", "deny"), command="ls"),
            "deny",
            ["What now?"],
        ),
    ],
    ids=["question", "approval"],
)
def test_decision_8_a_text_that_only_refuses_leave_enters_the_turn_as_well(tmp_path, asked, answer, steered):
    """Of an answer the model hears by its question; of a refusal it hears no word."""
    texts = []

    async def script(_turn, events):
        script.future = script.runtime.waiting["c1"] = asyncio.get_running_loop().create_future()
        await events.on_card(asked)
        await asyncio.get_running_loop().create_future()

    def before(made):
        async def steer(_run_id, text, _message_id):
            texts.append(text)
            return True

        script.runtime, made.runtime.on_steer, made.runtime.busy_mode = made.runtime, steer, BusyMode.STEER

    async def steps(made, work):
        await in_turn(made)
        await made.until(work._live.cards.for_text)
        await work.followup(dataclasses.replace(followup(), run_state=RunState.WAITING_INPUT))
        assert (script.future.result(), texts) == (answer, steered)
        work.end_early(*INTERRUPTED)

    working(tmp_path, steps, script, before=before)


def test_a_run_that_is_over_is_not_shown_as_waiting(tmp_path):
    """Its card reached the server late: the line that the wait wrote there goes before the end."""
    posted = asyncio.Event()

    async def script(_turn, events):
        await events.on_card(Prompt(PromptKind.CLARIFY, "c1", "k", "Which one?"))
        await asyncio.Event().wait()

    def before(made):
        def wait_on(run_id, body):
            document = made.api.documents[run_id]
            made.api.documents[run_id] = dataclasses.replace(
                document, version=document.version + 1, status_line=body.status_line
            )

        async def post(_run_id, _body):
            await posted.wait()

        made.api.on |= {"create_message": post, "await_run_input": wait_on}

    async def steps(made, work):
        await made.until(lambda: made.api.named("create_message"))
        work.end_early(*INTERRUPTED)
        await made.until(lambda: work.stage is Stage.ENDING)
        await made.until(lambda: made.api.documents[RUN].status_line is None)
        posted.set()
        await made.until(lambda: made.api.named("await_run_input"))

    made = working(tmp_path, steps, script, before=before)
    assert made.api.documents[RUN].status_line is None


def test_a_wait_that_is_not_sent_allows_no_early_patch(tmp_path):
    """The server has refused the card: the patches that follow keep their time."""

    async def script(_turn, events):
        events.on_status("is looking")
        await script.made.until(lambda: script.made.api.named("update_run"))
        await events.on_card(Prompt(PromptKind.CLARIFY, "c1", "k", "Which one?"))
        await asyncio.Event().wait()

    def before(made):
        script.made = made
        made.limits = lambda: SLOW
        made.services = dataclasses.replace(made.services, limits=made.limits)
        made.api.on["create_message"] = refusal(422, "component_invalid", "createMessage")

    async def steps(made, work):
        async def nothing_is_owed():
            return await made.store.calls() == []

        await made.until(lambda: made.api.named("create_message"))
        await made.until(nothing_is_owed)
        assert len(made.api.named("update_run")) == 1
        work.end_early(*INTERRUPTED)

    working(tmp_path, steps, script, before=before)


def test_an_end_is_stored_when_no_card_is_open_any_more(tmp_path):
    """A process that finds it on disk could close none, and the server completes no run that waits."""
    stored = []

    async def script(_turn, events):
        await events.on_card(Prompt(PromptKind.CLARIFY, "c1", "k", "Which one?"))
        await events.on_answer("never mind")

    def before(made):
        async def resume(_run_id, _body):
            stored.extend(one.call.operation for one in await made.store.calls())

        made.api.on["resume_run"] = resume

    async def steps(made, _work):
        await made.until(lambda: made.api.named("resume_run"))  # time stands still while the disk works

    made = working(tmp_path, steps, script, before=before)
    assert len(made.api.named("resume_run")) == 1
    assert FINISH_RUN.name not in stored
    assert end_of(made) == ("completed", None)


def test_a_text_before_the_turn_stays_at_the_server(tmp_path):
    def before(made):
        made.runtime.busy_mode = BusyMode.STEER
        made.runtime.on_steer = waiting

    async def steps(made, work):
        await work.followup(followup())
        assert made.api.named("get_run_context") == []

    working(tmp_path, steps, before=before)


# Cancellation at every await ----------------------------------------------------------------------


class Cut(Exception):
    """There are no more points: the work came to its end."""


def cutting(made, count):
    """Cancel the work when it reaches its count-th point: each API call and each step of the store."""
    points = []

    def point(name):
        points.append(name)
        if len(points) == count:
            made.task.cancel()

    usual_call = FakeApi._call

    async def call(operation, *args):
        point(f"before {operation}")
        found = await usual_call(made.api, operation, *args)
        point(f"after {operation}")
        return found

    made.api._call = call
    usual_run = type(made.store)._run

    async def run(job, *args, **kwargs):
        point("before the disk")
        result = await usual_run(made.services.store, job, *args, **kwargs)
        point("after the disk")
        return result

    object.__setattr__(made.services.store, "_run", run)
    return points


def still_open(made):
    state = made.api.runs.get(RUN, RunState.QUEUED)
    return () if state.ended else (listed_run({"state": str(state)}),)


def cut_at(tmp_path, count):
    """Cut a work at a point, then recover as the next process would; returns what happened."""

    async def script(turn, events):
        events.on_session("s1")
        await events.on_interim("I will look.")
        await events.on_answer("done")

    async def on_rooms(made):
        work = RunWork(made.services, await made.entry(), invocation(), None)
        made.task = asyncio.ensure_future(work.work())
        points = cutting(made, count)
        await made.fake.drive(asyncio.wait({made.task}, timeout=5))
        assert made.task.done(), f"the work hangs after {points[-1]}"
        if not made.task.cancelled():
            made.task.result()
            raise Cut
        await settle()
        del made.api._call
        made.api.on["list_runs"] = lambda _states: RunList(runs=still_open(made))
        handler = Handler(made.services)
        made.services.store.__dict__.pop("_run", None)
        await Recovery(made.services, handler, agent_id=AGENT, adapter_id=ADAPTER).recover()
        assert await made.fake.drive(handler.settle(5))
        await settle()
        return made, points, await made.store.calls(), await made.store.open_entries()

    return with_rooms(tmp_path, on_rooms, FakeRuntime(script))


def test_a_work_that_is_cancelled_anywhere_leaves_a_ledger_that_balances(tmp_path):
    """Before and after each call and each commit: one end, at most one turn, nothing twice, nothing left."""
    for count in range(1, 200):
        try:
            made, points, left, open_entries = cut_at(tmp_path / str(count), count)
        except Cut:
            break
        where = points[min(count, len(points)) - 1]
        assert made.api.runs[RUN].ended, where
        assert len(made.runtime.turns) <= 1, where
        texts = [one.content for one in {one.client_msg_id: one for one in made.api.messages}.values()]
        assert len(texts) == len(set(texts)), where
        assert (left, open_entries) == ([], []), where
        assert len(made.api.named("finish_run")) <= 2, where
    else:
        raise AssertionError("the work never came to its end")
    assert count > 30
