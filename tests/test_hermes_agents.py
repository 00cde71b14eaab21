"""The agents of Hermes at work on our turns, as the platform object finds them."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes.hermes_agents import AgentsAtWork
from bothy_hermes.turn_facts import Payee
from bothy_hermes.wire_words import KeyType
from tests.fakes import hermes

MESSAGE = UUID(int=5)
TURN = SimpleNamespace(message_id=MESSAGE)
KEY, LOGIN = "sk-ant-api03-abcdef", "sk-ant-oat01-abcdef"


class Platform(AgentsAtWork):
    """As much of the platform object as looks for agents."""

    def __init__(self):
        self.gateway_runner = hermes.Runner()

    def session_key(self, turn):
        assert turn is TURN
        return "key"

    def turn_source(self, turn):
        assert turn is TURN
        return SimpleNamespace(platform="bothy", chat_id="c", thread_id="t")


@pytest.fixture
def platform(monkeypatch):
    """A platform with an agent at work, which has a subagent."""
    hermes.installed(monkeypatch)
    made = Platform()
    child = SimpleNamespace(session_id="child", api_key=LOGIN, _active_children=[])
    agent = hermes.Agent()
    agent.session_id, agent.api_key, agent._active_children = "main", KEY, [child]
    agent.stops = []
    agent.interrupt = lambda: agent.stops.append(None)
    made.gateway_runner.works("key", agent, str(MESSAGE))
    made.at_work, made.child = agent, child
    return made


def test_sessions_are_those_of_the_agent_and_its_subagents(platform):
    assert platform.has_session(TURN, "main")
    assert platform.has_session(TURN, "child")
    assert not platform.has_session(TURN, "another")


def test_each_agents_own_key_is_looked_at(platform):
    """A subagent may pay by another one; what is no agent of the turn is not seen."""
    assert platform.key_type(TURN, "main", "anthropic") is KeyType.API_KEY
    assert platform.key_type(TURN, "child", "anthropic") is KeyType.OAUTH
    assert platform.key_type(TURN, "another", "anthropic") is None


def test_the_agent_of_a_text_that_became_a_turn_of_its_own_is_stopped_too(platform):
    """It is at work on another message, in the same thread."""
    platform.gateway_runner.works("key", platform.at_work, "another message")
    assert platform.agent(TURN) is None
    platform.halt(TURN)
    assert platform.at_work.stops == [None]
    assert platform.child._disable_streaming is False


@pytest.mark.parametrize("entry", [lambda agent: (agent, "signature", 3), lambda agent: agent])
def test_an_agent_that_hermes_does_not_show_yet_is_stopped(platform, entry):
    """Hermes looks for it every 0.05 seconds, and not while its loop is busy: it may be asking before."""
    platform.gateway_runner.turns.clear()
    platform.gateway_runner._agent_cache["key"] = entry(platform.at_work)
    assert platform.agent(TURN) is None
    assert platform.key_type(TURN, "child", "anthropic") is KeyType.OAUTH
    platform.halt(TURN)
    assert platform.at_work.stops == [None]


def test_the_agent_that_hermes_shows_is_the_one(platform):
    """One that is kept may be of an earlier turn."""
    kept = hermes.Agent()
    platform.gateway_runner._agent_cache["key"] = (kept, "signature", 3)
    platform.halt(TURN)
    assert platform.at_work.stops == [None]


@pytest.mark.parametrize("entry", [None, (), (None, "signature"), SimpleNamespace(steer=None)])
def test_what_is_kept_and_is_no_agent_is_none(platform, entry):
    platform.gateway_runner.turns.clear()
    platform.gateway_runner._agent_cache["key"] = entry
    with pytest.raises(LookupError):
        platform.halt(TURN)


def test_where_no_agent_is_in_sight_nothing_is_stopped_and_that_is_said(platform):
    """Whoever asked has to know that the request may leave."""
    platform.gateway_runner.turns.clear()
    with pytest.raises(LookupError):
        platform.halt(TURN)
    assert not platform.has_session(TURN, "main")
    assert platform.key_type(TURN, "main", "anthropic") is None


def test_a_lock_of_the_turns_thread_is_found(platform):
    assert platform.bound_payee(TURN) is None
    platform.gateway_runner._session_model_overrides = {"key": {"provider": "nous"}}
    assert platform.bound_payee(TURN) == Payee("nous")
