"""One turn at work: what Hermes says about it, turned into what the adapter is told."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes.hermes_turn import ActiveTurn
from bothy_hermes.runtime import Prompt, PromptEnd, PromptKind, TurnOutcome, TurnRequest, Usage
from bothy_hermes.turn_facts import (
    ApprovalOver,
    Asked,
    Ended,
    Ids,
    Replied,
    Requested,
    RequestFailed,
    ToolReturned,
    ToolSentence,
)
from tests.fakes import hermes
from tests.fakes.turn_events import RecordedEvents

RUN, THREAD, CHANNEL, PERSON, MESSAGE = (UUID(int=number) for number in range(1, 6))
REQUEST = TurnRequest(
    RUN, THREAD, CHANNEL, PERSON, "Ada", MESSAGE, "What time is it?", "You are in a channel."
)
MAIN, CHILD, REVIEW = Ids("s", "s", "t"), Ids("s2", "sa", "t2"), Ids("s", "r", "t3")
USAGE = Usage("custom", "m", 1, 2, 3, 4)
ENDED = Ended(MAIN, True, False, False, "text_response(finish_reason=stop)")
LS = ToolSentence("terminal", ("is running ls…", "is running…"))


def turn(*facts, events=None, cursor=" ▉"):
    """A turn that has heard some facts, and who is told."""
    told = events or RecordedEvents()
    made = ActiveTurn(REQUEST, told, cursor)
    for fact in facts:
        made.take(fact)
    return made, told


def send(made, text, *, notify=True, reply_to=str(MESSAGE), edits=False, new_id="p-1"):
    """Have Hermes send a text."""
    return asyncio.run(made.sent(text, new_id, notify=notify, reply_to=reply_to, edits=edits))


def edit(made, message_id, text, *, finalize=False):
    """Have Hermes edit a message."""
    return asyncio.run(made.edited(message_id, text, finalize=finalize))


class TestTexts:
    """Answers, interim texts, drafts and notices."""

    def test_an_answer_gets_the_id_that_hermes_may_edit(self):
        """It is returned as soon as the text is stored."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED)
        assert send(made, "Five.") == (str(UUID(int=1)), None)
        assert told.of("answer") == ["Five."]

    def test_a_notice_is_told_by_kind_only(self):
        """Its text is nobody's."""
        made, told = turn(Asked(MAIN))
        assert send(made, "Busy.", notify=False)[0] is None
        assert told.of("notice") == ["unmarked"]
        assert "Busy." not in str(told.heard)

    @pytest.mark.parametrize(
        ("shown", "draft"),
        [("It is", "It is"), ("It is ▉", "It is"), ("\n\nIt is", "It is"), ("\n", ""), ("a ▉ b", "a ▉ b")],
    )
    def test_a_draft_is_shown_without_hermes_signs(self, shown, draft):
        """No cursor at its end, no empty lines before it."""
        made, told = turn(Asked(MAIN))
        made.draft(shown)
        assert told.of("draft") == [draft]

    def test_a_preview_is_a_draft_until_it_is_final(self):
        """The editing transport: one message, stored once, whole."""
        made, told = turn(Asked(MAIN))
        assert send(made, "It ▉", notify=False, edits=True) == ("p-1", None)
        assert edit(made, "p-1", "It is ▉")
        made.take(Replied(MAIN, 0, "It is five."))
        made.take(ENDED)
        assert edit(made, "p-1", "It is five.", finalize=True)
        assert told.of("draft") == ["It", "It is"]
        assert told.of("answer") == ["It is five."]

    def test_a_preview_before_a_tool_call_becomes_an_interim_text(self):
        """The segment ends with the tool."""
        made, told = turn(Asked(MAIN))
        send(made, "Let me ▉", notify=False, edits=True)
        made.take(Replied(MAIN, 1, "Let me look."))
        edit(made, "p-1", "Let me look.", finalize=True)
        assert told.of("interim", "answer") == ["Let me look."]
        assert told.of("interim") == ["Let me look."]

    def test_a_preview_that_hermes_left_is_stored_at_the_end(self):
        """The last edit may stay away when nothing changed any more."""
        made, told = turn(Asked(MAIN))
        send(made, "Five. ▉", notify=False, edits=True)
        made.take(Replied(MAIN, 0, "Five."))
        made.take(ENDED)
        asyncio.run(made.flush())
        asyncio.run(made.flush())
        assert told.of("answer") == ["Five."]

    def test_a_preview_of_an_interrupted_turn_is_no_answer(self):
        """Half a sentence that the model did not finish is dropped."""
        made, told = turn(Asked(MAIN))
        send(made, "It i ▉", notify=False, edits=True)
        made.take(Ended(MAIN, False, False, True, "interrupted_by_user"))
        asyncio.run(made.flush())
        assert told.of("answer", "interim") == []
        assert made.end("x").outcome is TurnOutcome.CANCELLED

    def test_a_preview_of_a_stopped_turn_is_no_interim_text(self):
        """Hermes edits it a last time when the turn is stopped."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 1, "Let me look."))
        send(made, "It i ▉", notify=False, edits=True)
        made.cancel()
        edit(made, "p-1", "It i", finalize=True)
        assert told.of("answer", "interim") == []
        assert told.of("notice") == ["unfinished"]

    def test_an_edit_after_the_end_of_a_preview_edits_the_stored_message(self):
        """Hermes knows it by the preview's ID."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED)
        send(made, "Five ▉", notify=False, edits=True)
        edit(made, "p-1", "Five.", finalize=True)
        edit(made, "p-1", "Five!", finalize=True)
        assert told.of("edit") == [(UUID(int=1), "Five!")]

    def test_an_edit_of_an_answer_is_told_on(self):
        """By the ID that Hermes got for it."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED)
        message_id, _ = send(made, "Five.")
        assert edit(made, message_id, "Half past.", finalize=True)
        assert told.of("edit") == [(UUID(int=1), "Half past.")]

    def test_an_unfinished_edit_of_an_answer_waits_for_its_end(self):
        """The cursor is on its way through it."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED)
        message_id, _ = send(made, "Five.")
        assert edit(made, message_id, "Half ▉")
        assert told.of("edit") == []

    def test_an_edit_of_a_message_of_another_turn_is_refused(self):
        """Nothing of this turn changes."""
        made, told = turn(Asked(MAIN))
        assert not edit(made, str(UUID(int=77)), "x", finalize=True)
        assert told.heard[1:] == []

    def test_a_text_that_cannot_be_stored_fails_the_turn_and_is_not_repeated(self, caplog):
        """An error told to Hermes would send the text again, with an explanation before it."""
        caplog.set_level(logging.ERROR)
        made, _ = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED, events=RecordedEvents(failing=True))
        assert send(made, "Five.") == (None, None)
        assert (made.end("x").outcome, made.end("x").detail) == (TurnOutcome.FAILED, "not_stored")
        assert "Five." not in caplog.text

    def test_nobody_hears_of_a_turn_whose_run_is_over(self):
        """The run was ended on this side; the agent still speaks."""
        made, told = turn(Asked(MAIN))
        told.heard.clear()
        made.silence()
        made.take(Replied(MAIN, 0, "Five.", USAGE))
        made.status("is running ls…")
        made.draft("Fi")
        made.prompt("?")
        made.money_refused()
        assert send(made, "Five.")[1] == "turn_over"
        asyncio.run(made.flush())
        assert told.heard == []
        assert not made.told


class TestTools:
    """Sentences at the start, hooks at the end, paired."""

    def test_the_end_carries_the_sentence_of_the_start(self):
        """The live box closes the step that it opened."""
        made, told = turn(Asked(MAIN))
        made.status("is running ls…")
        made.take(ToolReturned(MAIN, LS, failed=True))
        made.status(None)
        assert told.heard[1:] == [
            ("status", "is running ls…"),
            ("tool_end", ("is running ls…", True)),
            ("status", None),
        ]

    def test_a_short_sentence_is_found_as_well(self):
        """The operator can have the arguments left out."""
        made, told = turn(Asked(MAIN))
        made.status("is running…")
        made.take(ToolReturned(MAIN, LS, failed=False))
        assert told.of("tool_end") == [("is running…", False)]

    def test_overlapping_tools_end_each_by_itself(self):
        """The second one is faster."""
        echo = ToolSentence("terminal", ("is running echo…",))
        made, told = turn(Asked(MAIN))
        made.status("is running ls…")
        made.status("is running echo…")
        made.take(ToolReturned(MAIN, echo, failed=False))
        made.take(ToolReturned(MAIN, LS, failed=False))
        assert told.of("tool_end") == [("is running echo…", False), ("is running ls…", False)]

    def test_a_tool_without_a_sentence_ends_under_its_name(self):
        """Status sentences can be off."""
        _, told = turn(Asked(MAIN), ToolReturned(MAIN, LS, failed=False))
        assert told.of("tool_end") == [("terminal", False)]

    def test_an_untranslated_sentence_names_the_tool_that_the_model_called(self):
        """A build without translations shows keys; the reply before it has named the tool."""
        raw = "display.status_phrase.verb ls…"
        call = ToolSentence("terminal", (raw,))
        made, told = turn(Asked(MAIN), Replied(MAIN, 1, "", tools=(call,)))
        made.status(raw)
        made.take(ToolReturned(MAIN, call, failed=False))
        assert told.of("status") == ["is using terminal…"]
        assert told.of("tool_end") == [("is using terminal…", False)]

    def test_a_subagents_tools_are_no_steps_of_the_turn(self):
        """Its work is one step, the delegation."""
        _, told = turn(Asked(MAIN), Asked(CHILD, subagent=True), ToolReturned(CHILD, LS, failed=False))
        assert told.of("tool_end") == []


class TestUsageAndSession:
    """What the run pays, and which session it runs on."""

    def test_tokens_of_the_turn_and_of_its_subagents_are_the_runs(self):
        """A review in the background is not: it fires with the same session and thread."""
        _, told = turn(
            Asked(MAIN),
            Replied(MAIN, 1, "", USAGE),
            Asked(CHILD, subagent=True),
            Replied(CHILD, 0, "", USAGE),
            Asked(REVIEW),
            Replied(REVIEW, 0, "", USAGE),
            Replied(MAIN, 0, "Five.", None),
        )
        assert told.of("usage") == [USAGE, USAGE]

    def test_the_session_is_told_once_and_again_when_it_changes(self):
        """A subagent's session is never the thread's."""
        other = Ids("s9", "s9", "t9")
        _, told = turn(Asked(MAIN), Asked(MAIN), Asked(CHILD, subagent=True), Asked(other))
        assert told.of("session") == ["s", "s9"]

    def test_a_compression_moves_the_turn_to_another_session(self):
        """Its own requests say so; a subagent's session and a review's are still not the thread's."""
        moved = Ids("s9", "s", "t")
        _, told = turn(
            Asked(MAIN),
            Asked(CHILD, subagent=True),
            Requested(CHILD),
            Requested(moved),
            Replied(REVIEW, 0, "", None),
            Replied(moved, 0, "Five.", None),
        )
        assert told.of("session") == ["s", "s9"]


CLARIFY = Prompt(PromptKind.CLARIFY, "c-1", "k", "Which?")
APPROVAL = Prompt(PromptKind.APPROVAL, "r-1", "k", "deletes", ("once", "deny"), command="rm")


class TestPrompts:
    """What Hermes asks people."""

    def test_a_prompt_is_shown_and_its_message_known(self):
        """By the ID that Hermes will edit when nobody answers in its time."""
        made, told = turn(Asked(MAIN))
        message = asyncio.run(made.ask(CLARIFY))
        assert message == str(UUID(int=1))
        assert told.of("card") == [CLARIFY]
        assert edit(made, message, "Timed out.")
        assert told.of("prompt_over") == [(CLARIFY, PromptEnd.EXPIRED)]
        assert edit(made, message, "Timed out.")
        assert len(told.of("prompt_over")) == 1
        assert "Timed out." not in str(told.heard)

    def test_a_prompt_that_was_answered_is_not_over_by_itself(self):
        """Hermes retires a question that we have answered as well."""
        made, told = turn(Asked(MAIN))
        asyncio.run(made.ask(CLARIFY))
        assert made.prompts.take(CLARIFY)
        made.prompt_over(CLARIFY, PromptEnd.EXPIRED)
        made.prompt_over(None, PromptEnd.EXPIRED)
        assert told.of("prompt_over") == []

    def test_nobody_is_asked_in_a_turn_that_was_stopped_or_whose_run_is_over(self):
        """The prompt is refused at once."""
        stopped, told = turn(Asked(MAIN))
        stopped.cancel()
        assert asyncio.run(stopped.ask(CLARIFY)) is None
        silent, _ = turn(Asked(MAIN))
        silent.silence()
        assert asyncio.run(silent.ask(CLARIFY)) is None
        assert told.of("card") == []

    def test_a_card_that_cannot_be_stored_is_no_prompt(self, caplog):
        """Hermes would post the prompt as a text and wait."""
        made, told = turn(Asked(MAIN), events=RecordedEvents(failing=True))
        assert asyncio.run(made.ask(CLARIFY)) is None
        made.prompt_over(CLARIFY, PromptEnd.EXPIRED)
        assert told.of("prompt_over") == []
        assert "Which?" not in caplog.text

    @pytest.mark.parametrize(
        ("timed_out", "stopped", "end"),
        [
            (True, False, PromptEnd.EXPIRED),
            (False, False, PromptEnd.CANCELLED),
            (True, True, PromptEnd.CANCELLED),
        ],
    )
    def test_an_approval_that_hermes_gave_up_is_over(self, monkeypatch, timed_out, stopped, end):
        """The one that waits on is not."""
        state = hermes.installed(monkeypatch)
        waits = Prompt(PromptKind.APPROVAL, "r-2", "k")
        state.approvals = [{"session_key": "k", "request_id": "r-2"}]
        made, told = turn(Asked(MAIN))
        for prompt in (APPROVAL, waits):
            asyncio.run(made.ask(prompt))
        made.judge.cancelled = stopped
        made.take(ApprovalOver(timed_out=timed_out))
        assert told.of("prompt_over") == [(APPROVAL, end)]
        assert list(made.prompts) == [waits]


class TestTextsOfPeople:
    """Texts that were handed into the turn."""

    def test_a_text_is_seen_once(self):
        """A later request shows it again."""
        made, told = turn(Asked(MAIN))
        made.hold(UUID(int=7), "turn left", "agent")
        made.hold(UUID(int=8), "turn right", "agent")
        assert dict(made.held) == {UUID(int=7): "turn left", UUID(int=8): "turn right"}
        before = made.held
        for _ in range(2):
            made.take(Requested(MAIN, seen=(UUID(int=7),)))
        assert told.of("text_seen") == [UUID(int=7)]
        assert dict(made.held) == {UUID(int=8): "turn right"}
        assert len(before) == 2, "a hook may still be reading it on its own thread"

    def test_a_subagents_request_shows_it_too_and_a_strangers_does_not(self):
        """Hermes hands a text to the agents that the turn waits for as well."""
        made, told = turn(Asked(MAIN), Asked(CHILD, subagent=True))
        made.hold(UUID(int=7), "turn left", None)
        made.take(Requested(REVIEW, seen=(UUID(int=7),)))
        assert told.of("text_seen") == []
        made.take(Requested(CHILD, seen=(UUID(int=7),)))
        assert told.of("text_seen") == [UUID(int=7)]

    def test_a_text_that_becomes_a_turn_of_its_own_is_seen(self):
        """And the answer to it is one of this turn."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "Five."), ENDED)
        made.hold(UUID(int=7), "turn left", None)
        made.take(Asked(Ids("s", "s", "t2"), seen=(UUID(int=7),)))
        made.take(Replied(Ids("s", "s", "t2"), 0, "I turned."))
        assert told.of("text_seen") == [UUID(int=7)]
        assert not made.over.is_set()
        assert send(made, "I turned.", reply_to=str(UUID(int=7)))[0] is not None

    def test_nobody_hears_of_a_text_after_the_runs_end(self):
        """It is reported as not taken by then."""
        made, told = turn(Asked(MAIN))
        made.hold(UUID(int=7), "turn left", None)
        made.silence()
        made.take(Requested(MAIN, seen=(UUID(int=7),)))
        assert told.of("text_seen") == []
        assert made.held


class TestFiles:
    """Files of an answer, which nobody gets."""

    def test_a_file_is_named_in_a_line_of_the_answer(self):
        """An answer that is nothing but a file is one, too."""
        made, told = turn(Asked(MAIN), Replied(MAIN, 0, "MEDIA:/tmp/x/report.pdf"), ENDED)
        asyncio.run(made.file("report.pdf"))
        assert told.of("answer") == ["not sent: report.pdf"]
        assert made.end("x").outcome is TurnOutcome.COMPLETED

    def test_a_file_of_a_turn_that_was_stopped_or_asked_nobody_is_none_of_an_answer(self):
        """Nothing is said about it."""
        stopped, told = turn(Asked(MAIN))
        stopped.cancel()
        asyncio.run(stopped.file("report.pdf"))
        early, _ = turn(events=told)
        asyncio.run(early.file("report.pdf"))
        assert told.of("answer") == []


class TestEnd:
    """Who waits for what."""

    @pytest.mark.parametrize(
        ("facts", "over"),
        [
            ([Asked(MAIN)], False),
            ([Asked(MAIN), ENDED], True),
            ([Asked(MAIN), RequestFailed(MAIN, 500, None)], True),
            ([Asked(MAIN), ENDED, Asked(MAIN)], False),
            (
                [Asked(MAIN), Asked(CHILD, subagent=True), Ended(CHILD, True, False, False, "text_response")],
                False,
            ),
        ],
    )
    def test_the_agents_end_is_awaited(self, facts, over):
        """A drained text begins anew; a subagent's end is not the turn's."""
        made, _ = turn(*facts)
        assert made.over.is_set() is over

    def test_a_message_that_started_nothing_ends_with_the_given_word(self):
        """Why, is what the runtime saw."""
        made, _ = turn()
        assert (made.end("not_accepted").outcome, made.end("not_accepted").detail) == (
            TurnOutcome.NOT_RUN,
            "not_accepted",
        )
