"""Every row of the protocol's intake of invocations, on the embedded server.

A row says two things. The event is settled for good, or left so that it comes again; the run is done
once, ended with a reason before it started, or not touched.
"""

import asyncio
import time
from uuid import uuid4

import pytest

from bothy_hermes import bothy_keys
from bothy_hermes.local_agents import Fault
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import ResolvedCredential
from bothy_hermes.store import EntryState
from bothy_hermes.wire_words import KeyType, RunState
from tests.fakes.bent import bend, of_type, resign
from tests.fakes.intake_kit import (
    BAD_TOKENS,
    INVOCATION,
    OTHER,
    QUIET_SECONDS,
    disturb,
    entry_of,
    events_of,
    flow,
    is_settled,
    left_then_done,
    lose_acks,
    never_started,
    settled,
    untouched,
)

MANY = {"hermes_adapter.max_active_runs": 32}

# Malformed, and tokens ----------------------------------------------------------------------------


def without(name):
    return lambda event: {key: value for key, value in event.items() if key != name}


def with_payload(**changes):
    return lambda event: event | {"payload": event["payload"] | changes}


def with_run(**changes):
    return lambda event: event | {"payload": event["payload"] | {"run": event["payload"]["run"] | changes}}


def all_at_once(tmp_path, changes):
    """Bend one invocation for each change, and see that each is settled and its run not touched.

    Args:
        tmp_path: The test's directory.
        changes: Makes the changes of a world, by name; a run's message is its change's name.
    """

    async def steps(made):
        rows, asked = changes(made), []
        bend(made.server, of_type(INVOCATION, lambda event: rows[event["payload"]["content_excerpt"]](event)))
        made.server.fault = lambda name, _request: asked.append(name)
        runs = {name: made.say(made.thread(), name) for name in rows}
        for name, run_id in runs.items():
            await made.until(lambda run_id=run_id: is_settled(made, run_id))
            (event,) = events_of(made, run_id)
            entry = await entry_of(made, event.id)
            assert (entry.state, entry.jti) == (EntryState.SETTLED, None), name
        await asyncio.sleep(QUIET_SECONDS)
        for run_id in runs.values():
            untouched(made, run_id)
        assert "getAllowList" not in asked
        assert "finishRun" not in asked
        made.judge.found.clear()  # the bent frames are what this test is about

    flow(tmp_path, steps, **MANY)


def test_a_malformed_invocation_is_settled_and_its_run_not_touched(tmp_path):
    all_at_once(
        tmp_path,
        lambda _made: {
            "no token": without("token"),
            "no payload": without("payload"),
            "no attempt": without("attempt"),
            "no run": with_payload(run=None),
            "no message": with_payload(message_id="no ID"),
            "no ID of a run": with_run(id=5),
            "an unknown state": with_run(state="sleeping"),
            "only an ID": lambda event: {"id": event["id"]},
        },
    )


def test_a_bad_token_is_settled_and_its_run_not_touched(tmp_path, monkeypatch):
    """An unknown `kid` among them: a key set that was fetched after the event lacks it."""
    monkeypatch.setattr(bothy_keys, "REFETCH_SECONDS", 0.0)

    def changes(made):
        rows = {name: resign(made.server, **wrong) for name, wrong in BAD_TOKENS.items()}
        rows["another agent's event"] = lambda event: event | {"agent_id": OTHER}
        rows["another agent's run"] = with_run(agent_id=OTHER)
        return rows

    all_at_once(tmp_path, changes)


@pytest.mark.parametrize("again", ["the same token", "a fresh token"])
def test_a_run_is_not_done_again_for_another_event(tmp_path, again):
    """A replayed `jti` is refused; so is a second offer of a run with a token of its own."""

    async def steps(made):
        first = {}

        def change(event, record):
            if record.type == INVOCATION:
                first.setdefault("event", event)
                return event
            token = first["event"]["token"]
            if again == "a fresh token":
                token = resign(made.server, jti=str(uuid4()))(first["event"])["token"]
            return first["event"] | {"id": event["id"], "token": token}

        bend(made.server, change)
        run_id = made.say(made.thread(), "hello")
        await made.ended(run_id)
        made.instance.set_options(max_content_bytes=200_000)  # its event is bent into a second offer
        await made.until(lambda: all(one.settled_at for one in made.instance.state.events.all()))
        await asyncio.sleep(QUIET_SECONDS)
        assert len(made.runtime.turns) == 1
        assert made.instance.run(run_id).run.state is RunState.COMPLETED
        second = next(one for one in made.instance.state.events.all() if one.type != INVOCATION)
        assert (await entry_of(made, second.id)).state is EntryState.SETTLED

    flow(tmp_path, steps)


@pytest.mark.parametrize("fault", [Fault.answer(404, "not_found"), Fault.answer(503), Fault.LOSE_BEFORE])
def test_an_unknown_key_without_a_key_set_leaves_the_event(tmp_path, fault, monkeypatch):
    """The server has a new key and cannot show it just now: that is no reason to drop a message."""
    monkeypatch.setattr(bothy_keys, "REFETCH_SECONDS", 0.0)
    monkeypatch.setattr(bothy_keys, "FETCH_TIMEOUT_SECONDS", 0.05)

    async def steps(made):
        heal = disturb(made, "getJwks", fault)
        made.instance.rotate_signing_key()
        await left_then_done(made, made.say(made.thread(), "hello"), heal)

    flow(tmp_path, steps)


def test_an_unknown_key_is_fetched_at_most_once_a_minute(tmp_path):
    """A key that came within the minute waits for its turn; the event stays at the server so long."""

    async def steps(made):
        asked = []
        made.server.fault = lambda name, _request: asked.append(name) if name == "getJwks" else None
        undo = bend(made.server, of_type(INVOCATION, resign(made.server, header={"kid": "made up"})))
        first = made.say(made.thread(), "one")
        await made.until(lambda: events_of(made, first)[0].attempt >= 2)
        assert asked == []
        assert not is_settled(made, first)
        undo()
        view = await made.ended(first)
        assert view.run.state is RunState.COMPLETED

    flow(tmp_path, steps)


# The allow list --------------------------------------------------------------------


def test_somebody_who_is_not_listed_gets_a_run_that_says_so(tmp_path):
    async def steps(made):
        made.instance.set_allowed(made.ada, ())
        await never_started(made, made.say(made.thread(), "hello"), "not_allowed")

    flow(tmp_path, steps)


def test_somebody_who_is_listed_for_another_kind_is_not_listed(tmp_path):
    async def steps(made):
        made.instance.set_allowed(made.ada, ("guest",))
        await never_started(made, made.say(made.thread(), "hello"), "not_allowed")

    flow(tmp_path, steps)


def test_an_agent_without_a_list_fails_its_runs(tmp_path):
    async def steps(made):
        disturb(made, "getAllowList", Fault.answer(404, "not_found"))
        await never_started(made, made.say(made.thread(), "hello"), "adapter_error")

    flow(tmp_path, steps)


@pytest.mark.parametrize(
    "fault",
    [
        Fault.answer(503),
        Fault.answer(429, "rate_limited", retry_after=60),
        Fault.answer(403, "forbidden"),
        Fault.answer(401, "unauthorized"),
        Fault.LOSE_BEFORE,
        Fault.LOSE_AFTER,
        Fault.delay(1.3),
    ],
    ids=["503", "429", "403", "401", "lost before", "lost after", "timeout"],
)
def test_a_list_that_cannot_be_had_leaves_the_event(tmp_path, fault):
    """Neither yes nor no: the event is asked about again when it comes again, once for each delivery."""

    async def steps(made):
        heal = disturb(made, "getAllowList", fault)
        await left_then_done(made, made.say(made.thread(), "hello"), heal)

    flow(tmp_path, steps, **{"adapter.request_timeout_seconds": 1.0})


def test_the_list_is_asked_once_for_each_delivery(tmp_path):
    async def steps(made):
        asked = []

        def fault(name, _request):
            if name == "getAllowList":
                asked.append(time.monotonic())
                return Fault.answer(503)
            return None

        made.server.fault = fault
        run_id = made.say(made.thread(), "hello")
        await made.until(lambda: events_of(made, run_id)[0].attempt >= 3)
        attempts = events_of(made, run_id)[0].attempt
        made.server.fault = None
        await made.ended(run_id)
        assert attempts - 1 <= len(asked) <= attempts

    flow(tmp_path, steps)


def test_an_unchanged_list_decides_and_a_changed_one_is_heard_of(tmp_path):
    """304 means the list at hand; the next person is judged by what the server says then."""

    async def steps(made):
        seen = []

        def watch(name, request):
            if name == "getAllowList":
                seen.append(request.headers.get("if-none-match"))

        made.server.fault = watch
        for word in ("one", "two"):
            assert (await made.ended(made.say(made.thread(), word))).run.state is RunState.COMPLETED
        made.instance.set_allowed(made.ada, ())
        view = await made.ended(made.say(made.thread(), "three"))
        assert view.run.reason == "not_allowed"
        assert seen[0] is None
        assert seen[1] == seen[2]
        assert seen[1] is not None

    flow(tmp_path, steps)


# Trigger, session, mode, class -----------------------------------------------------


@pytest.mark.parametrize("kind", ["command", "interaction", "reaction"])
def test_what_is_no_message_starts_no_turn(tmp_path, kind):
    """Commands are the server's to do; an unknown kind counts as one."""

    async def steps(made):
        bend(made.server, of_type(INVOCATION, with_payload(trigger_kind=kind)))
        await never_started(made, made.say(made.thread(), "/reset"), "adapter_error")

    flow(tmp_path, steps)


def test_an_unknown_session_mode_starts_no_turn(tmp_path):
    async def steps(made):
        bend(made.server, of_type(INVOCATION, with_payload(session_mode="fork")))
        await never_started(made, made.say(made.thread(), "hello"), "adapter_error")

    flow(tmp_path, steps)


@pytest.mark.parametrize(
    ("credential", "granted"),
    [
        (ResolvedCredential("anthropic", KeyType.OAUTH), "organization"),
        (ResolvedCredential("anthropic", KeyType.API_KEY), "personal"),
        (ResolvedCredential("anthropic", KeyType.UNKNOWN), "organization"),
        (ResolvedCredential(None, KeyType.UNKNOWN), "personal"),
    ],
)
def test_a_mode_that_differs_or_is_unknown_starts_no_turn(tmp_path, credential, granted):
    async def steps(made):
        made.runtime.credential = credential
        await never_started(made, made.say(made.thread(), "hello"), "billing_mode_mismatch")

    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, billing_mode=granted)
    flow(tmp_path, steps, options=options)


@pytest.mark.parametrize(("granted", "toolsets"), [("chat", {"terminal"}), ("scoped", None)])
def test_tools_above_what_is_granted_start_no_turn(tmp_path, granted, toolsets):
    async def steps(made):
        made.runtime.toolsets = None if toolsets is None else frozenset(toolsets)
        await never_started(made, made.say(made.thread(), "hello"), "tool_class_exceeded")

    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, tool_class=granted)
    flow(tmp_path, steps, options=options)


def test_an_unknown_class_in_the_token_grants_nothing(tmp_path):
    async def steps(made):
        made.runtime.toolsets = frozenset({"todo"})
        bend(made.server, of_type(INVOCATION, resign(made.server, tool_class="galactic")))
        await never_started(made, made.say(made.thread(), "hello"), "tool_class_exceeded")

    flow(tmp_path, steps)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("credential", ResolvedCredential("anthropic", KeyType.OAUTH), "billing_mode_mismatch"),
        ("toolsets", None, "tool_class_exceeded"),
    ],
)
def test_what_changes_between_intake_and_start_starts_no_turn(tmp_path, name, value, reason):
    """The run was accepted; the start asks again and finds another answer."""
    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, tool_class="scoped")

    async def steps(made):
        made.runtime.toolsets = frozenset({"todo"})

        store = made.loop._admission._services.store
        usual, asked = store.take_event, []

        async def change(*args):
            taken = await usual(*args)
            setattr(made.runtime, name, value)
            return taken

        store.take_event = change
        made.server.fault = lambda operation, _request: asked.append(operation)
        await never_started(made, made.say(made.thread(), "hello"), reason)
        assert "startRun" not in asked

    flow(tmp_path, steps, options=options)


@pytest.mark.parametrize("code", ["billing_mode_mismatch", "tool_class_exceeded"])
def test_a_start_that_the_server_refuses_ends_the_run_with_its_reason(tmp_path, code):
    async def steps(made):
        disturb(made, "startRun", Fault.answer(409, code))
        await never_started(made, made.say(made.thread(), "hello"), code)

    flow(tmp_path, steps)


# The order of the questions -----------------------------------------------------------------------


def test_a_person_who_may_not_hears_that_before_anything_else(tmp_path):
    """Everything is wrong at once: the first question that fails is the run's reason."""

    async def steps(made):
        made.instance.set_allowed(made.ada, ())
        made.runtime.credential = ResolvedCredential(None, KeyType.UNKNOWN)
        made.runtime.toolsets = None
        bend(made.server, of_type(INVOCATION, with_payload(trigger_kind="command")))
        await never_started(made, made.say(made.thread(), "hello"), "not_allowed")
        made.instance.set_allowed(made.ada, ("operator",))
        await never_started(made, made.say(made.thread(), "hello"), "adapter_error")

    flow(tmp_path, steps)


def test_money_comes_before_tools(tmp_path):
    options = ServerOptions(run_update_min_interval_ms=50, ack_timeout_ms=400, tool_class="chat")

    async def steps(made):
        made.runtime.credential = ResolvedCredential(None, KeyType.UNKNOWN)
        await never_started(made, made.say(made.thread(), "hello"), "billing_mode_mismatch")

    flow(tmp_path, steps, options=options)


# Redelivery ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
def test_an_event_whose_ack_was_lost_is_only_acked(tmp_path, allowed, monkeypatch):
    """Accepted or refused, it was decided: the redelivery changes nothing."""

    async def steps(made):
        lost = lose_acks(monkeypatch, 2)
        if not allowed:
            made.instance.set_allowed(made.ada, ())
        run_id = made.say(made.thread(), "hello")
        view = await made.ended(run_id)
        await settled(made, run_id)
        assert len(lost) == 2
        assert events_of(made, run_id)[0].attempt >= 3
        assert view.run.state is (RunState.COMPLETED if allowed else RunState.FAILED)
        assert len(made.runtime.turns) == int(allowed)

    flow(tmp_path, steps)


def test_an_event_that_comes_again_while_it_is_judged_is_one_event(tmp_path):
    """The allow list takes longer than the server waits for the ack."""

    async def steps(made):
        slow = iter([Fault.delay(0.9)])
        made.server.fault = lambda name, _request: next(slow, None) if name == "getAllowList" else None
        run_id = made.say(made.thread(), "hello")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        await settled(made, run_id)
        assert events_of(made, run_id)[0].attempt >= 2
        assert len(made.runtime.turns) == 1

    flow(tmp_path, steps)


@pytest.mark.parametrize("times", [1, 3])
def test_a_connection_that_breaks_costs_no_message_and_doubles_none(tmp_path, times):
    async def steps(made):
        threads = [made.thread() for _ in range(3)]
        runs = []
        for round_ in range(times):
            runs += [made.say(thread, f"{round_}") for thread in threads]
            made.server.cut()
            await made.until(made.connected)
            for run_id in runs[-3:]:
                assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == len(runs) == len({turn.run_id for turn in made.runtime.turns})

    flow(tmp_path, steps)
