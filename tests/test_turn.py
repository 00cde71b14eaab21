"""The judge of one turn: did it run, how did it end, whose words is this text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.runtime import TurnOutcome, Usage
from bothy_hermes.turn import Notice, Owner, TextKind, TurnJudge
from bothy_hermes.turn_facts import (
    Asked,
    Ended,
    Ids,
    Replied,
    Requested,
    RequestFailed,
    ToolReturned,
    ToolSentence,
    word_of,
)

MESSAGE = "11111111-1111-4111-8111-111111111111"
MAIN = Ids("20261130_1", "20261130_1", "t1")
REVIEW = Ids("20261130_1", "9f2c", "t9")
CHILD = Ids("20261130_2", "sa-0", "t5")
USAGE = Usage("custom", "m", 1, 2, 0, 0)


def judge(*facts):
    """A judge that has heard some facts."""
    made = TurnJudge(frozenset({MESSAGE}))
    for fact in facts:
        made.take(fact)
    return made


def cancelled(*facts):
    """A judge of an interrupted turn."""
    made = judge(*facts)
    made.cancelled = True
    return made


def reply(text="", tools=0, ids=MAIN):
    return Replied(ids, tools, text, USAGE)


def ended(
    reason="text_response(finish_reason=stop)", *, completed=True, failed=False, interrupted=False, ids=MAIN
):
    return Ended(ids, completed, failed, interrupted, reason)


def said(made, text, *, notify=True, reply_to=MESSAGE, edits=False):
    """What the judge calls a text: its kind, or the kind of the notice."""
    verdict = made.judge_text(text, notify=notify, reply_to=reply_to, expect_edits=edits)
    assert (verdict.kind is TextKind.NOTICE) is (verdict.notice is not None)
    return verdict.notice or verdict.kind


class TestWhoseText:
    """Hermes sends everything the same way; only the model's own words are told on."""

    def test_the_final_reply_is_the_answer(self):
        """A reply without tools is what the person waits for."""
        assert said(judge(Asked(MAIN), reply("It is five.")), "It is five.") is TextKind.ANSWER

    def test_text_before_a_tool_call_is_interim(self):
        """It looks exactly like an answer; the reply it stands in calls a tool."""
        assert said(judge(Asked(MAIN), reply("Let me look.", 1)), "Let me look.") is TextKind.INTERIM

    def test_text_before_a_tool_call_is_interim_also_when_hermes_has_rewritten_it(self):
        """No reply holds it, and the turn goes on."""
        assert said(judge(Asked(MAIN), reply("Let me look.", 1)), "I shall look.") is TextKind.INTERIM

    def test_interim_text_that_arrives_after_the_final_reply_stays_interim(self):
        """Hermes may deliver it late; its own reply decides, not the last one."""
        made = judge(Asked(MAIN), reply("Let me look.", 1), reply("It is five."), ended())
        assert said(made, "Let me look.") is TextKind.INTERIM
        assert said(made, "It is five.") is TextKind.ANSWER

    def test_equal_texts_come_in_the_order_of_their_replies(self):
        """The model says "Done." before a tool and at the end."""
        made = judge(Asked(MAIN), reply("Done.", 1), reply("Done."), ended())
        assert said(made, "Done.") is TextKind.INTERIM
        assert said(made, "Done.") is TextKind.ANSWER

    def test_white_space_and_joined_segments_are_no_difference(self):
        """Hermes strips texts, and joins segments when interim texts are off."""
        made = judge(Asked(MAIN), reply("Let me look.", 1), reply("\n\nIt is five.  "), ended())
        assert said(made, "Let me look.\n\nIt is five.") is TextKind.ANSWER

    def test_an_answer_out_of_which_hermes_cut_a_path_is_an_answer(self):
        """The end of the turn proves that the model spoke, the text needs not be equal."""
        made = judge(Asked(MAIN), reply("See /tmp/report.md for more."), ended())
        assert said(made, "See for more.") is TextKind.ANSWER

    def test_an_empty_answers_excuse_is_a_notice(self):
        """completed is true, failed is false: only the exit reason tells."""
        made = judge(Asked(MAIN), reply(""), ended("empty_response_exhausted"))
        assert said(made, "The model returned no reply.") is Notice.EMPTY_ANSWER

    def test_an_error_explanation_is_a_notice(self):
        """No end hook comes after a refused request, and the explanation is marked as a reply."""
        made = judge(Asked(MAIN), RequestFailed(MAIN, 401, "auth"))
        assert said(made, "The key was not accepted.") is Notice.MODEL_ERROR

    def test_an_error_after_a_tool_is_a_notice_too(self):
        """A turn that had begun well explains itself in the same way."""
        made = judge(Asked(MAIN), reply("Let me look.", 1), RequestFailed(MAIN, 500, "server_error"))
        assert said(made, "The server failed.") is Notice.MODEL_ERROR

    def test_a_failed_turns_explanation_is_a_notice(self):
        """An end that is no text response speaks in Hermes' words."""
        made = judge(Asked(MAIN), reply("Let me look.", 1), ended("tool_loop", completed=False, failed=True))
        assert said(made, "I stopped.") is Notice.MODEL_ERROR

    @pytest.mark.parametrize(
        "facts",
        [[], [Requested(MAIN)], [Requested(MAIN), reply("Round and round.")]],
        ids=["asked", "requested", "replied"],
    )
    def test_the_explanation_of_a_turn_that_hermes_gave_up_is_a_notice(self, facts):
        """Hermes 0.22 discards an answer that goes round in circles, and tells no end of the turn."""
        made = judge(Asked(MAIN), *facts)
        assert said(made, "Stopped: it repeats itself.") is Notice.UNMARKED
        assert (made.end().outcome, made.end().detail) == (TurnOutcome.FAILED, "no_end")

    def test_a_reply_without_any_model_request_is_a_notice(self):
        """A limit or a refusal answers although nobody was asked."""
        assert said(judge(), "Too many sessions.") is Notice.NO_MODEL

    def test_unmarked_texts_are_notices(self):
        """Lease, busy, retry and shutdown notices carry no mark."""
        made = judge(Asked(MAIN), reply("It is five."))
        assert (
            said(made, "Another process uses this session.", notify=False, reply_to=None) is Notice.UNMARKED
        )

    def test_unmarked_interim_text_is_interim(self):
        """Without streaming Hermes sends what stands before a tool call without its mark."""
        made = judge(Asked(MAIN), reply("Let me look.", 1))
        assert said(made, "Let me look.", notify=False, reply_to=None) is TextKind.INTERIM
        assert said(made, "Let me look.", notify=False, reply_to=None) is Notice.UNMARKED

    def test_an_unmarked_text_is_never_an_answer(self):
        """A tool of the model's can send any text to its own thread."""
        made = judge(Asked(MAIN), reply("It is five."), ended())
        assert said(made, "It is five.", notify=False, reply_to=None) is Notice.UNMARKED

    def test_a_preview_is_judged_when_it_is_finished(self):
        """A message that Hermes goes on editing is nothing yet."""
        made = judge(Asked(MAIN))
        assert said(made, "It is ▉", notify=False, edits=True) is TextKind.PREVIEW
        made.take(reply("It is five."))
        assert made.judge_whole("It is five.").kind is TextKind.ANSWER

    def test_a_short_stream_is_marked_and_editable_at_once(self):
        """Hermes 0.19 sends a short answer with both marks; it is finished."""
        made = judge(Asked(MAIN), reply("Five."), ended())
        assert said(made, "\n\nFive. ", edits=True) is TextKind.ANSWER

    def test_replies_to_our_commands_are_notices(self):
        """Hermes answers /stop to the command's message."""
        made = judge(Asked(MAIN), reply("It is five."))
        made.add_control("c-1")
        assert said(made, "Stopped.", reply_to="c-1") is Notice.CONTROL_REPLY

    def test_a_reply_to_a_message_of_another_turn_is_a_notice(self):
        """A synthetic turn uses an old message again."""
        assert said(judge(Asked(MAIN), reply("Old.")), "Old.", reply_to="old") is Notice.FOREIGN_REPLY

    def test_a_message_that_was_handed_in_may_be_answered(self):
        """A text that entered the turn is one of its messages."""
        made = judge(Asked(MAIN), reply("Both."))
        made.add_message("m-2")
        assert said(made, "Both.", reply_to="m-2") is TextKind.ANSWER

    def test_a_drained_text_gets_an_answer_of_its_own(self):
        """Hermes runs a late text as one more user turn and answers to no message."""
        second = Ids("20261130_1", "20261130_1", "t2")
        made = judge(Asked(MAIN), reply("First."), ended(), Asked(second), reply("Second.", ids=second))
        assert said(made, "First.") is TextKind.ANSWER
        assert said(made, "Second.", reply_to=None) is TextKind.ANSWER

    @pytest.mark.parametrize("facts", [[Asked(MAIN)], [Asked(MAIN), reply("Let me look.", 1)]])
    def test_half_a_sentence_of_an_interrupted_turn_is_a_notice(self, facts):
        """Nothing of the model's holds it as a whole; what it had said before stays."""
        made = cancelled(*facts)
        assert said(made, "It i") is Notice.UNFINISHED
        if len(facts) > 1:
            assert said(made, "Let me look.") is TextKind.INTERIM

    def test_a_text_of_signs_alone_follows_the_state_of_the_turn(self):
        """No letter, no digit: an answer of a single emoji is an answer."""
        assert said(judge(Asked(MAIN), reply("👍"), ended()), "👍") is TextKind.ANSWER

    @given(st.text(min_size=1), st.text(min_size=1))
    def test_without_a_mark_nothing_but_interim_text_is_told_on(self, wrote, sent):
        """Whatever Hermes sends unmarked, it never becomes an answer."""
        made = judge(Asked(MAIN), reply(wrote), ended())
        assert said(made, sent, notify=False) is Notice.UNMARKED


class TestWhoseWork:
    """Hooks fire for subagents and for reviews in the background, with the turn's own thread."""

    def test_the_turn_itself(self):
        """Its task is its session."""
        made = judge(Asked(MAIN))
        assert made.owner(MAIN) is Owner.MAIN
        assert made.session_id == "20261130_1"

    def test_a_review_in_the_background_is_a_stranger(self):
        """Same session, same thread, another task."""
        made = judge(Asked(MAIN))
        assert made.take(Asked(REVIEW)) is Owner.STRANGER
        assert made.take(reply("Remember this.", ids=REVIEW)) is Owner.STRANGER
        assert made.take(ended("text_response", ids=REVIEW)) is Owner.STRANGER
        assert not made.over

    def test_a_subagent_is_a_child_and_changes_nothing_of_the_turn(self):
        """Its tokens are the run's; its end is not the turn's, its session not the thread's."""
        made = judge(Asked(MAIN), reply("", 1))
        assert made.take(Asked(CHILD, subagent=True)) is Owner.CHILD
        assert made.take(reply("Child's words.", ids=CHILD)) is Owner.CHILD
        assert made.take(ended(ids=CHILD)) is Owner.CHILD
        assert made.owner(Ids("20261130_8", "sa-0", "t5")) is Owner.CHILD
        assert made.session_id == "20261130_1"
        assert not made.over
        assert said(made, "Child's words.", notify=False) is Notice.UNMARKED

    def test_a_subagent_without_a_turn_is_a_stranger(self):
        """Nothing of ours has delegated anything."""
        assert judge().take(Asked(CHILD, subagent=True)) is Owner.STRANGER

    def test_a_session_that_changed_in_the_turn_is_still_the_turns(self):
        """A compression gives a new session in the middle; the turn keeps its ID."""
        made = judge(Asked(MAIN))
        assert made.owner(Ids("20261130_7", "20261130_1", "t1")) is Owner.MAIN
        made.take(reply("Let me look.", 1, ids=Ids("", "", "t1")))
        assert made.session_id == "20261130_1"

    @pytest.mark.parametrize(("before", "owner"), [("20261130_1", Owner.MAIN), (None, Owner.STRANGER)])
    def test_a_session_that_changed_before_the_turn_is_known_by_its_task(self, before, owner):
        """The thread's session was compressed when the message came: the task is still the old one."""
        made = TurnJudge(frozenset({MESSAGE}), before)
        assert made.take(Asked(Ids("20261130_7", "20261130_1", "t1"))) is owner
        assert made.session_id == ("20261130_7" if owner is Owner.MAIN else None)

    def test_hooks_without_a_turn_id_are_told_apart_by_task(self):
        """An older Hermes names session and task only."""
        made = judge(Asked(Ids("s", "s", "")))
        assert made.owner(Ids("s", "s", "")) is Owner.MAIN
        assert made.owner(Ids("s", "other", "")) is Owner.STRANGER

    @pytest.mark.parametrize("fact", [reply("x"), ended(), RequestFailed(MAIN, 500, None), Requested(MAIN)])
    def test_nothing_is_the_turns_before_it_was_asked(self, fact):
        """A late hook of the thread's last turn does not start this one."""
        made = judge()
        assert made.take(fact) is Owner.STRANGER
        assert not made.asked


class TestHowItEnded:
    """Delivery tells nothing; the end hook with its reason does."""

    @pytest.mark.parametrize(
        ("facts", "sent", "outcome", "detail"),
        [
            ([Asked(MAIN), reply("Five."), ended()], "Five.", TurnOutcome.COMPLETED, "text_response"),
            (
                [Asked(MAIN), reply(""), ended("empty_response_exhausted")],
                None,
                TurnOutcome.EMPTY,
                "empty_response_exhausted",
            ),
            ([Asked(MAIN), reply("NO_REPLY"), ended()], None, TurnOutcome.EMPTY, "text_response"),
            (
                [Asked(MAIN), ended("interrupted_by_user", completed=False, interrupted=True)],
                None,
                TurnOutcome.CANCELLED,
                "interrupted_by_user",
            ),
            (
                [
                    Asked(MAIN),
                    ended("interrupted_by_system(gateway_shutdown)", completed=False, interrupted=True),
                ],
                None,
                TurnOutcome.CANCELLED,
                "interrupted_by_system",
            ),
            ([Asked(MAIN), RequestFailed(MAIN, 401, "auth")], None, TurnOutcome.FAILED, "status_401"),
            ([Asked(MAIN), RequestFailed(MAIN, None, "timeout")], None, TurnOutcome.FAILED, "timeout"),
            (
                [Asked(MAIN), reply("", 1), ended("max_iterations_reached(90)", completed=False)],
                None,
                TurnOutcome.FAILED,
                "max_iterations_reached",
            ),
            ([Asked(MAIN), reply("Five."), ended(failed=True)], None, TurnOutcome.FAILED, "text_response"),
            ([Asked(MAIN), reply("Five."), ended(failed=True)], "Five.", TurnOutcome.FAILED, "text_response"),
            ([Asked(MAIN)], None, TurnOutcome.FAILED, "no_end"),
            ([], None, TurnOutcome.NOT_RUN, "no_model_request"),
        ],
    )
    def test_outcome_and_detail(self, facts, sent, outcome, detail):
        """Each way a turn can end."""
        made = judge(*facts)
        if sent:
            said(made, sent)
        end = made.end()
        assert (end.outcome, end.detail) == (outcome, detail)

    def test_an_error_that_was_overcome_is_none(self):
        """A repeated request that succeeds ends the turn well."""
        made = judge(Asked(MAIN), RequestFailed(MAIN, 500, None), reply("Five."), ended())
        said(made, "Five.")
        assert made.end().outcome is TurnOutcome.COMPLETED
        silent = judge(Asked(MAIN), RequestFailed(MAIN, 500, None), reply("NO_REPLY"), ended())
        assert silent.end().outcome is TurnOutcome.EMPTY

    def test_hermes_019_names_no_reason(self):
        """completed and a text that was sent is all it tells."""
        made = judge(Asked(MAIN), reply("Five."), Ended(MAIN, True, False, False, None))
        said(made, "Five.")
        assert made.end().outcome is TurnOutcome.COMPLETED

    def test_an_interrupt_before_any_end_is_a_cancelled_turn(self):
        """The agent ends later than Hermes says."""
        assert cancelled(Asked(MAIN)).end().outcome is TurnOutcome.CANCELLED
        assert cancelled().end().outcome is TurnOutcome.CANCELLED

    def test_an_interrupt_that_came_after_the_answer_changes_nothing(self):
        """What was answered is answered."""
        made = judge(Asked(MAIN), reply("Five."), ended())
        said(made, "Five.")
        made.cancelled = True
        assert made.end().outcome is TurnOutcome.COMPLETED

    def test_an_interrupt_between_reply_and_sending_is_a_cancelled_turn(self):
        """The model had finished; nobody saw it."""
        assert cancelled(Asked(MAIN), reply("Five."), ended()).end().outcome is TurnOutcome.CANCELLED

    def test_a_file_belongs_to_an_answer_of_a_turn_that_was_not_interrupted_before(self):
        """What was answered stays answered; an interrupted turn has nothing to add a file to."""
        assert not judge().take_file()
        assert not cancelled(Asked(MAIN)).take_file()
        made = judge(Asked(MAIN), reply("Five."), ended())
        said(made, "Five.")
        made.cancelled = True
        assert made.take_file()

    def test_an_error_of_an_earlier_text_is_none_of_the_next(self):
        """Each text of a processing has a turn of its own."""
        second = Ids("20261130_1", "20261130_1", "t2")
        made = judge(Asked(MAIN), RequestFailed(MAIN, 500, None), Asked(second), ended("silence", ids=second))
        assert made.end().outcome is TurnOutcome.EMPTY

    def test_the_end_of_a_drained_text_counts(self):
        """Two user turns in one processing: the last one decides."""
        second = Ids("20261130_1", "20261130_1", "t2")
        made = judge(Asked(MAIN), reply("First."), ended(), Asked(second))
        said(made, "First.")
        assert not made.over
        made.take(RequestFailed(second, 500, None))
        assert made.end().detail == "status_500"

    @pytest.mark.parametrize(
        ("facts", "over"),
        [
            ([], True),
            ([Asked(MAIN)], False),
            ([Asked(MAIN), Requested(MAIN)], False),
            ([Asked(MAIN), reply("x", 1)], False),
            ([Asked(MAIN), reply("x")], False),
            ([Asked(MAIN), RequestFailed(MAIN, 500, None)], True),
            ([Asked(MAIN), reply("x"), ended()], True),
        ],
    )
    def test_whether_more_is_to_come(self, facts, over):
        """A model error gets no end hook, so it stands for one."""
        assert judge(*facts).over is over

    @pytest.mark.parametrize(
        ("reason", "word"),
        [
            ("text_response(finish_reason=stop)", "text_response"),
            ("interrupted_by_user", "interrupted_by_user"),
            ("Error: sk-secret", None),
            ("", None),
            (None, None),
        ],
    )
    def test_only_a_plain_word_of_a_reason_is_told_on(self, reason, word):
        """A reason may carry anything behind its word."""
        assert word_of(reason) == word

    @given(st.text(max_size=30))
    def test_a_detail_is_a_word_or_nothing(self, reason):
        """Whatever Hermes writes as a reason, no free text reaches a log."""
        detail = judge(Asked(MAIN), ended(reason, completed=False)).end().detail
        assert detail is not None
        assert detail.replace("_", "").isalnum()
        assert detail.isascii()


class TestMayATextEnter:
    """Hermes takes a text in with the next tool batch; without one it would be a turn of its own."""

    @pytest.mark.parametrize(
        ("facts", "open_"),
        [
            ([], False),
            ([Asked(MAIN)], False),
            ([Asked(MAIN), Requested(MAIN)], True),
            ([Asked(MAIN), Requested(CHILD)], False),
            ([Asked(MAIN), reply("Let me look.", 1)], True),
            ([Asked(MAIN), reply("Let me look.", 1), Requested(MAIN)], True),
            ([Asked(MAIN), reply("Five.")], False),
            ([Asked(MAIN), Replied(MAIN, None, "Five.")], False),
            ([Asked(MAIN), reply("Five."), reply("", 1)], True),
            ([Asked(MAIN), reply("", 1), RequestFailed(MAIN, 500, None)], False),
            ([Asked(MAIN), reply("Five."), ended()], False),
        ],
    )
    def test_decision_8_the_gate(self, facts, open_):
        """Open while a tool batch of this turn is to come; an unknown number of tools counts as none."""
        assert judge(*facts).takes_text is open_

    def test_before_the_first_request_the_gate_is_still_to_open(self):
        """Hermes would put a text behind a tool's result of an earlier turn."""
        made = judge(Asked(MAIN))
        assert made.will_take_text
        made.take(Requested(MAIN))
        assert not made.will_take_text
        made.take(reply("Five."))
        made.take(Requested(MAIN))
        assert not made.takes_text
        assert not made.will_take_text

    def test_interim_text_does_not_close_the_gate(self):
        """It is sent like an answer; the reply behind it has tools."""
        made = judge(Asked(MAIN), reply("Let me look.", 1))
        said(made, "Let me look.")
        assert made.takes_text

    def test_a_tools_end_changes_nothing(self):
        """The batch is not over with one tool."""
        made = judge(
            Asked(MAIN), reply("", 2), ToolReturned(MAIN, ToolSentence("terminal", ()), failed=False)
        )
        assert made.takes_text


def test_no_text_is_in_any_repr():
    """What the model wrote is in no log line."""
    secret = "the-model-wrote-this"
    facts = [
        reply(secret),
        Replied(MAIN, 1, secret, tools=(ToolSentence("terminal", (secret,)),)),
        ended(secret),
        ToolReturned(MAIN, ToolSentence("terminal", (secret,)), failed=True),
    ]
    assert secret not in repr(facts)
    assert secret not in repr(judge(Asked(MAIN), *facts))
