"""The order in which an event is judged, and what each answer means."""

import pytest

from bothy_hermes.intake import ACCEPTED, STEPS, VERDICTS, Action, Answer, Step, Verdict, judge
from bothy_hermes.wire_words import EventType, Reason

INVOCATION_ORDER = ["schema", "known", "token", "allow_list", "trigger", "billing_mode", "tool_class"]

# protocol.md section 6, row by row: event, step, answer, what happens, the run's reason.
ROWS = [
    ("agent.invocation", "schema", "malformed", "settle", None),
    ("agent.invocation", "known", "known", "ack", None),
    ("agent.invocation", "token", "bad_token", "settle", None),
    ("agent.invocation", "token", "no_keys", "leave", None),
    ("agent.invocation", "allow_list", "not_listed", "fail_run", "not_allowed"),
    ("agent.invocation", "allow_list", "no_list", "fail_run", "adapter_error"),
    ("agent.invocation", "allow_list", "no_answer", "leave", None),
    ("agent.invocation", "trigger", "not_a_message", "fail_run", "adapter_error"),
    ("agent.invocation", "billing_mode", "differs", "fail_run", "billing_mode_mismatch"),
    ("agent.invocation", "tool_class", "exceeded", "fail_run", "tool_class_exceeded"),
    ("agent.followup", "schema", "malformed", "settle", None),
    ("agent.followup", "known", "known", "ack", None),
    ("agent.followup", "token", "bad_token", "settle", None),
    ("agent.followup", "token", "no_keys", "leave", None),
    ("agent.followup", "allow_list", "not_listed", "settle", None),
    ("agent.followup", "allow_list", "no_list", "settle", None),
    ("agent.followup", "allow_list", "no_answer", "leave", None),
    ("agent.followup", "billing_mode", "differs", "stop_turn", "billing_mode_mismatch"),
    ("agent.followup", "tool_class", "exceeded", "stop_turn", "tool_class_exceeded"),
    ("interaction.created", "schema", "malformed", "settle", None),
    ("interaction.created", "known", "known", "ack", None),
    ("interaction.created", "token", "bad_token", "reopen", None),
    ("interaction.created", "token", "no_keys", "leave", None),
    ("run.ended", "schema", "malformed", "settle", None),
    ("run.ended", "known", "known", "ack", None),
    ("agent.config_changed", "schema", "malformed", "settle", None),
    ("agent.config_changed", "known", "known", "ack", None),
]


@pytest.mark.parametrize(("event", "step", "answer", "action", "reason"), ROWS)
def test_decision_3_every_row_of_the_intake_table(event, step, answer, action, reason):
    """Each answer that stops an event leads to the outcome the protocol names."""
    verdict = judge(EventType(event), Step(step), Answer(answer))
    assert verdict == Verdict(Action(action), Reason(reason) if reason else None)


def test_decision_3_the_order_is_the_protocols():
    """Whom a token speaks for is settled before the list is asked, money before tools."""
    assert [str(step) for step in STEPS[EventType.INVOCATION]] == INVOCATION_ORDER


def test_the_table_has_no_row_beside_the_protocols():
    """A row that nobody reviewed cannot hide in the table."""
    rows = {(str(kind), str(step), str(answer)) for kind in VERDICTS for step, answer in VERDICTS[kind]}
    assert rows == {row[:3] for row in ROWS}


def test_every_row_belongs_to_a_step_that_is_asked():
    """A verdict for a question that is never asked would be dead."""
    for kind, table in VERDICTS.items():
        assert {step for step, _ in table} <= set(STEPS[kind])


def test_an_answer_without_a_row_never_passes():
    """Silence of the table is not consent."""
    with pytest.raises(ValueError, match="no answer"):
        judge(EventType.RUN_ENDED, Step.TOKEN, Answer.BAD_TOKEN)


@pytest.mark.parametrize("kind", list(EventType))
def test_passing_leads_to_the_next_question(kind):
    """Only an event that passes every question is accepted."""
    assert [judge(kind, step, Answer.PASS) for step in STEPS[kind]] == [None] * len(STEPS[kind])
    assert ACCEPTED.action is Action.ACCEPT
