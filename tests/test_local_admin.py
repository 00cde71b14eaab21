"""What administrators change."""

from uuid import UUID

import pytest

from bothy_hermes.local_rules import Refused
from tests.fakes.local_kit import rig


def test_a_new_person_may_address_the_agent_or_not(tmp_path):
    with rig(tmp_path) as made:
        eve = made.instance.add_person("Eve", "member", run_kinds=("operator", "guest"))
        made.instance.add_person("Mallory", "guest", run_kinds=())
        allow = {one.principal_id: one.run_kinds for one in made.instance.agent.allow}
        assert allow[eve.id] == ("operator", "guest")
        assert len(allow) == 3
        assert made.instance.agent.allow_version == 3
        assert made.instance.change_person(eve.id, role="guest").role == "guest"


def test_changed_settings_are_told_to_every_consumer(tmp_path):
    """Also to one that is away, but not to one that has not been seen for two days."""
    with rig(tmp_path) as made:
        made.connect("old", UUID(int=7))
        made.disconnect("old")
        made.clock.move(172_801)
        made.connect("away", UUID(int=8))
        made.disconnect("away")
        made.connect()
        made.instance.set_options(tool_class="chat")
        ((consumer, event),) = made.deliver()
        assert (consumer, event["type"]) == ("default", "agent.config_changed")
        assert event["payload"] == {"settings_version": 2}
        assert event.get("token") is None
        made.connect("away", UUID(int=8))
        assert [consumer for consumer, _ in made.deliver()] == ["away"]
        assert made.instance.events.pending("old") == 0


def test_options_hold_for_new_runs(tmp_path):
    with rig(tmp_path) as made:
        before = made.say(made.thread())
        made.instance.set_options(tool_class="chat", billing_mode="personal")
        after = made.say(made.thread())
        runs = [made.instance.run(one.run_id).run for one in (before, after)]
        assert [(run.tool_class, run.billing_mode) for run in runs] == [
            ("host", "organization"),
            ("chat", "personal"),
        ]


def test_a_run_ended_by_the_server(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        assert made.instance.end_run(job.id).run.reason == "expired"
        with pytest.raises(Refused) as caught:
            made.instance.end_run(job.id)
        assert caught.value.code == "run_ended"
        assert made.take()["payload"]["by"] is None
