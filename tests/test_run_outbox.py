"""Sending what a run owes: in order, from disk, each call once more rather than never."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes.codec import parse
from bothy_hermes.errors import ConfigError, ProblemAnswer, RunEnded, TokenRefused, TransportError
from bothy_hermes.run_calls import finish_call, message_call
from bothy_hermes.run_outbox import RunOutbox
from bothy_hermes.store import EntryState, InboxEntry, Store
from bothy_hermes.wire import CreateMessage, FinishRun, Metrics
from tests.fakes.clock import FakeClock

RUN = UUID("0192f4a0-7b1c-7000-8000-0000000000aa")
EVENT = UUID("0192f4a0-7b1c-7000-8000-0000000000ee")
CLOCK = FakeClock().clock


def message(text, key="m1"):
    return CreateMessage(client_msg_id=key, kind="text", role="answer", content=text)


def finished(outcome="completed", reason=None):
    return parse(FinishRun, {"outcome": outcome, "reason": reason, "metrics": {}})


class Answer:
    def __init__(self, message_id):
        self.id = message_id
        self.version = 1


class Server:
    """Takes calls in the order in which they come; can refuse some."""

    def __init__(self):
        self.taken = []
        self.refusals = {}

    async def create_message(self, run_id, _auth, body):
        await self._take(("message", run_id, body.content), body.client_msg_id)
        return Answer(UUID(int=len(self.taken)))

    async def finish_run(self, run_id, _auth, body):
        await self._take(("finish", run_id, str(body.outcome), body.reason), "finish")

    async def get_run(self, _run_id):
        raise ProblemAnswer("getRun", 404, "not_found")

    async def _take(self, what, key):
        await asyncio.sleep(0)
        if key in self.refusals:
            raise self.refusals[key]
        self.taken.append(what)


async def opened(directory, state=EntryState.FINISHING):
    store = await Store.open(directory, FakeClock().clock)
    entry = InboxEntry(EVENT, "agent.invocation", RUN, None, None, state, FakeClock().time)
    await store.take_event(entry)
    return store


def run(directory, steps, **refusals):
    """Run `steps(store, outbox)` on a fresh store; returns what the server took and what is left."""

    async def scenario():
        server = Server()
        server.refusals = refusals
        store = await opened(directory)
        try:
            outbox = RunOutbox(server, store, RUN, None, clock=CLOCK, entry_id=EVENT)
            await steps(store, outbox)
            left = [stored.call.operation for stored in await store.calls()]
            return server.taken, left, (await store.entry(EVENT)).state, await store.counters()
        finally:
            await store.close()

    return asyncio.run(scenario())


def test_calls_are_sent_in_their_order_and_the_end_is_last(tmp_path):
    async def steps(_store, outbox):
        await outbox.put(message_call(RUN, message("one", "m1")), message_call(RUN, message("two", "m2")))
        await outbox.put(finish_call(RUN, finished()))
        await asyncio.wait_for(outbox.run(), 5)

    taken, left, state, _ = run(tmp_path, steps)
    assert taken == [("message", RUN, "one"), ("message", RUN, "two"), ("finish", RUN, "completed", None)]
    assert left == []
    assert state is EntryState.DONE


def test_a_call_that_comes_later_wakes_the_sender(tmp_path):
    async def steps(_store, outbox):
        sending = asyncio.ensure_future(outbox.run())
        await outbox.put(message_call(RUN, message("late")))
        await outbox.put(finish_call(RUN, finished()))
        await asyncio.wait_for(sending, 5)

    taken, *_ = run(tmp_path, steps)
    assert [call[0] for call in taken] == ["message", "finish"]


def test_who_has_nothing_to_send_does_not_ask_the_disk(tmp_path):
    """It sleeps until a call is stored, the second time as well."""

    async def steps(store, outbox):
        asked, usual = [], store.calls

        async def calls(run_id=None):
            asked.append(run_id)
            return await usual(run_id)

        store.calls = calls
        sending = asyncio.ensure_future(outbox.run())
        for number in range(2):
            await outbox.put(message_call(RUN, message("more", f"m{number}")))
            await asyncio.sleep(0.03)  # hundreds of questions for a sender that does not sleep
        assert len(asked) <= 7
        await outbox.put(finish_call(RUN, finished()))
        await asyncio.wait_for(sending, 5)

    run(tmp_path, steps)


def test_the_same_call_put_twice_is_sent_once(tmp_path):
    async def steps(_store, outbox):
        for _ in range(3):
            await outbox.put(message_call(RUN, message("once")))
        await outbox.put(finish_call(RUN, finished()), finish_call(RUN, finished("failed", "interrupted")))
        await asyncio.wait_for(outbox.run(), 5)

    taken, left, *_ = run(tmp_path, steps)
    assert taken == [("message", RUN, "once"), ("finish", RUN, "completed", None)]
    assert left == []


def test_a_refused_message_makes_the_run_fail_and_is_counted(tmp_path):
    """People must not read `completed` when the answer never reached them."""

    async def steps(_store, outbox):
        await outbox.put(message_call(RUN, message("too long")), finish_call(RUN, finished()))
        await asyncio.wait_for(outbox.run(), 5)

    taken, left, state, counters = run(
        tmp_path, steps, m1=ProblemAnswer("createMessage", 413, "content_too_long")
    )
    assert taken == [("finish", RUN, "failed", "adapter_error")]
    assert left == []
    assert state is EntryState.DONE
    assert sum(counters.values()) == 1


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (("completed", None), ("failed", "adapter_error")),
        (("cancelled", None), ("cancelled", None)),
    ],
)
def test_a_refused_message_is_known_to_the_process_that_sends_the_end(tmp_path, end, told):
    """The first one stops between the two; the end keeps its numbers."""

    async def first(store, outbox):
        await outbox.put(message_call(RUN, message("too long")), finish_call(RUN, finished(*end)))
        with pytest.raises(asyncio.CancelledError):
            await outbox.drain()

    async def second():
        server = Server()
        store = await Store.open(tmp_path, FakeClock().clock)
        await RunOutbox(server, store, RUN, None, clock=CLOCK, entry_id=EVENT).drain()
        left = await store.calls()
        await store.close()
        return server.taken, left

    refused = ProblemAnswer("createMessage", 413, "content_too_long")
    taken, left, *_ = run(tmp_path, first, m1=refused, finish=asyncio.CancelledError())
    assert (taken, left) == ([], ["finishRun"])
    assert asyncio.run(second()) == ([("finish", RUN, *told)], [])


def test_a_call_that_cannot_be_made_holds_up_nothing_behind_it(tmp_path, caplog):
    """A mistake of ours in one call costs that call: it would break each sender anew, and the run its end."""

    async def steps(_store, outbox):
        await outbox.put(message_call(RUN, message("one", "m1")), message_call(RUN, message("two", "m2")))
        await outbox.put(finish_call(RUN, finished()))
        await asyncio.wait_for(outbox.run(), 5)

    with caplog.at_level(logging.ERROR):
        taken, left, state, counters = run(tmp_path, steps, m1=RuntimeError("xyzzy"))
    assert taken == [("message", RUN, "two"), ("finish", RUN, "failed", "adapter_error")]
    assert (left, state, sum(counters.values())) == ([], EntryState.DONE, 1)
    assert "createMessage broke" in caplog.text
    assert "xyzzy" not in caplog.text


def test_messages_of_a_run_that_ended_are_given_up(tmp_path):
    """The server ended the run first: that is expected, and the end is still reported."""

    async def steps(_store, outbox):
        await outbox.put(message_call(RUN, message("late")), finish_call(RUN, finished("cancelled")))
        await asyncio.wait_for(outbox.run(), 5)

    taken, left, state, _ = run(tmp_path, steps, m1=RunEnded("createMessage", 409, "run_ended"))
    assert taken == [("finish", RUN, "cancelled", None)]
    assert left == []
    assert state is EntryState.DONE


@pytest.mark.parametrize("refusal", [ProblemAnswer("f", 404, "not_found"), RunEnded("f", 409, "run_ended")])
def test_a_refused_end_leaves_nothing_behind(tmp_path, refusal):
    async def steps(_store, outbox):
        await outbox.put(finish_call(RUN, finished()))
        await asyncio.wait_for(outbox.run(), 5)

    taken, left, state, _ = run(tmp_path, steps, finish=refusal)
    assert (taken, left) == ([], [])
    assert state is EntryState.DONE


class Watcher:
    """A live run that writes down what it is told."""

    def __init__(self):
        self.told = []

    async def before(self, call):
        self.told.append(("before", call.operation))

    def done(self, call):
        self.told.append(("done", call.operation))

    def refused(self, call, word):
        self.told.append((word, call.operation))


def test_what_is_pending_is_written_before_the_end(tmp_path):
    """A live run hears of each call, and of the end before it is sent."""
    watcher = Watcher()

    async def scenario():
        server = Server()
        server.refusals = {
            "m2": ProblemAnswer("createMessage", 413, "content_too_long"),
            "m3": ProblemAnswer("createMessage", 413, None),
        }
        store = await opened(tmp_path)
        outbox = RunOutbox(server, store, RUN, None, clock=CLOCK, entry_id=EVENT, events=watcher)
        await outbox.put(message_call(RUN, message("one")), message_call(RUN, message("two", "m2")))
        await outbox.put(message_call(RUN, message("three", "m3")), finish_call(RUN, finished()))
        await asyncio.wait_for(outbox.run(), 5)
        await store.close()

    asyncio.run(scenario())
    assert watcher.told == [
        ("done", "createMessage"),
        ("content_too_long", "createMessage"),
        ("413", "createMessage"),
        ("before", "finishRun"),
        ("done", "finishRun"),
    ]


def test_a_crash_before_the_answer_sends_the_call_again(tmp_path):
    """What was stored by one process is sent by the next, with the same `client_msg_id`."""

    async def first():
        store = await opened(tmp_path)
        await store.put_calls([message_call(RUN, message("kept")), finish_call(RUN, finished())])
        await store.close()

    async def second():
        server = Server()
        store = await Store.open(tmp_path, FakeClock().clock)
        over = await RunOutbox(server, store, RUN, None, clock=CLOCK, entry_id=EVENT).drain()
        left = await store.calls()
        await store.close()
        return server.taken, over, left

    asyncio.run(first())
    taken, over, left = asyncio.run(second())
    assert taken == [("message", RUN, "kept"), ("finish", RUN, "completed", None)]
    assert over
    assert left == []


def test_metrics_travel_with_the_end():
    call = finish_call(RUN, FinishRun(outcome="completed", metrics=Metrics(duration_ms=5)))
    assert call.body["metrics"]["duration_ms"] == 5
    assert call.run_id == RUN


@pytest.mark.parametrize(
    "trouble",
    [
        ProblemAnswer("renewRunToken", 401, "unauthorized"),
        ConfigError("hermes_adapter.token_file", "cannot be read"),
        TokenRefused("malformed"),
        TransportError("createMessage", "too_large", sent=True),
    ],
    ids=["token", "file", "answer", "size"],
)
def test_what_refuses_no_call_loses_none(tmp_path, trouble):
    """A token that was replaced at the server and not here yet holds an answer up, and costs none."""
    fake = FakeClock()

    async def scenario():
        server = Server()
        server.refusals = {"m1": trouble}
        store = await opened(tmp_path)
        outbox = RunOutbox(server, store, RUN, None, clock=fake.clock, entry_id=EVENT)
        await outbox.put(message_call(RUN, message("kept")), finish_call(RUN, finished()))
        sending = asyncio.ensure_future(outbox.run())
        async with asyncio.timeout(20):
            while not fake.sleepers:  # noqa: ASYNC110  # the disk is a thread of its own
                await asyncio.sleep(0.001)
        assert server.taken == []
        assert len(await store.calls()) == 2
        server.refusals = {}
        await fake.advance(60)
        await asyncio.wait_for(sending, 5)
        counters = await store.counters()
        await store.close()
        return server.taken, counters

    taken, counters = asyncio.run(scenario())
    assert taken == [("message", RUN, "kept"), ("finish", RUN, "completed", None)]
    assert counters == {}
