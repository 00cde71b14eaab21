"""What Hermes' store and database say about sessions."""

import asyncio
from types import SimpleNamespace

import pytest

from bothy_hermes.hermes_sessions import HermesSessions
from bothy_hermes.runtime import MAX_ANCESTORS, SessionSwitch
from tests.fakes import hermes

FIRST, CHILD, RESET = "20261130_120000_aaaaaaaa", "20261130_130000_bbbbbb", "20261130_140000_cccccccc"
OLD = "20261130_110000_eeeeeeee"
ROWS = {
    FIRST: {
        "id": FIRST,
        "source": "bothy",
        "end_reason": "compression",
        "title": "Mine",
        "title_source": "llm",
    },
    CHILD: {"id": CHILD, "source": "bothy", "parent_session_id": FIRST, "end_reason": "session_reset"},
    RESET: {
        "id": RESET,
        "source": "bothy",
        "parent_session_id": CHILD,
        "title": "D",
        "title_source": "derived",
    },
    OLD: {"id": OLD, "source": "bothy", "title": "Old"},
    "20261130_150000_dddddddd": {"id": "20261130_150000_dddddddd", "source": "cli"},
    "Mine": {"id": FIRST, "source": "bothy"},
    "Watering": {"id": FIRST, "source": "bothy"},
    "12345678": {"id": "12345678", "source": "bothy"},
}


def sessions(**rows):
    runner = hermes.Runner()
    runner.rows = ROWS | rows
    runner.sessions["key"] = FIRST
    return HermesSessions(runner, "bothy")


def ask(question):
    return asyncio.run(question)


def test_a_threads_session_is_the_stores():
    """None until its first turn makes one."""
    assert sessions().of_thread("key") == FIRST
    assert sessions().of_thread("other") is None


def test_an_older_store_is_read_by_its_entries():
    """It has no way to look without making one."""
    store = SimpleNamespace(_entries={"key": SimpleNamespace(session_id=FIRST)})
    made = HermesSessions(SimpleNamespace(session_store=store, _session_db=None), "bothy")
    assert made.of_thread("key") == FIRST
    assert made.of_thread("other") is None
    assert ask(made.title(FIRST)) is None


@pytest.mark.parametrize(
    ("reference", "fault"),
    [
        (FIRST, None),
        (CHILD, None),
        ("20261130_150000_dddddddd", SessionSwitch.FOREIGN),
        ("20200101_000000_00000000", SessionSwitch.MISSING),
        ("Mine", SessionSwitch.NO_ID),
        ("Watering", SessionSwitch.NO_ID),
        ("12345678", SessionSwitch.NO_ID),
        (f"{FIRST} --all", SessionSwitch.NO_ID),
        ("/new", SessionSwitch.NO_ID),
        ("", SessionSwitch.NO_ID),
    ],
)
def test_decision_10_only_an_id_of_this_platform_can_be_continued(reference, fault):
    """No title, no place in a list, no other platform's session, nothing with a command in it."""
    assert ask(sessions().fault_of(reference)) is fault


def test_a_parent_is_what_was_compressed_and_not_what_was_left():
    """A session that was begun anew names the one before it too."""
    assert ask(sessions().parent(CHILD)) == FIRST
    assert ask(sessions().parent(RESET)) is None
    assert ask(sessions().parent(FIRST)) is None


@pytest.mark.parametrize(
    ("session", "ancestor", "goes_on"),
    [
        (FIRST, FIRST, True),
        (CHILD, FIRST, True),
        (RESET, FIRST, False),
        (None, FIRST, False),
        (FIRST, CHILD, False),
    ],
)
def test_a_session_goes_on_with_what_it_grew_out_of(session, ancestor, goes_on):
    """Through compressions only."""
    assert ask(sessions().goes_on_with(session, ancestor)) is goes_on


def test_a_circle_of_ancestors_has_an_end():
    """The database is Hermes'."""
    circle = {"id": "a", "parent_session_id": "a", "end_reason": "compression"}
    assert ask(sessions(a=circle).goes_on_with("a", "b")) is False
    assert MAX_ANCESTORS < 100


@pytest.mark.parametrize(
    ("session", "title"), [(FIRST, "Mine"), (RESET, None), (CHILD, None), ("none", None), (OLD, "Old")]
)
def test_only_the_models_title_is_one(session, title):
    """Hermes derives one from the first words before that; 0.19 does not, and has no such column."""
    assert ask(sessions().title(session)) == title
