"""What a person sees of a turn that goes well."""

from bothy_hermes.local_model_words import LABEL


def test_a_message_is_answered(world):
    """The answer is the model's, it is in the thread, and the run is completed."""
    said = world.say("repeat good morning")
    assert said.state == "completed"
    assert said.answer == f"{LABEL} good morning"
    assert said.texts("interim") == []
    assert said.run["started_at"]
    assert said.run["billing_mode"] == "organization"


def test_an_answer_is_seen_growing(world):
    """While the model writes, the live box shows more and more of it."""
    said = world.say("stream")
    drafts = said.drafts()
    growing = [len(text) for text in dict.fromkeys(drafts)]
    assert said.state == "completed"
    assert len(growing) >= 3
    assert growing == sorted(growing)
    assert said.answer.endswith("Line 5 of an answer that grows while you watch it.")


def test_a_tool_is_a_step_that_ends(world):
    """A terminal command is shown while it runs, as a step, and as done at the end."""
    said = world.say("sleep 2")
    states = [step["state"] for view in said.views for step in view["document"]["steps"]]
    assert said.state == "completed"
    assert [step["state"] for step in said.steps] == ["completed"]
    assert "running" in states
    assert said.steps[0]["finished_at"]
    assert said.answer == f"{LABEL} The tool said: slept 2 s"


def test_a_text_before_a_tool_is_no_answer(world):
    """What the model says before it uses a tool is a message of its own kind, before the answer."""
    said = world.say("note")
    assert said.state == "completed"
    assert said.texts("interim") == [f"{LABEL} First I look at the machine."]
    assert said.texts("answer") == [f"{LABEL} The tool said: noted"]
    assert [one["role"] for one in said.messages if one["role"]] == ["interim", "answer"]


def test_parallel_tools_are_two_steps(world):
    """Two commands at once are two steps, and both are over at the end."""
    said = world.say("parallel")
    assert [step["state"] for step in said.steps] == ["completed", "completed"]
    assert said.answer == f"{LABEL} The tool said: one | two"


def test_a_task_list_is_a_step(world):
    """A tool that Hermes keeps behind its bridge is shown like any other."""
    said = world.say("todo")
    assert said.state == "completed"
    assert [step["state"] for step in said.steps] == ["completed"]


def test_a_long_answer_comes_in_parts_and_nothing_is_lost(world):
    """An answer over the limit of a message is put together again from its parts."""
    said = world.say("long 600000")
    parts = [one["part"] for one in said.messages if one["role"] == "answer"]
    assert said.state == "completed"
    assert [part["index"] for part in parts] == [0, 1, 2]
    assert [part["last"] for part in parts] == [False, False, True]
    assert all(len(text.encode()) <= 262_144 for text in said.texts("answer"))
    assert abs(len(said.answer) - 600_000) < 100
