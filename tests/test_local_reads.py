"""The adapter's reads and agent-wide calls (sections 4 and 12)."""

import pytest

from tests.fakes.local_kit import HEARTBEAT, rig


def test_me_and_the_allow_list(tmp_path):
    with rig(tmp_path) as made:
        agent = made.instance.agent
        assert made.call("GET", "/me", made.agent_token).json == {
            "id": str(agent.id),
            "kind": "agent",
            "display_name": "Hermes",
            "owner_id": str(made.ada.id),
            "instance_id": str(made.instance.id),
            "dpop_jkt": None,
            "settings_version": 1,
        }
        answer = made.agent_call("GET", "/allow-list")
        assert answer.json["version"] == 1
        assert {one["principal_id"] for one in answer.json["entries"]} == {
            str(made.ada.id),
            str(made.ben.id),
        }
        assert made.agent_call("GET", "/allow-list", If_None_Match='"1"').status == 304
        made.instance.set_allowed(made.ben.id, ())
        answer = made.agent_call("GET", "/allow-list", If_None_Match='"1"')
        assert (answer.status, answer.headers["ETag"]) == (200, '"2"')
        assert [one["principal_id"] for one in answer.json["entries"]] == [str(made.ada.id)]


@pytest.mark.parametrize(
    "changes",
    [
        {"extra": 1},
        {"runtime_version": None},
        {"state": "tired"},
        {"details": {**HEARTBEAT["details"], "extra": 1}},
        {"details": {**HEARTBEAT["details"], "protocol_version": 2}},
        {"details": {**HEARTBEAT["details"], "adapter": {"name": "other", "version": "1"}}},
        {"details": {**HEARTBEAT["details"], "adapter": {"name": "bothy-hermes"}}},
        {"billing_evidence": {**HEARTBEAT["billing_evidence"], "key": "x"}},
    ],
)
def test_the_heartbeat_is_closed(tmp_path, changes):
    with rig(tmp_path, clean=False) as made:
        answer = made.agent_call("PUT", "/heartbeat?consumer=default", {**HEARTBEAT, **changes})
        assert (answer.status, answer.code) == (422, "validation_failed")
        assert len(made.violations) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/allow-list", None),
        ("GET", "/runs", None),
        ("GET", "/runs?state=completed&consumer=default", None),
        ("PUT", "/heartbeat?consumer=default", HEARTBEAT),
    ],
)
def test_a_path_names_this_agent(tmp_path, method, path, body):
    """Another agent's ID in it is a violation, whoever's token comes with it."""
    with rig(tmp_path, clean=False) as made:
        other = "00000000-0000-4000-8000-000000000001"
        answer = made.call(method, f"/agents/{other}{path}", made.agent_token, body)
        assert (answer.status, answer.code) == (404, "not_found")
        assert [one.partition(": ")[2] for one in made.violations] == ["no such agent"]
        assert made.instance.consumers() == ()


def test_a_heartbeat_names_its_consumer(tmp_path):
    with rig(tmp_path, clean=False) as made:
        assert made.agent_call("PUT", "/heartbeat", HEARTBEAT).status == 422


def test_a_run_as_it_is_read(tmp_path):
    """With its document and its open cards, by its own token or the agent's."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card()
        job.wait(card, "waiting")
        answer = job.call("GET", "").json
        assert answer["run"]["state"] == "waiting_input"
        assert answer["document"] == {
            "version": 2,
            "status_line": "waiting",
            "steps": [],
            "last_text_excerpt": None,
        }
        assert answer["open_cards"] == [card]
        assert made.call("GET", f"/runs/{job.id}", made.agent_token).json == answer
