"""What each word of the script does."""

import json

import pytest

from bothy_hermes.local_model_words import LABEL, WORDS, words_table
from tests.fakes.script_kit import ask, called, user

BEHIND_BRIDGE = [{"type": "function", "function": {"name": "tool_call"}}]


def test_tool_asks_for_a_command_and_then_tells_what_it_said():
    first = ask(user("use a tool"))
    assert [call.name for call in first.calls] == ["terminal"]
    assert first.text == ""
    then = ask(user("use a tool"), *called(json.dumps({"output": "hello\n", "exit_code": 0})))
    assert then.text == f"{LABEL} The tool said: hello"
    assert then.calls == ()


def test_note_says_something_before_the_command():
    reply = ask(user("note"))
    assert reply.text == f"{LABEL} First I look at the machine."
    assert len(reply.calls) == 1


def test_parallel_asks_for_two_commands_at_once():
    assert len(ask(user("parallel")).calls) == 2


def test_a_tool_behind_the_bridge_is_called_through_it():
    direct = ask(user("todo"), tools=[{"type": "function", "function": {"name": "todo_list"}}])
    bridged = ask(user("todo"), tools=BEHIND_BRIDGE)
    assert direct.calls[0].name == "todo_list"
    assert bridged.calls[0].name == "tool_call"
    assert bridged.calls[0].arguments == {"name": "todo_list", "arguments": direct.calls[0].arguments}


def test_an_answered_question_is_told_by_its_answer_alone():
    result = json.dumps({"responses": [{"user_response": "Red", "choices_offered": ["Red", "Blue"]}]})
    assert ask(user("clarify"), *called(result)).text == f"{LABEL} The tool said: Red"


def test_a_subagent_gets_the_words_that_follow():
    tools = [{"type": "function", "function": {"name": "delegate_task"}}]
    (call,) = ask(user("delegate approve first"), tools=tools).calls
    assert call.arguments == {"tasks": [{"goal": "approve first"}]}
    (command,) = ask(user("approve first")).calls
    assert "bothy-first" in command.arguments["command"]
    (both,) = ask(user("approvals"), tools=tools).calls
    assert [task["goal"] for task in both.arguments["tasks"]] == ["approve first", "approve second"]


def test_history_tells_the_messages_before():
    assert "first message" in ask(user("history")).text
    assert ask(user("the word is plum"), user("history")).text == (
        f"{LABEL} Before this message you said: the word is plum"
    )


def test_no_line_of_a_long_answer_comes_twice():
    """Hermes 0.22 stops a model that repeats itself."""
    lines = ask(user("long 300000")).text.splitlines()
    assert len(lines) == len(set(lines)) > 1_000


def test_long_is_as_long_as_asked():
    assert len(ask(user("long 300000")).text) == 300_000
    assert len(ask(user("long")).text) == 8_000


def test_slow_waits_as_long_as_asked_and_never_for_ever():
    assert ask(user("slow 2")).wait_seconds == 2.0
    assert ask(user("slow 99999999")).wait_seconds == 600.0


@pytest.mark.parametrize(("word", "status"), [("error401", 401), ("error500", 500)])
def test_an_error_word_fails_the_request(word, status):
    assert ask(user(word)).status == status


@pytest.mark.parametrize("word", [word.name for word in WORDS])
def test_every_text_says_that_it_is_a_script(word):
    first = ask(user(word))
    second = ask(user(word), *called("fine"))
    assert all(text.startswith(LABEL) for text in (first.text, second.text) if text)
    assert first.text or first.calls or word == "empty"


def test_the_table_for_people_has_every_word_that_the_toolsets_allow():
    everything = {word.toolset for word in WORDS} - {None}
    assert [name for name, _ in words_table(everything)] == [word.name for word in WORDS]
    without = [name for name, _ in words_table(["todo"])]
    assert "todo" in without
    assert "repeat" in without
    assert "tool" not in without


def test_no_word_stands_twice_in_the_table():
    names = [word.name for word in WORDS]
    assert len(set(names)) == len(names)
