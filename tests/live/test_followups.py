"""Texts that people write while the real Hermes works."""

import pytest

from bothy_hermes.hermes_versions import defused
from bothy_hermes.install_plan import Entry
from tests.live.kit import in_019, pause
from tests.live.talk import Talk


@pytest.fixture(scope="module")
def world(closed_world):
    """A world whose agent takes texts into a running turn."""
    quick = {"type": "exec", "command": "echo ran"}
    more = [Entry(("quick_commands", "hello", key), value) for key, value in quick.items()]
    closed_world.open(toolsets=("terminal", "clarify", "delegation"), more=more)
    closed_world.start()
    return closed_world


@pytest.fixture
def talk(world):
    return Talk(world)


def rows_with(world, words):
    """How often a text stands in the last conversation that the model was shown."""
    bodies = [body for body in world.model.requests if words in str(body["messages"])]
    return [row for row in bodies[-1]["messages"] if row["role"] != "assistant" and words in str(row)]


def test_a_text_lands_in_the_turn_behind_the_tool(talk, world):
    """The model is shown it once, answers it in the same run, and no run is opened from it."""
    run_id = talk.say("sleep 3")
    talk.step(run_id)
    posted = talk.post("and mind the heron")
    assert posted.run_id is None
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["The tool said: slept 3 s Meanwhile you said: and mind the heron"]
    assert talk.instance.followup_state(posted.message.id) == "absorbed"
    assert len(rows_with(world, "mind the heron")) == 1
    pause(0.5)
    assert talk.runs() == [run_id]


def test_a_text_that_comes_with_the_last_answer_is_answered_exactly_once(talk, world):
    """In a turn of its own within the run, or in the run behind it: never in both, never in none."""
    run_id = talk.say("slow 2")
    talk.until(lambda: world.asked("slow 2"))
    posted = talk.post("repeat what about the magpie")
    assert talk.ended(run_id).state == "completed"
    pause(0.5)
    state = talk.instance.followup_state(posted.message.id)
    runs = talk.runs()
    if state == "absorbed":
        assert runs == [run_id]
    else:
        assert len(runs) == 2
        assert talk.ended(runs[1]).state == "completed"
    answers = [text for one in runs for text in talk.texts(one)]
    assert answers[0] == "This answer took 2 s."
    assert len([text for text in answers if "what about the magpie" in text]) == 1
    assert len(answers) == 2


def test_a_text_after_the_end_opens_the_next_run(talk):
    """Nothing of it is left in the turn that is over."""
    first = talk.say("repeat one")
    assert talk.ended(first).state == "completed"
    second = talk.say("repeat two")
    assert second not in (None, first)
    assert talk.ended(second).state == "completed"
    assert talk.texts(second) == ["two"]


COMMANDS = ("/new", "/stop", "/yolo", "/deny", "/hello", "!stop", "  /status", "\u200b/new")


def test_a_message_is_never_a_command(talk):
    """The model reads each as it was written, and knows the ones before: nothing began anew."""
    for number, command in enumerate(COMMANDS):
        run_id = talk.say(f"{command} repeat number {number}")
        assert talk.ended(run_id).state == "completed"
        assert talk.texts(run_id) == [f"number {number}"]
    run_id = talk.say("history")
    talk.ended(run_id)
    assert all(f"{command.strip()} repeat number" in talk.texts(run_id)[0] for command in COMMANDS)


@pytest.mark.parametrize("text", [*COMMANDS, "/approve", "yes"])
def test_a_text_is_never_a_command(talk, text):
    """The turn goes on, and the model reads it as it was written."""
    run_id = talk.say("sleep 1")
    talk.step(run_id)
    posted = talk.post(text)
    assert talk.ended(run_id).state == "completed"
    read = defused(text) if in_019() else text.strip()
    assert talk.texts(run_id) == [f"The tool said: slept 1 s Meanwhile you said: {read}"]
    assert talk.instance.followup_state(posted.message.id) == "absorbed"


def test_a_text_while_leave_is_asked_for_reaches_the_model_and_gives_no_leave(talk):
    """It waits for the tool's result: the command was not run."""
    run_id = talk.say("approve")
    talk.cards(run_id)
    posted = talk.post("yes, go ahead")
    assert talk.ended(run_id).state == "completed"
    (answer,) = talk.texts(run_id)
    assert "ran" not in answer.split("Meanwhile")[0].replace("ran by", "")
    assert answer.endswith("Meanwhile you said: yes, go ahead")
    assert talk.instance.followup_state(posted.message.id) == "absorbed"


def test_a_text_of_a_cancelled_run_is_in_no_later_turn_of_it(talk, world):
    """It opens the run behind the cancelled one, and the model is shown it once."""
    run_id = talk.say("sleep 20")
    talk.step(run_id)
    posted = talk.post("repeat the stork")
    talk.until(lambda: talk.instance.followup_state(posted.message.id) == "delivered")
    talk.instance.cancel_run(talk.people[0], run_id)
    behind = talk.next_run(run_id)
    assert talk.ended(behind).state == "completed"
    assert talk.texts(behind)[0].endswith("the stork")
    assert len(rows_with(world, "the stork")) == 1


def test_a_file_of_an_answer_is_a_line_of_it_and_its_place_is_not_told(talk, world):
    """Nothing is sent, and nobody waits for it."""
    path = world.gateway.place.workspace / "report.pdf"
    path.write_bytes(b"%PDF-1.4")
    run_id = talk.say(f"repeat here it is\n\nMEDIA:{path}")
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id) == ["here it is", "not sent: report.pdf"]


def test_a_text_for_a_turn_that_waits_for_subagents_is_absorbed_once(talk, world):
    """Hermes hands it to the subagents as well; the run has one answer to it."""
    run_id = talk.say("delegate sleep 3")
    talk.step(run_id)
    pause(1.0)
    posted = talk.post("repeat the swift")
    assert talk.ended(run_id).state == "completed"
    assert talk.instance.followup_state(posted.message.id) == "absorbed"
    assert talk.runs() == [run_id]
    assert "the swift" in talk.texts(run_id)[-1]
