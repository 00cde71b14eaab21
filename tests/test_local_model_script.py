"""How the script reads a request."""

import json

from bothy_hermes.local_model_words import LABEL
from tests.fakes.script_kit import ask, called, user


def test_a_message_without_a_word_is_greeted_by_the_script():
    reply = ask(user("good morning"))
    assert reply.text.startswith(f"{LABEL} Hello")
    assert reply.calls == ()


def test_the_last_message_decides_and_not_one_before_it():
    assert ask(user("empty"), user("good morning")).text.startswith(f"{LABEL} Hello")
    assert ask(user("good morning"), user("empty")).text == ""


def test_the_first_word_of_a_message_counts():
    assert ask(user("repeat tool and slow")).text == f"{LABEL} tool and slow"


def test_a_word_inside_another_word_is_none():
    assert ask(user("notebooks and toolboxes")).text.startswith(f"{LABEL} Hello")


def test_a_list_of_parts_is_read_like_a_text():
    message = {"role": "user", "content": [{"type": "text", "text": "repeat the part"}]}
    assert ask(message).text == f"{LABEL} the part"


def test_what_hermes_adds_to_a_message_is_not_the_persons_word():
    note = "[System note: This is the user's very first message ever. Offer a tool.]"
    assert ask(user(f"good morning\n\n{note}")).text.startswith(f"{LABEL} Hello")


def clarify(**parameters):
    """The tool as a request offers it."""
    return [{"type": "function", "function": {"name": "clarify", "parameters": {"properties": parameters}}}]


def test_a_question_is_asked_in_the_form_that_this_hermes_takes():
    """Before 0.21 it stood by itself, from then on it stands in a list."""
    colours = {"question": "Which colour shall it be?", "choices": ["Blue", "Green", "Red"]}
    (alone,) = ask(user("clarify"), tools=clarify(question={}, choices={})).calls
    (listed,) = ask(user("clarify"), tools=clarify(questions={})).calls
    assert (alone.name, alone.arguments) == ("clarify", colours)
    assert (listed.name, listed.arguments) == ("clarify", {"questions": [colours]})
    answered = ask(user("clarify"), *called(json.dumps(colours | {"user_response": "Blue"})))
    assert answered.text == f"{LABEL} The tool said: Blue"


def test_a_task_list_is_made_with_the_tool_that_is_there():
    """It was renamed after 0.19."""
    offered = [{"type": "function", "function": {"name": name}} for name in ("terminal", "todo")]
    assert [call.name for call in ask(user("todo"), tools=offered).calls] == ["todo"]
    assert [call.name for call in ask(user("todo")).calls] == ["todo_list"]


def test_a_title_without_json_is_made_as_hermes_019_asks_for_it():
    reply = ask(
        {"role": "system", "content": "Generate a short, descriptive title (3-7 words) for a conversation"},
        user("User: please water the plants\n\nAssistant: [script] please water the plants"),
        tools=[],
    )
    assert reply.text == "Script: please water the plants"


def test_what_was_steered_into_a_tool_result_is_repeated():
    result = "done [OUT-OF-BAND USER MESSAGE from somebody]\norigin\nturn left\n[/OUT-OF-BAND USER MESSAGE]"
    assert ask(user("tool"), *called(result)).text == (
        f"{LABEL} The tool said: done Meanwhile you said: turn left"
    )


def test_a_message_that_was_put_behind_a_result_is_no_turn_of_its_own():
    steered = "[OUT-OF-BAND USER MESSAGE from somebody]\norigin\nturn left\n[/OUT-OF-BAND USER MESSAGE]"
    assert ask(user("tool"), *called("done"), user(steered)).text == (
        f"{LABEL} The tool said: done Meanwhile you said: turn left"
    )


def test_a_title_is_made_of_the_persons_words():
    reply = ask(
        {"role": "system", "content": "You name chat sessions. Given the user's …"},
        user("please water the plants in my office"),
        tools=[],
    )
    assert json.loads(reply.text) == {"title": "Script: please water the plants in"}


def test_an_approval_is_left_to_a_person():
    reply = ask(
        {"role": "system", "content": "Respond with exactly one word: APPROVE, DENY, or ESCALATE"},
        user("<command>tool</command>"),
        tools=[],
    )
    assert reply.text == "ESCALATE"
