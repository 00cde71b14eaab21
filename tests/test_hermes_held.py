"""Texts that Hermes holds until the model's next request."""

from types import SimpleNamespace

import pytest

from bothy_hermes import hermes_held
from tests.fakes import hermes


class TestRunningAgent:
    """Who could take a text, or hear an interrupt."""

    @pytest.mark.parametrize(("at_work_on", "found"), [("m-1", True), (None, True), ("m-0", False)])
    def test_the_agent_of_an_earlier_turn_is_not_at_work(self, at_work_on, found):
        """Hermes keeps it in sight until the next one begins."""
        runner, agent = hermes.Runner(), hermes.Agent()
        runner.works("key", agent, at_work_on)
        assert (hermes_held.running_agent(runner, "key", "m-1") is agent) is found

    def test_whichever_agent_is_in_sight_is_found_without_a_message(self):
        """A text may have become a turn of its own."""
        runner, agent = hermes.Runner(), hermes.Agent()
        runner.works("key", agent, "m-0")
        assert hermes_held.running_agent(runner, "key") is agent

    def test_before_the_agent_there_is_nobody(self):
        """Hermes holds its place with an object that can do nothing."""
        runner = hermes.Runner()
        assert hermes_held.running_agent(runner, "key", "m-1") is None
        runner.works("key", object(), "m-1")
        assert hermes_held.running_agent(runner, "key", "m-1") is None

    def test_an_older_runner_keeps_its_agents_in_a_table(self):
        """0.19 and 0.20."""
        agent = hermes.Agent()
        runner = SimpleNamespace(_running_agents={"key": agent})
        assert hermes_held.running_agent(runner, "key", "m-1") is agent
        assert hermes_held.running_agent(runner, "other", "m-1") is None


class TestDrop:
    """What the turn did not take is in nobody's next turn."""

    def adapter(self, **queues):
        runner = hermes.Runner()
        runner.queued["key"] = [SimpleNamespace(message_id=one) for one in queues.get("queued", ())]
        waiting = queues.get("waiting")
        pending = {"key": SimpleNamespace(message_id=waiting)} if waiting else {}
        return SimpleNamespace(_pending_messages=pending, gateway_runner=runner)

    def test_a_text_is_taken_back_from_the_agent(self):
        """It would be in the session's next turn."""
        agent = hermes.Agent()
        agent.steer("turn left")
        hermes_held.drop(agent, self.adapter(), "key", {"m-1"})
        assert agent.pending is None

    def test_a_text_is_taken_out_of_the_queue_and_another_is_left(self):
        """Hermes queues what it could not hand in."""
        adapter = self.adapter(waiting="m-1", queued=["m-2", "m-3"])
        hermes_held.drop(None, adapter, "key", {"m-1", "m-3"})
        assert adapter._pending_messages == {}
        assert [one.message_id for one in adapter.gateway_runner.queued["key"]] == ["m-2"]
        foreign = self.adapter(waiting="m-9")
        hermes_held.drop(None, foreign, "key", {"m-1"})
        assert "key" in foreign._pending_messages

    def test_a_runner_without_such_a_queue_is_left_alone(self):
        """0.19."""
        adapter = SimpleNamespace(_pending_messages={}, gateway_runner=SimpleNamespace())
        hermes_held.drop(object(), adapter, "key", {"m-1"})
