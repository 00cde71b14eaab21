"""The commands that the adapter itself gives Hermes."""

from types import SimpleNamespace

import pytest

from bothy_hermes import hermes_control
from bothy_hermes.hermes_control import Command
from tests.fakes import hermes


@pytest.mark.parametrize(
    ("command", "reference", "text"),
    [
        (Command.STOP, None, "/stop"),
        (Command.NEW, None, "/new"),
        (Command.RESUME, "20261130_120000_abcdef12", "/resume 20261130_120000_abcdef12 --all"),
    ],
)
def test_a_command_is_ours_and_known_by_its_message(monkeypatch, command, reference, text):
    """Internal, so that no list of users stops it half-way."""
    hermes.installed(monkeypatch)
    event = hermes_control.control_event(command, "source", "m-1", reference)
    assert (event.text, event.internal, event.message_id, event.source) == (text, True, "m-1", "source")


def test_decision_4_an_agent_is_halted_with_its_subagents():
    """What does not stream is looked at for an interrupt too late: so all of them stream."""
    stops = []
    grandchild = SimpleNamespace(session_id="c2", _disable_streaming=True, _active_children=[])
    child = SimpleNamespace(session_id="c1", _disable_streaming=True, _active_children=[grandchild])
    agent = SimpleNamespace(
        session_id="s",
        _disable_streaming=True,
        _active_children=[child],
        interrupt=lambda: stops.append((agent._disable_streaming, child._disable_streaming)),
    )
    hermes_control.halt(agent)
    assert stops == [(False, False)]
    assert grandchild._disable_streaming is False
    assert hermes_control.agent_of_session(agent, "s") is agent
    assert hermes_control.agent_of_session(agent, "c2") is grandchild
    assert hermes_control.agent_of_session(agent, "x") is None


def test_the_stop_that_nothing_outlasts_is_taken_where_there_is_one():
    """From 0.21 on a compression masks plain interrupts."""
    stops = []
    agent = SimpleNamespace(
        interrupt=lambda: stops.append("plain"), hard_interrupt=lambda: stops.append("hard")
    )
    hermes_control.halt(agent)
    assert stops == ["hard"]


def test_everything_that_a_session_waits_for_is_released(monkeypatch):
    """A stopped turn stays blocked on a question until it is answered; nobody has denied a command."""
    state = hermes.installed(monkeypatch)
    state.clarifies = [
        SimpleNamespace(clarify_id=one, session_key=key) for one, key in (("a", "s"), ("b", "s"), ("c", "t"))
    ]
    state.approvals = [{"session_key": key, "request_id": key} for key in ("s", "t")]
    assert hermes_control.release_prompts("s") == 3
    assert state.resolved == [("clarify", "a", ""), ("clarify", "b", ""), ("withdrawn", "s", "s")]
    assert [one.clarify_id for one in state.clarifies] == ["c"]
    assert hermes_control.release_prompts("s") == 0
