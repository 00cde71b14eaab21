"""The server stops and comes back while Hermes is at work: what Hermes did meanwhile is there, once."""

from urllib.parse import urlsplit

import pytest

from bothy_hermes.clock import system_clock
from bothy_hermes.local_port import LocalServer
from tests.live.kit import in_019, pause
from tests.live.talk import Talk

AWAY_SECONDS = 2.0


@pytest.fixture(scope="module")
def world(closed_world):
    closed_world.open(toolsets=("terminal", "clarify"))
    closed_world.start()
    return closed_world


def restart(world, away=AWAY_SECONDS):
    """Stop the server, wait, and start it on the same directory and port."""
    before = world.server
    before.stop()
    pause(away)
    world.server = LocalServer.start(
        before.instance.store.directory,
        port=urlsplit(before.origin).port,
        clock=system_clock(),
        options=before.instance.options,
    )
    world.server.violations.extend(before.violations)
    world._stack.callback(world.server.stop)


def test_a_turn_that_ends_while_the_server_is_away_is_answered_once(world):
    """The tool's step, the answer and the run's end wait for it on the adapter's disk."""
    talk = Talk(world)
    run_id = talk.say("sleep 2")
    talk.step(run_id)
    restart(world)
    talk = Talk(world, talk.thread_id)
    assert str(talk.ended(run_id).state) == "completed"
    assert [str(step.state) for step in talk.run(run_id).document.steps] == ["completed"]
    assert talk.texts(run_id) == ["The tool said: slept 2 s"]
    assert talk.runs() == [run_id]


def test_a_card_outlives_a_restart_and_its_click_is_taken_once(world):
    talk = Talk(world)
    run_id = talk.say("clarify")
    talk.cards(run_id)
    restart(world, 0.5)
    talk = Talk(world, talk.thread_id)
    (card,) = talk.cards(run_id)
    assert talk.press(card, "Blue") == ("acknowledged", "Blue" if in_019() else "Blue (Recommended)")
    assert str(talk.ended(run_id).state) == "completed"
    assert talk.texts(run_id) == ["The tool said: Blue"]


def test_a_server_that_comes_back_again_and_again_keeps_its_agent(world):
    for _ in range(3):
        restart(world, 0.2)
        pause(1.0)
    talk = Talk(world)
    run_id = talk.say("repeat still here")
    assert str(talk.ended(run_id).state) == "completed"
    assert talk.texts(run_id) == ["still here"]
