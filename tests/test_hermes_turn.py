"""One turn at work: what Hermes says about it, turned into what the adapter is told."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes.hermes_turn import ActiveTurn
from bothy_hermes.runtime import TurnOutcome, TurnRequest, Usage
from bothy_hermes.turn_facts import Asked, Ended, Ids, Replied, RequestFailed, ToolReturned, ToolSentence
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

    def test_an_agent_is_reachable_once_it_was_asked_or_is_gone(self):
        """Before that an interrupt would not reach it."""
        made, _ = turn()
        assert not made.reachable.is_set()
        made.take(Asked(MAIN))
        assert made.reachable.is_set()
        gone, _ = turn()
        gone.finish()
        assert gone.reachable.is_set()
        assert gone.processed.is_set()

    def test_a_message_that_started_nothing_ends_with_the_given_word(self):
        """Why, is what the runtime saw."""
        made, _ = turn()
        assert (made.end("not_accepted").outcome, made.end("not_accepted").detail) == (
            TurnOutcome.NOT_RUN,
            "not_accepted",
        )
