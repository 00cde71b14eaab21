"""A turn whose model requests would spend otherwise than its run's evidence says."""

import asyncio

import pytest

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runs import RunWork
from bothy_hermes.runtime import ResolvedCredential, Spending
from bothy_hermes.wire_words import BillingMode, KeyType, Outcome
from tests.fakes.adapter_kit import world
from tests.fakes.edge_kit import RUN, run_token
from tests.fakes.flow_kit import invocation, with_rooms
from tests.fakes.runtime import FakeRuntime


def work(tmp_path, script, credential=None):
    """Work on one run; returns how it ended and what Hermes was given."""

    async def steps(rooms):
        rooms.runtime.script = script
        rooms.runtime.credential = credential or rooms.runtime.credential
        await RunWork(rooms.services, await rooms.entry(), invocation(), run_token()).work()
        return rooms.api.finished[RUN], rooms.runtime, rooms.api

    return with_rooms(tmp_path, steps)


def test_a_turn_is_held_to_what_its_start_told_the_server(tmp_path):
    """Mode, provider and server are those of startRun's evidence."""
    url = "http://127.0.0.1:9/v1"

    async def script(_turn, events):
        await events.on_answer("Five.")

    key = ResolvedCredential("custom", KeyType.API_KEY, url)
    finished, runtime, api = work(tmp_path, script, key)
    assert finished.outcome is Outcome.COMPLETED
    assert [turn.spends for turn in runtime.turns] == [Spending(BillingMode.ORGANIZATION, "custom", url)]
    evidence = api.named("start_run")[0][-1].billing_evidence
    assert (evidence.provider, evidence.key_type) == ("custom", "api_key")


@pytest.mark.parametrize("after", ["interrupted", "answered"])
def test_decision_4_a_refused_request_ends_its_run_whatever_the_turn_comes_to(tmp_path, after):
    """Also when Hermes had an answer already, and when it says it once more."""

    async def script(_turn, events):
        if after == "answered":
            await events.on_answer("Five.")
        events.on_money_refused()
        events.on_money_refused()
        if after == "interrupted":
            await asyncio.sleep(3600)

    finished, runtime, _ = work(tmp_path, script)
    assert (finished.outcome, finished.reason) == (Outcome.FAILED, "billing_mode_mismatch")
    if after == "interrupted":
        assert runtime.interrupted == [RUN]


@pytest.mark.parametrize("late", [1, 2])
def test_one_late_answer_breaks_no_turn_off_and_two_do(tmp_path, late):
    """What is not told twice in a heartbeat is not known."""
    turns, missed = [], []

    async def script(turn, events):
        turns.append(turn)
        await asyncio.sleep(0.5)
        await events.on_answer("Five.")

    class Late(FakeRuntime):
        async def resolved_credential(self):
            if turns and len(missed) < late:
                missed.append(None)
                return ResolvedCredential(None, KeyType.UNKNOWN)
            return await super().resolved_credential()

    async def scenario():
        options = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=100)
        async with world(tmp_path, Late(script), options=options) as made:
            run = (await made.ended(made.say(made.thread(), "work on this"))).run
            assert len(missed) == late
            return str(run.state), run.reason

    end = ("completed", None) if late == 1 else ("failed", "billing_mode_mismatch")
    assert asyncio.run(scenario()) == end
