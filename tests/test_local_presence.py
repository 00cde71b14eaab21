"""Who is there: connections, heartbeats, and when an adapter was last heard of (sections 5, 7 and 12)."""

from uuid import UUID

import pytest

from bothy_hermes.wire_words import RunState
from tests.fakes.local_kit import ADAPTER, rig

OTHER = UUID("00000000-0000-4000-8000-00000000000b")


def test_a_second_connection_of_a_consumer_replaces_the_first(tmp_path):
    """What the first one leaves behind is not counted as gone."""
    with rig(tmp_path) as made:
        first = made.connect()
        second = made.connect()
        assert first is not second
        made.instance.presence.detach(first)
        assert made.instance.presence.connected("default")
        made.say(made.thread())
        assert [delivery.link for delivery in made.instance.events.due()] == [second]


def test_a_consumer_is_fresh_after_a_heartbeat_on_its_connection(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        view = made.instance.consumers()[0]
        assert (view.connected, view.fresh, view.online) == (True, False, True)
        made.beat()
        assert made.instance.consumers()[0].fresh
        made.clock.move(1)
        made.connect()
        assert not made.instance.consumers()[0].fresh
        assert made.instance.consumers()[0].heartbeat.state == "online"


def test_a_heartbeat_keeps_runs_alive(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        for _ in range(20):
            made.tick(60)
            made.beat()
        assert job.run.state is RunState.RUNNING


def test_a_consumer_that_is_silent_is_shown_offline(tmp_path):
    """Ninety seconds after its last heartbeat, connected or not."""
    with rig(tmp_path) as made:
        made.connect()
        made.beat()
        made.clock.move(90)
        assert not made.instance.presence.online("default")
        made.beat()
        made.disconnect()
        made.clock.move(89)
        assert made.instance.presence.online("default")


def test_silence_counts_from_the_connection_and_absence_from_its_end(tmp_path):
    """Not from the start of the server, which may be long ago."""
    with rig(tmp_path) as made:
        made.clock.move(1000)
        made.connect()
        made.clock.move(5)
        made.disconnect()
        made.clock.move(3)
        presence = made.instance.presence
        assert (presence.silent_for("default"), presence.gone_for("default")) == (8, 3)


def test_an_adapter_is_seen_by_what_came_from_it(tmp_path):
    """While it is connected by its last frame, afterwards by its last sign; nobody else's counts."""
    with rig(tmp_path) as made:
        link = made.connect()
        start = made.clock.time
        made.clock.move(10)
        assert made.instance.presence.adapter_seen(ADAPTER) == start
        link.seen_at = made.clock.time
        assert made.instance.presence.adapter_seen(ADAPTER) == made.clock.time
        made.clock.move(40)
        made.disconnect()
        assert made.instance.presence.adapter_seen(ADAPTER) == link.seen_at
        made.beat()
        assert made.instance.presence.adapter_seen(ADAPTER) == made.clock.time
        made.clock.move(5)
        made.connect(adapter_id=OTHER)
        assert made.instance.presence.adapter_seen(OTHER) == made.clock.time
        assert made.instance.presence.adapter_seen(None) is None


def test_what_was_last_seen_outlives_a_restart(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        made.beat()
        seen = made.clock.time
        made.clock.move(50)
        made.restart()
        assert made.instance.presence.adapter_seen(ADAPTER) == seen
        (view,) = made.instance.consumers()
        assert (view.connected, view.fresh, view.online) == (False, False, True)


@pytest.mark.parametrize("gap", [False, True], ids=["replaced", "between two connections"])
def test_whoever_had_the_name_before_is_still_known_after_a_restart(tmp_path, gap):
    """Its runs are its own until it is gone; a moment of the server's absence changes nothing in that."""
    with rig(tmp_path) as made:
        link = made.connect()
        made.clock.move(20)
        seen = link.seen_at = made.clock.time
        if gap:
            made.disconnect()
        made.clock.move(20)
        made.connect(adapter_id=OTHER)
        assert made.instance.presence.adapter_seen(ADAPTER) == seen
        made.restart()
        assert made.instance.presence.adapter_seen(ADAPTER) == seen
        made.connect(adapter_id=ADAPTER)
        assert made.instance.presence.adapter_seen(ADAPTER) == made.clock.time
        (record,) = made.instance.presence._state.consumers.all()
        assert [one.adapter_id for one in record.former] == [OTHER]


def test_former_adapters_are_forgotten_when_they_are_long_gone(tmp_path):
    """However often a copied profile starts with a new ID, the record stays small."""
    with rig(tmp_path) as made:
        for number in range(30):
            made.connect(adapter_id=UUID(int=number + 1))
            made.clock.move(60)
        (record,) = made.instance.presence._state.consumers.all()
        assert len(record.former) == 9
        assert made.instance.presence.adapter_seen(UUID(int=1)) is None


def test_a_clock_that_is_set_takes_nobody_for_dead(tmp_path):
    """Silence is counted by the clock that never jumps, also when a machine has slept."""
    with rig(tmp_path) as made:
        job = made.running()
        made.beat()
        made.clock.step_wall(7200)
        made.clock.move(6)
        made.instance.events.tick()
        assert made.instance.presence.online("default")
        assert job.run.state is RunState.RUNNING
