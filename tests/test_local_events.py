"""Delivery, order, offers and consumers on the embedded server (section 5)."""

from uuid import UUID

from bothy_hermes.wire_words import RunState
from tests.fakes.local_kit import ADAPTER, rig

OTHER = UUID("00000000-0000-4000-8000-00000000000b")


def test_an_event_that_is_not_acked_comes_again(tmp_path):
    """After the ack timeout, with the next attempt, the same ID and another token."""
    with rig(tmp_path, ack_timeout_ms=5000) as made:
        made.connect()
        made.say(made.thread())
        (first,) = made.events()
        made.clock.move(4.9)
        assert made.events() == []
        made.clock.move(0.2)
        (again,) = made.events()
        assert (first["attempt"], again["attempt"]) == (1, 2)
        assert again["id"] == first["id"]
        assert again["token"] != first["token"]
        made.ack(again)
        made.clock.move(60)
        assert made.events() == []


def test_a_new_connection_gets_what_the_old_one_did_not_ack(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        made.say(made.thread())
        (first,) = made.events()
        made.disconnect()
        made.connect()
        assert made.instance.events.pending("default") == 1
        (again,) = made.events()
        assert (again["id"], again["attempt"]) == (first["id"], 2)
        made.ack(again)
        assert made.instance.events.pending("default") == 0


def test_attempts_go_on_after_a_restart_of_the_server(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        made.say(made.thread())
        (first,) = made.events()
        made.restart()
        made.connect()
        (again,) = made.events()
        assert (again["id"], again["attempt"]) == (first["id"], 2)
        made.ack(first)
        assert made.events() == []


def test_a_thread_waits_for_the_ack_of_its_event(tmp_path):
    """Other threads do not wait, and neither do run.ended and agent.config_changed."""
    with rig(tmp_path) as made:
        thread, other = made.thread(), made.thread()
        job = made.running(thread)
        for text in ("one", "two"):
            made.say(thread, text)
        (followup,) = made.events()
        made.say(other)
        made.instance.set_channel_config(thread.channel_id, "x")
        assert [event["type"] for event in made.events()] == ["agent.invocation", "agent.config_changed"]
        made.ack(followup)
        assert [event["type"] for event in made.events()] == ["agent.followup"]
        made.instance.cancel_run(made.ada.id, job.id)
        assert "run.ended" in [event["type"] for event in made.events()]


def test_at_most_64_events_are_in_flight(tmp_path):
    """Further ones come as acks make room; those outside thread order come all the same."""
    with rig(tmp_path) as made:
        made.connect(max_active_runs=100)
        for _ in range(70):
            made.say(made.thread())
        sent = made.events()
        assert len(sent) == 64
        made.instance.set_channel_config(made.instance.channels()[0].id, "x")
        assert [event["type"] for event in made.events()] == ["agent.config_changed"]
        for event in sent[:2]:
            made.ack(event)
        assert len(made.events()) == 2


def test_acks_of_what_was_not_delivered_are_violations(tmp_path):
    """Unknown, not sent, or sent to somebody else; nothing changes."""
    with rig(tmp_path, clean=False) as made:
        made.connect()
        made.connect("second", OTHER)
        posted = made.say(made.thread())
        made.ack({"id": str(posted.run_id)})
        (event,) = made.events()
        made.ack(event, "second")
        assert made.violations == ["gateway: an ack of an event that was not delivered"] * 2
        made.ack(event)
        made.ack(event)
        assert len(made.violations) == 2


def test_an_old_event_is_not_delivered(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        made.instance.set_channel_config(made.instance.channels()[0].id, "x")
        made.disconnect()
        made.clock.move(86_401)
        made.connect()
        assert made.events() == []
        assert made.instance.events.pending("default") == 0


# Offers


def test_a_run_goes_to_the_first_consumer_with_room(tmp_path):
    """With all its events; the second one gets what the first has no room for."""
    with rig(tmp_path) as made:
        made.connect("first", ADAPTER, 1)
        made.connect("second", OTHER, 1)
        threads = [made.thread() for _ in range(3)]
        runs = [made.say(thread).run_id for thread in threads]
        sent = made.deliver()
        assert [consumer for consumer, _ in sent] == ["first", "second"]
        for consumer, event in sent:
            made.ack(event, consumer)
        assert made.instance.run(runs[2]).run.consumer is None
        made.say(threads[1], "more")
        ((consumer, event),) = made.deliver()
        assert (consumer, event["type"]) == ("second", "agent.followup")
        token = sent[0][1]["token"]
        body = {"outcome": "cancelled", "metrics": {}}
        made.call("POST", f"/runs/{runs[0]}/finish", token, body)
        ((consumer, event),) = made.deliver()
        assert (consumer, event["payload"]["run"]["id"]) == ("first", str(runs[2]))


def test_a_run_keeps_its_consumer_for_a_minute(tmp_path):
    """Then another one gets it, if the invocation was not acked and there is another."""
    with rig(tmp_path) as made:
        made.connect("first", ADAPTER)
        posted = made.say(made.thread())
        made.deliver()
        made.disconnect("first")
        made.connect("second", OTHER)
        made.clock.move(59)
        assert made.deliver() == []
        made.clock.move(2)
        ((consumer, event),) = made.deliver()
        assert (consumer, event["attempt"]) == ("second", 2)
        assert made.instance.run(posted.run_id).run.consumer == "second"


def test_a_run_that_was_acked_stays_with_its_consumer(tmp_path):
    with rig(tmp_path) as made:
        made.connect("first", ADAPTER)
        posted = made.say(made.thread())
        ((_, event),) = made.deliver()
        made.ack(event, "first")
        made.disconnect("first")
        made.connect("second", OTHER)
        made.clock.move(3600)
        assert made.deliver() == []
        assert made.instance.run(posted.run_id).run.consumer == "first"


def test_without_another_consumer_the_first_gets_it_back(tmp_path):
    with rig(tmp_path) as made:
        made.connect("first", ADAPTER)
        made.say(made.thread())
        made.deliver()
        made.disconnect("first")
        made.clock.move(3600)
        made.connect("first", ADAPTER)
        ((consumer, event),) = made.deliver()
        assert (consumer, event["attempt"]) == ("first", 2)


def test_the_former_consumer_is_forgiven_a_late_ack(tmp_path):
    """It was delivered to it once, so its ack is no violation; it settles nothing."""
    with rig(tmp_path) as made:
        made.connect("first", ADAPTER)
        made.say(made.thread())
        ((_, event),) = made.deliver()
        made.disconnect("first")
        made.clock.move(61)
        made.connect("second", OTHER)
        made.deliver()
        made.connect("first", ADAPTER)
        made.ack(event, "first")
        assert made.instance.events.pending("second") == 1


# Consumers


def test_settled_events_and_repetitions_are_forgotten_after_two_days(tmp_path):
    """As long as the adapter remembers event IDs; the run itself stays."""
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        made.tick(86_400)
        assert made.instance.state.events.all() != ()
        assert made.instance.state.repeats.all() != ()
        made.tick(86_500)
        assert made.instance.state.events.all() == ()
        assert made.instance.state.repeats.all() == ()
        assert job.run.state is RunState.COMPLETED
