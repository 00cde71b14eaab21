"""What Hermes was recorded to do, played through the plugin to the embedded server, without Hermes."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from bothy_hermes import entry, hermes_contract
from bothy_hermes.demo_world import adapter_keys_of
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from bothy_hermes.wire_words import RunState
from tests.fakes import hermes
from tests.fakes.replay import Registered, Replay
from tests.recording import CASSETTES

SECONDS = 20.0

SESSION = "<session 1>"
"""The Hermes session of every cassette, by its name there."""

INTERVAL_MS = 20
"""Between two updates of the live box; a person's eye is not in the test."""


@pytest.fixture
def server(tmp_path):
    running = LocalServer.start(
        tmp_path / "server", options=ServerOptions(run_update_min_interval_ms=INTERVAL_MS)
    )
    yield running
    running.stop()
    assert running.violations == []


@pytest.fixture
def state(monkeypatch, tmp_path):
    """Hermes' modules as stand-ins, with a profile whose key is the organization's."""
    state = hermes.installed(monkeypatch)
    monkeypatch.setattr(hermes_contract, "USES", ())  # they have what a recorded turn needs
    state.home.set(str(tmp_path / "profile"))
    state.requested = "custom"
    state.runtime = {"provider": "custom", "api_key": "a-key", "api_mode": "chat_completions"}
    state.toolsets = frozenset({"terminal", "todo"})
    monkeypatch.delitem(sys.modules, "bothy_hermes.hermes_plugin", raising=False)
    return state


def play(name, state, server, text="hello"):
    """Post a message, let the recorded Hermes work on it, and return the run and its messages."""

    async def scenario():
        registered = Registered()
        entry.register(registered)
        keys = adapter_keys_of(server) | {"adapter.run_update_min_interval": INTERVAL_MS / 1000}
        adapter = registered.factory(SimpleNamespace(extra=keys))
        adapter.gateway_runner = hermes.Runner()
        adapter.gateway_runner.rows[SESSION] = {"id": SESSION, "title": "A greeting", "title_source": "llm"}
        Replay(name, state, registered.hooks, adapter)
        assert await adapter.connect()
        try:
            return await asyncio.wait_for(_posted(server, text), SECONDS)
        finally:
            await adapter.disconnect()

    return asyncio.run(scenario())


async def _posted(server, text):
    instance = server.instance
    await until(lambda: server.connected)
    owner = instance.people()[0]
    thread = instance.create_thread(owner.id)
    run_id = instance.post_message(owner.id, thread.id, text).run_id
    await until(lambda: instance.run(run_id).run.state.ended)
    messages = [one for one in instance.messages(thread.id) if one.run_id == run_id]
    return instance.run(run_id), messages


async def until(condition):
    while not condition():  # noqa: ASYNC110  # the other side is a thread of its own
        await asyncio.sleep(0.005)


def texts(messages, role):
    return [one.content for one in messages if one.role == role]


def test_a_plain_turn(state, server):
    """The recorded answer is posted once, and the run is completed."""
    view, messages = play("plain", state, server)
    assert view.run.state is RunState.COMPLETED
    assert texts(messages, "answer") == ["[script] good morning"]
    assert texts(messages, "interim") == []
    assert view.document.steps == ()
    assert server.instance.thread(view.run.thread_id).title == "A greeting"


def test_a_turn_with_a_tool(state, server):
    """The recorded command is one step that has ended."""
    view, messages = play("tool", state, server)
    assert view.run.state is RunState.COMPLETED
    assert texts(messages, "answer") == ["[script] The tool said: hello from the terminal"]
    assert [(step.title, step.state) for step in view.document.steps] == [
        ("is running echo hello from the terminal…", "completed")
    ]


def test_a_turn_with_a_text_before_a_tool(state, server):
    """What was said before the command is no answer."""
    view, messages = play("note", state, server)
    assert view.run.state is RunState.COMPLETED
    assert [(one.role, one.content) for one in messages if one.role] == [
        ("interim", "[script] First I look at the machine."),
        ("answer", "[script] The tool said: noted"),
    ]


def test_a_turn_whose_model_fails(state, server):
    """Hermes' explanations are no answers, and the run has failed."""
    view, messages = play("error", state, server)
    assert view.run.state is RunState.FAILED
    assert view.run.reason == "runtime_error"
    assert texts(messages, "answer") == []


def test_every_cassette_is_played():
    """A recording that nothing plays proves nothing."""
    played = {"plain", "tool", "note", "error"}
    assert {path.stem for path in CASSETTES.glob("*.jsonl")} == played
