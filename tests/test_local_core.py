"""The small steps that all subjects of the server share."""

from datetime import timedelta

import pytest

from bothy_hermes.codec import parse
from bothy_hermes.errors import IllegalMove, WireError
from bothy_hermes.local_core import digest
from bothy_hermes.wire import CreateMessage, UpdateRun
from bothy_hermes.wire_words import EventType, RunState
from tests.fakes.local_kit import rig


def test_equal_bodies_have_equal_hashes():
    """The order of members does not count, and a missing one is a null one."""
    one = {"client_msg_id": "x", "kind": "text", "role": "answer", "content": "ä"}
    two = {"content": "ä", "role": "answer", "kind": "text", "client_msg_id": "x", "part": None}
    three = {**one, "content": "a"}
    hashes = [digest(parse(CreateMessage, body)) for body in (one, two, three)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_text_that_utf_8_cannot_hold_has_no_hash():
    """A patch carries any JSON, and JSON can write half of a pair."""
    patch = parse(UpdateRun, {"base_version": 1, "patch": [{"op": "test", "path": "", "value": "\ud800"}]})
    with pytest.raises(WireError, match="value: holds a lone surrogate"):
        digest(patch)


def test_a_run_moves_by_its_table(tmp_path):
    """A move that the table lacks is a bug, and nothing of its unit happened."""
    with rig(tmp_path) as made:
        job = made.running()
        core = made.instance.core
        with pytest.raises(IllegalMove, match="run"), made.instance.state.unit():
            core.move_run(core.run(job.id), RunState.QUEUED)
        assert job.run.state is RunState.RUNNING


def test_a_moment_has_passed_or_not(tmp_path):
    with rig(tmp_path) as made:
        core, now = made.instance.core, made.clock.time
        assert not core.passed(None, 0)
        assert core.passed(now - timedelta(seconds=5), 5)
        assert not core.passed(now - timedelta(seconds=4), 5)


def test_the_end_is_not_withdrawn(tmp_path):
    """Everything else of a run that was not settled is."""
    with rig(tmp_path) as made:
        posted = made.say(made.thread())
        core = made.instance.core
        with made.instance.state.unit():
            core.emit(EventType.RUN_ENDED, run=core.run(posted.run_id))
            core.withdraw(posted.run_id)
        events = made.instance.state.events.group("run", posted.run_id)
        assert [(one.type, one.settled_at is None) for one in events] == [
            ("agent.invocation", False),
            ("run.ended", True),
        ]


def test_a_message_touches_its_thread(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        made.clock.move(5)
        made.say(thread)
        assert made.instance.thread(thread.id).updated_at == made.clock.time
