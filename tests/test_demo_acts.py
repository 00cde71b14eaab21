"""What the person of `demo --once` does after the message."""

import pytest

from bothy_hermes.demo_acts import Actor, Acts, read_acts, read_follow_up
from bothy_hermes.errors import ConfigError, ProblemAnswer

BUTTONS = [
    {"id": "c-1", "label": "Allow once", "options": None},
    {"id": "c-2", "label": "Deny", "options": None},
]
SELECT = [
    {
        "id": "c-3",
        "label": "Choose",
        "options": [{"label": "Red", "value": "0"}, {"label": "Blue", "value": "1"}],
    }
]


class Recorded:
    """A person and what is shown of them."""

    def __init__(self):
        self.done = []
        self.cards = []
        self.stages = []

    def post(self, thread_id, text):
        self.done.append(("post", thread_id, text))

    def cancel(self, run_id):
        self.done.append(("cancel", run_id))

    def use(self, message_id, component_id, values):
        self.done.append(("use", message_id, component_id, values))

    def stage(self, text):
        self.stages.append(text)

    def card(self, message):
        self.cards.append(message["id"])


def card(components, message_id="m-1", **more):
    return {"id": message_id, "run_id": "r", "kind": "card", "closed": None, "components": components, **more}


def actor(**acts):
    made = Recorded()
    return Actor(made, made, "t", "r", Acts(**acts)), made


@pytest.mark.parametrize(
    ("components", "answer", "done"),
    [
        (BUTTONS, "Deny", ("use", "m-1", "c-2", [])),
        (SELECT, "Blue", ("use", "m-1", "c-3", ["1"])),
        (SELECT, "lu", ("use", "m-1", "c-3", ["1"])),
        ([*SELECT, {"id": "c-4", "label": "Re", "options": None}], "Re", ("use", "m-1", "c-4", [])),
        ([], "Bothy", ("post", "t", "Bothy")),
    ],
)
def test_a_card_is_answered_by_a_label_or_a_text(components, answer, done):
    """An open question takes a message."""
    acting, made = actor(answers=(answer,))
    acting.message(card(components))
    acting.message(card(components))
    assert made.done == [done]
    assert made.cards == ["m-1"]


def test_cards_are_answered_in_their_order_and_the_last_is_only_shown():
    """There is no answer left for it."""
    acting, made = actor(answers=("Allow", "Deny"))
    for number in range(3):
        acting.message(card(BUTTONS, f"m-{number}"))
    assert [one[1:3] for one in made.done] == [("m-0", "c-1"), ("m-1", "c-2")]
    assert len(made.cards) == 3


@pytest.mark.parametrize("more", [{"run_id": "other"}, {"kind": "text"}, {"closed": "expired"}])
def test_other_messages_are_left_alone(more):
    """Cards of another run, texts, closed cards."""
    acting, made = actor(answers=("Deny",))
    acting.message(card(BUTTONS) | more)
    assert (made.done, made.cards) == ([], [])


def test_an_answer_that_is_no_choice_is_said():
    """The option is named."""
    acting, _ = actor(answers=("Maybe",))
    with pytest.raises(ConfigError, match="--answer"):
        acting.message(card(BUTTONS))


def test_texts_and_the_cancel_come_in_their_time_and_once():
    """In the order of their times, not of the options."""
    acting, made = actor(follow_ups=(("later", 2.0), ("soon", 1.0)), cancel_after=3.0)
    for seconds in (0.5, 1.2, 2.5, 3.0, 4.0):
        acting.due(seconds)
    assert made.done == [("post", "t", "soon"), ("post", "t", "later"), ("cancel", "r")]


class Refusing(Recorded):
    """A person whom the server refuses."""

    def __init__(self, code):
        super().__init__()
        self.code = code

    def cancel(self, run_id):
        raise ProblemAnswer("people", 409, self.code)

    def use(self, message_id, component_id, values):
        raise ProblemAnswer("people", 409, self.code)


@pytest.mark.parametrize("code", ["run_ended", "card_closed"])
def test_an_act_that_comes_too_late_ends_nothing(code):
    """The run may end, and somebody else answer, in the same moment."""
    late = Refusing(code)
    acting = Actor(late, late, "t", "r", Acts(answers=("Deny",), cancel_after=1.0))
    acting.message(card(BUTTONS))
    acting.due(1.0)
    assert late.stages[1::2] == [f"That was too late ({code})"] * 2


def test_an_act_that_is_refused_for_another_reason_is_an_error():
    refused = Refusing("forbidden")
    acting = Actor(refused, refused, "t", "r", Acts(answers=("Deny",)))
    with pytest.raises(ProblemAnswer, match="forbidden"):
        acting.message(card(BUTTONS))


def test_what_the_run_left_no_time_for_is_said():
    """Else a person who asked for it waits for what cannot come."""
    acting, made = actor(answers=("Yes",), follow_ups=(("later", 2.0),), cancel_after=3.0)
    acting.due(1.0)
    acting.tell_undone()
    assert made.stages == [
        "The run ended before its turn came: --follow-up later",
        "The run ended before its turn came: --answer Yes",
        "The run ended before its turn came: --cancel-after",
    ]


def test_what_was_done_is_not_said_to_be_undone():
    acting, made = actor(answers=("Deny",), follow_ups=(("soon", 1.0),), cancel_after=1.0)
    acting.message(card(BUTTONS))
    acting.due(1.0)
    made.stages.clear()
    acting.tell_undone()
    assert made.stages == []


@pytest.mark.parametrize(
    ("option", "read"),
    [
        ("and this", ("and this", 1.0)),
        ("and this@2.5", ("and this", 2.5)),
        ("two\nlines@2", ("two\nlines", 2.0)),
        ("a@b", ("a@b", 1.0)),
        ("a@nan", ("a@nan", 1.0)),
        ("a@-1", ("a@-1", 1.0)),
        ("@1", ("@1", 1.0)),
    ],
)
def test_a_follow_up_may_name_its_time(option, read):
    """A text may hold the sign."""
    assert read_follow_up(option) == read


def test_the_options_are_read_as_they_are_given():
    assert read_acts("hello", ["Yes"], ["and this@2"], 3.0) == Acts(("Yes",), (("and this", 2.0),), 3.0)
    assert read_acts(None, [], [], None) == Acts()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("", [], [], None), "--once: expected a text"),
        (("a", [""], [], None), "--answer: expected a text"),
        (("a", [], [""], None), "--follow-up: expected a text"),
        (("\udcff", [], [], None), "--once: expected a text in the encoding of this terminal"),
        (("a", [], [], -1.0), "--cancel-after: expected seconds, 0 or more"),
        (("a", [], [], float("nan")), "--cancel-after: expected seconds, 0 or more"),
        (("a", [], [], float("inf")), "--cancel-after: expected seconds, 0 or more"),
        ((None, ["a"], [], None), "--answer: goes with --once"),
        ((None, [], ["a"], None), "--follow-up: goes with --once"),
        ((None, [], [], 0.0), "--cancel-after: goes with --once"),
    ],
)
def test_an_option_that_cannot_be_carried_out_is_refused_before_anything_starts(options, sentence):
    """It would otherwise be found out, or forgotten, after Hermes' start."""
    with pytest.raises(ConfigError) as caught:
        read_acts(*options)
    assert str(caught.value).startswith(sentence)
