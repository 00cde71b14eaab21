"""The protocol's intake of follow-ups, interactions and notices, and ends that come at any moment."""

import asyncio
from uuid import uuid4

import pytest

from bothy_hermes.local_agents import Fault
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import BusyMode, Prompt, PromptKind, ResolvedCredential
from bothy_hermes.store import EntryState
from bothy_hermes.wire_words import EventType, KeyType, MessageKind, RunState
from tests.fakes.bent import bend, of_type, resign
from tests.fakes.intake_kit import (
    BAD_TOKENS,
    FOLLOWUP,
    INTERACTION,
    OTHER,
    disturb,
    entry_of,
    events_of,
    flow,
    is_settled,
    lose_acks,
    notices_settled,
    settled,
)
from tests.fakes.runtime import FakeRuntime

# Follow-ups ---------------------------------------------------------------------------------------


class Blocked:
    """A turn that waits until it is let go, and takes texts meanwhile."""

    def __init__(self):
        self.release = asyncio.Event()
        self.taken = []

    async def script(self, turn, events):
        if "begin" in turn.user_text:
            await self.release.wait()
        await events.on_answer(turn.user_text)

    async def steer(self, _run_id, text, _message_id):
        self.taken.append(text)
        return True


def during_a_turn(tmp_path, steps, **more):
    """Run `steps(world, blocked, thread, run)` while a steered turn runs; the second person is Mira."""
    turn = Blocked()

    async def scenario(made):
        made.runtime.toolsets = frozenset({"todo"})
        made.runtime.busy_mode = BusyMode.STEER
        made.runtime.on_steer = turn.steer
        made.mira = made.instance.add_person("Mira").id
        thread = made.thread()
        run_id = made.say(thread, "begin")
        await made.until(lambda: made.runtime.turns != [])
        await made.until(lambda: is_settled(made, run_id))
        await steps(made, turn, thread, run_id)
        turn.release.set()
        await made.ended(run_id)

    flow(tmp_path, scenario, FakeRuntime(turn.script), **more)


def mira_says(made, thread, text):
    made.instance.post_message(made.mira, thread, text, client_msg_id=str(uuid4()))


async def next_run(made, thread, run_id):
    await made.until(lambda: len(made.instance.runs(thread)) == 2)
    second = next(view.run.id for view in made.instance.runs(thread) if view.run.id != run_id)
    return await made.ended(second)


@pytest.mark.parametrize("row", ["not listed", "no list"])
def test_a_follow_up_of_somebody_who_may_not_is_settled_and_opens_a_refused_run(tmp_path, row):
    """Nothing is given to Hermes and the run goes on; the person sees a refusal of their own."""

    async def steps(made, turn, thread, run_id):
        heal = disturb(made, "getAllowList", Fault.answer(404, "not_found") if row == "no list" else None)
        if row == "not listed":
            made.instance.set_allowed(made.mira, ())
        mira_says(made, thread, "me too")
        await settled(made, run_id, FOLLOWUP)
        assert turn.taken == []
        assert made.instance.run(run_id).run.state is RunState.RUNNING
        turn.release.set()
        view = await next_run(made, thread, run_id)
        assert view.run.reason == ("adapter_error" if row == "no list" else "not_allowed")
        assert view.run.run_starter == made.mira
        assert made.instance.run(run_id).run.state is RunState.COMPLETED
        heal()

    during_a_turn(tmp_path, steps)


def test_a_follow_up_that_cannot_be_judged_comes_again(tmp_path):
    async def steps(made, turn, thread, run_id):
        heal = disturb(made, "getAllowList", Fault.answer(503))
        mira_says(made, thread, "me too")
        await made.until(lambda: [one.attempt for one in events_of(made, run_id, FOLLOWUP)] >= [2])
        assert turn.taken == []
        heal()
        await made.until(lambda: turn.taken != [])
        await settled(made, run_id, FOLLOWUP)
        assert len(turn.taken) == 1

    during_a_turn(tmp_path, steps)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), "billing_mode_mismatch"),
        ("toolsets", None, "tool_class_exceeded"),
    ],
)
def test_a_follow_up_that_meets_another_mode_or_class_ends_the_run(tmp_path, name, value, reason):
    """The turn is interrupted and the text is not given to it."""
    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, tool_class="scoped")

    async def steps(made, turn, thread, run_id):
        setattr(made.runtime, name, value)
        mira_says(made, thread, "me too")
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, reason)
        assert made.runtime.interrupted == [run_id]
        assert turn.taken == []
        second = await next_run(made, thread, run_id)
        assert (second.run.reason, second.run.started_at) == (reason, None)

    during_a_turn(tmp_path, steps, options=options)


@pytest.mark.parametrize("wrong", ["signature", "person", "thread", "expired"])
def test_a_follow_up_with_a_bad_token_is_settled_and_not_given_to_hermes(tmp_path, wrong):
    async def steps(made, turn, thread, run_id):
        undo = bend(made.server, of_type(FOLLOWUP, resign(made.server, **BAD_TOKENS[wrong])))
        mira_says(made, thread, "me too")
        await settled(made, run_id, FOLLOWUP)
        undo()
        assert turn.taken == []
        turn.release.set()
        view = await next_run(made, thread, run_id)
        assert view.run.state is RunState.COMPLETED

    during_a_turn(tmp_path, steps)


def test_a_follow_up_whose_ack_was_lost_is_given_to_hermes_once(tmp_path, monkeypatch):
    async def steps(made, turn, thread, run_id):
        lose_acks(monkeypatch, 1)
        mira_says(made, thread, "me too")
        await made.until(lambda: turn.taken != [])
        await settled(made, run_id, FOLLOWUP)
        assert len(turn.taken) == 1
        assert events_of(made, run_id, FOLLOWUP)[0].attempt >= 2

    during_a_turn(tmp_path, steps)


# Interactions -------------------------------------------------------------------------------------

CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))


def with_a_card(tmp_path, steps):
    """Run `steps(world, run, press)` while a run waits on a card with two buttons."""

    async def script(_turn, events):
        waiting = script.runtime.waiting[CLARIFY.hermes_id] = asyncio.get_running_loop().create_future()
        await events.on_card(CLARIFY)
        await events.on_answer(await waiting)

    async def scenario(made):
        script.runtime = made.runtime
        thread = made.thread()
        run_id = made.say(thread, "ask me")
        await made.until(lambda: made.instance.run(run_id).open_cards != ())
        card = next(one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD)

        def press(label):
            button = next(one for one in card.components if label in one.label)
            return made.instance.use_component(made.ada, card.id, button.id)

        await steps(made, run_id, press)
        await made.ended(run_id)
        assert made.texts(thread, run_id)[1:] == [("answer", "blue")]

    flow(tmp_path, scenario, FakeRuntime(script))


async def answered(made, used):
    found = used.interaction.id
    await made.until(lambda: made.instance.interaction(found).status is not None)
    return str(made.instance.interaction(found).status)


@pytest.mark.parametrize("wrong", ["signature", "person", "run", "expired"])
def test_a_click_with_a_bad_token_gives_the_card_back(tmp_path, wrong):
    """Answered `failed` with the run's own token; the next click of the same person counts."""

    async def steps(made, run_id, press):
        undo = bend(made.server, of_type(INTERACTION, resign(made.server, **BAD_TOKENS[wrong])))
        assert await answered(made, press("red")) == "failed"
        await settled(made, run_id, INTERACTION)
        undo()
        assert await answered(made, press("blue")) == "acknowledged"

    with_a_card(tmp_path, steps)


def test_a_click_needs_no_allow_list(tmp_path):
    """The server has checked who may; the list is about addressing the agent."""

    async def steps(made, _run_id, press):
        made.instance.set_allowed(made.ada, ())
        assert await answered(made, press("blue")) == "acknowledged"

    with_a_card(tmp_path, steps)


def test_a_click_whose_ack_was_lost_answers_once(tmp_path, monkeypatch):
    async def steps(made, run_id, press):
        lose_acks(monkeypatch, 1)
        assert await answered(made, press("blue")) == "acknowledged"
        await settled(made, run_id, INTERACTION)

    with_a_card(tmp_path, steps)


# Events that are never refused --------------------------------------------------------------------


def bent_notice(made, event):
    """Have the server deliver some event in the place of its next notice about settings."""
    undo = bend(made.server, of_type("agent.config_changed", lambda usual: {**usual, **event}))
    made.instance.set_options(max_content_bytes=made.instance.options.max_content_bytes - 1)
    return undo


@pytest.mark.parametrize(
    "event",
    [
        {
            "type": "run.ended",
            "payload": {
                "run_id": OTHER,
                "thread_id": OTHER,
                "state": "cancelled",
                "reason": None,
                "by": None,
            },
        },
        {"type": "agent.reaction", "payload": {"mood": "good"}},
        {"type": "agent.reaction", "payload": {}, "token": "no.token.at-all"},
    ],
    ids=["run.ended of an unknown run", "unknown type", "unknown type with a token"],
)
def test_what_says_nothing_to_us_is_acked_and_ignored(tmp_path, event):
    async def steps(made):
        bent_notice(made, event)
        await notices_settled(made)
        made.judge.found.clear()  # a type of another version is no frame of this one
        view = await made.ended(made.say(made.thread(), "still there?"))
        assert view.run.state is RunState.COMPLETED

    flow(tmp_path, steps)


def test_an_end_that_comes_before_the_invocation_was_judged_starts_no_turn(tmp_path):
    """The person cancels while the allow list is being asked; the run is over when the answer comes."""

    async def steps(made):
        slow = iter([Fault.delay(0.3)])
        made.server.fault = lambda name, _request: next(slow, None) if name == "getAllowList" else None
        run_id = made.say(made.thread(), "hello")
        await made.until(lambda: events_of(made, run_id)[0].attempt >= 1)
        made.instance.cancel_run(made.ada, run_id)
        await made.until(lambda: is_settled(made, run_id, EventType.RUN_ENDED))
        await asyncio.sleep(0.6)
        view = made.instance.run(run_id)
        assert view.run.state is RunState.CANCELLED
        assert made.runtime.turns == []
        store = made.loop._admission._services.store
        await made.until(lambda: not made.loop._handler.knows(run_id))
        assert await store.open_entries() == []
        assert await store.calls() == []

    flow(tmp_path, steps)


@pytest.mark.parametrize("operation", ["getRunContext", "startRun", "getServedChannelConfig"])
def test_an_end_that_comes_while_the_run_starts_runs_no_turn(tmp_path, operation):
    """The person cancels at each step between the ack and the turn; the adapter answers with that end."""

    async def steps(made):
        cancelled, outcomes = [], []

        def cancel(name, request):
            if name == "finishRun":
                outcomes.append(request.json()["outcome"])
            if name == operation and not cancelled:
                cancelled.append(name)
                return Fault.delay(0.3)
            return None

        made.server.fault = cancel
        run_id = made.say(made.thread(), "hello")
        await made.until(lambda: cancelled != [])
        made.instance.cancel_run(made.ada, run_id)
        view = await made.ended(run_id)
        assert view.run.state is RunState.CANCELLED
        assert made.runtime.turns == []
        assert outcomes == ["cancelled"]
        assert await made.loop._admission._services.store.open_entries() == []

    flow(tmp_path, steps)


def test_every_settled_event_was_decided(tmp_path):
    """A mixed hour: what the server counts as settled is what the adapter remembers, and nothing else."""

    async def steps(made):
        mira = made.instance.add_person("Mira", run_kinds=()).id
        runs = [made.say(made.thread(), word) for word in ("one", "two")]
        runs.append(made.instance.post_message(mira, made.thread(), "three").run_id)
        for run_id in runs:
            await made.ended(run_id)
        made.instance.set_options(max_content_bytes=200_000)
        await notices_settled(made)
        for event in made.instance.state.events.all():
            entry = await entry_of(made, event.id)
            assert entry is not None, event.type
            assert entry.state in (EntryState.SETTLED, EntryState.DONE)

    flow(tmp_path, steps)
