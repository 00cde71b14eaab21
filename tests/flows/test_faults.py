"""Networks break, proxies lie, answers are lost: runs end right, nothing is lost, nothing is done twice.

A run that uses the whole protocol is told through a fault proxy (`fault_kit`). What it has to come to is the
same as without any fault, unless the table of the fault says otherwise.
"""

import asyncio

import pytest

from bothy_hermes import bothy_gateway, bothy_socket, run_cards
from tests.fakes import faults
from tests.fakes.fault_kit import ATTEMPT_SECONDS, TOLD, Everything, Story, faulty_world, left_over

PATIENT_CALLS = (
    "getServedChannelConfig",
    "getRunContext",
    "downloadFile",
    "startRun",
    "updateRun",
    "createMessage",
    "awaitRunInput",
    "resumeRun",
    "respondToInteraction",
    "reportFollowup",
    "reportAgentSession",
    "setThreadTitle",
    "finishRun",
)
"""The calls of a run of `Everything` that are made until they are answered."""

CHANGING_CALLS = PATIENT_CALLS[3:]
"""Those that change something: done twice they would be seen twice."""

FIRST_CALLS = ("getJwks", "getMe", "openGateway", "putHeartbeat", "listRuns")
"""What an adapter calls before it takes its first event."""

UNASKED = (
    faults.reset(),
    faults.hang_up(),
    faults.answer(500),
    faults.page(502),
    faults.answer(503, retry_after=1),
    faults.page(504, None),
    faults.answer(429, "rate_limited", retry_after=2),
    faults.page(200),
)
"""The server never hears of the call."""

ANSWER_LOST = (
    faults.reset().after,
    faults.hang_up().after,
    faults.cut(),
    faults.cut_head(),
    faults.page(502).after,
    faults.answer(503).after,
    faults.page(200).after,
)
"""The server has done what was asked, and nobody hears of it."""

TOO_LONG = (
    faults.stall(),
    faults.stall().after,
    faults.trickle(4 * ATTEMPT_SECONDS),
)
"""Nothing ends the call but the adapter's own patience."""

ODD = (faults.slow(0.1), faults.trickle(0.1), faults.retyped("text/plain"))
"""The answer is the server's, in an odd way: it needs no second call."""

PATIENCE = 30.0
"""Longest time of an attempt in tests that count calls: a busy machine must not give one up."""

OUTBOX_CALLS = (
    "createMessage",
    "awaitRunInput",
    "respondToInteraction",
    "reportFollowup",
    "reportAgentSession",
    "setThreadTitle",
    "finishRun",
)
"""The calls that are kept until the server has taken or refused them."""


def mostly_slow(values, quick):
    """Parameters of a table of which the quick check takes only some.

    Args:
        values: A mapping from their IDs.
        quick: The IDs of those.
    """
    return [
        pytest.param(value, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, value in values.items()
    ]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    """A handshake is given up like any attempt; how long a card may be on its way is another subject."""
    monkeypatch.setattr(bothy_socket, "OPEN_TIMEOUT_SECONDS", ATTEMPT_SECONDS)
    monkeypatch.setattr(bothy_gateway, "GREETING_SECONDS", ATTEMPT_SECONDS)
    monkeypatch.setattr(run_cards, "DELIVERY_SECONDS", 1e6)


def tell(tmp_path, disturb, check=None, *, provoked=frozenset(), **options):
    """Tell the whole story with faults; returns what people saw at its end.

    Args:
        tmp_path: Where the world lives.
        disturb: Told the proxy before the story begins.
        check: Told the world after its end.
        provoked: Violations that the faults bring about.
        options: Of the world.
    """
    turn = Everything()

    async def scenario():
        async with faulty_world(tmp_path, turn.runtime, **options) as made:
            made.provoked = provoked
            disturb(made.proxy)
            story = Story(made, turn)
            await story.all()
            told = story.told()
            if check is not None:
                check(made)
        assert left_over(tmp_path / "adapter") == (0, 0, 0)
        return told

    return asyncio.run(scenario())


def test_without_faults_the_story_is_told_as_it_is(tmp_path):
    calls = []
    look = lambda made: calls.extend(made.proxy.passed)  # noqa: E731  # one line in a table's place
    assert tell(tmp_path, lambda _proxy: None, look, attempt=PATIENCE) == TOLD
    assert {call.operation for call in calls} == {*FIRST_CALLS, "getAllowList", *PATIENT_CALLS}
    refused = {call.operation for call in calls if call.status >= 400}
    assert refused <= {"updateRun"}, "a wait changes the document, which the next patch has to learn"


def without_pages(operation, group):
    """A file is bytes: a page in its place cannot be told from it."""
    return [fault for fault in group if operation != "downloadFile" or not fault.name.startswith("200 page")]


GROUPS = {
    f"{operation}-{name}": (operation, group)
    for name, group in (("unasked", UNASKED), ("answer lost", ANSWER_LOST))
    for operation in PATIENT_CALLS
}
QUICK_GROUPS = {f"{operation}-answer lost" for operation in CHANGING_CALLS} | {"createMessage-unasked"}


@pytest.mark.parametrize("case", mostly_slow(GROUPS, QUICK_GROUPS))
def test_a_call_is_made_until_it_is_answered_and_done_once(tmp_path, case):
    """Fault after fault meets the next attempt of the same call: each was survived when all were met."""
    operation, group = case[0], without_pages(*case)

    def check(made):
        met = [call.fault for call in made.proxy.named(operation)]
        assert met[: len(group)] == [fault.name for fault in group]

    assert tell(tmp_path, lambda proxy: proxy.on(operation, *group), check) == TOLD


@pytest.mark.parametrize("operation", mostly_slow({one: one for one in PATIENT_CALLS}, {"createMessage"}))
def test_a_call_that_hangs_is_given_up_and_made_again(tmp_path, operation):
    """Before the server acted, after it did, and while the answer comes too slowly to ever end."""
    assert tell(tmp_path, lambda proxy: proxy.on(operation, *TOO_LONG)) == TOLD


@pytest.mark.parametrize("fault", ODD, ids=lambda fault: fault.name)
def test_an_odd_answer_is_an_answer(tmp_path, fault):
    """Late, in pieces, or under another name, for each first call: none is made again for it."""

    def disturb(proxy):
        for operation in (*PATIENT_CALLS, "getAllowList"):
            proxy.on(operation, fault)

    def check(made):
        once = ("startRun", "awaitRunInput", "resumeRun", "respondToInteraction", "finishRun")
        assert [len(made.proxy.named(operation)) for operation in once] == [1] * len(once)
        assert len(made.proxy.named("createMessage")) == 3

    assert tell(tmp_path, disturb, check, attempt=PATIENCE) == TOLD


LISTLESS = {fault.name: fault for fault in (*UNASKED, *ANSWER_LOST, *TOO_LONG)}


@pytest.mark.parametrize("fault", mostly_slow(LISTLESS, {"reset", "cut", "200 page of text/html"}))
def test_an_allow_list_without_an_answer_leaves_the_event_for_redelivery(tmp_path, fault):
    """It is asked once for a delivery; the next delivery asks again, and the run is done once."""
    assert tell(tmp_path, lambda proxy: proxy.on("getAllowList", fault)) == TOLD


# Refusals ----------------------------------------------------------------------------------------------


def on_each(operations, *group):
    """Disturb the next calls of several operations in the same way."""

    def disturb(proxy):
        for operation in operations:
            proxy.on(operation, *group)

    return disturb


def test_a_run_token_that_has_expired_is_renewed_for_each_call(tmp_path):
    """Whichever call hears of it; the run notices nothing."""
    expired = faults.answer(401, "token_expired")

    def check(made):
        renewals = len(made.proxy.named("renewRunToken"))
        assert len(PATIENT_CALLS) - 4 <= renewals <= len(PATIENT_CALLS), "calls side by side share one"

    assert tell(tmp_path, on_each(PATIENT_CALLS, expired), check, attempt=PATIENCE) == TOLD


def test_a_renewal_is_made_until_it_is_answered(tmp_path):
    """With the run's own token that is good for another minute, and with the agent's."""

    def disturb(proxy):
        proxy.on("startRun", faults.answer(401, "token_expired"))
        proxy.on("renewRunToken", *UNASKED, *ANSWER_LOST, *TOO_LONG)

    assert tell(tmp_path, disturb) == TOLD


def test_a_token_that_the_server_refuses_for_a_while_loses_nothing(tmp_path):
    """An operator who replaces the token at both ends needs a moment: what is owed waits a minute."""
    refused = faults.answer(401, "unauthorized")

    def check(made):
        assert made.slept.count(60.0) == len(OUTBOX_CALLS)

    assert tell(tmp_path, on_each(OUTBOX_CALLS, refused), check, attempt=PATIENCE) == TOLD


@pytest.mark.parametrize("status", mostly_slow({str(one): one for one in (401, 403, 409, 412)}, {"409"}))
def test_a_list_that_is_refused_is_asked_for_with_the_next_delivery(tmp_path, status):
    assert tell(tmp_path, lambda proxy: proxy.on("getAllowList", faults.answer(status))) == TOLD


def test_a_retry_after_is_waited_for(tmp_path):
    """At least as long as was asked, by every call."""
    busy = faults.answer(429, "rate_limited", retry_after=30)

    def check(made):
        assert sum(30 <= seconds <= 30.5 for seconds in made.slept) == len(PATIENT_CALLS)

    assert tell(tmp_path, on_each(PATIENT_CALLS, busy), check, attempt=PATIENCE) == TOLD


PATCHES_REFUSED = {
    "conflict without a document": (409, "version_conflict"),
    "stale": (412, "precondition_failed"),
    "does not apply": (422, "validation_failed"),
    "forbidden": (403, "forbidden"),
}


@pytest.mark.parametrize("refusal", mostly_slow(PATCHES_REFUSED, {"conflict without a document"}))
def test_a_refused_patch_is_computed_anew_from_what_the_server_has(tmp_path, refusal):
    """The answer never waits for the box, and the box is right in the end."""

    def disturb(proxy):
        proxy.on("updateRun", faults.answer(*refusal))
        proxy.on("getRun", *UNASKED, *ANSWER_LOST)

    assert tell(tmp_path, disturb) == TOLD


REFUSED_ON_THE_WAY = {
    "downloadFile": (403, "file_refused", {"files": [False]}),
    "reportFollowup": (404, "not_found", {}),
    "reportAgentSession": (412, "precondition_failed", {"session": (None, 0)}),
    "setThreadTitle": (409, "title_not_auto", {"title": None}),
}


@pytest.mark.parametrize("operation", REFUSED_ON_THE_WAY)
def test_what_is_refused_beside_the_answer_costs_only_itself(tmp_path, operation):
    status, code, changes = REFUSED_ON_THE_WAY[operation]
    assert tell(tmp_path, lambda proxy: proxy.on(operation, faults.answer(status, code))) == TOLD | changes


def test_a_refused_message_is_told_by_the_runs_end(tmp_path):
    """What was said did not reach its people: the run is none that completed."""

    def disturb(proxy):
        proxy.on("createMessage", faults.answer(422, "validation_failed"))

    told = tell(tmp_path, disturb)
    changes = {"state": "failed", "reason": "adapter_error", "texts": ["blue and also this"]}
    assert told == TOLD | changes


NOT_STARTED = {
    "no context": ("getRunContext", 409, None, "adapter_error"),
    "context forbidden": ("getRunContext", 403, "forbidden", "adapter_error"),
    "no channel": ("getServedChannelConfig", 412, None, "adapter_error"),
    "start refused": ("startRun", 401, "unauthorized", "adapter_error"),
    "not startable": ("startRun", 409, "run_not_startable", "adapter_error"),
    "another mode": ("startRun", 409, "billing_mode_mismatch", "billing_mode_mismatch"),
    "another class": ("startRun", 409, "tool_class_exceeded", "tool_class_exceeded"),
}


@pytest.mark.parametrize("refusal", NOT_STARTED.values(), ids=NOT_STARTED)
def test_what_is_refused_before_the_turn_ends_the_run_with_a_reason(tmp_path, refusal):
    """No turn is begun, and the next message gets one."""
    operation, status, code, reason = refusal

    async def scenario():
        async with faulty_world(tmp_path) as made:
            made.proxy.on(operation, faults.answer(status, code))
            thread = made.thread()
            view = await made.ended(made.say(thread, "first"))
            assert (str(view.run.state), view.run.reason) == ("failed", reason)
            assert made.runtime.turns == []
            view = await made.ended(made.say(thread, "second"))
            assert str(view.run.state) == "completed"
            assert len(made.runtime.turns) == 1

    asyncio.run(scenario())


# Starting ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", mostly_slow({one: one for one in FIRST_CALLS}, {"openGateway"}))
def test_an_adapter_starts_through_all_of_it(tmp_path, operation):
    group = (*UNASKED, *ANSWER_LOST, *TOO_LONG)
    turn = Everything()

    async def scenario():
        async with faulty_world(tmp_path, turn.runtime, start=False) as made:
            made.proxy.on(operation, *group)
            story = Story(made, turn)
            story.begin()
            await made.start_adapter()
            await story.answer()
            await story.write()
            await made.until(lambda: made.proxy.unused == [])
            return story.told()

    assert asyncio.run(scenario()) == TOLD


# Frames ------------------------------------------------------------------------------------------------

BROKEN_FRAMES = (
    faults.dropped(),
    faults.truncated(),
    faults.garbled(),
    faults.torn(),
    faults.passed_and_torn(),
)
ODD_FRAMES = (faults.doubled(), faults.late(0.2))
NOT_UNDERSTOOD = frozenset({"gateway: a frame that is not understood"})
"""What the server says of half a text: the fault's fault."""


def test_a_frame_each_of_events_and_acks_is_seen(tmp_path):
    """The three events of the story, each acked once: what the tables below count on."""

    def check(made):
        assert made.proxy.frames.count(("server", "event")) == 3
        assert made.proxy.frames.count(("adapter", "ack")) == 3

    assert tell(tmp_path, lambda _proxy: None, check, attempt=PATIENCE) == TOLD


@pytest.mark.parametrize(
    "fault", mostly_slow({fault.name: fault for fault in BROKEN_FRAMES}, {"garbled", "passed and torn"})
)
@pytest.mark.parametrize("op", ["event", "ack"])
def test_a_lost_event_or_ack_is_made_good_by_the_next_delivery(tmp_path, op, fault):
    """Each event of the story is lost once, or its ack is: what it asks for is done once."""

    came = fault.name == "passed and torn"

    def disturb(proxy):
        proxy.on_frame(op, *([fault] if came else [fault, faults.passed()]) * 3)

    def check(made):
        # The end of the run withdraws the event whose ack was lost last: it does not come again.
        assert made.proxy.forget() <= 2

    provoked = NOT_UNDERSTOOD if (op, fault.name) == ("ack", "garbled") else frozenset()
    assert tell(tmp_path, disturb, check, provoked=provoked) == TOLD


@pytest.mark.parametrize("fault", mostly_slow({fault.name: fault for fault in ODD_FRAMES}, {"doubled"}))
@pytest.mark.parametrize("op", ["event", "ack"])
def test_an_odd_frame_is_a_frame(tmp_path, op, fault):
    """Twice or late: it is taken once."""
    assert tell(tmp_path, lambda proxy: proxy.on_frame(op, *[fault] * 3)) == TOLD


SECOND_IDENTIFY = frozenset({"gateway: a second identify"})


@pytest.mark.parametrize(
    "op", mostly_slow({"hello": "hello", "identify": "identify", "ready": "ready"}, {"ready"})
)
def test_a_greeting_is_tried_until_it_succeeds(tmp_path, op):
    """Whatever breaks in it, the adapter connects again and does what waited for it."""
    turn = Everything()

    async def scenario():
        async with faulty_world(tmp_path, turn.runtime, start=False) as made:
            if op == "identify":
                made.provoked = NOT_UNDERSTOOD | SECOND_IDENTIFY
            made.proxy.on_frame(op, *BROKEN_FRAMES, faults.doubled())
            story = Story(made, turn)
            story.begin()
            await made.start_adapter()
            await story.answer()
            await story.write()
            await made.until(lambda: made.proxy.unused == [])
            return story.told()

    assert asyncio.run(scenario()) == TOLD


# Connections -------------------------------------------------------------------------------------------


@pytest.fixture
def _quick_pings(monkeypatch):
    """A dead connection is noticed soon."""
    monkeypatch.setattr(bothy_socket, "PING_SECONDS", 0.2)


SILENCES = ("before the message", "before the click", "before the text")


@pytest.mark.parametrize("moment", mostly_slow({one: one for one in SILENCES}, {"before the click"}))
@pytest.mark.usefixtures("_quick_pings")
def test_a_network_that_swallows_everything_is_left_and_tried_again(tmp_path, moment):
    """Nobody ends the dead connections: the adapter notices, and nothing of the silence is lost."""
    turn = Everything()

    async def scenario():
        async with faulty_world(tmp_path, turn.runtime) as made:
            story = Story(made, turn)

            def hush_at(this):
                if moment == this:
                    made.proxy.silence()
                    asyncio.get_running_loop().call_later(1.0, made.proxy.heal)

            hush_at("before the message")
            story.begin()
            if moment == "before the click":
                await story.asked()
            hush_at("before the click")
            await story.answer()
            hush_at("before the text")
            await story.write()
            assert len(made.proxy.named("openGateway")) >= 2
            return story.told()

    assert asyncio.run(scenario()) == TOLD


@pytest.mark.parametrize("interval", mostly_slow({"0.05": 0.05, "0.2": 0.2}, {"0.05"}))
def test_a_network_that_breaks_again_and_again_only_slows_a_run_down(tmp_path, interval):
    """Every connection is reset every few moments, whatever is on it."""
    turn = Everything()

    async def scenario():
        async with faulty_world(tmp_path, turn.runtime) as made:
            story = Story(made, turn)

            async def break_it():
                for _ in range(int(2 / interval)):
                    made.proxy.tear()
                    await asyncio.sleep(interval)

            breaking = asyncio.create_task(break_it())
            await story.all()
            breaking.cancel()
            return story.told()

    assert asyncio.run(scenario()) == TOLD
