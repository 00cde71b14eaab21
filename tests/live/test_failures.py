"""What a person sees of a turn that goes wrong."""

import pytest

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


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_an_empty_answer_is_said_to_be_one(world):
    """Hermes asks an empty model again for most of a minute; then the thread says what happened."""
    said = world.say("empty", seconds=120)
    assert said.state == "completed"
    assert said.texts("answer") == [EMPTY_ANSWER]
