"""The class of a turn's tools."""

import importlib.util
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.tool_class import TOOLSET_CLASSES, classify, exceeds
from bothy_hermes.wire_words import ToolClass

NAMES = st.frozensets(st.sampled_from(sorted(TOOLSET_CLASSES)) | st.text(max_size=12))


def installed_toolsets():
    """The toolsets of the Hermes beside these tests; without Hermes the check is nobody's."""
    if importlib.util.find_spec("toolsets") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("CI runs with the pinned Hermes, and it is not installed")
        pytest.skip("Hermes is not installed in this environment")
    from toolsets import TOOLSETS

    return frozenset(TOOLSETS)


@pytest.mark.hermes
def test_every_toolset_of_the_installed_hermes_has_a_class_and_a_reason():
    """A new Hermes with a toolset that nobody has judged fails here, not in front of a person."""
    names = installed_toolsets()
    assert sorted(names - set(TOOLSET_CLASSES)) == []
    assert len(names) >= 60


@pytest.mark.parametrize("name", sorted(TOOLSET_CLASSES))
def test_each_row_states_a_known_class_and_why(name):
    """A row without a reason is no judgement."""
    tool_class, reason = TOOLSET_CLASSES[name]
    assert tool_class in {"chat", "host"}
    assert len(reason) > 8


@pytest.mark.parametrize(
    ("toolsets", "expected"),
    [
        (frozenset(), "chat"),
        (frozenset({"clarify", "todo"}), "chat"),
        (frozenset({"clarify", "todo", "web"}), "host"),
        (frozenset({"todo", "a-server-of-mcp"}), "host"),
        (frozenset({"hermes-bothy"}), "host"),
        (frozenset({"Clarify"}), "host"),
        (frozenset({""}), "host"),
        (None, "host"),
    ],
)
def test_decision_5_the_class_is_the_highest_of_the_set(toolsets, expected):
    """Nothing is chat; one toolset that reaches outside, or one that nobody knows, is host."""
    assert classify(toolsets) == expected


def test_decision_5_the_strongest_toolset_counts_not_the_last_of_the_alphabet(monkeypatch):
    """Hermes has no `scoped` toolset; one that is judged so hides nothing of the machine's."""
    monkeypatch.setitem(TOOLSET_CLASSES, "tickets", (ToolClass.SCOPED, "for this test"))
    assert classify(frozenset({"todo", "tickets"})) == "scoped"
    assert classify(frozenset({"terminal", "tickets"})) == "host"


@given(NAMES, st.text(max_size=12))
def test_decision_5_more_toolsets_never_lower_the_class(toolsets, extra):
    """Adding a toolset keeps or raises the class."""
    assert not exceeds(classify(toolsets), classify(toolsets | {extra}))


@given(NAMES)
def test_only_named_chat_toolsets_are_chat(toolsets):
    """Whatever is chat consists of the two toolsets that stay inside the conversation."""
    assert (classify(toolsets) == "chat") == (toolsets <= {"clarify", "todo"})


@pytest.mark.parametrize(
    ("actual", "granted", "expected"),
    [
        ("chat", "chat", False),
        ("chat", "scoped", False),
        ("chat", "host", False),
        ("scoped", "chat", True),
        ("scoped", "scoped", False),
        ("scoped", "host", False),
        ("host", "chat", True),
        ("host", "scoped", True),
        ("host", "host", False),
        ("root", "host", True),
        ("chat", "everything", True),
        ("", "", True),
    ],
)
def test_a_class_exceeds_a_lower_one_and_a_strange_word_always_does(actual, granted, expected):
    """The whole order, and both sides of a word that nobody knows."""
    assert exceeds(actual, granted) is expected
