"""What Hermes' own configuration says."""

from types import SimpleNamespace

import pytest

from bothy_hermes import hermes_config
from bothy_hermes.runtime import BusyMode
from bothy_hermes.tool_class import classify
from tests.fakes import hermes


@pytest.mark.parametrize(
    ("toolsets", "tool_class"),
    [
        ({"todo"}, "chat"),
        (set(), "chat"),
        ({"todo", "my-mcp-server"}, "host"),
        ({"todo", "terminal"}, "host"),
    ],
)
def test_decision_5_the_class_is_that_of_what_hermes_enables(monkeypatch, toolsets, tool_class):
    """Hermes' own resolution is asked, with its MCP servers."""
    state = hermes.installed(monkeypatch)
    state.toolsets = toolsets
    assert classify(hermes_config.load_toolsets("bothy")) == tool_class


@pytest.mark.parametrize(
    ("config", "cursor"),
    [
        ({}, " ▉"),
        ({"streaming": {}}, " ▉"),
        ({"streaming": {"cursor": "|"}}, "|"),
        ({"streaming": {"cursor": ""}}, ""),
        ({"streaming": {"cursor": None}}, " ▉"),
        ({"streaming": "on"}, " ▉"),
    ],
)
def test_the_sign_behind_an_unfinished_text(monkeypatch, config, cursor):
    """As the operator set it, else Hermes' own."""
    hermes.installed(monkeypatch).config = config
    assert hermes_config.stream_cursor() == cursor


@pytest.mark.parametrize(
    ("runner", "mode"),
    [
        (SimpleNamespace(_busy_input_mode="steer"), BusyMode.STEER),
        (SimpleNamespace(_busy_input_mode="queue"), BusyMode.QUEUE),
        (SimpleNamespace(_busy_input_mode="interrupt"), BusyMode.INTERRUPT),
        (SimpleNamespace(_busy_input_mode="whatever"), None),
        (SimpleNamespace(), None),
        (None, None),
        (
            SimpleNamespace(_busy_input_mode="steer", _effective_busy_input_mode=lambda source: source),
            BusyMode.QUEUE,
        ),
    ],
)
def test_the_busy_mode_is_the_profiles(runner, mode):
    """Several profiles in one gateway have one each; what nobody knows is None."""
    assert hermes_config.busy_mode(runner, "queue") is mode
