"""What people see of a turn: steps, messages that are durable first, and numbers that are true."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes.codec import dump, dump_json, load_json, parse
from bothy_hermes.live_box import LiveBox
from bothy_hermes.run_followups import RunFollowups
from bothy_hermes.run_tokens import RunToken
from bothy_hermes.runtime import Prompt, PromptEnd, PromptKind, ToolEnd, TurnEnd, TurnOutcome, Usage
from bothy_hermes.store import OutboxCall
from bothy_hermes.turn_view import EMPTY_ANSWER, ESCAPED_CHARS, NAME_CHARS, TurnView
from bothy_hermes.wire import FinishRun
from bothy_hermes.wire_words import MAX_BODY_BYTES, MAX_CONTENT_BYTES, Outcome
from tests.fakes.edge_kit import RUN
from tests.fakes.flow_kit import MESSAGE, invocation, with_rooms

TEXT = UUID(int=55)
PROMPT = Prompt(PromptKind.CLARIFY, "h1", "k", "Which?", ("a", "b"))


class Patcher:
    pokes = drafts = 0

    def poke(self):
        self.pokes += 1

    def poke_draft(self):
        self.drafts += 1


class Cards:
    """Writes down what it is told about prompts."""

    def __init__(self):
        self.shown, self.ended = [], []

    async def show(self, prompt):
        self.shown.append(prompt)
        return TEXT

    def over(self, prompt, end):
        self.ended.append((prompt, end))


class Watched:
    """One turn's view on real rooms."""

    def __init__(self, made):
        self.rooms = made
        self.box = LiveBox(made.fake.clock.now, lambda: "s")
        self.patcher, self.cards = Patcher(), Cards()
        self.outbox = made.outbox()
        self.followups = RunFollowups(made.services, RUN, RunToken(made.api, RUN), self.outbox)
        self.run_ends = []
        self.view = TurnView(
            made.services,
            invocation(),
            self.box,
            self.outbox,
            self.patcher,
            followups=self.followups,
            cards=self.cards,
            end_run=self.run_ends.append,
        )

    async def stored(self):
        return [one.call for one in await self.rooms.store.calls()]

    async def said(self):
        """The stored messages: role and content."""
        return [
            (call.body["role"], call.body["content"])
            for call in await self.stored()
            if call.operation == "createMessage"
        ]


def watching(tmp_path, steps, **keys):
    async def on_rooms(made):
        return await steps(Watched(made))

    return with_rooms(tmp_path, on_rooms, **keys)


# Messages -----------------------------------------------------------------------------------------


def test_a_message_is_durable_before_hermes_hears_of_success(tmp_path):
    async def steps(watched):
        message_id = await watched.view.on_answer("the answer")
        (call,) = await watched.stored()
        assert call.body["client_msg_id"] == str(message_id)
        assert (call.body["role"], call.body["content"], call.body["kind"]) == (
            "answer",
            "the answer",
            "text",
        )
        assert call.body["part"] is None

    watching(tmp_path, steps)


def test_an_answer_replies_to_its_question_and_an_interim_text_does_not(tmp_path):
    async def steps(watched):
        await watched.view.on_interim("I will look.")
        await watched.view.on_answer("done")
        assert [call.body["reply_to"] for call in await watched.stored()] == [None, str(MESSAGE)]
        assert await watched.said() == [("interim", "I will look."), ("answer", "done")]
        assert watched.patcher.pokes == 2

    watching(tmp_path, steps)


def test_a_long_answer_goes_out_in_parts_of_one_commit(tmp_path):
    """All of them or none: a crash in between leaves no half."""

    async def steps(watched):
        commits = watched.rooms.store.commits
        first = await watched.view.on_answer("word " * 1000)
        calls = await watched.stored()
        assert watched.rooms.store.commits == commits + 1
        assert [call.body["part"]["index"] for call in calls] == list(range(len(calls)))
        assert [call.body["part"]["last"] for call in calls] == [False] * (len(calls) - 1) + [True]
        assert calls[0].body["client_msg_id"] == str(first)
        assert all(len(call.body["content"].encode()) <= 1024 for call in calls)
        assert "".join(call.body["content"] for call in calls).split().count("word") == 1000

    watching(tmp_path, steps, max_message_bytes=1024)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("\x00" * MAX_CONTENT_BYTES, 2),
        ("\x1f" * (ESCAPED_CHARS + 1) + "a" * ESCAPED_CHARS, 2),
        ("\x01" * ESCAPED_CHARS + '"' * (MAX_CONTENT_BYTES - ESCAPED_CHARS), 1),
        ("\n\\" * (MAX_CONTENT_BYTES // 2), 1),
    ],
    ids=["nothing else", "one too many", "as many as may be", "short escapes"],
)
def test_a_message_of_control_characters_fits_into_a_request(tmp_path, text, parts):
    """JSON makes six bytes of one; a body that is too long would cost the run its answer."""

    async def steps(watched):
        await watched.view.on_answer(text)
        bodies = [call.body for call in await watched.stored()]
        assert len(bodies) == parts
        assert "".join(body["content"] for body in bodies) == text
        assert max(len(dump_json(body).encode()) for body in bodies) <= MAX_BODY_BYTES

    watching(tmp_path, steps)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_a_blank_text_is_no_message(tmp_path, text):
    """The server takes no empty message: a refused one would make a failure of the run."""

    async def steps(watched):
        await watched.view.on_interim(text)
        await watched.view.on_answer(text)
        assert await watched.stored() == []
        assert watched.view.closing_message().content == EMPTY_ANSWER

    watching(tmp_path, steps)


def test_a_turn_in_which_something_was_answered_needs_no_last_word(tmp_path):
    async def steps(watched):
        await watched.view.on_interim("I will look.")
        assert watched.view.closing_message().content == EMPTY_ANSWER
        await watched.view.on_answer("done")
        assert watched.view.closing_message() is None

    watching(tmp_path, steps)


def test_texts_that_an_answer_takes_up_are_reported_in_its_commit(tmp_path):
    """A crash between the two would have them answered a second time."""

    async def steps(watched):
        watched.view.on_text_seen(TEXT)
        await watched.view.on_interim("still looking")
        assert [call.operation for call in await watched.stored()] == ["createMessage"]
        commits = watched.rooms.store.commits
        await watched.view.on_answer("both")
        assert watched.rooms.store.commits == commits + 1
        assert [call.operation for call in await watched.stored()] == [
            "createMessage",
            "createMessage",
            "reportFollowup",
        ]

    watching(tmp_path, steps)


def test_a_message_waits_for_a_disk_that_takes_nothing(tmp_path):
    """Hermes is told nothing meanwhile: neither success nor a failure that it would repeat."""

    async def steps(watched):
        await watched.rooms.read_only()
        answering = asyncio.ensure_future(watched.view.on_answer("kept"))
        await watched.rooms.until(lambda: watched.rooms.fake.sleepers)
        assert not answering.done()
        await watched.rooms.read_only(on=False)
        await watched.rooms.fake.advance(1)
        await asyncio.wait_for(answering, 5)
        assert await watched.said() == [("answer", "kept")]

    watching(tmp_path, steps)


# Rewriting ----------------------------------------------------------------------------------------


def test_the_last_version_of_a_rewritten_text_is_sent_once(tmp_path):
    async def steps(watched):
        message_id = await watched.view.on_answer("half")
        for text in ("half of", "half of it"):
            watched.view.on_edit(message_id, text)
        (edit,) = watched.view.edits()
        assert isinstance(edit, OutboxCall)
        assert (edit.operation, edit.body["content"]) == ("updateMessage", "half of it")

    watching(tmp_path, steps)


@pytest.mark.parametrize("text", ["", " ", "x" * 1025, "é" * 513])
def test_a_rewritten_text_that_does_not_fit_changes_nothing(tmp_path, text, caplog):
    async def steps(watched):
        message_id = await watched.view.on_answer("half")
        watched.view.on_edit(message_id, text)
        assert watched.view.edits() == []

    with caplog.at_level(logging.WARNING):
        watching(tmp_path, steps, max_message_bytes=1024)
    assert "keeps its first text" in caplog.text


def test_a_text_that_went_out_in_parts_is_not_rewritten(tmp_path):
    """Its first part would say everything, and the others part of it again."""

    async def steps(watched):
        message_id = await watched.view.on_answer("word " * 300)
        assert len(await watched.stored()) == 2
        watched.view.on_edit(message_id, "short")
        assert watched.view.edits() == []

    watching(tmp_path, steps, max_message_bytes=1024)


# The box ------------------------------------------------------------------------------------------


def test_a_tool_is_a_step_from_its_start_to_its_end(tmp_path):
    async def steps(watched):
        watched.view.on_status("is running ls")
        (step,) = watched.box.content.steps
        assert (step.title, str(step.state)) == ("is running ls", "running")
        watched.view.on_tool_end(ToolEnd("is running ls", failed=True))
        (step,) = watched.box.content.steps
        assert str(step.state) == "failed"
        assert watched.patcher.pokes == 2

    watching(tmp_path, steps)


def test_a_draft_is_the_excerpt_until_it_is_a_message(tmp_path):
    async def steps(watched):
        watched.view.on_draft("There are")
        assert watched.box.content.last_text_excerpt == "There are"
        assert (watched.patcher.pokes, watched.patcher.drafts) == (0, 1)
        await watched.view.on_answer("There are two.")
        assert not watched.box.content.last_text_excerpt
        assert watched.patcher.pokes == 1

    watching(tmp_path, steps)


def test_a_prompt_that_nobody_can_answer_is_a_failed_step(tmp_path):
    async def steps(watched):
        watched.view.on_prompt("asked for a password")
        (step,) = watched.box.content.steps
        assert (str(step.state), watched.patcher.pokes) == ("failed", 1)

    watching(tmp_path, steps)


def test_a_remark_is_read_beside_the_work(tmp_path):
    async def steps(watched):
        watched.view.remark(None)
        assert watched.patcher.pokes == 0
        watched.view.remark("The session was not found.")
        assert (watched.box.content.status_line, watched.patcher.pokes) == ("The session was not found.", 1)

    watching(tmp_path, steps)


def test_prompts_are_the_cards_subject(tmp_path):
    async def steps(watched):
        assert await watched.view.on_card(PROMPT) == TEXT
        watched.view.on_prompt_over(PROMPT, PromptEnd.EXPIRED)
        assert watched.cards.shown == [PROMPT]
        assert watched.cards.ended == [(PROMPT, PromptEnd.EXPIRED)]

    watching(tmp_path, steps)


@pytest.mark.parametrize(
    ("outcome", "note", "state"),
    [
        (TurnOutcome.COMPLETED, None, "completed"),
        (TurnOutcome.EMPTY, None, "completed"),
        (TurnOutcome.CANCELLED, None, "failed"),
        (TurnOutcome.FAILED, "Hermes could not finish the turn (401).", "failed"),
        (TurnOutcome.NOT_RUN, None, "failed"),
    ],
)
def test_the_end_of_a_turn_leaves_no_step_running(tmp_path, outcome, note, state):
    async def steps(watched):
        watched.view.on_status("is running ls")
        watched.view.turn_ended(TurnEnd(outcome, "401"))
        (step,) = watched.box.content.steps
        assert str(step.state) == state
        assert watched.box.content.status_line == note
        assert watched.patcher.pokes == 2

    watching(tmp_path, steps)


def test_a_notice_is_counted_and_never_shown(tmp_path, caplog):
    async def steps(watched):
        for _ in range(2):
            watched.view.on_notice("compression")
        assert watched.view.notices == {"compression": 2}
        assert await watched.stored() == []
        assert watched.patcher.pokes == 0

    with caplog.at_level(logging.INFO):
        watching(tmp_path, steps)
    assert "compression" in caplog.text


# Numbers ------------------------------------------------------------------------------------------


def usage(provider="anthropic", model="m", **counts):
    fields = {"tokens_in": None, "tokens_out": None, "tokens_cache_read": None, "tokens_cache_write": None}
    return Usage(provider, model, **(fields | counts))


def numbers(tmp_path, *usages):
    async def steps(watched):
        for one in usages:
            watched.view.on_usage(one)
        watched.rooms.fake.move(2.5)
        return watched.view.metrics(), watched.view.costs()

    return watching(tmp_path, steps)


def test_decision_7_tokens_are_summed_and_requests_counted(tmp_path):
    metrics, costs = numbers(
        tmp_path, usage(tokens_in=10, tokens_out=5), usage(tokens_in=1, tokens_cache_read=7)
    )
    assert (metrics.model_requests, metrics.duration_ms) == (2, 2500)
    assert (metrics.tokens_in, metrics.tokens_out, metrics.tokens_cache_read) == (11, 5, 7)
    (cost,) = costs
    assert (cost.provider, cost.model, cost.currency, cost.tokens_in) == ("anthropic", "m", "USD", 11)


def test_what_nobody_stated_stays_unknown(tmp_path):
    """Nothing is not zero."""
    metrics, (cost,) = numbers(tmp_path, usage(tokens_in=10))
    assert (metrics.tokens_out, metrics.tokens_cache_write) == (None, None)
    assert (cost.amount_micros, cost.estimated) == (None, False)


def test_a_turn_without_a_request_cost_nothing_that_is_known(tmp_path):
    metrics, costs = numbers(tmp_path)
    assert (metrics.model_requests, metrics.tokens_in) == (0, None)
    assert costs == ()


def test_decision_7_each_model_and_currency_has_its_own_row(tmp_path):
    _, costs = numbers(
        tmp_path,
        usage(model="large", tokens_in=1, currency="USD", amount_micros=7),
        usage(model="small", tokens_in=2),
        usage(model="large", tokens_in=3, currency="EUR", amount_micros=5),
        usage(model="large", tokens_in=4, amount_micros=1),
    )
    assert [(one.model, one.currency, one.tokens_in, one.amount_micros, one.estimated) for one in costs] == [
        ("large", "USD", 5, 8, True),
        ("small", "USD", 2, None, False),
        ("large", "EUR", 3, 5, True),
    ]


def test_what_a_models_server_says_of_itself_cannot_spoil_the_end(tmp_path):
    """A name that is no text, an endless one, a number below nothing: the run has an end that can travel."""
    metrics, costs = numbers(
        tmp_path,
        usage(model="bad \ud800\nname", tokens_in=3),
        usage(model="x" * 5000, tokens_in=-1, tokens_out=2**60, amount_micros=-7),
    )
    assert [(one.model, one.tokens_in) for one in costs] == [
        ("bad \ufffd name", 3),
        ("x" * (NAME_CHARS - 1) + "…", None),
    ]
    assert (costs[1].tokens_out, costs[1].amount_micros, costs[1].estimated) == (None, None, False)
    sent = dump(FinishRun(outcome=Outcome.COMPLETED, metrics=metrics, costs=costs))
    assert parse(FinishRun, load_json(dump_json(sent))).costs == costs


def test_the_session_is_the_last_that_hermes_named(tmp_path):
    async def steps(watched):
        assert watched.view.session_id is None
        watched.view.on_session("s1")
        watched.view.on_session("s2")
        assert watched.view.session_id == "s2"

    watching(tmp_path, steps)


def test_money_that_the_run_may_not_spend_ends_it(tmp_path):
    """Whatever the interrupted turn comes to."""

    async def steps(watched):
        watched.view.on_money_refused()
        assert watched.run_ends == ["billing_mode_mismatch"]

    watching(tmp_path, steps)


def test_what_a_turn_says_after_its_end_is_said_to_nobody(tmp_path):
    """Hermes has not let go of it, the run is over: its end is sent, and nothing comes behind it."""

    async def steps(watched):
        watched.view.turn_ended(TurnEnd(TurnOutcome.CANCELLED, "not_ended"))
        ids = [await watched.view.on_answer("Five."), await watched.view.on_interim("Let me see.")]
        assert len(set(ids)) == 2
        assert await watched.stored() == []

    watching(tmp_path, steps)
