"""What a process does with what the one before it left behind."""

import asyncio
import contextlib
import dataclasses
from datetime import timedelta
from uuid import UUID

import pytest

from bothy_hermes import recovery
from bothy_hermes.backoff import BASE_SECONDS
from bothy_hermes.errors import StateError
from bothy_hermes.handler import Handler
from bothy_hermes.recovery import LOST, Recovery
from bothy_hermes.run_calls import await_call, finish_call, message_call
from bothy_hermes.run_cards import NOT_WAITING, UNCERTAIN
from bothy_hermes.store import EntryState, OpenCard
from bothy_hermes.wire import CreateMessage, FinishRun, Metrics
from bothy_hermes.wire_words import RunState
from tests.fakes.edge_kit import AGENT, PERSON, RUN
from tests.fakes.flow_kit import ADAPTER, CLICK, EVENT, PATIENCE, listed_run, refusal, with_rooms

OTHER = UUID("0192f4a0-7b1c-7000-8000-0000000000f9")
RESTARTED = ("failed", "adapter_restarted")


def message(text):
    return CreateMessage(client_msg_id=text, kind="text", role="answer", content=text)


def refused(reason="not_allowed"):
    return finish_call(RUN, FinishRun(outcome="failed", reason=reason, metrics=Metrics()))


async def recover(made, *, adapter_id=ADAPTER):
    """Do the steps after a start and let everything they begin come to its end."""
    made.handler = Handler(made.services)
    recovery = Recovery(made.services, made.handler, agent_id=AGENT, adapter_id=adapter_id)
    await recovery.recover()
    assert await made.handler.settle(5)
    return recovery


def end_of(made, run_id=RUN):
    end = made.api.finished.get(run_id)
    return None if end is None else (str(end.outcome), None if end.reason is None else str(end.reason))


def left(made):
    return [call.call.operation for call in made.left]


def recovering(tmp_path, state, listed, *changes, runs=RunState.QUEUED, **options):
    """Recover an entry in a state, of which the server lists something, with calls in the outbox."""

    async def steps(made):
        await made.entry(state)
        await made.store.record(*changes)
        made.api.runs[RUN] = runs
        made.api.listed = [] if listed is None else [listed]
        await recover(made, **options)
        made.left = await made.store.calls()
        made.state = await made.state_of()
        return made

    return with_rooms(tmp_path, steps)


def running(**changes):
    return listed_run({"state": "running"} | changes)


def test_an_accepted_run_that_still_waits_is_done(tmp_path):
    """What was acked and never started is taken up, once."""
    made = recovering(tmp_path, EntryState.ACCEPTED, listed_run({"consumer": "default"}))
    assert [turn.run_id for turn in made.runtime.turns] == [RUN]
    assert end_of(made) == ("completed", None)
    assert (made.state, left(made)) == (EntryState.DONE, [])


def test_a_run_whose_start_never_reached_the_server_is_started_again(tmp_path):
    made = recovering(tmp_path, EntryState.STARTING, listed_run())
    assert len(made.runtime.turns) == 1
    assert made.state is EntryState.DONE


@pytest.mark.parametrize("state", [EntryState.ACCEPTED, EntryState.STARTING])
def test_a_run_that_the_server_has_started_lost_its_turn(tmp_path, state):
    """Whether the model was asked cannot be told any more: the run ends, and no second turn begins."""
    made = recovering(tmp_path, state, running(), runs=RunState.RUNNING)
    assert made.runtime.turns == []
    assert end_of(made) == RESTARTED
    assert (made.state, left(made)) == (EntryState.DONE, [])


@pytest.mark.parametrize(
    ("listed", "what"),
    [
        (listed_run({"consumer": "another"}), "consumer"),
        (listed_run(adapter_id=OTHER), "adapter"),
        (listed_run(adapter_id=None), "never sent"),
    ],
    ids=["consumer", "adapter", "never sent"],
)
def test_a_run_that_waits_for_somebody_else_is_forgotten(tmp_path, listed, what):
    """A forgotten event is new when it comes again."""
    made = recovering(tmp_path, EntryState.ACCEPTED, listed)
    assert made.runtime.turns == [], what
    assert (made.state, end_of(made)) == (None, None)


@pytest.mark.parametrize(
    ("state", "after"), [(EntryState.ACCEPTED, None), (EntryState.STARTING, EntryState.DONE)]
)
def test_a_run_that_the_server_has_no_more_needs_nothing(tmp_path, state, after):
    made = recovering(tmp_path, state, None, runs=RunState.CANCELLED)
    assert (made.state, end_of(made), made.runtime.turns) == (after, None, [])


def test_what_is_owed_is_sent_before_the_run_ends(tmp_path):
    """An answer that was stored reaches its people, although its turn's process died."""
    answer = message_call(RUN, message("the answer"))
    made = recovering(tmp_path, EntryState.STARTING, running(), answer, runs=RunState.RUNNING)
    assert [one.content for one in made.api.messages] == ["the answer"]
    assert end_of(made) == RESTARTED
    operations = [name for name, *_ in made.api.calls]
    assert operations.index("create_message") < operations.index("list_runs") < operations.index("finish_run")
    assert left(made) == []


def test_an_end_that_was_decided_is_the_end(tmp_path):
    made = recovering(
        tmp_path, EntryState.FINISHING, running(), refused("interrupted"), runs=RunState.RUNNING
    )
    assert end_of(made) == ("failed", "interrupted")
    assert (made.state, left(made)) == (EntryState.DONE, [])


def test_a_refused_run_is_never_begun(tmp_path):
    """Its end cannot be sent just now, and the server still shows it as queued: that is no invitation."""

    async def slowly(*_args):
        await asyncio.sleep(0.05)

    async def steps(made):
        await made.entry(EntryState.FINISHING)
        await made.store.record(refused())
        made.api.listed = [listed_run()]
        made.api.on["finish_run"] = [RuntimeError("broken off"), slowly]
        await recover(made)
        assert made.runtime.turns == []
        assert end_of(made) == ("failed", "not_allowed")
        assert await made.state_of() is EntryState.DONE

    with_rooms(tmp_path, steps)


@pytest.mark.parametrize(("claimed", "told"), [(False, NOT_WAITING), (True, UNCERTAIN)])
def test_a_click_that_was_not_answered_is_answered(tmp_path, claimed, told):
    """The person hears that nothing waits any more, or that nobody knows what was heard; the run ends."""

    async def steps(made):
        await made.entry(EntryState.STARTING)
        await made.click()
        if claimed:
            await made.store.record(OpenCard("c1", RUN, OTHER))
            await made.store.claim(CLICK, "c1", RUN)
        await made.store.record(finish_call(RUN, LOST))
        await made.store.move_entry(EVENT, EntryState.FINISHING)
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [running()]
        await recover(made)
        assert list(made.api.named("respond_to_interaction")) == [(CLICK, "failed", told)]
        assert end_of(made) == RESTARTED
        assert await made.store.open_entries() == []
        assert await made.store.calls() == []

    with_rooms(tmp_path, steps)


@pytest.mark.parametrize("message_id", [None, OTHER], ids=["not delivered", "delivered"])
def test_a_card_of_the_last_process_is_not_shown_any_more(tmp_path, message_id):
    """Nobody waits behind it: it must not become usable for the moment until its run ends."""

    async def steps(made):
        await made.entry(EntryState.STARTING)
        asked = CreateMessage(
            client_msg_id="c1", kind="card", role="interim", content="Which?", components=()
        )
        card = OpenCard("c1", RUN, message_id)
        await made.store.record(card, message_call(RUN, asked), await_call(RUN, "c1", None))
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [running()]
        await recover(made)
        assert made.api.messages == []
        assert end_of(made) == RESTARTED
        assert (await made.store.calls(), await made.store.cards()) == ([], [])

    with_rooms(tmp_path, steps)


# Runs without an entry ----------------------------------------------------------------------------


def lost(tmp_path, listed, *, later=None):
    """Recover with no entry at all; then, after some seconds, look for lost runs again."""

    async def steps(made):
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [listed]
        recovery = await recover(made)
        first = end_of(made)
        if later is not None:
            made.fake.move(later)
            await recovery.end_lost_runs()
            await made.handler.settle(5)
        return first, end_of(made)

    return with_rooms(tmp_path, steps)


@pytest.mark.parametrize("state", ["running", "waiting_input"])
def test_a_started_run_of_this_adapter_that_nobody_works_on_ends(tmp_path, state):
    assert lost(tmp_path, listed_run({"state": state}))[0] == RESTARTED


def test_a_run_of_another_adapter_is_left_alone_until_that_is_gone(tmp_path):
    """Two hosts under one name: the living one's runs are not ended by the other."""
    other = listed_run({"state": "running"}, adapter_id=OTHER)
    assert lost(tmp_path, other, later=89) == (None, None)
    assert lost(tmp_path / "2", other, later=90) == (None, RESTARTED)


def test_a_run_of_an_adapter_that_was_never_seen_ends(tmp_path):
    assert lost(tmp_path, listed_run({"state": "running"}, adapter_id=OTHER, seen_at=None))[0] == RESTARTED


def test_a_queued_run_without_an_entry_is_left_to_the_server(tmp_path):
    """Its invocation was not taken here: the server delivers it, or ends it as expired."""
    assert lost(tmp_path, listed_run(), later=95) == (None, None)


def test_the_age_of_an_adapter_is_judged_by_the_servers_time(tmp_path):
    async def steps(made):
        made.api.server_now = lambda: made.fake.time + timedelta(seconds=91)
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [listed_run({"state": "running"}, adapter_id=OTHER)]
        await recover(made)
        return end_of(made)

    assert with_rooms(tmp_path, steps) == RESTARTED


# Trouble ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [EntryState.ACCEPTED, EntryState.STARTING])
def test_steps_that_failed_can_be_done_again(tmp_path, state):
    """The server is away in the middle: the second try finishes what the first one began."""

    async def steps(made):
        await made.entry(state)
        made.api.listed = [listed_run()]
        made.api.on["list_runs"] = [refusal(400, None), None, None]
        with pytest.raises(type(refusal(400, None))):
            await recover(made)
        await recover(made)
        assert len(made.runtime.turns) == 1
        assert await made.state_of() is EntryState.DONE

    with_rooms(tmp_path, steps)


def test_a_disk_that_cannot_be_written_loses_no_entry(tmp_path):
    """The step fails as a whole and is done again when the disk takes it."""

    async def steps(made):
        await made.entry(EntryState.ACCEPTED)
        made.api.listed = [listed_run({"consumer": "another"})]
        await made.read_only()
        made.handler = Handler(made.services)
        impatient = dataclasses.replace(made.services, store=made.store)
        recovery = Recovery(impatient, made.handler, agent_id=AGENT, adapter_id=ADAPTER)
        with pytest.raises(StateError, match="cannot be written"):
            await recovery.recover()
        await made.read_only(on=False)
        assert await made.state_of() is EntryState.ACCEPTED
        await recovery.recover()
        assert await made.state_of() is None

    with_rooms(tmp_path, steps)


def test_the_person_of_a_run_is_taken_from_the_server(tmp_path):
    """After a restart nothing of the invocation is on disk: the list tells it again."""
    made = recovering(tmp_path, EntryState.ACCEPTED, listed_run())
    assert made.runtime.turns[0].user_id == PERSON


# Later looks --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def recovered(made):
    """Recovery at its work, from the moment from which events are judged; at the end all of it is done."""
    made.handler = Handler(made.services)
    work = Recovery(made.services, made.handler, agent_id=AGENT, adapter_id=ADAPTER)
    over = asyncio.Event()
    task = asyncio.create_task(work.run(over))
    await asyncio.wait_for(over.wait(), PATIENCE)
    yield task
    await asyncio.wait_for(task, PATIENCE)
    assert await made.handler.settle(PATIENCE)


async def passing(made, condition):
    """Let time pass in small steps until something is so; the disk works meanwhile."""
    while not condition():
        await made.fake.advance(BASE_SECONDS)
        await asyncio.sleep(0.002)


def test_the_second_look_at_other_adapters_is_repeated_until_it_succeeds(tmp_path):
    """A moment of trouble at the server does not leave a lost run to its ten minutes."""

    async def steps(made):
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [listed_run({"state": "running"}, adapter_id=OTHER)]
        async with recovered(made) as task:
            made.api.on["list_runs"] = [refusal(400, None), refusal(400, None)]
            await made.fake.advance(recovery.FOREIGN_PAUSE_SECONDS)
            assert end_of(made) is None
            await passing(made, task.done)
        assert made.api.on["list_runs"] == []
        assert end_of(made) == RESTARTED

    with_rooms(tmp_path, steps)


def test_what_failed_at_first_is_tried_again_before_any_event_is_judged(tmp_path):
    """The first steps have the same patience."""

    async def steps(made):
        made.api.listed = [listed_run()]
        await made.entry(EntryState.ACCEPTED)
        made.api.on["list_runs"] = [refusal(400, None) for _ in range(8)]
        ticking = asyncio.create_task(passing(made, lambda: False))
        async with recovered(made):
            assert made.api.on["list_runs"] == []
        ticking.cancel()
        assert await made.state_of() is EntryState.DONE
        assert made.fake.slept[:6] == [0.5, 1, 2, 4, recovery.DEAF_SECONDS, recovery.DEAF_SECONDS]

    with_rooms(tmp_path, steps)


@pytest.mark.parametrize(
    ("state", "end"), [(EntryState.STARTING, RESTARTED), (EntryState.FINISHING, ("failed", "not_allowed"))]
)
def test_a_run_that_was_still_sending_ends_when_it_has_sent_all(tmp_path, monkeypatch, state, end):
    """The server takes longer for what is owed than events can wait: the run's turn comes later."""
    monkeypatch.setattr(recovery, "OUTBOX_SECONDS", 0.02)

    async def steps(made):
        taken = asyncio.Event()

        async def slowly(*_args):
            await taken.wait()

        await made.entry(state)
        await made.store.record(message_call(RUN, message("the answer")))
        if state is EntryState.FINISHING:
            await made.store.record(refused())
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [running()]
        made.api.on["create_message"] = slowly
        async with recovered(made) as task:
            asked = len(made.api.named("list_runs"))
            await made.fake.advance(recovery.LEFT_SECONDS)
            assert recovery.LEFT_SECONDS in made.fake.slept
            assert (await made.state_of(), end_of(made)) == (state, None)
            await asyncio.sleep(0.02)
            assert len(made.api.named("list_runs")) == asked
            taken.set()
            await made.until(lambda: not made.handler.knows(RUN))
            made.api.on["list_runs"] = [refusal(400, None)] if end_of(made) is None else []
            made.api.listed = [running()] if end_of(made) is None else []
            await passing(made, lambda: end_of(made) == end)
            assert made.fake.elapsed < recovery.FOREIGN_PAUSE_SECONDS
            made.api.listed = []
            await passing(made, task.done)
        assert await made.state_of() is EntryState.DONE
        assert len(made.api.named("finish_run")) == 1

    with_rooms(tmp_path, steps)


def test_a_run_that_this_process_works_on_is_not_lost(tmp_path):
    """The later look for lost runs finds it at the server like those of the last process."""

    async def steps(made):
        working = asyncio.Event()

        async def script(_turn, events):
            await working.wait()
            await events.on_answer("Five.")

        made.runtime.script = script
        await made.entry(EntryState.ACCEPTED)
        made.api.listed = [listed_run()]
        made.handler = Handler(made.services)
        work = Recovery(made.services, made.handler, agent_id=AGENT, adapter_id=ADAPTER)
        await work.recover()
        await made.until(lambda: made.runtime.turns)
        made.api.listed = [running()]
        await work.end_lost_runs()
        assert await made.store.calls() == []
        working.set()
        assert await made.handler.settle(PATIENCE)
        assert end_of(made) == ("completed", None)

    with_rooms(tmp_path, steps)


@contextlib.asynccontextmanager
async def watched(made):
    """The later looks, with nothing at work."""
    made.handler = Handler(made.services)
    work = Recovery(made.services, made.handler, agent_id=AGENT, adapter_id=ADAPTER)
    task = asyncio.create_task(work.watch())
    await asyncio.sleep(0)
    yield
    task.cancel()
    await asyncio.wait([task])
    assert await made.handler.settle(PATIENCE)


async def next_look(made):
    asked = len(made.api.named("list_runs"))
    await made.fake.advance(recovery.ABANDONED_PAUSE_SECONDS)
    await made.until(lambda: len(made.api.named("list_runs")) > asked and made.fake.sleepers)


def test_a_run_whose_end_was_refused_ends_later(tmp_path):
    """It would keep its thread busy until the next start; a server that does not answer is asked again."""

    async def steps(made):
        made.api.runs[RUN] = RunState.RUNNING
        made.api.listed = [running()]
        made.api.on["list_runs"] = [refusal(400, None)]
        async with watched(made):
            await made.fake.advance(recovery.ABANDONED_PAUSE_SECONDS - 1)
            assert made.api.named("list_runs") == []
            await next_look(made)
            assert end_of(made) is None
            await next_look(made)
            await made.until(lambda: end_of(made) == ("failed", "adapter_error"))

    with_rooms(tmp_path, steps)


@pytest.mark.parametrize(
    ("listed", "state"),
    [
        (running(), RunState.COMPLETED),
        (listed_run({"state": "running"}, adapter_id=OTHER), RunState.RUNNING),
        (listed_run(), RunState.QUEUED),
    ],
    ids=["it ended since", "of another adapter", "not started"],
)
def test_a_run_that_is_not_abandoned_is_left_alone(tmp_path, listed, state):
    async def steps(made):
        made.api.runs[RUN] = state
        made.api.listed = [listed]
        async with watched(made):
            await next_look(made)
            await next_look(made)
        return end_of(made), await made.store.calls()

    assert with_rooms(tmp_path, steps) == (None, [])
