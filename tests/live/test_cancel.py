"""A person cancels a run of the real Hermes, wherever its turn is."""

import subprocess

import pytest

from bothy_hermes.clock import system_clock
from tests.live.kit import pause
from tests.live.talk import Talk

TURN_SECONDS = 3.0
"""How long a cancelled turn may go on in Hermes."""

EXIT_SECONDS = 5.0
"""How long a gateway may take from the signal to its end."""


@pytest.fixture(scope="module")
def world(closed_world):
    closed_world.open(toolsets=("terminal", "clarify", "delegation"))
    closed_world.start()
    return closed_world


@pytest.fixture
def talk(world):
    return Talk(world)


def cancel(talk, run_id, who=0):
    """Cancel a run; returns by how much the answer to the next message is later than to one after that."""
    talk.instance.cancel_run(talk.people[who], run_id)
    return answered(talk) - answered(talk)


def answered(talk):
    """Say something; returns the seconds until its answer."""
    clock = system_clock()
    began = clock.monotonic()
    run_id = talk.say("repeat back again")
    assert talk.ended(run_id).state == "completed"
    assert talk.texts(run_id)[0].endswith("back again")
    return clock.monotonic() - began


def said(talk, run_id):
    """Everything that the agent posted in a run."""
    return [one.content for one in talk.messages(run_id) if one.client_msg_id is not None and one.role]


def sleeps():
    """Whether the command is at work: for the end of a shell that is just starting Hermes waits 3 s."""
    shown = subprocess.run(["ps", "-A", "-o", "command"], capture_output=True, text=True, check=True).stdout
    return "sleep 20" in shown.splitlines()


def at_the_model(talk, run_id, word):
    talk.until(lambda: talk.world.asked(word))


@pytest.mark.parametrize(
    ("text", "ready"),
    [
        ("slow 20", lambda talk, run_id: talk.until(lambda: talk.world.asked("slow 20"))),
        ("stream", lambda talk, run_id: talk.until(lambda: talk.run(run_id).document.last_text_excerpt)),
        ("sleep 20", lambda talk, run_id: talk.until(sleeps)),
        ("clarify", lambda talk, run_id: talk.cards(run_id)),
        ("approve", lambda talk, run_id: talk.cards(run_id)),
        ("approvals", lambda talk, run_id: talk.cards(run_id, 2)),
        ("repeat before the first request", lambda talk, run_id: None),
        ("repeat just begun", lambda talk, run_id: talk.in_state(run_id, "running", "completed")),
    ],
    ids=["model", "streaming", "tool", "clarify", "approval", "subagents", "queued", "starting"],
)
def test_a_cancelled_turn_ends_and_the_next_message_begins_cleanly(talk, text, ready):
    """Nothing more is posted, no prompt is left, and the thread is free within seconds."""
    run_id = talk.say(text)
    ready(talk, run_id)
    before = said(talk, run_id)
    if not talk.run(run_id).run.state.ended:
        seconds = cancel(talk, run_id)
        assert talk.run(run_id).run.state == "cancelled"
        assert seconds < TURN_SECONDS
    pause(0.3)
    assert said(talk, run_id) == before
    assert all(one.closed for one in talk.messages(run_id) if one.components)


def test_a_gateway_that_is_stopped_leaves_nobody_waiting(world):
    """With a question and a command open it is gone within seconds; their runs have an end."""
    talks = [Talk(world) for _ in range(2)]
    runs = [talk.say(word) for talk, word in zip(talks, ("clarify", "approve"), strict=True)]
    for talk, run_id in zip(talks, runs, strict=True):
        talk.cards(run_id)
    clock = system_clock()
    began = clock.monotonic()
    world.gateway.stop()
    assert clock.monotonic() - began < EXIT_SECONDS
    for talk, run_id in zip(talks, runs, strict=True):
        run = talk.run(run_id).run
        assert (run.state, run.reason) == ("failed", "interrupted")
