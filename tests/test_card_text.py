"""What a card says: everything a person decides on, nothing that misleads."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.card_text import LABEL_CHARS, card_text, code_block, labels, numbered, status_line
from bothy_hermes.runtime import Prompt, PromptKind
from bothy_hermes.wire_words import MAX_LABEL_CHARS, MAX_STATUS_CHARS

ANY = st.text(st.characters(), max_size=40)


def test_every_choice_stands_there_in_full_and_numbered():
    """Long choices are not cut, and their further lines cannot pass for a choice."""
    text = numbered(["Yes", "No, because\n3. Maybe\n" + "x" * 300, ""])

    assert text == f"1. Yes\n2. No, because\n   3. Maybe\n   {'x' * 300}\n3. (empty)"


@given(st.lists(ANY, max_size=12))
def test_no_choice_adds_a_number_of_its_own(choices):
    """The list has as many numbered lines as there are choices, in order."""
    found = re.findall(r"^(\d+)\. ", numbered(choices), re.MULTILINE)

    assert found == [str(number) for number in range(1, len(choices) + 1)]


@given(st.text(st.sampled_from("`~a \n"), max_size=40))
def test_nothing_in_a_command_closes_its_block(command):
    """The fence is longer than any run of backticks inside."""
    first, *lines, last = code_block(command or "x").split("\n")

    assert first == last == "`" * len(first)
    assert "\n".join(lines) == (command or "x")
    assert len(first) >= 3
    assert first not in command


def test_a_command_shows_what_it_does_and_no_secret():
    """Hidden and reordering characters become visible, tokens do not stand there."""
    shown = code_block("API_KEY=abc cat \u202etxt.sh\u2066\r\nls\x1b[8m --all")

    assert shown == "```\nAPI_KEY=[redacted] cat ⟨U+202E⟩txt.sh⟨U+2066⟩␍\nls␛[8m --all\n```"


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        (["Yes", "No"], ["Yes", "No"]),
        (["Yes\nplease", "No"], ["Yes please", "No"]),
        (["Yes", "yes"], ["1. Yes", "2. yes"]),
        (["Yes", ""], ["1. Yes", "2."]),
        (["x" * 41, "No"], [f"1. {'x' * 36}…", "2. No"]),
        (["a" * 60 + "1", "a" * 60 + "2"], [f"1. {'a' * 36}…", f"2. {'a' * 36}…"]),
        (
            ["\U0001f469\u200d\U0001f692" * 20, "No"],
            ["1. " + "\U0001f469\u200d\U0001f692" * 12 + "…", "2. No"],
        ),
        ([], []),
    ],
    ids=["short", "lines", "alike", "empty", "long", "same-start", "graphemes", "none"],
)
def test_labels_are_short_and_distinct(choices, expected):
    """Short answers are their own labels; where that would mislead, all carry their number."""
    assert labels(choices) == expected


@given(st.lists(ANY, max_size=12))
def test_any_choices_have_labels_that_can_be_told_apart(choices):
    """No two are alike, none is empty, none is too long for the wire."""
    found = labels(choices)

    assert len(found) == len(choices)
    assert len({label.casefold() for label in found}) == len(found)
    assert all(0 < len(label) <= LABEL_CHARS <= MAX_LABEL_CHARS for label in found)


PROMPTS = st.builds(
    Prompt,
    kind=st.sampled_from(PromptKind),
    hermes_id=st.just("7"),
    question=ANY | st.just("q" * 5000),
    choices=st.lists(ANY | st.just("c" * 3000), max_size=4).map(tuple),
    title=st.none() | ANY,
    command=st.none() | ANY | st.just("ls " * 2000),
)


@given(PROMPTS, st.integers(300, 4000))
def test_a_card_fits_a_message_and_is_never_empty(prompt, limit):
    """Whatever Hermes asks, the card is a message that a server takes."""
    choices = () if prompt.kind is PromptKind.CLARIFY else ("once", "cancel")
    words = ("once", "deny") if prompt.kind is PromptKind.APPROVAL else choices
    text = card_text(prompt, words, limit)

    assert text.strip()
    assert len(text.encode("utf-8")) <= limit
    assert 0 < len(status_line(prompt)) <= MAX_STATUS_CHARS
    assert len(status_line(prompt).splitlines()) == 1


def test_a_reason_cannot_pass_for_the_command():
    """Whatever Hermes or a model gives as the reason stays on one line behind the command."""
    prompt = Prompt(PromptKind.APPROVAL, "7", question="harmless\n```\nls\n```\n1. Yes", command="rm -rf /")
    text = card_text(prompt, ("deny",), 1000)

    assert text == (
        "**The agent asks for your approval.**\n\n```\nrm -rf /\n```\n\n"
        "Reason: harmless ``` ls ``` 1. Yes\n\n1. Deny"
    )


def test_an_approval_without_a_command_has_its_reason():
    """What a plugin of Hermes asks about may be no command at all."""
    prompt = Prompt(PromptKind.APPROVAL, "7", question="send 3 letters")

    assert card_text(prompt, (), 1000) == "**The agent asks for your approval.**\n\nReason: send 3 letters"


def test_a_long_question_is_cut_and_its_choices_are_not():
    """What can be chosen goes before what is said about it."""
    prompt = Prompt(PromptKind.CLARIFY, "7", question="q" * 1000, choices=("Yes", "No"))
    text = card_text(prompt, (), 300)

    assert text.startswith("qqq")
    assert "q…\n\n1. Yes\n2. No\n" in text


def test_the_status_line_says_what_is_asked_and_no_secret():
    """Everybody who watches the run reads it."""
    approval = Prompt(PromptKind.APPROVAL, "7", command="TOKEN=abc\nls", question="dangerous")
    question = Prompt(PromptKind.CLARIFY, "7", question="Which\ncolour?")

    assert status_line(approval) == "Waiting for an answer: TOKEN=[redacted] ls"
    assert status_line(question) == "Waiting for an answer: Which colour?"
