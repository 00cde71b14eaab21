"""The embedded server with people and an agent; a module that needs another server has one of its own."""

import pytest

from bothy_hermes.local_port import LocalServer
from tests.fakes.agent import FakeAgent
from tests.fakes.people import PersonClient


@pytest.fixture
def server(tmp_path):
    running = LocalServer.start(tmp_path / "server")
    yield running
    running.stop()
    assert running.violations == []


@pytest.fixture
def owner(server):
    """Ada, who owns the agent."""
    return PersonClient(server, server.people[0].token)


@pytest.fixture
def agent(server):
    """The agent, connected; a test plays its part."""
    with FakeAgent(server) as connected:
        yield connected
