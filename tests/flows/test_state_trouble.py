"""The disk fails while the adapter lives: it is told, nothing is lost, and it ends by itself."""

import asyncio
import logging
import sqlite3
from contextlib import closing

import pytest

from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.errors import StateError, StateLocked, StateTooNew
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.state_files import put_request, read_status, take_answer
from bothy_hermes.wire_words import DegradedReason, RunState
from tests.fakes.intake_kit import entry_of, events_of, flow, is_settled
from tests.fakes.runtime import FakeRuntime, echo

UNWRITABLE = DegradedReason.STATE_UNWRITABLE
BEATING = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=300, ack_timeout_ms=300)
"""A server that wants to hear often: a quiet adapter looks after its disk with each heartbeat."""

READ_ONLY = ("PRAGMA query_only = ON", "PRAGMA query_only = OFF", "cannot be written")
LONG_ANSWER = "word " * 40_000
"""More than what is free inside the file's pages: a full disk has no place for it."""

FULL = ("PRAGMA max_page_count = 1", "PRAGMA max_page_count = 1000000", "the disk is full")


def store_of(made):
    return made.loop._admission._services.store


class Disk:
    """The disk under the adapter's state file: in trouble, and well again."""

    def __init__(self, made, kind):
        self._made = made
        self._breaks, self._mends, self.sentence = kind

    async def fail(self):
        await store_of(self._made)._writer.run(lambda disk: disk.execute(self._breaks))

    async def heal(self):
        await store_of(self._made)._writer.run(lambda disk: disk.execute(self._mends))


def reasons(made):
    """What the server was told last, and what the operator can read."""
    (view,) = made.instance.consumers()
    return set(view.heartbeat.details.degraded_reasons or ())


async def told(made, *wanted):
    await made.until(lambda: reasons(made) == set(wanted))
    details = (read_status(made.state_dir) or {})["heartbeat"]["details"]
    assert details.get("degraded_reasons", []) == [str(one) for one in wanted]


def in_trouble(tmp_path, steps, kind, runtime=None):
    """Run `steps(world, disk)` with a disk that can fail."""

    async def scenario(made):
        await steps(made, Disk(made, kind))

    flow(tmp_path, scenario, runtime, options=BEATING)


def test_an_event_that_the_disk_does_not_take_waits_at_the_server(tmp_path, caplog):
    """Not acked, not done; the server is told why, the operator reads one sentence, then it is done once."""

    async def steps(made, disk):
        await disk.fail()
        run_id = made.say(made.thread(), "hello")
        await told(made, UNWRITABLE)
        await made.until(lambda: events_of(made, run_id)[0].attempt >= 2)
        assert not is_settled(made, run_id)
        assert made.runtime.turns == []
        assert disk.sentence in read_status(made.state_dir)["trouble"]
        await disk.heal()
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 1
        await told(made)
        assert read_status(made.state_dir)["trouble"] is None

    with caplog.at_level(logging.ERROR, "bothy_hermes"):
        in_trouble(tmp_path, steps, READ_ONLY)
    said = [record.getMessage() for record in caplog.records if READ_ONLY[2] in record.getMessage()]
    assert len([line for line in said if line.startswith("state.sqlite3")]) == 1


@pytest.mark.parametrize(
    ("moment", "kind"),
    [("start", READ_ONLY), ("answer", READ_ONLY), ("answer", FULL), ("end", READ_ONLY)],
    ids=["start", "answer", "answer, full", "end"],
)
def test_a_run_waits_for_its_disk(tmp_path, moment, kind):
    """Before the start, the answer, or the end: the turn is done once, the answer is there once."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def script(_turn, events):
        if moment == "answer":
            reached.set()
            await go_on.wait()
        await events.on_answer(LONG_ANSWER)
        if moment == "end":
            reached.set()
            await go_on.wait()

    async def steps(made, disk):
        if moment == "start":
            store = made.loop._handler._services.store
            usual = store.move_entry

            async def move_entry(*args):
                store.move_entry = usual
                reached.set()
                await go_on.wait()
                await usual(*args)

            store.move_entry = move_entry
        thread = made.thread()
        run_id = made.say(thread, "hello")
        await asyncio.wait_for(reached.wait(), 10)
        await made.until(lambda: is_settled(made, run_id))
        if moment == "end":
            await made.until(lambda: made.texts(thread, run_id) != [])
        await disk.fail()
        go_on.set()
        await told(made, UNWRITABLE)
        assert disk.sentence in read_status(made.state_dir)["trouble"]
        assert not made.instance.run(run_id).run.state.ended
        assert len(made.runtime.turns) == (0 if moment == "start" else 1)
        await disk.heal()
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert made.texts(thread, run_id) == [("answer", LONG_ANSWER)]
        assert len(made.runtime.turns) == 1
        await told(made)
        assert await store_of(made).calls() == []
        assert await store_of(made).open_entries() == []

    in_trouble(tmp_path, steps, kind, FakeRuntime(script))


def test_a_quiet_adapter_finds_its_disk_well_again(tmp_path):
    """Nobody writes, nothing is to be stored: the next heartbeats look by themselves."""

    async def steps(made, disk):
        await disk.fail()
        with pytest.raises(StateError):
            await store_of(made).probe()
        await told(made, UNWRITABLE)
        await disk.heal()
        await told(made)

    in_trouble(tmp_path, steps, READ_ONLY)


async def endless(_turn, _events):
    await asyncio.Event().wait()


async def fail_during_a_turn(made, disk):
    """Have the disk fail while a turn is at work; returns its run."""
    run_id = made.say(made.thread(), "long")
    await made.until(lambda: made.runtime.turns != [])
    await made.until(lambda: is_settled(made, run_id))
    await disk.fail()
    return run_id


def test_a_run_that_is_cancelled_while_its_disk_fails_ends(tmp_path):
    """The person does not wait for the operator; what is owed is sent when the disk takes it."""

    async def steps(made, disk):
        run_id = await fail_during_a_turn(made, disk)
        made.instance.cancel_run(made.ada, run_id)
        await told(made, UNWRITABLE)
        assert made.instance.run(run_id).run.state is RunState.CANCELLED
        await disk.heal()
        await made.until(lambda: run_id in made.runtime.interrupted)
        await made.ended(run_id)
        assert is_settled(made, run_id, "run.ended")
        assert await store_of(made).open_entries() == []

    in_trouble(tmp_path, steps, READ_ONLY, FakeRuntime(endless))


def test_an_adapter_can_be_stopped_while_its_disk_fails(tmp_path):
    """It does not hang on a disk that nobody mends; the next one finds the run and ends it."""

    async def steps(made, disk):
        run_id = await fail_during_a_turn(made, disk)
        async with asyncio.timeout(20):
            await made.stop_adapter()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "adapter_restarted")
        assert len(made.runtime.turns) == 1

    in_trouble(tmp_path, steps, READ_ONLY, FakeRuntime(endless))


# The file itself ----------------------------------------------------------------------------------


def test_a_file_that_is_damaged_while_the_adapter_lives_loses_nothing_at_the_server(tmp_path, caplog):
    """Said in words; the event stays where it is, and a fresh file takes it."""

    async def steps(made):
        store = store_of(made)
        await store.adapter_id()

        def damage(disk):
            path = made.state_dir / "state.sqlite3"
            disk.execute("COMMIT")
            disk.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\xa5" * (size - 4096))
            disk.execute("PRAGMA cache_size = 0")
            disk.execute("PRAGMA shrink_memory")
            disk.execute("BEGIN")
            disk.execute("SAVEPOINT job")

        await store._writer.run(damage)
        run_id = made.say(made.thread(), "hello")
        await told(made, UNWRITABLE)
        assert "is damaged" in read_status(made.state_dir)["trouble"]
        assert not is_settled(made, run_id)
        await made.stop_adapter()
        with pytest.raises(StateError, match="is damaged"):
            await made.start_adapter()
        made.loop = made.task = None
        for path in made.state_dir.glob("state.sqlite3*"):
            path.rename(path.with_name(f"old-{path.name}"))
        await made.start_adapter()
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert len(made.runtime.turns) == 1

    with caplog.at_level(logging.ERROR, "bothy_hermes"):
        flow(tmp_path, steps, FakeRuntime(echo), options=BEATING)
    assert "is damaged; move it" in caplog.text


def test_a_file_of_a_newer_version_is_refused_in_words_and_kept(tmp_path):
    """The message waits at the server; with the right version it is done."""

    async def steps(made):
        path = made.state_dir / "state.sqlite3"
        await made.stop_adapter()
        with closing(sqlite3.connect(path)) as file:
            (version,) = file.execute("PRAGMA user_version").fetchone()
            file.execute("PRAGMA user_version = 99")
        run_id = made.say(made.thread(), "hello")
        with pytest.raises(StateTooNew, match="was written by a newer version"):
            await made.start_adapter()
        made.loop = made.task = None
        with closing(sqlite3.connect(path)) as file:
            file.execute(f"PRAGMA user_version = {version}")
        await made.start_adapter()
        assert (await made.ended(run_id)).run.state is RunState.COMPLETED

    flow(tmp_path, steps)


def test_a_second_adapter_on_the_same_state_is_refused_and_disturbs_nobody(tmp_path):
    async def steps(made):
        second = made.new_loop(made.settings())
        assert isinstance(second, AdapterLoop)
        with pytest.raises(StateLocked, match="uses this state directory; stop it first"):
            await second.run()
        assert (await made.ended(made.say(made.thread(), "hello"))).run.state is RunState.COMPLETED
        assert [view.connected for view in made.instance.consumers()] == [True]

    flow(tmp_path, steps)


# Commands -----------------------------------------------------------------------------------------


async def ask(made, **body):
    asked = put_request(made.state_dir, made.clock, body)
    answers = []

    def answered():
        answers.append(take_answer(made.state_dir, asked))
        return answers[-1] is not None

    await made.until(answered)
    return answers[-1]


def test_an_operator_sees_and_ends_a_run_of_a_running_adapter(tmp_path):
    """A command leaves a file and has its answer within five seconds."""

    async def steps(made):
        run_id = made.say(made.thread(), "long")
        await made.until(lambda: made.runtime.turns != [])
        async with asyncio.timeout(5):
            status = (await ask(made, command="status"))["status"]
        assert status["connection"] == "ready"
        assert [(run["run_id"], run["stage"]) for run in status["runs"]] == [(str(run_id), "turn")]
        async with asyncio.timeout(5):
            assert await ask(made, command="end_run", run_id=str(run_id)) == {"ok": True}
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "interrupted")
        entry = await entry_of(made, events_of(made, run_id)[0].id)
        assert str(entry.state) == "done"

    flow(tmp_path, steps, FakeRuntime(endless))


def test_the_status_of_an_adapter_that_ended_says_so(tmp_path):
    async def steps(made):
        await made.until(lambda: (read_status(made.state_dir) or {}).get("connection") == "ready")
        await made.stop_adapter()
        status = read_status(made.state_dir)
        assert (status["connection"], status["runs"]) == ("stopped", [])

    flow(tmp_path, steps)


def test_a_newer_version_that_takes_the_file_over_is_reported_by_the_next_heartbeat(tmp_path):
    """A quiet adapter notices it as well, and goes on once the file is its own again."""

    async def steps(made):
        def version(number):
            with closing(sqlite3.connect(made.state_dir / "state.sqlite3")) as other:
                before = other.execute("PRAGMA user_version").fetchone()[0]
                other.execute(f"PRAGMA user_version = {number or before + 1}")
                return before

        await told(made)
        ours = version(None)
        await told(made, UNWRITABLE)
        assert "was written by a newer version" in read_status(made.state_dir)["trouble"]
        run_id = made.say(made.thread(), "hello")
        await asyncio.sleep(0.5)
        assert not is_settled(made, run_id)
        version(ours)
        await told(made)
        assert (await made.ended(run_id)).run.state is RunState.COMPLETED

    flow(tmp_path, steps, options=BEATING)
