"""The commands that the adapter itself gives Hermes."""

from types import SimpleNamespace

from bothy_hermes import hermes_control
from tests.fakes import hermes


def waiting(clarify_id, session_key="s"):
    """An open question."""
    return SimpleNamespace(clarify_id=clarify_id, session_key=session_key)


def test_the_stop_command_is_ours_and_known_by_its_message(monkeypatch):
    """Internal, so that no list of users stops it half-way."""
    hermes.installed(monkeypatch)
    event = hermes_control.stop_event("source", "m-1")
    assert (event.text, event.internal, event.message_id, event.source) == ("/stop", True, "m-1", "source")


def test_every_open_question_of_the_session_is_released(monkeypatch):
    """A stopped turn stays blocked on a question until it is answered."""
    state = hermes.installed(monkeypatch)
    state.clarifies = [waiting("a"), waiting("b"), waiting("c", "other")]
    assert hermes_control.release_clarifies("s") == 2
    assert state.resolved == [("clarify", "a", ""), ("clarify", "b", "")]
    assert [one.clarify_id for one in state.clarifies] == ["c"]


def test_a_question_that_is_already_answered_ends_the_round(monkeypatch):
    """Hermes keeps it until its worker wakes; nothing turns in a circle."""
    state = hermes.installed(monkeypatch)
    state.clarifies = [waiting("a")]
    state.modules["tools.clarify_gateway"].resolve_gateway_clarify = lambda *_: False
    assert hermes_control.release_clarifies("s") == 0
