"""SIGKILL before and after every durable step of a run: the ledger balances all the same.

Every message is one run, every run has one end, every answer is there once, every event is settled once,
and nothing is left in the adapter's outbox. The steps are the table in `tests/fakes/crash_matrix.py`.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from bothy_hermes.wire_words import MessageKind, RunState
from tests.fakes.crash_matrix import CANCELLED, DONE, RESTARTED, ROWS, STORED
from tests.fakes.kill_adapter import KILLED, TURNS

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
OPTIONS = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=30_000)


def until(condition, what):
    """Wait for something that other processes bring about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.005)


class Nursery:
    """Starts adapters that have everything loaded."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.kill_adapter"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, **work):
        """Start an adapter; returns its process ID."""
        self.process.stdin.write(json.dumps(work) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    yield made
    made.close()


class Stage:
    """One server, and one adapter after the other on the same state directory."""

    def __init__(self, tmp_path, nursery):
        self.server = LocalServer.start(tmp_path / "server", options=OPTIONS)
        self.instance = self.server.instance
        self.ada = self.server.people[0].id
        self.state = tmp_path / "adapter"
        self.log = tmp_path / "log"
        self.nursery = nursery
        self.alive = []

    def start(self, kill=None):
        """Start an adapter, which dies at a point when one is given."""
        (self.state / KILLED).unlink(missing_ok=True)
        pid = self.nursery.start(
            server_url=self.server.api_url,
            instance_id=str(self.server.instance_id),
            token_file=str(self.server.agent.token_file),
            state_dir=str(self.state),
            log=str(self.log),
            kill=kill,
        )
        self.alive.append(pid)
        return pid

    def died(self, pid):
        """Wait until an adapter has killed itself where it was to."""
        until(lambda: not is_alive(pid), "the adapter dies at its point")
        assert (self.state / KILLED).exists(), self.log.read_text()

    def close(self):
        for pid in self.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self.alive:
            until(lambda pid=pid: not is_alive(pid), "the last adapter is gone")
        self.server.stop()

    # What happened

    def rows(self, query):
        """Read the adapter's state file."""
        if not (self.state / "state.sqlite3").exists():
            return []
        with closing(sqlite3.connect(self.state / "state.sqlite3", timeout=10)) as connection:
            return connection.execute(query).fetchall()

    def is_quiet(self):
        """Whether nothing is owed by anybody any more."""
        runs = [view for thread in self.instance.threads() for view in self.instance.runs(thread.id)]
        events = [event for event in self.instance.state.events.all() if event.settled_at is None]
        if events or not all(view.run.state.ended for view in runs):
            return False
        # One statement: what is stored for an event and the end of the event are one commit.
        working = "SELECT 1 FROM inbox WHERE state NOT IN ('settled', 'done')"
        return not self.rows(f"SELECT 1 FROM outbox UNION ALL {working}")

    def turns(self):
        """How many turns each run got."""
        log = self.state / TURNS
        return (
            Counter(line.split()[0] for line in log.read_text().splitlines()) if log.exists() else Counter()
        )


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def stage(tmp_path, nursery):
    made = Stage(tmp_path, nursery)
    yield made
    made.close()


# What people do meanwhile -------------------------------------------------------------------------


class Play:
    """The people's part of a scenario; each step is done as soon as it can be, by whichever adapter."""

    def __init__(self, stage, scenario):
        self.stage = stage
        self.instance = stage.instance
        self.scenario = scenario
        self.thread = self.instance.create_thread(stage.ada).id
        if scenario == "refused":
            self.instance.set_allowed(stage.ada, ())
        self.run_id = self.post(f"{scenario} one")
        self.click = None
        self.second = None
        self.cancelled = False

    def post(self, text):
        return self.instance.post_message(self.stage.ada, self.thread, text).run_id

    def view(self):
        return self.instance.run(self.run_id)

    def go_on(self):
        """Do what a person can do now."""
        step = {"card": self._press, "together": self._write, "long": self._cancel}.get(self.scenario)
        if step is not None and not self.view().run.state.ended:
            step()

    def _press(self):
        if self.click is None and self.view().open_cards:
            (card,) = (one for one in self.instance.messages(self.thread) if one.kind is MessageKind.CARD)
            button = next(one for one in card.components if "blue" in one.label)
            self.click = self.instance.use_component(self.stage.ada, card.id, button.id).interaction.id

    def _write(self):
        if self.second is None and self.stage.turns()[str(self.run_id)]:
            self.instance.post_message(self.stage.ada, self.thread, "plain two")
            self.second = self.instance.messages(self.thread)[-1].id

    def _cancel(self):
        if not self.cancelled and self.stage.turns()[str(self.run_id)]:
            self.cancelled = True
            self.instance.cancel_run(self.stage.ada, self.run_id)


def dies(stage, play, kill):
    """Start an adapter and let it die, while the people go on."""
    pid = stage.start(kill)

    def is_dead():
        if not is_alive(pid):
            return True
        play.go_on()
        return False

    until(is_dead, "the adapter dies at its point")
    stage.died(pid)


# The ledger ---------------------------------------------------------------------------------------


def balances(stage, play, row, end):
    """Everything happened exactly once."""
    instance = stage.instance
    view = play.view()
    assert (str(view.run.state), view.run.reason) == {
        DONE: ("completed", None),
        CANCELLED: ("cancelled", "cancelled_by_person"),
    }.get(end, ("failed", end))

    messages = instance.messages(play.thread)
    people = [one for one in messages if one.client_msg_id is None or one.author.id == stage.ada]
    agent = [one for one in messages if one.author.id != stage.ada]
    runs = {one.run.id: one for one in instance.runs(play.thread)}
    assert all(one.run_id in runs for one in people), "a person's message belongs to no run"

    turns = stage.turns()
    assert max(turns.values(), default=0) <= 1, "a run got two turns"
    said = Counter((one.run_id, one.content) for one in agent)
    assert max(said.values(), default=1) == 1, "a message is there twice"
    for run_id, one in runs.items():
        answers = [message for message in agent if message.run_id == run_id and message.role == "answer"]
        if one.run.state is RunState.COMPLETED:
            assert len(answers) == 1, "a completed run without its one answer"
        assert len(answers) <= 1
        assert one.open_cards == ()
    if row.scenario == "refused":
        assert turns == Counter()
        assert view.run.started_at is None
    if play.click is not None:
        record = instance.interaction(play.click)
        # The end of a run withdraws what was not acked: the server itself says that nobody answered.
        assert record.status is not None or record.acked_at is None, "a click that nobody answered"
    if row.scenario == "together" and play.second is not None:
        told_together = any("and plain two" in one.content for one in agent)
        told_alone = any(one.content == "answer to: plain two" for one in agent)
        assert told_together + told_alone == 1, "the second text was answered twice, or never"

    assert stage.rows("SELECT count(*) FROM outbox") == [(0,)]
    assert stage.rows("SELECT count(*) FROM cards") == [(0,)]
    assert stage.rows("SELECT count(*) FROM claims WHERE state = 'claimed'") == [(0,)]
    assert stage.server.violations == []


def marked(row):
    return pytest.param(row, id=row.name, marks=() if row.quick else pytest.mark.slow)


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_the_ledger_balances_whenever_the_adapter_dies(stage, row):
    """Whatever was durable is not lost, whatever was done is not repeated."""
    play = Play(stage, row.scenario)
    dies(stage, play, {"point": row.point, "when": row.when, "nth": row.nth})
    end = row.end
    if end == STORED:
        stored = stage.rows(
            "SELECT 1 FROM inbox WHERE event_type = 'agent.invocation' AND state = 'finishing'"
        )
        end = DONE if stored or play.view().run.state is RunState.COMPLETED else RESTARTED
    if row.again is not None:
        point, when = row.again
        dies(stage, play, {"point": point, "when": when, "nth": 1})
    stage.start()

    def is_over():
        play.go_on()
        return stage.is_quiet()

    try:
        until(is_over, "nothing is owed any more")
        balances(stage, play, row, end)
    except AssertionError:
        sys.stderr.write(stage.log.read_text())
        raise
