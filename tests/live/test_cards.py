"""What the real Hermes asks people, and what their answers do."""

import pytest
import yaml

from bothy_hermes.install_plan import Entry
from bothy_hermes.local_rules import Refused
from bothy_hermes.wire_words import MessageKind
from tests.live.kit import in_019
from tests.live.talk import Talk

TOOLSETS = ("terminal", "clarify", "delegation")
APPROVAL_SECONDS = 6
QUESTION_SECONDS = 6


@pytest.fixture(scope="module")
def world(closed_world):
    """A world whose agent asks, and waits for an answer no longer than a test does."""
    patience = [
        Entry(("approvals", "timeout"), APPROVAL_SECONDS),
        Entry(("agent", "clarify_timeout"), QUESTION_SECONDS),
    ]
    closed_world.open(toolsets=TOOLSETS, more=patience)
    closed_world.start()
    return closed_world


@pytest.fixture
def talk(world):
    return Talk(world)


def test_a_button_answers_a_question_in_hermes_own_words(talk):
    """The mark of the recommended answer is Hermes' own and reaches the model as no part of it."""
    run_id = talk.say("clarify")
    (card,) = talk.cards(run_id)
    assert "Which colour shall it be?" in card.content
    blue = "Blue" if in_019() else "Blue (Recommended)"
    assert talk.labels(card) == [blue, "Green", "Red"]
    assert talk.press(card, "Blue") == ("acknowledged", blue)
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["The tool said: Blue"]


def test_a_typed_text_answers_an_open_question(talk):
    """It is the answer and no run of its own."""
    run_id = talk.say("question")
    (card,) = talk.cards(run_id)
    assert card.components == ()
    posted = talk.post("Bothy's Garden")
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["The tool said: Bothy's Garden"]
    assert talk.runs() == [run_id]
    assert talk.instance.followup_state(posted.message.id) == "absorbed"


def test_one_of_several_choices_is_one_answer_whatever_signs_it_holds(talk):
    """Hermes would take a comma for two answers."""
    run_id = talk.say("checklist")
    (card,) = talk.cards(run_id)
    assert talk.press(card, "Salt, pepper")[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"
    several = (
        "Salt, pepper" if in_019() else "['Salt, pepper']"
    )  # which knows no question with several answers
    assert talk.texts(run_id) == [f"The tool said: {several}"]


def test_a_command_that_is_allowed_once_runs_and_is_asked_about_again(talk):
    """The second time the person is asked anew."""
    run_id = talk.say("approve")
    (card,) = talk.cards(run_id)
    assert "rm -rf ./bothy-demo-does-not-exist" in card.content
    assert talk.press(card, "Allow once") == ("acknowledged", "Allow once")
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["The tool said: demo ran"]
    again = talk.say("approve")
    (second,) = talk.cards(again)
    assert talk.press(second, "Deny") == ("acknowledged", "Deny")
    assert talk.ended(again).state == "completed"
    assert "ran" not in talk.texts(again)[0].replace("ran by", "")


def test_who_may_not_approve_uses_nothing_up(talk):
    """A member may not allow another's command, nobody but the owner always."""
    run_id = talk.say("approve")
    (card,) = talk.cards(run_id)
    for label in ("Always allow", "Allow once", "Deny"):
        with pytest.raises(Refused):
            talk.press(card, label, who=1)
    assert talk.press(card, "Allow once")[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"


OPEN_UP = "mkdir -p opened && chmod -R 777 ./opened && echo opened up"
"""A command of another kind than the script's own: what is allowed for good here, is asked for there."""


def test_the_owner_allows_a_command_for_good_and_nobody_is_asked_again(talk, world, script):
    """Hermes keeps it in its own list. A member who may approve is not offered it: once is theirs."""
    script("open", "terminal", command=OPEN_UP)
    instance = talk.instance
    cleo = instance.add_person("Cleo", "member", approve_actions=True)
    talk.people.append(cleo.id)
    run_id = talk.say("open", who=2)
    (card,) = talk.cards(run_id)
    with pytest.raises(Refused):
        talk.press(card, "Always allow", who=2)
    assert talk.press(card, "Allow once", who=2)[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"
    assert allowed_for_good(world) == []
    run_id = talk.say("open", who=2)
    (card,) = talk.cards(run_id)
    assert talk.press(card, "Always allow") == ("acknowledged", "Always allow")
    assert talk.ended(run_id).state == "completed"
    assert len(allowed_for_good(world)) == 1
    run_id = talk.say("open", who=2)
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["The tool said: opened up"]
    assert [one for one in talk.messages(run_id) if one.kind == "card"] == []


def allowed_for_good(world):
    """The kinds of commands that Hermes asks nobody about any more."""
    config = yaml.safe_load((world.gateway.place.hermes_home / "config.yaml").read_text("utf-8"))
    return config.get("command_allowlist") or []


def denied_by_hermes(talk, run_id):
    """Hermes 0.19 asks nobody about a subagent's command: the subagent is told that it needs leave."""
    assert talk.ended(run_id).state == "completed"
    assert [one for one in talk.messages(run_id) if one.kind is MessageKind.CARD] == []
    (answer,) = talk.texts(run_id)
    assert "approval" in answer
    assert '"output": ' not in answer


def test_two_commands_at_once_are_answered_crosswise(talk):
    """Each answer reaches the command that its card shows, in whatever order."""
    run_id = talk.say("approvals")
    if in_019():
        denied_by_hermes(talk, run_id)
        return
    cards = talk.cards(run_id, 2)
    first = next(card for card in cards if "bothy-first" in card.content)
    second = next(card for card in cards if "bothy-second" in card.content)
    assert talk.press(second, "Deny")[0] == "acknowledged"
    assert talk.run(run_id).run.state == "waiting_input"
    assert talk.press(first, "Allow once")[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"
    (answer,) = talk.texts(run_id)
    assert "first ran" in answer
    assert "second ran" not in answer


def test_a_subagents_question_is_asked_in_the_run_that_sent_it(talk):
    """Its command runs in the child once the parent's person has allowed it."""
    run_id = talk.say("delegate approve")
    if in_019():
        denied_by_hermes(talk, run_id)
        return
    (card,) = talk.cards(run_id)
    assert talk.press(card, "Allow once")[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"
    assert "demo ran" in talk.texts(run_id)[0]


@pytest.mark.parametrize("word", ["approve", "clarify"])
def test_a_card_that_nobody_answers_is_closed_and_a_late_click_says_so(talk, word):
    """Hermes goes on by itself; the card is no longer usable."""
    run_id = talk.say(word)
    (card,) = talk.cards(run_id)
    talk.until(lambda: talk.card(card.id).closed == "expired")
    assert talk.ended(run_id).state == "completed"
    with pytest.raises(Refused):
        talk.press(card, card.components[0].label)


def test_a_text_after_a_question_ran_out_is_a_message_like_any_other(talk):
    """Nothing waits for an answer any more, so none is made of it."""
    run_id = talk.say("question")
    (card,) = talk.cards(run_id)
    talk.until(lambda: talk.card(card.id).closed == "expired")
    assert talk.ended(run_id).state == "completed"
    later = talk.say("repeat restart")
    assert later not in (None, run_id)
    assert talk.ended(later).state == "completed"
    assert talk.texts(later) == ["restart"]
