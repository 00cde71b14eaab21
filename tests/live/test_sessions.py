"""Which session of the real Hermes a thread has, and what Bothy is told about it."""

import sqlite3
from contextlib import closing

import pytest

from bothy_hermes.install_plan import Entry
from bothy_hermes.run_sessions import SESSION_SENTENCES
from bothy_hermes.runtime import SessionSwitch
from tests.live.talk import Talk

CLI_SESSION = "20261130_101010_c11c11c1"

THRESHOLD_TOKENS = 15_000
"""At which a conversation is compressed: three answers of 30000 characters are more."""


@pytest.fixture(scope="module")
def world(closed_world):
    """A world whose Hermes makes a new session when it has compressed one."""
    compression = [
        Entry(("compression", "in_place"), False),
        Entry(("compression", "threshold_tokens"), THRESHOLD_TOKENS),
    ]
    closed_world.open(toolsets=("terminal", "delegation"), more=compression)
    closed_world.start()
    return closed_world


@pytest.fixture
def talk(world):
    return Talk(world)


def reference(talk):
    """Hermes' session of the thread, as Bothy knows it."""
    return talk.instance.thread(talk.thread_id).session_ref


def answer(talk, text, **more):
    run_id = talk.say(text, **more)
    assert talk.ended(run_id).state == "completed", talk.run(run_id).run.reason
    return talk.texts(run_id)[0]


def knows(talk, text, **more):
    """Say something and tell whether the model was shown an earlier answer of its own with it."""
    answer(talk, f"repeat {text}", **more)
    return any(row["role"] == "assistant" for row in talk.world.asked(text)[-1]["messages"])


def database(world):
    return closing(sqlite3.connect(world.gateway.place.hermes_home / "state.db"))


def test_a_new_session_has_no_history_and_an_old_one_can_be_bound_again(talk):
    """Hermes asks for no confirmation, and nothing of its commands is posted."""
    assert not knows(talk, "heron one")
    first = reference(talk)
    assert knows(talk, "heron two")
    assert not knows(talk, "heron three", session_mode="new")
    second = reference(talk)
    assert second not in (None, first)
    assert knows(talk, "heron four", session_mode="bind", bind_ref=first)
    assert reference(talk) == first
    for run_id, number in zip(talk.runs(), ("one", "two", "three", "four"), strict=True):
        (text,) = talk.texts(run_id)
        assert text.endswith(f"heron {number}")
        assert len([one for one in talk.messages(run_id) if one.role]) == 1


def test_the_title_of_the_model_becomes_the_threads(talk):
    """In the first run; a later one changes nothing."""
    answer(talk, "repeat water the plants")
    thread = talk.instance.thread(talk.thread_id)
    assert thread.title == "Script: repeat water the plants"
    answer(talk, "repeat something else")
    assert talk.instance.thread(talk.thread_id).title == thread.title


def test_two_threads_of_one_session_take_turns(talk, world):
    """Nothing is answered by half, and Hermes' words about waiting are posted nowhere."""
    answer(talk, "repeat the code word is magpie")
    other = Talk(world)
    assert knows(other, "in the other thread", session_mode="bind", bind_ref=reference(talk))
    assert reference(other) == reference(talk)
    first = talk.say("sleep 3")
    talk.step(first)  # its title is Hermes' own sentence: 0.22 may lack the words to name the command
    runs = [first, other.say("repeat at the same time")]
    ends = [one.ended(run_id) for one, run_id in zip((talk, other), runs, strict=True)]
    assert [end.state for end in ends] == ["completed", "completed"]
    assert other.texts(runs[1]) == ["at the same time"]
    assert talk.texts(runs[0]) == ["The tool said: slept 3 s"]
    assert ends[0].finished_at <= ends[1].finished_at


@pytest.mark.parametrize("kind", ["title", "number", "cli", "unknown", "command"])
def test_what_is_no_session_of_this_agent_here_is_not_bound(talk, world, kind):
    """A title, a place in a list, another platform's session: a new one serves the thread."""
    answer(talk, "repeat the code word is stork")
    first = reference(talk)
    with database(world) as state, state:
        state.execute(
            "INSERT OR IGNORE INTO sessions (id, source, started_at, title) VALUES (?, 'cli', 0, 'Mine')",
            (CLI_SESSION,),
        )
        (title,) = state.execute("SELECT title FROM sessions WHERE id = ?", (first,)).fetchone()
    named = {
        "title": title,
        "number": "1",
        "cli": CLI_SESSION,
        "unknown": "20200101_000000_00000000",
        "command": f"{first} --all",
    }
    assert not knows(talk, f"with a {kind}", session_mode="bind", bind_ref=named[kind])
    assert reference(talk) not in (None, first, named[kind])
    said = {"cli": SessionSwitch.FOREIGN, "unknown": SessionSwitch.MISSING}.get(kind, SessionSwitch.NO_ID)
    assert talk.run(talk.runs()[-1]).document.status_line == SESSION_SENTENCES[said]


def test_a_compressed_session_goes_on_in_its_child_and_bothy_is_told(talk, world):
    """The thread's session is another one then; the old one's name leads to it, in any thread."""
    answer(talk, "repeat the code word is swift")
    first = reference(talk)
    for number in range(6):  # 0.22 compresses only what lies between the first and the last few messages
        answer(talk, f"repeat the number {number}")
    for _ in range(3):
        answer(talk, "long 30000")
    answer(talk, "repeat and now")
    child = reference(talk)
    assert child != first
    assert knows(talk, "after it")
    assert reference(talk) == child
    other = Talk(world)
    assert knows(other, "by its old name", session_mode="bind", bind_ref=first)
    assert reference(other) == child


def test_subagents_never_take_the_threads_place(talk):
    """They have sessions of their own, of which Bothy hears nothing."""
    answer(talk, "repeat a first message")
    before = reference(talk)
    answer(talk, "delegate repeat a child's words")
    assert reference(talk) == before
    assert knows(talk, "after the child")
    assert reference(talk) == before


def test_a_restart_between_two_runs_keeps_the_session(talk, world):
    """The thread goes on where it was."""
    answer(talk, "repeat before the restart")
    before = reference(talk)
    world.gateway.stop()
    world.start()
    assert knows(talk, "after the restart")
    assert reference(talk) == before
