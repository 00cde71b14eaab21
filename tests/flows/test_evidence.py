"""What a run may spend and touch is proven again and again, whoever changes it and when."""

import asyncio

import pytest

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runs import RunWork
from bothy_hermes.runtime import BusyMode, ResolvedCredential
from bothy_hermes.wire_words import DegradedReason, KeyType, RunState
from tests.fakes.adapter_kit import world
from tests.fakes.edge_kit import RUN, run_token
from tests.fakes.flow_kit import invocation, with_rooms
from tests.fakes.runtime import FakeRuntime, echo

KEY = ResolvedCredential("anthropic", KeyType.API_KEY)
LOGIN = ResolvedCredential("anthropic", KeyType.OAUTH)
NOTHING = ResolvedCredential(None, KeyType.UNKNOWN)
CHAT = frozenset({"clarify", "todo"})


def flow(tmp_path, steps, script=echo, **options):
    options = {"run_update_min_interval_ms": 50, "heartbeat_interval_ms": 100} | options

    async def scenario():
        async with world(tmp_path, FakeRuntime(script), options=ServerOptions(**options)) as made:
            return await steps(made)

    return asyncio.run(scenario())


async def endless(_turn, events):
    """A turn that spends until somebody interrupts it."""
    events.on_status("is thinking")
    await asyncio.sleep(3600)


def last_beat(made):
    """The heartbeat that the server has."""
    return made.instance.consumers()[0].heartbeat


@pytest.mark.parametrize("found", [LOGIN, NOTHING], ids=["a login", "nothing"])
def test_a_credential_that_changes_during_a_turn_ends_its_run(tmp_path, found):
    """The turn is interrupted at the next heartbeat, and nothing starts until the mode is proven again."""

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "work on this")
        await made.until(lambda: made.runtime.turns != [])
        made.runtime.credential = found
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "billing_mode_mismatch")
        assert made.runtime.interrupted[0] == run_id
        refused = await made.ended(made.say(thread, "go on"))
        assert (refused.run.reason, refused.run.started_at) == ("billing_mode_mismatch", None)
        made.runtime.credential, made.runtime.script = KEY, echo
        assert (await made.ended(made.say(thread, "and now"))).run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 2

    flow(tmp_path, steps, endless)


def test_tools_that_are_added_during_a_turn_end_its_run(tmp_path):
    """An agent that widens its own toolsets loses the run in which it did."""

    async def steps(made):
        made.runtime.toolsets = CHAT
        await made.until(lambda: last_beat(made).reported_tool_class == "chat")
        run_id = made.say(made.thread(), "chat with me")
        await made.until(lambda: made.runtime.turns != [])
        made.runtime.toolsets = CHAT | {"terminal"}
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "tool_class_exceeded")
        await made.until(lambda: last_beat(made).reported_tool_class == "host")
        refused = await made.ended(made.say(made.thread(), "chat again"))
        assert (refused.run.reason, refused.run.started_at) == ("tool_class_exceeded", None)

    flow(tmp_path, steps, endless, tool_class="chat")


@pytest.mark.parametrize("extra", ["memory", "code_execution", "an-mcp-server"])
def test_one_tool_too_many_keeps_a_chat_run_from_starting(tmp_path, extra):
    """What a poisoned text could make a chat's agent write to or run is not among a chat's tools."""

    async def steps(made):
        made.runtime.toolsets = CHAT | {extra}
        view = await made.ended(made.say(made.thread(), "remember this for ever"))
        assert (view.run.reason, view.run.started_at) == ("tool_class_exceeded", None)
        assert made.runtime.turns == []

    flow(tmp_path, steps, tool_class="chat")


def test_a_credential_that_changes_between_judgement_and_start_starts_nothing(tmp_path):
    """The evidence of startRun is of that moment, not of the moment when the event was judged."""

    async def steps(rooms):
        rooms.runtime.credential = LOGIN
        await RunWork(rooms.services, await rooms.entry(), invocation(), run_token()).work()
        assert rooms.api.named("start_run") == []
        assert rooms.api.finished[RUN].reason == "billing_mode_mismatch"
        assert rooms.runtime.turns == []

    with_rooms(tmp_path, steps)


def test_a_busy_mode_that_would_break_turns_off_is_said(tmp_path):
    """Whoever sets it, the server hears of it at the next heartbeat, and of its end as well."""

    async def steps(made):
        assert last_beat(made).details.degraded_reasons is None
        made.runtime.busy_mode = BusyMode.INTERRUPT
        await made.until(lambda: last_beat(made).details.degraded_reasons is not None)
        assert last_beat(made).details.degraded_reasons == (DegradedReason.BUSY_MODE_INVALID,)
        assert last_beat(made).details.capabilities.followups is False
        made.runtime.busy_mode = BusyMode.QUEUE
        await made.until(lambda: last_beat(made).details.degraded_reasons is None)

    flow(tmp_path, steps)
