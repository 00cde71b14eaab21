"""What events and run lists say (section 6)."""

import pytest

from tests.fakes.local_kit import ADAPTER, rig


def test_an_invocation_as_it_is_sent(tmp_path):
    """The run as it is now, an excerpt of the message, the session, and a token of its own."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.offered(thread, "x" * 300, person=made.ben)
        event = dict(job.event)
        assert (event["attempt"], event["agent_id"]) == (1, str(made.instance.agent.id))
        assert event["created_at"] == "2026-11-30T12:00:00.000000Z"
        payload = dict(event["payload"])
        run = payload.pop("run")
        assert payload == {
            "message_id": run["trigger_message_id"],
            "content_excerpt": "x" * 200,
            "trigger_kind": "message",
            "session_mode": "new",
            "agent_session": {"external_session_ref": None, "version": 0},
            "settings_version": 1,
        }
        assert (run["consumer"], run["run_starter"]) == ("default", str(made.ben.id))
        assert (run["thread_id"], run["channel_id"]) == (str(thread.id), str(thread.channel_id))


def test_a_redelivered_event_says_how_things_are_now(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        made.say(made.instance.thread(job.thread_id), "more")
        (first,) = made.events()
        card = job.card()
        job.wait(card)
        made.clock.move(31)
        (again,) = made.events()
        states = [event["payload"]["run_state"] for event in (first, again)]
        assert states == ["running", "waiting_input"]


def test_listed_runs(tmp_path):
    """Not ended ones by default, oldest first, with what the invocation would say now."""
    with rig(tmp_path) as made:
        thread = made.thread()
        ended = made.running()
        ended.finish()
        job = made.running(thread)
        card = job.card()
        job.wait(card)
        waiting = made.say(made.thread(), "later")
        made.clock.move(5)
        listed = made.agent_call("GET", "/runs").json["runs"]
        assert [one["run"]["id"] for one in listed] == [str(job.id), str(waiting.run_id)]
        first, second = listed
        assert (first["run"]["state"], first["open_cards"]) == ("waiting_input", [card])
        assert first["invocation"]["run"] == first["run"]
        assert first["adapter_id"] == str(ADAPTER)
        assert first["adapter_seen_at"] == "2026-11-30T12:00:00.000000Z"
        assert (second["adapter_id"], second["adapter_seen_at"]) == (None, None)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?state=completed", [0]),
        ("?state=completed,running", [0, 1]),
        ("?state=running&consumer=other", []),
        ("?consumer=default", [1]),
        ("?state=", [1]),
    ],
)
def test_runs_are_listed_by_state_and_consumer(tmp_path, query, found):
    with rig(tmp_path) as made:
        jobs = [made.running(), made.running()]
        jobs[0].finish()
        listed = made.agent_call("GET", f"/runs{query}").json["runs"]
        assert [one["run"]["id"] for one in listed] == [str(jobs[at].id) for at in found]


@pytest.mark.parametrize("query", ["?state=lost", "?consumer=a%20b", "?consumer="])
def test_a_bad_list_query_is_a_violation(tmp_path, query):
    with rig(tmp_path, clean=False) as made:
        assert made.agent_call("GET", f"/runs{query}").status == 422
        assert len(made.violations) == 1


def test_at_most_200_runs_are_listed(tmp_path):
    with rig(tmp_path) as made:
        for _ in range(201):
            made.say(made.thread())
        assert len(made.agent_call("GET", "/runs").json["runs"]) == 200
