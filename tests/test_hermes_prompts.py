"""Prompts of Hermes as values of ours, and how they are answered."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes import hermes_prompts
from bothy_hermes.hermes_prompts import TurnPrompts
from bothy_hermes.runtime import Prompt, PromptKind
from tests.fakes import hermes

ASKED = [
    {"session_key": "s", "request_id": "1", "command": "rm -rf a", "description": "deletes"},
    {"session_key": "s", "request_id": "2", "command": "rm -rf b", "description": "deletes"},
    {"session_key": "s", "request_id": "3", "command": "rm -rf b", "description": "deletes more"},
    {"session_key": "s", "request_id": "5", "command": "curl s3cret", "description": "sends"},
    {"session_key": "s", "request_id": None, "command": "rm -rf c", "description": "deletes"},
    {"session_key": "t", "request_id": "4", "command": "rm -rf b", "description": "deletes"},
]
CHOICES = ("once", "deny")


@pytest.fixture
def state(monkeypatch):
    """A Hermes in which some commands wait."""
    made = hermes.installed(monkeypatch)
    made.approvals = [dict(entry) for entry in ASKED]
    return made


def approval(command, description="deletes", shown=()):
    """The prompt for a command of the session."""
    return hermes_prompts.approval("s", command, description, CHOICES, frozenset(shown))


def resolve(prompt, answer):
    """Answer a prompt."""
    return asyncio.run(hermes_prompts.resolve(prompt, answer))


class TestApproval:
    """Which of the requests that wait a prompt shows."""

    @pytest.mark.parametrize(
        ("command", "description", "shown", "meant"),
        [
            ("rm -rf a", "deletes", (), "1"),
            ("rm -rf b", "deletes", (), "2"),
            ("rm -rf b", "deletes more", (), "3"),
            ("rm -rf b", "described anew", (), "2"),
            ("rm -rf b", None, (), "2"),
            ("rm -rf b", "deletes", ("2",), "3"),
            ("curl ***", "sends", (), "5"),
            ("rm -rf c", "deletes", (), ""),
            ("ls", "lists", (), ""),
            ("rm -rf a", "deletes", ("1",), ""),
        ],
    )
    def test_decision_9_it_is_the_one_with_this_command_that_has_no_card_yet(
        self, state, command, description, shown, meant
    ):
        """Never the oldest, never the youngest: two can be under way before either is shown."""
        prompt = approval(command, description, shown)
        assert (prompt.kind, prompt.hermes_id) == (PromptKind.APPROVAL, meant)
        assert (prompt.command, prompt.session_key, prompt.choices) == (command, "s", CHOICES)
        assert prompt.question == (description or "")

    def test_an_answer_reaches_its_own_request_and_no_other(self, state):
        """In whatever order the people answer."""
        second, first = approval("rm -rf b"), approval("rm -rf a")
        assert resolve(second, "deny") is True
        assert resolve(first, "once") is True
        assert resolve(second, "once") is False
        assert state.resolved == [("approval", "2", "deny"), ("approval", "1", "once")]

    def test_a_prompt_that_fits_no_request_answers_none(self, state):
        """What it stood for waits no longer; an answer without an ID would be the oldest request's."""
        assert resolve(approval("ls"), "once") is False
        assert asyncio.run(hermes_prompts.refuse(approval("ls"))) == "Command not approved: ls"
        assert state.resolved == []

    def test_where_hermes_lists_none_no_request_is_answered(self, state):
        """Nobody knows which one is meant."""
        del state.modules["tools.approval"].list_gateway_approvals
        prompt = approval("rm -rf a")
        assert (prompt.hermes_id, resolve(prompt, "once")) == ("", False)
        prompts = TurnPrompts()
        prompts.add(approval_of("1"))
        assert prompts.approvals_gone() == [approval_of("1")]
        assert state.resolved == []

    def test_in_019_it_is_found_and_answered_by_its_place(self, monkeypatch):
        """There the requests have no IDs."""
        _, waiting = hermes.old_approvals(hermes.installed(monkeypatch), "s", "rm -rf a", "rm -rf b")
        prompt = approval("rm -rf b", None)
        assert resolve(prompt, "once") is True
        assert [entry.result for entry in waiting] == [None, "once"]


class TestClarify:
    """Questions."""

    def question(self, *, multi_select=False):
        several = (
            {"multi_select": True} if multi_select else {}
        )  # older versions of Hermes have no such thing
        return SimpleNamespace(clarify_id="c-1", session_key="s", **several)

    def test_it_keeps_hermes_own_words(self):
        """They are what it is answered with."""
        prompt = hermes_prompts.clarify("c-1", "s", "Which?", ["Red (Recommended)", "Blue"])
        assert prompt == Prompt(
            PromptKind.CLARIFY, "c-1", "s", question="Which?", choices=("Red (Recommended)", "Blue")
        )
        assert hermes_prompts.clarify("c-1", "s", "Which?", None).choices == ()

    def test_it_is_answered_once(self, state):
        """The second answer finds nothing that waits."""
        state.clarifies = [self.question()]
        prompt = hermes_prompts.clarify("c-1", "s", "Which?", None)
        assert resolve(prompt, "Red, or blue") is True
        assert resolve(prompt, "Red") is False
        assert state.resolved[0] == ("clarify", "c-1", "Red, or blue")

    def test_one_of_several_answers_is_a_list_of_one(self, state):
        """Hermes would take the comma in it for two answers; no answer stays none."""
        state.clarifies = [self.question(multi_select=True)]
        prompt = hermes_prompts.clarify("c-1", "s", "Which?", ["Salt, rosé", "Oil"])
        assert resolve(prompt, "Salt, rosé") is True
        assert state.resolved[0][2] == '["Salt, rosé"]'
        state.clarifies = [self.question(multi_select=True)]
        assert resolve(prompt, "") is True
        assert state.resolved[1][2] == ""

    def test_nobody_to_ask_is_no_answer(self, state):
        """The model is told that nobody answered."""
        state.clarifies = [self.question()]
        prompt = hermes_prompts.clarify("c-1", "s", "\n Which colour?\nRed or blue.", None)
        assert asyncio.run(hermes_prompts.refuse(prompt)) == "Question nobody could be asked: Which colour?"
        assert state.resolved == [("clarify", "c-1", "")]


class TestConfirmation:
    """Commands of Hermes that destroy something."""

    def test_only_the_one_that_waits_is_answered(self, state):
        """IDs are numbers, and a new process begins with one again."""
        state.confirms = {"s": "7"}
        assert resolve(hermes_prompts.confirmation("6", "s", "New", "Sure?"), "once") is False
        prompt = hermes_prompts.confirmation("7", "s", "New", "Sure?")
        assert resolve(prompt, "once") is True
        assert resolve(prompt, "once") is False
        assert state.resolved == [("confirm", "7", "once")]

    def test_nobody_to_ask_is_a_cancellation(self, state):
        """The command does not run; Hermes' reply to it is shown to nobody."""
        state.confirms = {"s": "7"}
        prompt = hermes_prompts.confirmation("7", "s", "Start anew", "Sure?")
        assert asyncio.run(hermes_prompts.refuse(prompt)) == "Not confirmed: Start anew"
        assert state.resolved == [("confirm", "7", "cancel")]


class TestTurnPrompts:
    """The prompts that one turn waits on."""

    def test_a_prompt_is_taken_once(self):
        """Whoever takes it has the last word on it."""
        prompts = TurnPrompts()
        prompt = approval_of("a")
        prompts.add(prompt)
        prompts.shown(prompt, "m-1")
        assert list(prompts) == [prompt]
        assert prompts.find(PromptKind.APPROVAL, "a") is prompts.of_message("m-1") is prompt
        assert prompts.take(prompt)
        assert not prompts.take(prompt)
        assert prompts.find(PromptKind.APPROVAL, "a") is None

    def test_the_same_id_of_another_kind_is_another_prompt(self):
        """Confirmations are numbered."""
        prompts = TurnPrompts()
        prompts.add(hermes_prompts.confirmation("1", "s", "", ""))
        assert not prompts.take(approval_of("1"))
        assert prompts.approval_ids() == frozenset()

    def test_approvals_that_hermes_holds_no_longer_are_gone(self, state):
        """Those that still wait are not, nor is a question."""
        prompts = TurnPrompts()
        gone = approval_of("9")
        for prompt in (approval_of("1"), gone, hermes_prompts.clarify("c-1", "s", "?", None)):
            prompts.add(prompt)
        assert prompts.approvals_gone() == [gone]
        assert prompts.approval_ids() == {"1", "9"}


def approval_of(request_id):
    """An approval with an ID."""
    return Prompt(PromptKind.APPROVAL, request_id, "s")


@given(st.text(max_size=400))
def test_a_title_is_one_short_line(subject):
    """Whatever the prompt says."""
    title = hermes_prompts._title("Command not approved", subject)
    assert len(title) <= hermes_prompts.TITLE_CHARS
    assert len(title.splitlines()) == 1
