"""What a run may still owe: how each call is stored, how it is made, what its answer means."""

import asyncio
import dataclasses
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from bothy_hermes import run_calls
from bothy_hermes.codec import dump_json, load_json
from bothy_hermes.errors import ProblemAnswer, RunEnded, WireError
from bothy_hermes.run_calls import (
    Sending,
    await_call,
    close_call,
    finish_call,
    followup_call,
    is_loss,
    message_call,
    response_call,
    send,
    session_call,
    title_call,
    update_call,
)
from bothy_hermes.run_cards import failed
from bothy_hermes.store import CardGone, ClaimMove, ClaimState, OpenCard, OutboxCall
from bothy_hermes.wire import CreateMessage, FinishRun, Metrics, Part, ReportAgentSession
from bothy_hermes.wire_words import CloseReason, FollowupState, RunState
from tests.fakes.edge_kit import RUN, THREAD
from tests.fakes.flow_kit import with_rooms

TARGET = UUID(int=77)
CARD = "card-1"


def text(content="hello", **changes):
    return CreateMessage(client_msg_id="m1", kind="text", role="answer", content=content, **changes)


def card_message():
    return CreateMessage(client_msg_id=CARD, kind="card", role="interim", content="Which?", components=())


def end(outcome="completed", reason=None):
    return FinishRun(outcome=outcome, reason=reason, metrics=Metrics(duration_ms=5))


CALLS = {
    "createMessage": message_call(RUN, text()),
    "updateMessage": update_call(RUN, "m1", "hello again"),
    "awaitRunInput": await_call(RUN, CARD, "waits for an answer"),
    "closeCard": close_call(RUN, TARGET, CloseReason.EXPIRED),
    "reportFollowup": followup_call(RUN, TARGET, FollowupState.ABSORBED),
    "respondToInteraction": response_call(RUN, TARGET, failed("no")),
    "reportAgentSession": session_call(
        RUN, THREAD, 3, ReportAgentSession(external_session_ref="s1", started=True)
    ),
    "setThreadTitle": title_call(RUN, THREAD, 4, "A talk"),
    "finishRun": finish_call(RUN, end()),
}


class Server:
    """Takes every call; answers messages with an ID, and refuses what it is told to."""

    def __init__(self):
        self.taken = []
        self.refusals = {}
        self.state = RunState.RUNNING

    def __getattr__(self, operation):
        async def take(*args):
            await asyncio.sleep(0)
            self.taken.append((operation, *args))
            problems = self.refusals.get(operation, [])
            if problems:
                raise problems.pop(0)
            return SimpleNamespace(id=TARGET, version=1, run=SimpleNamespace(state=self.state))

        return take


def sending(tmp_path, call, *, before=(), server=None, lost=0, posted=None):
    """Make a call on a store that holds some things; returns server, changes, and the cards that are left."""
    server = server or Server()

    async def on_rooms(made):
        for change in before:
            await made.store.record(change)
        work = Sending(server, made.store, "the token", lost, {} if posted is None else posted)
        changes = tuple(await send(work, call))
        if changes:
            await made.store.record(*changes)
        return server, changes, await made.store.cards()

    return with_rooms(tmp_path, on_rooms)


# Stored -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", CALLS)
def test_a_call_survives_the_process_that_stored_it(tmp_path, operation):
    """What the disk gives back is what was put."""

    async def on_rooms(made):
        await made.store.put_calls([CALLS[operation]])
        return [stored.call for stored in await made.store.calls()]

    (found,) = with_rooms(tmp_path, on_rooms)
    assert found == CALLS[operation]
    assert found.operation == operation
    assert load_json(dump_json(found.body)) == found.body


def test_every_call_that_can_be_stored_can_be_made():
    assert set(run_calls._SENDERS) == set(CALLS)


def test_no_two_calls_of_a_run_are_one():
    assert len({call.key for call in CALLS.values()}) == len(CALLS)
    other = UUID(int=78)
    again = (
        message_call(other, text()),
        finish_call(other, end()),
        followup_call(RUN, TARGET, FollowupState.DELIVERED),
        close_call(RUN, other, CloseReason.EXPIRED),
    )
    assert {call.key for call in again}.isdisjoint(call.key for call in CALLS.values())


def test_the_first_end_of_a_run_is_its_end(tmp_path):
    async def on_rooms(made):
        await made.store.put_calls([finish_call(RUN, end()), finish_call(RUN, end("failed", "interrupted"))])
        return [stored.call.body["outcome"] for stored in await made.store.calls()]

    assert with_rooms(tmp_path, on_rooms) == ["completed"]


def test_what_a_call_says_is_in_no_repr():
    assert "hello" not in repr(CALLS["createMessage"])
    assert "A talk" not in repr(CALLS["setThreadTitle"])


@pytest.mark.parametrize(
    ("operation", "loses"),
    [(name, name in ("createMessage", "finishRun")) for name in CALLS],
)
def test_only_messages_and_ends_are_a_loss(operation, loses):
    assert is_loss(CALLS[operation]) is loses


def test_a_card_that_was_refused_loses_nothing_that_was_said():
    assert not is_loss(message_call(RUN, card_message()))


# Made ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "asked"),
    [
        ("createMessage", ("create_message", RUN, "the token", text())),
        ("closeCard", ("close_card", TARGET, "the token")),
        ("reportFollowup", ("report_followup", RUN, TARGET, "the token")),
        ("respondToInteraction", ("respond_to_interaction", TARGET, "the token")),
        ("reportAgentSession", ("report_agent_session", THREAD, "the token", 3)),
        ("setThreadTitle", ("set_thread_title", THREAD, "the token", 4)),
        ("finishRun", ("finish_run", RUN, "the token", end())),
    ],
)
def test_a_call_asks_for_what_was_stored(tmp_path, operation, asked):
    server, _, _ = sending(tmp_path, CALLS[operation])
    (found,) = server.taken
    assert found[: len(asked)] == asked


def test_a_call_of_another_version_is_none(tmp_path):
    """It is settled as malformed, instead of stopping everything behind it for ever."""
    with pytest.raises(WireError):
        sending(tmp_path, OutboxCall("k", RUN, "sing"))


@pytest.mark.parametrize("operation", ["createMessage", "finishRun", "reportFollowup"])
def test_a_body_of_another_version_is_none(tmp_path, operation):
    with pytest.raises(WireError):
        sending(tmp_path, OutboxCall("k", RUN, operation, target_id=TARGET, body={"nothing": True}))


def test_a_rewritten_message_is_named_by_the_servers_id(tmp_path):
    server, _, _ = sending(tmp_path, CALLS["updateMessage"], posted={"m1": (TARGET, 2)})
    ((operation, message_id, _, version, body),) = server.taken
    assert (operation, message_id, version, body.content) == ("update_message", TARGET, 2, "hello again")


def test_a_message_of_another_process_keeps_its_text(tmp_path):
    """Its ID at the server died with that process; a second message would be worse than an old text."""
    server, _, _ = sending(tmp_path, CALLS["updateMessage"])
    assert server.taken == []


# Cards --------------------------------------------------------------------------------------------


def open_card(**changes):
    return OpenCard(CARD, RUN, **changes)


def test_a_shown_card_is_found_by_its_message(tmp_path):
    _, _, (card,) = sending(tmp_path, message_call(RUN, card_message()), before=[open_card()])
    assert card.message_id == TARGET


def test_a_card_that_was_withdrawn_is_not_shown(tmp_path):
    server, changes, _ = sending(tmp_path, message_call(RUN, card_message()))
    assert (server.taken, changes) == ([], ())


def test_a_card_that_is_withdrawn_while_it_is_shown_is_closed(tmp_path):
    """It reached its people after all: nobody may use it."""

    async def on_rooms(made):
        await made.store.record(open_card())
        server = Server()

        async def show(*_args):
            await made.store.record(CardGone(CARD))
            return SimpleNamespace(id=TARGET, version=1, components=())

        server.create_message = show
        return await send(Sending(server, made.store, None, 0, {}), message_call(RUN, card_message()))

    (call,) = with_rooms(tmp_path, on_rooms)
    assert (call.operation, call.target_id, call.body["reason"]) == ("closeCard", TARGET, "expired")


class Shrunk(Server):
    """Takes texts up to a limit that is lower than when they were stored."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit
        self.texts = {}

    async def create_message(self, _run_id, _auth, body):
        await asyncio.sleep(0)
        if len(body.content.encode()) > self.limit:
            raise ProblemAnswer("createMessage", 413, "content_too_long")
        assert self.texts.setdefault(body.client_msg_id, body) == body, "a repetition is the same"
        return SimpleNamespace(id=TARGET, version=1, components=())


@pytest.mark.parametrize("part", [None, Part(index=3, last=False), Part(index=3, last=True)])
def test_a_text_for_which_the_limit_has_shrunk_meanwhile_comes_in_pieces(tmp_path, part):
    """The server was started anew with less room: the answer on disk was cut for the old limit."""
    words, server = "word " * 1600, Shrunk(2000)
    stored = message_call(RUN, text(words, part=part))
    for _ in range(2):
        _, changes, left = sending(tmp_path / str(uuid4()), stored, server=server)
        assert (changes, left) == ((), [])
    pieces = list(server.texts.values())
    assert " ".join(one.content for one in pieces).split() == words.split()
    assert max(len(one.content) for one in pieces) <= 2000
    first = 0 if part is None else part.index
    assert [one.part.index for one in pieces] == list(range(first, first + len(pieces)))
    assert [one.part.last for one in pieces] == [False] * (len(pieces) - 1) + [part is None or part.last]


def test_a_server_that_takes_no_text_at_all_is_not_asked_for_ever(tmp_path):
    with pytest.raises(ProblemAnswer):
        sending(tmp_path, message_call(RUN, text("word " * 1600)), server=Shrunk(10))


@pytest.mark.parametrize("card", [None, open_card()], ids=["gone", "not shown"])
def test_nothing_waits_on_a_card_that_people_do_not_have(tmp_path, card):
    server, _, _ = sending(tmp_path, CALLS["awaitRunInput"], before=[card] if card else [])
    assert server.taken == []


def test_a_run_waits_on_the_message_of_its_card(tmp_path):
    server, _, _ = sending(tmp_path, CALLS["awaitRunInput"], before=[open_card(message_id=TARGET)])
    ((operation, run_id, _, body),) = server.taken
    assert (operation, run_id, body.message_id) == ("await_run_input", RUN, TARGET)
    assert body.status_line == "waits for an answer"


def test_an_answered_click_is_the_last_step_of_its_claim(tmp_path):
    async def on_rooms(made):
        await made.store.record(open_card())
        await made.store.claim(TARGET, CARD, RUN)
        work = Sending(Server(), made.store, None, 0, {})
        first = await send(work, CALLS["respondToInteraction"])
        await made.store.record(*first)
        return first, await send(work, CALLS["respondToInteraction"])

    first, again = with_rooms(tmp_path, on_rooms)
    assert first == (ClaimMove(TARGET, ClaimState.ANSWERED),)
    assert again == ()


# The end ------------------------------------------------------------------------------------------


def finishing(tmp_path, *refusals, state=RunState.RUNNING, lost=0, outcome=("completed", None)):
    """Send an end; returns the ends that the server was asked to take."""
    server = Server()
    server.refusals = {"finish_run": list(refusals)}
    server.state = state
    server, changes, _ = sending(
        tmp_path, finish_call(RUN, end(*outcome)), server=server, lost=lost, before=[open_card()]
    )
    asked = [(str(one[3].outcome), one[3].reason) for one in server.taken if one[0] == "finish_run"]
    return asked, changes


def test_an_end_takes_the_cards_of_its_run_along(tmp_path):
    asked, changes = finishing(tmp_path)
    assert asked == [("completed", None)]
    assert changes == (CardGone(CARD),)


def test_a_run_that_lost_a_message_is_not_completed(tmp_path):
    assert finishing(tmp_path, lost=1)[0] == [("failed", "adapter_error")]


def test_a_failed_run_that_lost_a_message_keeps_its_reason(tmp_path):
    asked, _ = finishing(tmp_path, lost=1, outcome=("failed", "interrupted"))
    assert asked == [("failed", "interrupted")]


def test_a_card_of_a_dead_process_does_not_hold_the_end_up(tmp_path):
    asked, _ = finishing(tmp_path, ProblemAnswer("finishRun", 409, "card_open"))
    assert asked == [("completed", None), ("failed", "adapter_restarted")]


@pytest.mark.parametrize(
    ("state", "second"),
    [
        (RunState.CANCELLED, ("cancelled", None)),
        (RunState.FAILED, ("failed", "interrupted")),
    ],
)
def test_an_end_that_the_server_had_first_is_said_again(tmp_path, state, second):
    """So that what the turn cost is booked all the same."""
    asked, _ = finishing(tmp_path, RunEnded("finishRun", 409, "run_ended"), state=state)
    assert asked == [("completed", None), second]


@pytest.mark.parametrize(
    "refusal",
    [
        WireError("", "has 2000000 bytes, allowed are 1048576"),
        ProblemAnswer("finishRun", 422, "validation_failed"),
        ProblemAnswer("finishRun", 413, "content_too_long"),
        ProblemAnswer("finishRun", 400, "validation_failed"),
    ],
    ids=["too long", "invalid", "refused as too long", "not read"],
)
def test_numbers_that_cannot_be_told_do_not_keep_a_run_from_its_end(tmp_path, refusal):
    """It would hold its thread for ever."""
    asked, changes = finishing(tmp_path, refusal)
    assert asked == [("completed", None), ("completed", None)]
    assert changes == (CardGone(CARD),)


def test_an_end_without_numbers_meets_an_open_card_as_well(tmp_path):
    asked, _ = finishing(
        tmp_path,
        ProblemAnswer("finishRun", 422, "validation_failed"),
        ProblemAnswer("finishRun", 409, "card_open"),
    )
    assert asked[2:] == [("failed", "adapter_restarted")]


def test_a_stored_end_whose_numbers_are_none_is_an_end(tmp_path):
    stored = finish_call(RUN, end("failed", "interrupted"))
    broken = dataclasses.replace(stored, body=stored.body | {"metrics": {"duration_ms": -1}, "costs": [{}]})
    server, _, _ = sending(tmp_path, broken)
    ((_, _, _, taken),) = server.taken
    assert (taken.outcome, taken.reason, taken.metrics, taken.costs) == (
        "failed",
        "interrupted",
        Metrics(),
        None,
    )


def test_an_end_that_is_none_without_its_numbers_either_is_refused(tmp_path):
    invalid = ProblemAnswer("finishRun", 422, "validation_failed")
    with pytest.raises(ProblemAnswer):
        finishing(tmp_path, invalid, invalid)


@pytest.mark.parametrize(
    ("refusal", "state"),
    [
        (RunEnded("finishRun", 409, "run_ended"), RunState.COMPLETED),
        (RunEnded("finishRun", 409, "run_ended"), RunState.RUNNING),
        (ProblemAnswer("finishRun", 404, "not_found"), RunState.RUNNING),
    ],
    ids=["that very end", "no end", "no run"],
)
def test_an_end_that_cannot_be_taken_is_not_tried_otherwise(tmp_path, refusal, state):
    with pytest.raises(ProblemAnswer):
        finishing(tmp_path, refusal, state=state)
