"""Cards: what they offer to whom, and what an interaction with them stands for."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.cards import (
    CARD_MOVES,
    MAX_BUTTONS,
    WITHDRAWN,
    CardState,
    answer_of,
    answer_of_text,
    build_card,
    key_of,
    move_card,
    parse_custom_id,
)
from bothy_hermes.codec import dump, parse
from bothy_hermes.errors import IllegalMove
from bothy_hermes.runtime import Prompt, PromptKind
from bothy_hermes.wire import ComponentCreate
from bothy_hermes.wire_words import MAX_COMPONENTS, Capability, ComponentKind, Restriction

COLOURS = ("Red (Recommended)", "Green", "Blue")
APPROVAL = Prompt(
    PromptKind.APPROVAL,
    "req-7",
    session_key="agent:main:bothy:dm:1:2",
    question="deletes files",
    choices=("once", "session", "always", "deny"),
    command="rm -rf build && TOKEN=abc make\necho ```done```",
)
CONFIRMATION = Prompt(
    PromptKind.CONFIRMATION, "3", question="The conversation starts anew.", title="Start a new session?"
)


def clarify(*choices, hermes_id="a1b2c3d4e5", question="Which colour?"):
    return Prompt(PromptKind.CLARIFY, hermes_id, question=question, choices=choices)


def shown(card):
    return {"text": card.text.split("\n"), "components": dump(card.components), "status": card.status_line}


# Snapshots of each kind ---------------------------------------------------------------------------

CARDS = {
    "clarify-buttons": clarify(*COLOURS),
    "clarify-select": clarify(*(f"Colour number {number}" for number in range(1, 8))),
    "clarify-open": clarify(question="What shall I call it?"),
    "clarify-long-choices": clarify(
        "Water the roses today, " * 3 + "please", "Water the roses today, " * 3 + "no"
    ),
    "approval": APPROVAL,
    "approval-once": Prompt(PromptKind.APPROVAL, "8", question="", choices=("once", "deny"), command="ls"),
    "confirmation": CONFIRMATION,
}


@pytest.mark.parametrize("name", list(CARDS), ids=str)
def test_a_card_of_each_kind(name, snapshot):
    """Text, components and status line as people get them; a server takes every component."""
    card = build_card(CARDS[name])
    for component in card.components:
        assert parse(ComponentCreate, dump(component)) == component

    assert shown(card) == snapshot


# Who may do what ----------------------------------------------------------------------------------


def test_decision_9_five_answers_are_buttons_and_six_are_a_select():
    """A question's answers are buttons up to five, one select above, nothing when it is open."""
    kinds = {
        count: [one.kind for one in build_card(clarify(*map(str, range(count)))).components]
        for count in (0, 1, MAX_BUTTONS, MAX_BUTTONS + 1)
    }

    assert MAX_BUTTONS == 5
    assert kinds == {
        0: [],
        1: [ComponentKind.BUTTON],
        5: [ComponentKind.BUTTON] * 5,
        6: [ComponentKind.SELECT],
    }


def test_decision_9_approving_needs_the_capability_and_denying_does_not():
    """Everybody who may use the card may say no."""
    needs = {one.custom_id: one.required_capability for one in build_card(APPROVAL).components}

    assert needs == {
        "appr:req-7:once": Capability.APPROVE_ACTIONS,
        "appr:req-7:session": Capability.APPROVE_ACTIONS,
        "appr:req-7:always": Capability.APPROVE_ACTIONS,
        "appr:req-7:deny": None,
    }


@pytest.mark.parametrize("prompt", [APPROVAL, CONFIRMATION], ids=["approval", "confirmation"])
def test_decision_9_what_holds_for_good_is_the_owners(prompt):
    """Always is restricted to the owner, everything else to the run's starter."""
    for component in build_card(prompt).components:
        always = "always" in component.custom_id
        assert component.restricted_to is (Restriction.OWNER if always else Restriction.RUN_STARTER)


@pytest.mark.parametrize("prompt", CARDS.values(), ids=list(CARDS))
def test_decision_9_every_component_is_used_once(prompt):
    """The first interaction takes the card."""
    assert all(component.single_use for component in build_card(prompt).components)


@given(st.sets(st.sampled_from(["once", "session", "always", "deny", "forever", ""])))
def test_only_the_choices_that_hermes_offers_are_shown(choices):
    """A choice that Hermes would refuse is not on the card, nor is one that nobody knows here."""
    prompt = Prompt(PromptKind.APPROVAL, "7", choices=tuple(choices), command="ls")
    card = build_card(prompt)
    known = [one for one in ("once", "session", "always", "deny") if one in choices]

    assert [parse_custom_id(one.custom_id).choice for one in card.components] == known
    for choice in ("once", "session", "always", "deny"):
        assert (answer_of(prompt, f"appr:7:{choice}", ()) is not None) == (choice in choices)


@pytest.mark.parametrize(
    ("offered", "shown"), [((), ["once", "always", "cancel"]), (("cancel", "once"), ["once", "cancel"])]
)
def test_a_confirmation_offers_what_hermes_names_or_else_everything(offered, shown):
    """Its choices are fixed in Hermes, which may leave them unsaid."""
    prompt = Prompt(PromptKind.CONFIRMATION, "3", choices=offered)
    components = build_card(prompt).components

    assert [parse_custom_id(one.custom_id).choice for one in components] == shown
    assert (answer_of(prompt, "sc:always:3", ()) is not None) is ("always" in shown)


def test_a_command_that_cannot_be_shown_can_only_be_denied():
    """Nobody approves what nobody could read."""
    prompt = Prompt(PromptKind.APPROVAL, "7", choices=("once", "always", "deny"), command="ls " * 1000)
    card = build_card(prompt, max_content_bytes=2000)

    assert [one.custom_id for one in card.components] == ["appr:7:deny"]
    assert "too long to be shown" in card.text
    assert answer_of(prompt, "appr:7:once", (), max_content_bytes=2000) is None
    assert answer_of(prompt, "appr:7:deny", (), max_content_bytes=2000).value == "deny"


# Custom IDs ---------------------------------------------------------------------------------------


@given(st.text(st.characters(), max_size=150), st.lists(st.text(max_size=5), max_size=8))
def test_custom_ids_are_short_unique_and_lead_back(hermes_id, choices):
    """Whatever Hermes' ID is, a component of its card is found again, and of no other card."""
    for prompt in (
        clarify(*choices, hermes_id=hermes_id),
        Prompt(PromptKind.APPROVAL, hermes_id, choices=("once", "session", "always", "deny"), command="ls"),
        Prompt(PromptKind.CONFIRMATION, hermes_id),
    ):
        card = build_card(prompt)
        ids = [component.custom_id for component in card.components]

        assert len(set(ids)) == len(ids) <= MAX_COMPONENTS
        assert all(1 <= len(one) <= 100 for one in ids)
        for component in card.components:
            found = parse_custom_id(component.custom_id)
            assert (found.kind, found.key) == (prompt.kind, card.key)
            values = [component.options[-1].value] if component.options else []
            assert answer_of(prompt, component.custom_id, values) is not None


def test_ids_that_do_not_fit_are_hashed_and_never_meet():
    """A plain ID stays readable; one that looks like a hash is hashed, so that nobody can choose it."""
    hashed = key_of("x" * 200)

    assert key_of("a1b2c3d4e5") == "a1b2c3d4e5"
    assert hashed.startswith("h-")
    assert key_of(hashed) != hashed
    assert len({key_of(one) for one in ("a:b", "a", "a ", "b" * 64, "b" * 65, "\ud800", "")}) == 7


@pytest.mark.parametrize(
    "custom_id",
    [
        "",
        "cl",
        "cl:",
        "cl:7",
        "cl::1",
        "cl:7:x",
        "cl:7:-1",
        "cl:7:1:2",
        "appr:7:",
        "appr:7:ONCE",
        "sc:7",
        "x:7:1",
        "cl:7:1\n",
        "cl:7:\u0661",
    ],
    ids=range(14),
)
def test_what_is_no_custom_id_of_ours_is_nothing(custom_id):
    """Foreign and broken IDs are not read as something near."""
    assert parse_custom_id(custom_id) is None
    assert answer_of(clarify("a", "b", hermes_id="7"), custom_id, ()) is None


# What an interaction stands for -------------------------------------------------------------------


def test_a_button_stands_for_the_whole_answer():
    """Hermes gets the answer in full, however short the label was."""
    answer = "Water the roses, " * 20
    found = answer_of(clarify("No", answer, hermes_id="7"), "cl:7:1", ())

    assert found.value == answer
    assert len(found.label) <= 200


def test_a_select_stands_for_the_chosen_answer():
    """The value is the answer's number; one value, and nothing else."""
    prompt = clarify(*(f"c{number}" for number in range(7)), hermes_id="7")

    assert answer_of(prompt, "cl:7:select", ["6"]).value == "c6"
    for values in ([], ["7"], ["-1"], ["06"], ["x"], ["1", "2"], [""]):
        assert answer_of(prompt, "cl:7:select", values) is None
    assert answer_of(prompt, "cl:7:1", ()) is None
    assert answer_of(prompt, "cl:7:1", ["6"]) is None


@pytest.mark.parametrize(("count", "custom_id"), [(MAX_BUTTONS, "cl:7:4"), (MAX_BUTTONS + 1, "cl:7:select")])
def test_where_buttons_end_a_select_begins(count, custom_id):
    """What the card shows is what an interaction may use."""
    prompt = clarify(*map(str, range(count)), hermes_id="7")

    assert [one.custom_id for one in build_card(prompt).components][-1] == custom_id
    assert answer_of(prompt, custom_id, ["4"] if custom_id.endswith("select") else ()).value == "4"


@pytest.mark.parametrize(
    ("prompt", "custom_id", "value", "label"),
    [
        (APPROVAL, "appr:req-7:once", "once", "Allow once"),
        (APPROVAL, "appr:req-7:session", "session", "Allow for this session"),
        (APPROVAL, "appr:req-7:always", "always", "Always allow"),
        (APPROVAL, "appr:req-7:deny", "deny", "Deny"),
        (CONFIRMATION, "sc:once:3", "once", "Once"),
        (CONFIRMATION, "sc:always:3", "always", "Always"),
        (CONFIRMATION, "sc:cancel:3", "cancel", "Cancel"),
    ],
)
def test_a_fixed_choice_is_hermes_word(prompt, custom_id, value, label):
    """The word that Hermes takes, and the label that people read."""
    found = answer_of(prompt, custom_id, ())

    assert (found.value, found.label) == (value, label)


@pytest.mark.parametrize(
    ("prompt", "custom_id", "values"),
    [
        (APPROVAL, "appr:req-8:once", ()),
        (APPROVAL, "cl:req-7:0", ()),
        (APPROVAL, "sc:once:req-7", ()),
        (APPROVAL, "appr:req-7:cancel", ()),
        (APPROVAL, "appr:req-7:once", ("once",)),
        (CONFIRMATION, "sc:session:3", ()),
        (CONFIRMATION, "sc:once:4", ()),
        (clarify(*COLOURS, hermes_id="7"), "cl:7:3", ()),
        (clarify(*COLOURS, hermes_id="7"), "cl:7:01", ()),
        (clarify(*COLOURS, hermes_id="7"), "cl:7:select", ("0",)),
        (clarify(hermes_id="7"), "cl:7:0", ()),
    ],
)
def test_decision_9_an_interaction_that_does_not_fit_its_card_stands_for_nothing(prompt, custom_id, values):
    """Another card's component, a choice that is not there, values where none belong."""
    assert answer_of(prompt, custom_id, values) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Green", "Green"),
        (" green ", "Green"),
        ("1", "Red (Recommended)"),
        ("2", "Green"),
        ("3", "Blue"),
        ("4", "4"),
        ("0", "0"),
        ("02", "02"),
        ("something else", "something else"),
    ],
)
def test_decision_8_a_text_answers_a_question(text, value):
    """Words or number of a choice stand for it, any other text for itself."""
    assert answer_of_text(clarify(*COLOURS), text).value == value


def test_a_number_that_is_itself_a_choice_is_that_choice():
    """With numbers to choose from, the number that was typed is meant."""
    assert answer_of_text(clarify("3", "2", "1"), "3").value == "3"


@pytest.mark.parametrize("text", ["yes", "once", "Allow once", "always", "1", "approve"])
def test_decision_9_a_text_is_no_approval(text):
    """Whatever is typed, an approval is denied and a confirmation cancelled."""
    assert answer_of_text(APPROVAL, text).value == "deny"
    assert answer_of_text(CONFIRMATION, text).value == "cancel"


def test_every_kind_can_be_withdrawn():
    """What Hermes is told when a card could not be delivered never lets anything run."""
    assert WITHDRAWN == {
        PromptKind.CLARIFY: "",
        PromptKind.APPROVAL: "deny",
        PromptKind.CONFIRMATION: "cancel",
    }


def test_content_stays_out_of_repr():
    """Neither question, command nor answer is in a log line."""
    secret = clarify("secret one", "secret two", question="secret?")
    found = answer_of(secret, "cl:a1b2c3d4e5:0", ())

    assert "secret" not in repr(build_card(secret)) + repr(found) + repr(secret)


# States -------------------------------------------------------------------------------------------

LEGAL = {
    ("open", "claimed"),
    ("open", "expired"),
    ("open", "closed"),
    ("claimed", "answered"),
    ("claimed", "closed"),
}


@pytest.mark.parametrize(("state", "target"), list(itertools.product(CardState, CardState)), ids=str)
def test_a_card_moves_by_its_table(state, target):
    """The table holds these moves and no other."""
    if (state, target) in LEGAL:
        assert move_card(state, target) is target
    else:
        with pytest.raises(IllegalMove):
            move_card(state, target)


def test_decision_9_an_answer_reaches_hermes_once():
    """From where Hermes has the answer, no way leads back to a card that takes another."""
    reached, todo = set(), [CardState.CLAIMED]
    while todo:
        for target in CARD_MOVES[todo.pop()] - reached:
            reached.add(target)
            todo.append(target)

    assert reached == {CardState.ANSWERED, CardState.CLOSED}
