"""What a person sees of a turn that goes wrong."""

import pytest

from bothy_hermes import local_model_script
from bothy_hermes.hermes_versions import hermes_version
from bothy_hermes.local_model_words import Word, say
from bothy_hermes.turn_view import EMPTY_ANSWER


@pytest.mark.parametrize("word", ["error401", "error500"])
def test_a_failing_model_fails_the_run(world, word):
    """Hermes' own explanation is no answer of the model, and the run does not claim success."""
    said = world.say(word)
    assert said.state == "failed"
    assert said.run["reason"] == "runtime_error"


def test_after_a_failure_the_thread_goes_on(world):
    """A failed run leaves nothing behind that would hold the next one."""
    failed = world.say("error401")
    said = world.say("repeat all is well", failed.thread_id)
    assert said.state == "completed"
    assert said.answer.endswith("all is well")


CIRCLE = "There is nothing to say about the garden but what was said about it before.\n" * 400
"""More than the 16000 characters from which on Hermes 0.22 takes an answer for a loop."""


def test_an_answer_that_goes_round_in_circles_is_sent_or_fails_the_run(world, monkeypatch):
    """Hermes 0.22 discards it and says why, in words that are not the model's: the thread gets none of it."""
    word = Word("circle", "", lambda _turn: say(CIRCLE))
    monkeypatch.setitem(local_model_script._BY_NAME, "circle", word)
    said = world.say("circle")
    if (hermes_version() or "") < "0.22":
        assert said.state == "completed"
        assert said.answer.endswith(CIRCLE.strip())
    else:
        assert (said.state, said.run["reason"]) == ("failed", "runtime_error")
        assert said.texts("answer") == []


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_an_empty_answer_is_said_to_be_one(world):
    """Hermes asks an empty model again for most of a minute; then the thread says what happened."""
    said = world.say("empty", seconds=120)
    assert said.state == "completed"
    assert said.texts("answer") == [EMPTY_ANSWER]
