"""Prompts that nobody can answer are refused at once."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes import hermes_prompts
from tests.fakes import hermes

ASKED = [
    {"session_key": "s", "request_id": "1", "command": "rm -rf a", "description": "deletes"},
    {"session_key": "s", "request_id": "2", "command": "rm -rf b", "description": "deletes"},
    {"session_key": "s", "request_id": "3", "command": "rm -rf b", "description": "deletes more"},
    {"session_key": "t", "request_id": "4", "command": "rm -rf b", "description": "deletes"},
]


@pytest.mark.parametrize(
    ("command", "description", "denied"),
    [
        ("rm -rf a", "deletes", "1"),
        ("rm -rf b", "deletes", "2"),
        ("rm -rf b", "deletes more", "3"),
        ("rm -rf b", "described anew", "2"),
        ("rm -rf b", None, "2"),
    ],
)
def test_exactly_the_shown_command_is_denied(monkeypatch, command, description, denied):
    """Several wait in one session; the one that the prompt shows is meant, not the oldest."""
    state = hermes.installed(monkeypatch)
    state.approvals = [dict(entry) for entry in ASKED]
    hermes_prompts.refuse_approval("s", command, description)
    assert state.resolved == [("approval", denied, "deny")]


def test_a_command_that_waits_no_more_denies_nothing_else(monkeypatch):
    """No other request is touched."""
    state = hermes.installed(monkeypatch)
    state.approvals = [dict(entry) for entry in ASKED]
    hermes_prompts.refuse_approval("s", "ls", "lists")
    assert state.resolved == []


def test_hermes_019_denies_the_oldest(monkeypatch):
    """Its requests have no IDs; all of them are refused, one prompt each."""
    state = hermes.installed(monkeypatch, without=("tools.approval:list_gateway_approvals",))
    state.approvals = [dict(entry) for entry in ASKED]
    hermes_prompts.refuse_approval("s", "rm -rf b", "deletes")
    assert state.resolved == [("approval", "1", "deny")]


def test_a_question_is_answered_with_nothing(monkeypatch):
    """The model is told that nobody answered."""
    state = hermes.installed(monkeypatch)
    title = hermes_prompts.refuse_clarify("c-1", "\n Which colour?\nRed or blue.")
    assert state.resolved == [("clarify", "c-1", "")]
    assert title.endswith(": Which colour?")


def test_a_confirmation_is_cancelled(monkeypatch):
    """The command does not run; Hermes' reply to it is shown to nobody."""
    state = hermes.installed(monkeypatch)
    state.confirms = {"s": "7"}
    title = asyncio.run(hermes_prompts.refuse_confirm("s", "7", "Start anew"))
    assert state.resolved == [("confirm", "7", "cancel")]
    assert title.endswith(": Start anew")


@given(st.text(max_size=400))
def test_a_title_is_one_short_line(subject):
    """Whatever the prompt says."""
    title = hermes_prompts._title("Command not approved", subject)
    assert len(title) <= hermes_prompts.TITLE_CHARS
    assert len(title.splitlines()) == 1
