"""The runs that are worked on: slots, events, and the way out."""

import asyncio
import logging
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes import run_turn
from bothy_hermes.codec import parse
from bothy_hermes.handler import Handler
from bothy_hermes.run_calls import finish_call, message_call, response_call
from bothy_hermes.run_cards import failed
from bothy_hermes.runtime import ResolvedCredential
from bothy_hermes.store import EntryState
from bothy_hermes.turn_view import TurnView
from bothy_hermes.wire import CreateMessage, FinishRun, Metrics
from bothy_hermes.wire_events import Interaction, RunEndedEvent
from bothy_hermes.wire_words import KeyType, Outcome, Reason, RunState
from tests.fakes.clock import settle
from tests.fakes.edge_kit import RUN, THREAD, run_token
from tests.fakes.flow_kit import CLICK, CLICK_EVENT, EVENT, invocation, with_rooms
from tests.fakes.runtime import FakeRuntime
from tests.fakes.wire_examples import EXAMPLES


def other(number):
    return UUID(int=number + 1000)


class Turns:
    """Turns that wait until the test lets them go."""

    def __init__(self):
        self.release = asyncio.Event()

    async def script(self, _turn, events):
        await self.release.wait()
        await events.on_answer("done")


def handling(tmp_path, steps, script=None, **keys):
    """Run `steps(rooms, handler)`; at its end the handler is closed."""
    turns = Turns()

    async def on_rooms(made):
        made.turns = turns
        handler = Handler(made.services)
        try:
            return await steps(made, handler)
        finally:
            await handler.close(0)

    return with_rooms(tmp_path, on_rooms, FakeRuntime(script or turns.script), **keys)


async def begin(made, handler, number=0, token=None):
    """Begin a run whose number makes its IDs; returns its ID."""
    run_id = RUN if number == 0 else other(number)
    event_id = EVENT if number == 0 else other(500 + number)
    entry = await made.entry(event_id=event_id, run_id=run_id)
    handler.begin(entry, invocation({"id": str(run_id)}), token)
    return run_id


def ended(state="cancelled", run_id=RUN):
    value = EXAMPLES[RunEndedEvent]() | {"run_id": str(run_id), "thread_id": str(THREAD), "state": state}
    return parse(RunEndedEvent, value)


def end_of(made, run_id=RUN):
    end = made.api.finished.get(run_id)
    return None if end is None else (str(end.outcome), None if end.reason is None else str(end.reason))


# Runs ---------------------------------------------------------------------------------------------


def test_a_run_is_known_from_its_beginning_to_its_end(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        assert handler.knows(RUN)
        assert handler.works_on(RUN)
        assert handler.active_runs == 1
        await made.until(lambda: made.runtime.turns)
        assert handler.overview() == [
            {"run_id": str(RUN), "thread_id": str(THREAD), "stage": "turn", "dropped": {}}
        ]
        made.turns.release.set()
        assert await handler.settle(5)
        await made.until(lambda: not handler.knows(RUN))
        assert (handler.active_runs, handler.overview()) == (0, [])
        assert end_of(made) == ("completed", None)

    handling(tmp_path, steps)


def test_no_more_turns_run_than_there_are_slots(tmp_path):
    async def steps(made, handler):
        for number in range(3):
            await begin(made, handler, number)
        await made.until(lambda: len(made.runtime.turns) == 2)
        await settle()
        assert len(made.runtime.turns) == 2
        made.turns.release.set()
        assert await handler.settle(5)
        assert len(made.runtime.turns) == 3

    handling(tmp_path, steps, max_active_runs=2)


def test_a_run_that_is_worked_on_is_not_begun_again(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        handler.begin(await made.store.entry(EVENT), invocation({"id": str(RUN)}), None)
        await made.until(lambda: made.runtime.turns)
        made.turns.release.set()
        assert await handler.settle(5)
        assert len(made.runtime.turns) == 1
        assert len(made.api.named("start_run")) == 1
        assert end_of(made) == ("completed", None)

    handling(tmp_path, steps)


def test_a_run_whose_work_breaks_off_frees_its_slot(tmp_path, caplog):
    """A mistake of ours in one run costs that run alone; the log repeats no foreign text."""

    async def steps(made, handler):
        made.api.on["finish_run"] = [RuntimeError("xyzzy")]
        await begin(made, handler)
        made.turns.release.set()
        assert await handler.settle(5)
        assert handler.active_runs == 0
        await begin(made, handler, 1)
        assert await handler.settle(5)
        assert end_of(made, other(1)) == ("completed", None)

    with caplog.at_level(logging.ERROR):
        handling(tmp_path, steps, max_active_runs=1)
    assert "broke off" in caplog.text
    assert "xyzzy" not in caplog.text


@pytest.mark.parametrize("where", ["costs", "edits"])
def test_a_run_whose_work_breaks_off_before_its_end_has_one(tmp_path, monkeypatch, where):
    """A mistake while the end is put together: its thread must not be taken for ever."""

    def broken(_view):
        raise RuntimeError

    monkeypatch.setattr(TurnView, where, broken)

    async def steps(made, handler):
        await begin(made, handler)
        made.turns.release.set()
        await made.until(lambda: end_of(made))
        assert await handler.settle(5)
        assert end_of(made) == ("failed", "adapter_error")
        assert await made.state_of() is EntryState.DONE
        assert [message.content for message in made.api.messages] == ["done"]

    handling(tmp_path, steps)


# What events do -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("cancelled", ("cancelled", None)),
        ("failed", ("failed", "interrupted")),
        ("completed", ("completed", None)),
    ],
)
def test_an_end_at_the_server_is_answered_with_that_end(tmp_path, state, end):
    async def steps(made, handler):
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        made.api.runs[RUN] = RunState(state)
        handler.run_ended(ended(state))
        assert await handler.settle(5)
        assert made.runtime.interrupted == [RUN]
        assert end_of(made) == end

    handling(tmp_path, steps)


def test_an_end_of_a_run_that_nobody_works_on_changes_nothing(tmp_path):
    async def steps(made, handler):
        handler.run_ended(ended())
        handler.end_run(RUN, Outcome.FAILED, Reason.INTERRUPTED)
        assert made.api.calls == []
        assert not handler.knows(RUN)

    handling(tmp_path, steps)


def test_an_end_that_comes_while_the_run_waits_for_a_slot_costs_no_turn(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        waiting = await begin(made, handler, 1)
        made.api.runs[waiting] = RunState.CANCELLED
        handler.run_ended(ended(run_id=waiting))
        made.turns.release.set()
        assert await handler.settle(5)
        assert [turn.run_id for turn in made.runtime.turns] == [RUN]
        assert end_of(made, waiting) == ("cancelled", None)

    handling(tmp_path, steps, max_active_runs=1)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), "billing_mode_mismatch"),
        ("credential", ResolvedCredential(None, KeyType.UNKNOWN), "billing_mode_mismatch"),
        ("toolsets", None, "tool_class_exceeded"),
    ],
)
def test_turns_that_no_longer_fit_are_interrupted(tmp_path, name, value, reason):
    """Only those: a run that grants more goes on."""

    async def steps(made, handler):
        made.runtime.toolsets = frozenset({"todo"})
        entry = await made.entry()
        handler.begin(entry, invocation({"id": str(RUN), "tool_class": "scoped"}), None)
        await made.until(lambda: made.runtime.turns)
        setattr(made.runtime, name, value)
        handler.judge_turns(await made.services.prover.now())
        assert await handler.settle(5)
        assert end_of(made) == ("failed", reason)
        assert made.runtime.interrupted == [RUN]

    handling(tmp_path, steps)


@pytest.mark.parametrize(
    ("name", "value", "doubts"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.API_KEY), False),
        ("credential", ResolvedCredential(None, KeyType.UNKNOWN), True),
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), False),
        ("toolsets", None, True),
    ],
)
def test_only_what_may_not_have_been_told_in_time_is_in_doubt(tmp_path, name, value, doubts):
    """A mode that is proven and another one is certain; and where no turn is at stake there is no doubt."""

    async def steps(made, handler):
        made.runtime.toolsets = frozenset({"todo"})
        before = made.runtime.credential, made.runtime.toolsets
        setattr(made.runtime, name, value)
        assert not handler.doubts(await made.services.prover.now())
        made.runtime.credential, made.runtime.toolsets = before
        entry = await made.entry()
        handler.begin(entry, invocation({"id": str(RUN), "tool_class": "scoped"}), None)
        await made.until(lambda: made.runtime.turns)
        setattr(made.runtime, name, value)
        assert handler.doubts(await made.services.prover.now()) is doubts

    handling(tmp_path, steps)


async def cancel_deaf(made, handler):
    """Cancel a run whose turn hears no interrupt."""

    async def deaf(_run_id):
        await asyncio.sleep(0)

    made.runtime.interrupt = deaf
    await begin(made, handler)
    await made.until(lambda: made.runtime.turns)
    handler.end_run(RUN, Outcome.CANCELLED, None)


def test_a_turn_that_hears_no_interrupt_ends_its_run_and_keeps_its_slot(tmp_path, monkeypatch):
    """Its people are told; Hermes is still at work, and what waits for a slot waits until it has let go."""
    monkeypatch.setattr(run_turn, "INTERRUPT_SECONDS", 0.001)

    async def steps(made, handler):
        await cancel_deaf(made, handler)
        await made.until(lambda: end_of(made) is not None)
        assert end_of(made) == ("cancelled", None)
        assert await handler.settle(5)
        assert not handler.works_on(RUN)
        assert [(row["run_id"], row["stage"]) for row in handler.overview()] == [(str(RUN), "lingering")]
        second = await begin(made, handler, 1)
        await settle()
        assert len(made.runtime.turns) == 1
        assert [row["stage"] for row in handler.overview()] == ["accepted", "lingering"]
        made.turns.release.set()
        await made.until(lambda: end_of(made, second) is not None)
        assert end_of(made, second) == ("completed", None)
        assert made.api.messages[0].content == "done"
        assert len(made.api.messages) == 1
        assert str(RUN) not in str(handler.overview())

    handling(tmp_path, steps, max_active_runs=1)


def test_a_lingering_turn_is_given_up_on_the_way_out(tmp_path, monkeypatch):
    """Nothing of it outlives the handler."""
    monkeypatch.setattr(run_turn, "INTERRUPT_SECONDS", 0.001)

    async def steps(made, handler):
        await cancel_deaf(made, handler)
        assert await handler.settle(5)
        await handler.close(0)
        assert handler.overview() == []

    handling(tmp_path, steps)


def test_turns_that_fit_are_left_alone(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        handler.judge_turns(await made.services.prover.now())
        await settle()
        assert made.runtime.interrupted == []

    handling(tmp_path, steps)


def test_a_newer_events_token_serves_the_run_from_then_on(tmp_path):
    newer = run_token(claims={"jti": "t2"})

    async def steps(made, handler):
        await begin(made, handler, token=run_token())
        await made.until(lambda: made.runtime.turns)
        handler.take_token(RUN, newer)
        handler.take_token(other(7), newer)
        assert handler._works[RUN].token.current == newer

    handling(tmp_path, steps)


# Clicks -------------------------------------------------------------------------------------------


async def click(made):
    entry = await made.click()
    used = parse(Interaction, EXAMPLES[Interaction]() | {"id": str(CLICK), "run_id": str(RUN)})
    return entry, used


def test_a_click_for_a_run_that_is_over_is_answered(tmp_path):
    """Nobody waits for it any more, and the person hears that."""

    async def steps(made, handler):
        entry, used = await click(made)
        await handler.interaction(entry, used, run_token())
        assert await handler.settle(5)
        assert made.api.named("respond_to_interaction") == [
            (CLICK, "failed", "Nothing waits for this answer any more.")
        ]
        assert await made.state_of(CLICK_EVENT) is EntryState.DONE

    handling(tmp_path, steps)


def test_a_click_that_meets_the_end_of_its_run_is_answered_with_the_token_it_came_with(tmp_path):
    """After the end no other token is to be had; the one of the click's own event still lives."""
    newest = run_token(claims={"jti": "t9"})

    async def steps(made, handler):
        presented = []

        async def respond(_interaction_id, auth, _body):
            presented.append(await auth.token())

        sending = asyncio.Event()
        made.api.respond_to_interaction = respond
        made.api.on["finish_run"] = [lambda *_args: sending.wait()]
        await made.entry(EntryState.FINISHING)
        await made.store.record(
            finish_call(RUN, FinishRun(outcome="failed", reason="interrupted", metrics=Metrics()))
        )
        handler.send_leftovers(RUN, None, EVENT)
        await made.until(lambda: made.api.named("finish_run"))
        entry, used = await click(made)
        await handler.interaction(entry, used, newest)
        sending.set()
        await made.until(lambda: presented)
        assert presented == [newest]
        assert made.api.named("renew_run_token") == []

    handling(tmp_path, steps)


def test_a_click_that_is_answered_after_its_run_is_over_is_answered(tmp_path):
    """A slow server: the run ended meanwhile, its sender with it, and nobody else looked once more."""

    async def steps(made, handler):
        await begin(made, handler, token=run_token())
        await made.until(lambda: made.runtime.turns)
        work, over, usual = handler._works[RUN], asyncio.Event(), handler._works[RUN].interaction

        async def slowly(used, entry_id):
            await over.wait()
            await usual(used, entry_id)

        work.interaction = slowly
        answering = asyncio.ensure_future(handler.interaction(*await click(made), None))
        await settle()
        made.turns.release.set()
        assert await handler.settle(5)
        over.set()
        await answering
        assert await handler.settle(5)
        assert len(made.api.named("respond_to_interaction")) == 1
        assert made.api.named("renew_run_token") == []
        assert await made.store.calls() == []

    handling(tmp_path, steps)


def test_what_a_text_left_after_its_run_is_over_is_sent(tmp_path):
    """It was read from a slow server: the run's own sender is gone by then."""

    async def steps(made, handler):
        await begin(made, handler, token=run_token())
        await made.until(lambda: made.runtime.turns)
        over = asyncio.Event()

        async def slowly(_event):
            await over.wait()
            await made.store.record(response_call(RUN, CLICK, failed("no")))

        handler._works[RUN].followup = slowly
        reading = asyncio.ensure_future(handler.followup(SimpleNamespace(run_id=RUN)))
        await settle()
        made.turns.release.set()
        assert await handler.settle(5)
        over.set()
        await reading
        assert await handler.settle(5)
        assert len(made.api.named("respond_to_interaction")) == 1
        assert await made.store.calls() == []

    handling(tmp_path, steps)


# Leftovers ----------------------------------------------------------------------------------------


def answer(text):
    return CreateMessage(client_msg_id=text, kind="text", role="answer", content=text)


def test_leftovers_are_sent_and_close_their_entry(tmp_path):
    async def steps(made, handler):
        await made.entry(EntryState.FINISHING)
        end = finish_call(RUN, FinishRun(outcome="completed", metrics=Metrics()))
        await made.store.record(message_call(RUN, answer("kept")), end)
        handler.send_leftovers(RUN, None, EVENT)
        assert await handler.settle(5)
        assert [one.content for one in made.api.messages] == ["kept"]
        assert await made.state_of() is EntryState.DONE
        assert await made.store.calls() == []

    handling(tmp_path, steps)


def test_what_is_stored_while_the_run_is_worked_on_goes_with_its_work(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        await made.store.record(response_call(RUN, CLICK, failed("no")))
        handler.send_owed(RUN)
        await made.until(lambda: made.api.named("respond_to_interaction"))
        made.turns.release.set()
        assert await handler.settle(5)

    handling(tmp_path, steps)


def test_what_is_stored_at_the_last_moment_is_sent_after_all(tmp_path):
    """The outbox of the run has looked for the last time; nothing stays behind until the next start."""

    async def steps(made, handler):
        async def late(*_args):
            await made.store.record(response_call(RUN, CLICK, failed("no")))

        made.api.on["finish_run"] = [late]
        await begin(made, handler)
        made.turns.release.set()
        await made.until(lambda: made.api.named("respond_to_interaction"))
        await made.until(lambda: not handler.knows(RUN))
        assert await made.store.calls() == []

    handling(tmp_path, steps)


def test_what_is_stored_while_leftovers_are_sent_is_sent_after_them(tmp_path):
    """Also behind the run's end, at which its sender stops."""

    async def steps(made, handler):
        async def late(*_args):
            await made.store.record(response_call(RUN, CLICK, failed("no")))
            handler.send_owed(RUN)

        made.api.on["finish_run"] = [late]
        await made.entry(EntryState.FINISHING)
        await made.store.record(finish_call(RUN, FinishRun(outcome="completed", metrics=Metrics())))
        handler.send_leftovers(RUN, None, EVENT)
        assert await handler.settle(5)
        assert await handler.settle(5)
        assert len(made.api.named("respond_to_interaction")) == 1
        assert await made.store.calls() == []

    handling(tmp_path, steps)


# The way out --------------------------------------------------------------------------------------


def test_on_the_way_out_runs_end_as_interrupted(tmp_path):
    async def steps(made, handler):
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        await handler.close(5)
        assert end_of(made) == ("failed", "interrupted")
        assert await made.state_of() is EntryState.DONE

    handling(tmp_path, steps)


def test_what_does_not_reach_the_server_in_time_is_stored_for_the_next(tmp_path):
    async def steps(made, handler):
        made.api.on["finish_run"] = [lambda *_args: asyncio.Event().wait()]
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        async with asyncio.timeout(20):
            await handler.close(0.2)
        assert [stored.call.operation for stored in await made.store.calls()] == ["finishRun"]
        assert await made.state_of() is EntryState.FINISHING

    handling(tmp_path, steps)


def test_a_turn_that_hears_no_interrupt_is_given_up(tmp_path):
    """Its run has no end yet: the next process finds the entry and ends it."""

    async def steps(made, handler):
        async def deaf(_run_id):
            await asyncio.sleep(0)

        made.runtime.interrupt = deaf
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        async with asyncio.timeout(20):
            await handler.close(0.1)
        assert await made.state_of() is EntryState.STARTING
        assert not handler.knows(RUN)

    handling(tmp_path, steps)


def test_nothing_begins_on_the_way_out(tmp_path):
    """An event that was accepted a moment ago is left, with its entry, to the next process."""

    async def steps(made, handler):
        await handler.close(0)
        await begin(made, handler)
        await settle()
        assert made.api.calls == []
        assert not handler.knows(RUN)
        assert await made.state_of() is EntryState.ACCEPTED

    handling(tmp_path, steps)


def test_nothing_begins_while_the_ends_are_on_their_way(tmp_path):
    async def steps(made, handler):
        let = asyncio.Event()
        made.api.on["finish_run"] = [lambda *_args: let.wait()]
        await begin(made, handler)
        await made.until(lambda: made.runtime.turns)
        closing = asyncio.ensure_future(handler.close(5))
        await made.until(lambda: made.api.named("finish_run"))
        late = await begin(made, handler, 1)
        let.set()
        await asyncio.wait_for(closing, 5)
        assert len(made.runtime.turns) == 1
        assert handler.active_runs == 0
        assert await made.state_of(other(501)) is EntryState.ACCEPTED
        assert end_of(made, late) is None

    handling(tmp_path, steps)


def test_nothing_is_sent_any_more_after_the_way_out(tmp_path):
    async def steps(made, handler):
        await made.store.record(message_call(RUN, answer("kept")))
        await handler.close(0)
        handler.send_leftovers(RUN, None)
        await settle()
        assert made.api.calls == []
        assert len(await made.store.calls()) == 1

    handling(tmp_path, steps)
