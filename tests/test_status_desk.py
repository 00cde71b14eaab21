"""What an operator sees of a running adapter, and may ask of it."""

import asyncio
import contextlib
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from bothy_hermes.handler import Handler
from bothy_hermes.state_files import put_request, read_status, take_answer
from bothy_hermes.status_desk import StatusDesk
from tests.fakes.edge_kit import RUN, THREAD
from tests.fakes.flow_kit import EVENT, invocation, with_rooms
from tests.fakes.runtime import FakeRuntime


class Desk:
    """A desk on real files, beside a real handler."""

    def __init__(self, made, directory):
        self.rooms = made
        self.directory = directory
        self.word = "ready"
        self.said = []
        self.handler = Handler(made.services)
        self.asleep = 0
        self.desk = StatusDesk(
            directory,
            replace(made.fake.clock, sleep=self._sleep),
            made.store,
            self.handler,
            dropped=lambda: made.runtime.dropped,
            connection=lambda: self.word,
            unwritable=self.said.append,
        )

    @property
    def status(self):
        return read_status(self.directory)

    async def ask(self, **body):
        """Ask as a command does; returns the answer."""
        asked = put_request(self.directory, self.rooms.fake.clock, body)
        await self.look_again()
        await self.rooms.until(lambda: self._answered(asked))
        return self.answer

    async def look_again(self):
        """Let the second pass after which the desk looks again; before it sleeps, time would pass unseen."""
        await self.rooms.until(lambda: self.asleep)
        await self.rooms.fake.advance(1)

    async def _sleep(self, seconds):
        self.asleep += 1
        try:
            await self.rooms.fake.sleep(seconds)
        finally:
            self.asleep -= 1

    def _answered(self, asked):
        self.answer = take_answer(self.directory, asked)
        return self.answer is not None


def at_desk(tmp_path, steps, runtime=None, *, running=True):
    """Run `steps(desk)` beside a running desk."""

    async def on_rooms(made):
        desk = Desk(made, Path(tmp_path) / "state")
        task = asyncio.ensure_future(desk.desk.run()) if running else None
        try:
            return await steps(desk)
        finally:
            await desk.handler.close(0)
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    return with_rooms(tmp_path, on_rooms, runtime)


async def sleeping(_turn, _events):
    await asyncio.Event().wait()


def test_the_status_says_how_the_adapter_is(tmp_path):
    async def steps(desk):
        await desk.desk.publish({"state": "online"})
        return desk.status

    status = at_desk(tmp_path, steps, running=False)
    assert status["connection"] == "ready"
    assert status["heartbeat"] == {"state": "online"}
    assert (status["trouble"], status["runs"], status["counters"], status["dropped"]) == (None, [], {}, {})
    assert status["written_at"].startswith("2026-11-30T12:00:00")


def test_a_status_between_two_heartbeats_keeps_the_last_one(tmp_path):
    async def steps(desk):
        await desk.desk.publish({"state": "degraded"})
        await desk.desk.publish()
        return desk.status["heartbeat"]

    assert at_desk(tmp_path, steps, running=False) == {"state": "degraded"}


def test_a_connection_that_comes_or_goes_is_shown_within_a_second(tmp_path):
    async def steps(desk):
        await desk.rooms.until(lambda: (desk.status or {}).get("connection") == "ready")
        desk.word = "waiting"
        await desk.look_again()
        await desk.rooms.until(lambda: desk.status["connection"] == "waiting")

    at_desk(tmp_path, steps)


async def work(desk):
    """Have a run worked on until its turn has begun."""
    desk.handler.begin(await desk.rooms.entry(), invocation(), None)
    await desk.rooms.until(lambda: desk.rooms.runtime.turns)


def test_the_status_shows_runs_by_their_ids(tmp_path):
    async def steps(desk):
        await work(desk)
        await desk.desk.publish()
        return desk.status["runs"], json.dumps(desk.status)

    runs, text = at_desk(tmp_path, steps, FakeRuntime(sleeping), running=False)
    assert runs == [{"run_id": str(RUN), "thread_id": str(THREAD), "stage": "turn", "dropped": {}}]
    assert "What now?" not in text


def test_what_no_run_has_posted_is_counted_by_kind(tmp_path):
    """Of the whole adapter, and of each run that is being worked on; never what was said."""

    async def script(_turn, events):
        events.on_notice("model_error")
        await asyncio.Event().wait()

    async def steps(desk):
        desk.rooms.runtime.dropped = {"scheduled": 12, "model_error": 1}
        await work(desk)
        await desk.desk.publish()
        return desk.status

    status = at_desk(tmp_path, steps, FakeRuntime(script), running=False)
    assert status["dropped"] == {"scheduled": 12, "model_error": 1}
    assert [run["dropped"] for run in status["runs"]] == [{"model_error": 1}]


def test_the_documented_members_are_those_of_the_file(tmp_path):
    """An operator reads them in docs/architecture.md."""

    async def steps(desk):
        await work(desk)
        await desk.desk.publish()
        return desk.status

    status = at_desk(tmp_path, steps, FakeRuntime(sleeping), running=False)
    text = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text("utf-8")
    table = text.split("| `status.json` |", 1)[1].split("\n\n", 1)[0]
    members = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert members == list(status)


def test_what_was_lost_for_good_is_counted_in_the_status(tmp_path):
    async def steps(desk):
        from tests.fakes.store_kit import call

        await desk.rooms.store.put_calls([call("k1")])
        ((stored),) = await desk.rooms.store.calls()
        await desk.rooms.store.call_failed(stored.sequence, "content_too_long")
        await desk.desk.publish()
        return desk.status["counters"]

    assert at_desk(tmp_path, steps, running=False) == {"content_too_long": 1}


# Requests -----------------------------------------------------------------------------------------


def test_a_command_is_answered_with_the_status_of_this_moment(tmp_path):
    async def steps(desk):
        await work(desk)
        return await desk.ask(command="status")

    answer = at_desk(tmp_path, steps, FakeRuntime(sleeping))
    assert answer["ok"] is True
    assert [run["run_id"] for run in answer["status"]["runs"]] == [str(RUN)]


def test_an_operator_can_end_a_run(tmp_path):
    """The turn is interrupted, and the run's people see why it ended."""

    async def steps(desk):
        await work(desk)
        answer = await desk.ask(command="end_run", run_id=str(RUN))
        await desk.rooms.until(lambda: RUN in desk.rooms.api.finished)
        return answer, desk.rooms.api.finished[RUN], desk.rooms.runtime.interrupted

    answer, end, interrupted = at_desk(tmp_path, steps, FakeRuntime(sleeping))
    assert answer == {"ok": True}
    assert (str(end.outcome), str(end.reason)) == ("failed", "interrupted")
    assert interrupted == [RUN]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"command": "end_run", "run_id": str(EVENT)}, "nothing is being done for this run"),
        ({"command": "end_run", "run_id": "the first one"}, "run_id is no ID"),
        ({"command": "end_run"}, "run_id is no ID"),
        ({"command": "sing"}, "there is no such command"),
        ({"command": ["status"]}, "there is no such command"),
        ({}, "there is no such command"),
    ],
)
def test_what_cannot_be_done_is_answered_too(tmp_path, body, problem):
    """Whoever asks waits for an answer, not for a silence."""

    async def steps(desk):
        return await desk.ask(**body)

    assert at_desk(tmp_path, steps) == {"ok": False, "problem": problem}


def test_a_command_that_was_given_up_is_not_done_late(tmp_path):
    async def steps(desk):
        await work(desk)
        put_request(desk.directory, desk.rooms.fake.clock, {"command": "end_run", "run_id": str(RUN)})
        desk.rooms.fake.move(6)
        await desk.look_again()
        assert (await desk.ask(command="status"))["ok"]
        return list(desk.rooms.runtime.interrupted)

    assert at_desk(tmp_path, steps, FakeRuntime(sleeping)) == []


def test_no_command_is_logged_with_its_words(tmp_path, caplog):
    async def steps(desk):
        await desk.ask(command="xyzzy")

    with caplog.at_level(logging.DEBUG):
        at_desk(tmp_path, steps)
    assert "unknown" in caplog.text
    assert "xyzzy" not in caplog.text


# Trouble ------------------------------------------------------------------------------------------


def test_a_status_that_cannot_be_written_is_a_reason_and_one_sentence(tmp_path, caplog):
    """And the reason goes when it can be written again."""

    async def steps(desk):
        blocked = desk.directory / ".status.json.new"
        blocked.mkdir()
        for _ in range(3):
            await desk.desk.publish()
        blocked.rmdir()
        await desk.desk.publish()
        return desk.said

    with caplog.at_level(logging.ERROR):
        assert at_desk(tmp_path, steps, running=False) == [True, True, True, False]
    assert caplog.text.count("status.json: cannot be written") == 1


def test_the_trouble_of_the_state_file_is_shown_and_looked_after(tmp_path):
    """A quiet adapter finds out by itself that the disk is well again."""

    async def steps(desk):
        store = desk.rooms.store
        await desk.rooms.read_only()
        with contextlib.suppress(Exception):
            await store.put_calls([])
            await store.probe()
        await desk.desk.publish()
        during = desk.status["trouble"]
        await desk.rooms.read_only(on=False)
        await desk.desk.publish()
        return during, desk.status["trouble"], desk.rooms.troubles[-1]

    during, after, told = at_desk(tmp_path, steps, running=False)
    assert "cannot be written" in during
    assert (after, told) == (None, None)


def test_each_heartbeat_looks_whether_the_file_is_still_ours(tmp_path):
    """A newer version that has migrated it meanwhile is seen by an adapter that writes nothing."""

    async def steps(desk):
        await desk.rooms.store._writer.run(lambda disk: disk.execute("PRAGMA user_version = 99"))
        await desk.desk.publish()
        between = desk.status["trouble"]
        await desk.desk.publish({"state": "online"})
        return between, desk.status["trouble"], desk.status["counters"]

    between, after, counters = at_desk(tmp_path, steps, running=False)
    assert (between, counters) == (None, {})
    assert "was written by a newer version" in after


def test_a_directory_that_is_read_only_costs_no_desk(tmp_path, monkeypatch):
    """A request that cannot be taken away is no reason to stop looking."""
    from bothy_hermes import status_desk

    tries = []

    def refused(directory, now):
        tries.append(now)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(status_desk, "take_requests", refused)

    async def steps(desk):
        for count in range(1, 4):
            await desk.rooms.until(lambda count=count: len(tries) >= count)
            await desk.look_again()
        return len(tries) >= 3

    assert at_desk(tmp_path, steps)
