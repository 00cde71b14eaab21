"""Records in memory: units are whole, groups follow, watchers hear only of what is durable."""

import contextlib
import dataclasses
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.codec import parse
from bothy_hermes.local_records import ChannelRecord, RunRecord
from bothy_hermes.local_state import RecordChange, State, Table
from bothy_hermes.wire import Run, RunDocument
from bothy_hermes.wire_words import RunState
from tests.fakes.clock import FakeClock
from tests.fakes.wire_examples import EXAMPLES


def channel(number, name="general", served=True):
    return ChannelRecord(
        id=FakeClock(seed=number).clock.new_id(), name=name, served=served, prompt=None, skills=()
    )


class Disk:
    """Takes commits, or refuses them."""

    def __init__(self):
        self.commits = []
        self.broken = False

    def __call__(self, changes):
        if self.broken:
            raise OSError("full")
        self.commits.append(list(changes))


def made():
    disk = Disk()
    return State(FakeClock().clock, disk), disk


def test_a_unit_is_one_commit():
    """With each record once, as the unit leaves it."""
    state, disk = made()
    one = channel(1)
    with state.unit():
        state.channels.put(one.id, one)
        with state.unit():
            state.channels.put(one.id, dataclasses.replace(one, served=False))
    assert disk.commits == [[RecordChange("channel", str(one.id), state.channels.need(one.id))]]
    assert state.channels.need(one.id).served is False


def test_a_unit_without_changes_writes_nothing_and_tells_nobody():
    state, disk = made()
    heard = []
    state.changes.listen(lambda: heard.append(1))
    with state.unit():
        pass
    assert (disk.commits, heard) == ([], [])


@pytest.mark.parametrize("by_disk", [True, False])
def test_what_fails_did_not_happen(by_disk):
    """Whether the rules refuse or the disk does: records, their order, groups and notes are as before."""
    state, disk = made()
    ones = [channel(number) for number in range(3)]
    with state.unit():
        for one in ones:
            state.channels.put(one.id, one)
    latest = state.changes.latest

    def fail():
        with state.unit():
            state.channels.delete(ones[0].id)
            state.channels.put(channel(9).id, channel(9))
            for name in ("once", "twice"):
                state.channels.put(ones[1].id, dataclasses.replace(ones[1], name=name))
            state.note("thread", ones[0].id)
            if not by_disk:
                raise OSError("full")

    disk.broken = by_disk
    with pytest.raises(OSError, match="full"):
        fail()
    assert state.channels.all() == tuple(ones)
    disk.broken = False
    with state.unit():
        state.channels.put(ones[0].id, ones[0])
    assert state.changes.latest == latest


def test_a_record_that_comes_back_into_its_group_keeps_its_place():
    """A run whose end could not be written is still the oldest of its thread."""
    state, disk = made()
    runs = [_run(number) for number in range(2)]
    with state.unit():
        for one in runs:
            state.runs.put(one.run.id, one)
    disk.broken = True
    ended = dataclasses.replace(runs[0].run, state=RunState.FAILED)
    with pytest.raises(OSError, match="full"), state.unit():
        state.runs.put(ended.id, dataclasses.replace(runs[0], run=ended))
    assert state.runs.group("active", runs[0].run.thread_id) == tuple(runs)


def _run(number):
    run = parse(Run, {**EXAMPLES[Run](), "id": str(FakeClock(seed=number).clock.new_id()), "state": "queued"})
    return RunRecord(run=run, document=RunDocument(version=1, status_line=None, steps=()))


def test_watchers_hear_after_the_commit():
    state, disk = made()
    seen = []
    state.changes.listen(lambda: seen.append((len(disk.commits), state.changes.latest)))
    before = state.changes.latest
    one = channel(1)
    with state.unit():
        state.channels.put(one.id, one)
        state.note("thread", one.id)
        state.note("thread", one.id)
        assert seen == []
    assert seen == [(1, before + 1)]


def test_records_change_inside_a_unit_only():
    state, _ = made()
    with pytest.raises(AssertionError, match="inside a unit"):
        state.channels.put("x", channel(1))


def test_units_of_threads_do_not_mix():
    """A second thread waits until the first unit is durable."""
    state, disk = made()
    inside, go = threading.Event(), threading.Event()

    def first():
        with state.unit():
            state.channels.put(channel(1).id, channel(1))
            inside.set()
            go.wait(5)

    def second():
        with state.unit():
            state.channels.put(channel(2).id, channel(2))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    inside.wait(5)
    threads[1].start()
    assert disk.commits == []
    go.set()
    for thread in threads:
        thread.join()
    assert [len(commit) for commit in disk.commits] == [1, 1]


STEPS = st.tuples(st.integers(0, 4), st.sampled_from(["put", "delete", "fail"]), st.booleans())


@given(st.lists(STEPS))
def test_groups_follow_the_records(steps):
    """Whatever happens, a group holds exactly the records that belong to it, oldest first."""
    state, disk = made()
    table = Table("channel", ChannelRecord, state._touch, served=lambda row: row.served)
    expected = {}
    for number, action, served in steps:
        record = channel(number, served=served)
        disk.broken = action == "fail"
        with contextlib.suppress(OSError), state.unit():
            if action == "delete" and record.id in expected:
                table.delete(record.id)
            elif action != "delete":
                table.put(record.id, record)
        if action == "delete":
            expected.pop(record.id, None)
        elif action == "put":
            expected[record.id] = record
    assert table.all() == tuple(expected.values())
    for value in (True, False):
        rows = tuple(row for row in expected.values() if row.served is value)
        assert table.group("served", value) == rows
