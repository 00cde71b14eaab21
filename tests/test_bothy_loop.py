"""The adapter's life: what comes up in which order, what holds it together, and what it leaves behind."""

import asyncio
import json
import logging
import sqlite3
from pathlib import Path
from uuid import UUID

import pytest

from bothy_hermes.backoff import BASE_SECONDS
from bothy_hermes.bothy_http import Response
from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.errors import (
    ConfigError,
    GatewayRefused,
    StateError,
    StateLocked,
    StateTooNew,
    TransportError,
)
from bothy_hermes.recovery import Recovery
from bothy_hermes.state_files import read_status
from bothy_hermes.store import Store
from bothy_hermes.store_lock import StateLock
from tests.fakes.clock import FakeClock, settle
from tests.fakes.edge_kit import AGENT, INSTANCE, key_set, private_file, settings
from tests.fakes.flow_kit import EVENT, FakeDelivery, event_value
from tests.fakes.links import FakeConnector, greeted
from tests.fakes.runtime import FakeRuntime
from tests.fakes.transport import FakeTransport, empty_answer, json_answer, problem
from tests.fakes.wire_examples import PERSON_ID

ME = {
    "id": str(AGENT),
    "kind": "agent",
    "display_name": "Helper",
    "owner_id": PERSON_ID,
    "instance_id": str(INSTANCE),
    "dpop_jkt": None,
    "settings_version": 5,
}

QUIET_SLEEPERS = 3
"""Who sleeps in a quiet adapter: pulse, desk and clean-up."""


class Life:
    """One adapter on a scripted server, a scripted gateway and a fake clock."""

    def __init__(self, tmp_path, *links, opened=lambda: True, lacking=(), **keys):
        async def look():
            return lacking

        self.fake = FakeClock()
        self.directory = Path(tmp_path) / "state"
        self.transport = FakeTransport()
        self.transport.always("getJwks", json_answer(200, {"keys": key_set()}))
        self.transport.always("getMe", json_answer(200, ME))
        self.transport.always("listRuns", json_answer(200, {"runs": []}))
        self.transport.always("putHeartbeat", empty_answer(204))
        self.transport.always("getAllowList", json_answer(200, {"version": 1, "entries": []}))
        self.connector = FakeConnector(self.fake.clock, *links)
        self.runtime = FakeRuntime()
        token = private_file(Path(tmp_path) / "token", "agent-token")
        self.adapter = AdapterLoop(
            settings(token_file=str(token), **keys),
            self.runtime,
            self.fake.clock,
            self.directory,
            self.transport,
            connector=self.connector,
            opened=opened,
            lacking=look,
        )
        self.task = None

    def start(self):
        self.task = asyncio.ensure_future(self.adapter.run())

    async def until(self, condition):
        """Wait until something is so; threads and tasks work meanwhile, time stands still."""
        async with asyncio.timeout(5):
            while not condition():
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.001)

    async def pass_time(self, seconds, step=0.1):
        """Let time pass in small steps, so that everybody who looks regularly does."""
        for _ in range(round(seconds / step)):
            await self.fake.advance(step)
            await asyncio.sleep(0)

    def sent(self, operation):
        return self.transport.sent(operation)

    def heartbeats(self):
        return [json.loads(request.body) for request in self.sent("putHeartbeat")]


def living(tmp_path, steps, *links, started=True, **options):
    """Run `steps(life)`; at its end the adapter is stopped and nothing of it is left."""

    async def scenario():
        before = asyncio.all_tasks()
        life = Life(tmp_path, *links, **options)
        if started:
            life.start()
        try:
            result = await steps(life)
            if life.task is not None:
                await asyncio.wait_for(life.adapter.stop(), 5)
                await asyncio.wait({life.task})
        finally:
            if life.task is not None:
                life.task.cancel()
                await asyncio.gather(life.task, return_exceptions=True)
        await settle()
        left = [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]
        assert left == []
        return result

    (Path(tmp_path)).mkdir(exist_ok=True)
    return asyncio.run(scenario())


# Coming up ----------------------------------------------------------------------------------------


def test_keys_come_before_the_first_token_is_shown(tmp_path):
    """The answer's date sets the clock that the first proof is made with."""

    async def steps(life):
        await life.until(lambda: life.heartbeats() and life.sent("listRuns"))
        return [request.operation for request in life.transport.requests]

    operations = living(tmp_path, steps, greeted())
    assert operations[:2] == ["getJwks", "getMe"]
    assert operations.index("listRuns") >= 2


def test_the_first_frame_names_this_adapter(tmp_path):
    async def steps(life):
        link = life.link = greeted()
        life.connector._outcomes.append(link)
        life.start()
        await life.until(lambda: link.sent)
        return link.sent[0]

    frame = living(tmp_path, steps, started=False, max_active_runs=3)
    assert (frame["op"], frame["consumer"], frame["max_active_runs"]) == ("identify", "default", 3)
    assert UUID(frame["adapter_id"])


def test_the_adapter_keeps_its_id(tmp_path):
    """By it the server tells a restart from another host."""
    ids = []
    for number in (1, 2):
        link = greeted()

        async def steps(life, link=link):
            await life.until(lambda: link.sent)
            return link.sent[0]["adapter_id"]

        ids.append(living(tmp_path, steps, link))
        assert number == len(ids)
    assert ids[0] == ids[1]


def test_without_a_server_the_adapter_waits_and_can_be_stopped(tmp_path):
    async def steps(life):
        life.transport.always("getJwks", TransportError("getJwks", "connect", sent=False))
        life.start()
        await life.until(lambda: len(life.sent("getJwks")) == 1)
        await life.fake.advance(60)
        assert len(life.sent("getJwks")) > 2
        assert life.connector.attempts == []
        await life.until(lambda: read_status(life.directory) is not None)
        assert read_status(life.directory)["connection"] == "starting"

    living(tmp_path, steps, started=False)


def test_a_refused_agent_token_is_said_and_tried_once_a_minute(tmp_path, caplog):
    async def steps(life):
        life.transport.script("getMe", problem(401, "unauthorized"), problem(401, "unauthorized"))
        life.start()
        await life.until(lambda: life.sent("getMe"))
        await life.fake.advance(59)
        assert len(life.sent("getMe")) == 1
        await life.fake.advance(62)
        await life.until(lambda: len(life.sent("getMe")) == 3)
        await life.until(life.heartbeats)

    with caplog.at_level(logging.ERROR):
        living(tmp_path, steps, greeted(), started=False)
    assert "refuses the token of hermes_adapter.token_file" in caplog.text
    assert "agent-token" not in caplog.text


@pytest.mark.parametrize("operation", ["getJwks", "getMe"])
def test_an_answer_at_the_start_that_nobody_can_read_is_asked_for_again(tmp_path, operation, caplog):
    """A server that is being repaired, or a page of somebody on the way, must not end the adapter."""

    async def steps(life):
        life.transport.script(operation, json_answer(200, {"error": "hunter2"}), json_answer(203, {}))
        life.start()
        await life.until(lambda: life.sent(operation))
        await life.fake.advance(29)
        assert len(life.sent(operation)) == 1
        await life.fake.advance(32)
        await life.until(lambda: len(life.sent(operation)) == 3)
        await life.until(life.heartbeats)

    with caplog.at_level(logging.ERROR):
        living(tmp_path, steps, greeted(), started=False)
    assert caplog.text.count("cannot be read") == 2
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    ("me", "key"),
    [({"kind": "person"}, "token_file"), ({"instance_id": PERSON_ID}, "instance_id")],
)
def test_decision_2_a_server_that_is_another_is_not_worked_with(tmp_path, me, key):
    async def steps(life):
        life.transport.always("getMe", json_answer(200, ME | me))
        life.start()
        with pytest.raises(ConfigError, match=key):
            await asyncio.wait_for(life.task, 5)
        return life.connector.attempts

    assert living(tmp_path, steps, started=False) == []


# The state directory ------------------------------------------------------------------------------


def test_a_second_adapter_on_the_same_directory_is_refused_in_words(tmp_path):
    async def steps(life):
        lock = StateLock.acquire(life.directory)
        try:
            life.start()
            with pytest.raises(StateLocked, match=r"lock: process \d+ uses this state directory"):
                await asyncio.wait_for(life.task, 5)
        finally:
            lock.release()
        return life.transport.requests

    assert living(tmp_path, steps, started=False) == []


def test_the_directory_is_free_after_the_end(tmp_path):
    async def steps(life):
        await life.until(life.heartbeats)
        await life.adapter.stop()
        StateLock.acquire(life.directory).release()

    living(tmp_path, steps, greeted())


def broken_state(directory, how):
    """Leave a state file that cannot be worked with."""
    directory.mkdir(mode=0o700)
    path = directory / "state.sqlite3"
    if how == "damaged":
        path.write_bytes(b"no database at all, xyzzy" * 100)
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()


@pytest.mark.parametrize(
    ("how", "kind", "sentence"),
    [
        ("damaged", StateError, "is damaged or no state file at all; move it"),
        ("newer", StateTooNew, "was written by a newer version"),
    ],
)
def test_a_state_file_that_cannot_be_used_stops_with_a_sentence(tmp_path, how, kind, sentence):
    """Before the server hears anything: nothing may be taken that cannot be remembered."""

    async def steps(life):
        broken_state(life.directory, how)
        life.start()
        with pytest.raises(kind, match=sentence):
            await asyncio.wait_for(life.task, 5)
        return life.transport.requests

    assert living(tmp_path, steps, started=False) == []


def test_the_clean_up_is_hourly(tmp_path, monkeypatch):
    """Between two of them it costs nothing."""
    cleaned, usual = [], Store.prune

    async def prune(store, now):
        cleaned.append(now)
        return await usual(store, now)

    monkeypatch.setattr(Store, "prune", prune)

    async def steps(life):
        await life.until(life.heartbeats)
        await life.until(lambda: life.fake.sleepers >= QUIET_SLEEPERS)
        assert len(cleaned) == 1
        await life.fake.advance(3600)
        await life.until(lambda: len(cleaned) == 2)

    living(tmp_path, steps, greeted())


def test_what_breaks_off_beside_the_gateway_is_said_and_forgotten(tmp_path, caplog):
    """By its name and the kind of its error; the adapter lives."""

    async def broken():
        raise RuntimeError("plugh")

    async def steps(life):
        await life.until(life.heartbeats)
        life.adapter._spawn(broken(), "bothy-test")
        await life.until(lambda: "bothy-test broke off: RuntimeError" in caplog.text)
        return [task.get_name() for task in life.adapter._tasks]

    with caplog.at_level(logging.ERROR):
        assert "bothy-test" not in living(tmp_path, steps, greeted())
    assert "plugh" not in caplog.text


def test_a_clean_up_that_fails_ends_nothing(tmp_path):
    """The hourly clean-up meets a disk that takes nothing; the adapter says so and lives."""

    async def steps(life):
        await life.until(life.heartbeats)
        store = life.adapter._admission._services.store
        await store._writer.run(lambda disk: disk.execute("PRAGMA query_only = ON"))
        await life.fake.advance(3600)
        await life.until(lambda: "state_unwritable" in reasons(life))
        await store._writer.run(lambda disk: disk.execute("PRAGMA query_only = OFF"))
        await life.pass_time(31, step=1.0)
        await life.until(lambda: reasons(life) == [])
        return [task.get_name() for task in life.adapter._tasks]

    assert "bothy-prune" in living(tmp_path, steps, greeted())


def reasons(life):
    return life.heartbeats()[-1]["details"].get("degraded_reasons", [])


# The gateway --------------------------------------------------------------------------------------


def test_a_server_that_sends_the_adapter_away_ends_it_with_its_own_error(tmp_path):
    """Not wrapped in a group: whoever runs the loop tells the operator what it says."""

    async def steps(life):
        with pytest.raises(GatewayRefused):
            await asyncio.wait_for(life.task, 5)
        return read_status(life.directory)["connection"]

    assert living(tmp_path, steps, Response(403, {}, b"{}")) == "stopped"


def test_heartbeats_begin_with_the_connection_and_follow_each_one(tmp_path):
    async def steps(life):
        first, second = greeted(), greeted()
        life.connector._outcomes += [first, second]
        life.start()
        await life.until(lambda: len(life.heartbeats()) == 1)
        first.end()
        await life.fake.advance(30)
        await life.until(lambda: second.sent)
        await life.until(lambda: len(life.heartbeats()) >= 2)

    living(tmp_path, steps, started=False)


def test_the_status_follows_the_connection(tmp_path):
    async def steps(life):
        link = greeted()
        life.connector._outcomes.append(link)
        life.start()
        await life.until(life.heartbeats)
        words = [read_status(life.directory)["connection"]]
        link.end()
        await settle()
        await life.pass_time(1.2)
        await life.until(lambda: read_status(life.directory)["connection"] != words[0])
        words.append(read_status(life.directory)["connection"])
        await life.adapter.stop()
        return [*words, read_status(life.directory)["connection"]]

    first, second, last = living(tmp_path, steps, started=False)
    assert (first, last) == ("ready", "stopped")
    assert second in ("waiting", "connecting")


# The gate -----------------------------------------------------------------------------------------


def test_decision_13_nothing_is_fetched_before_hermes_takes_messages(tmp_path):
    """An event that comes too early is swallowed by Hermes; its connection is not opened yet."""
    gate = []

    async def steps(life):
        await life.until(lambda: life.sent("getMe"))
        await life.until(lambda: life.fake.sleepers)
        await life.pass_time(5)
        assert life.connector.attempts == []
        assert life.heartbeats() == []
        gate.append(True)
        await life.pass_time(0.2)
        await life.until(lambda: life.connector.attempts)
        await life.until(life.heartbeats)
        return life.heartbeats()[0]["state"]

    assert living(tmp_path, steps, greeted(), opened=lambda: bool(gate)) == "online"


def test_a_restore_that_takes_too_long_is_told_and_waited_for(tmp_path, caplog):
    """The server hears why nobody comes, the operator reads it, and then all is well."""
    gate = []

    async def steps(life):
        await life.until(lambda: life.sent("getMe"))
        await life.until(lambda: life.fake.sleepers)
        await life.pass_time(12, step=0.5)
        await life.until(life.heartbeats)
        told = reasons(life)
        seen = read_status(life.directory)["heartbeat"]["details"]["degraded_reasons"]
        assert life.connector.attempts == []
        gate.append(True)
        await life.pass_time(0.2)
        await life.until(lambda: life.connector.attempts)
        await life.until(lambda: reasons(life) == [])
        return told, seen

    with caplog.at_level(logging.ERROR):
        told, seen = living(tmp_path, steps, greeted(), opened=lambda: bool(gate), restore_wait_seconds=10)
    assert told == seen == ["restore_pending"]
    assert caplog.text.count("still restores its sessions") == 1


def test_decision_13_a_hermes_that_lacks_something_is_told_of_and_takes_no_run(tmp_path, caplog):
    """The server hears it, the operator reads what it is, no event is fetched; what came late is found."""
    lacking = ["runner:_session_db", "tools.slash_confirm:resolve"]

    async def steps(life):
        await life.until(life.heartbeats)
        await life.pass_time(25, step=0.5)
        assert life.connector.attempts == []
        told, seen = reasons(life), read_status(life.directory)["heartbeat"]["details"]["degraded_reasons"]
        lacking.clear()
        await life.pass_time(12, step=0.5)
        await life.until(lambda: life.connector.attempts)
        await life.until(lambda: reasons(life) == [])
        return told, seen

    with caplog.at_level(logging.ERROR):
        told, seen = living(tmp_path, steps, greeted(), lacking=lacking)
    assert told == seen == ["runtime_contract_missing"]
    assert caplog.text.count("lacks runner:_session_db, tools.slash_confirm:resolve") == 1


def test_a_shut_gate_can_be_left(tmp_path):
    async def steps(life):
        await life.until(lambda: life.fake.sleepers)
        await life.pass_time(1)

    living(tmp_path, steps, opened=lambda: False)


# Events -------------------------------------------------------------------------------------------


def event_frame(**changes):
    return {"op": "event", "event": event_value(**changes)}


def acks(link):
    return [frame["event_id"] for frame in link.sent if frame["op"] == "ack"]


def test_no_event_is_judged_before_the_last_process_is_settled(tmp_path, monkeypatch, caplog):
    """Whatever breaks there is tried again; the events wait, and none is lost."""
    tries = []

    async def recover(self):
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("xyzzy")
        if len(tries) == 2:
            raise StateError("state.sqlite3", "the disk is full")

    monkeypatch.setattr(Recovery, "recover", recover)

    async def steps(life):
        link = greeted(event_frame())
        life.connector._outcomes.append(link)
        life.start()
        await life.until(lambda: tries)
        await settle()
        assert acks(link) == []
        await life.fake.advance(BASE_SECONDS)
        assert (len(tries), acks(link)) == (2, [])
        await life.fake.advance(2 * BASE_SECONDS)
        await life.until(lambda: acks(link) == [str(EVENT)])

    with caplog.at_level(logging.ERROR):
        living(tmp_path, steps, started=False)
    assert "the disk is full" in caplog.text
    assert "xyzzy" not in caplog.text


@pytest.mark.parametrize("event_id", [str(EVENT), "xyzzy"])
def test_an_event_whose_judging_breaks_off_is_named(tmp_path, monkeypatch, caplog, event_id):
    """By its ID where it has one, and by the kind of the error; nothing of either is shown."""

    async def broken(*_args):
        raise RuntimeError("plugh")

    async def steps(life):
        await life.until(life.heartbeats)
        await life.until(life.adapter._recovered.is_set)
        monkeypatch.setattr(life.adapter._admission, "take", broken)
        life.adapter.on_delivery(FakeDelivery(event_value(id=event_id)))
        await life.until(lambda: "broke off" in caplog.text)

    with caplog.at_level(logging.ERROR):
        living(tmp_path, steps, greeted())
    named = event_id if event_id != "xyzzy" else "without an ID"
    assert f"event {named}: its judging broke off: RuntimeError" in caplog.text
    assert "plugh" not in caplog.text
    assert "xyzzy" not in caplog.text


def test_runs_of_adapters_that_are_gone_by_then_are_looked_for_later(tmp_path):
    async def steps(life):
        await life.until(life.heartbeats)
        await life.until(lambda: len(life.sent("listRuns")) == 2)
        await life.pass_time(96, step=1.0)
        await life.until(lambda: len(life.sent("listRuns")) == 3)
        await life.pass_time(601, step=10.0)
        await life.until(lambda: len(life.sent("listRuns")) == 4)

    living(tmp_path, steps, greeted())


def test_an_event_that_comes_during_the_way_out_stays_at_the_server(tmp_path):
    async def steps(life):
        link = greeted()
        life.connector._outcomes.append(link)
        life.start()
        await life.until(life.heartbeats)
        life.adapter._stop.set()
        life.adapter.on_delivery(FakeDelivery(event_value()))
        return [task.get_name() for task in life.adapter._tasks]

    assert "bothy-admit" not in living(tmp_path, steps, started=False)


def test_an_event_of_an_unknown_version_does_not_stop_the_reader(tmp_path):
    later = UUID("0192f4a0-7b1c-7000-8000-0000000000e7")

    async def steps(life):
        link = greeted(
            {"op": "event", "event": event_value("agent.reaction", {})},
            event_frame(id=str(later), payload={}),
        )
        life.connector._outcomes.append(link)
        life.start()
        await life.until(lambda: len(acks(link)) == 2)
        return acks(link)

    assert sorted(living(tmp_path, steps, started=False)) == sorted([str(EVENT), str(later)])


def test_changed_settings_are_followed_by_a_heartbeat(tmp_path):
    async def steps(life):
        link = greeted()
        life.connector._outcomes.append(link)
        life.start()
        await life.until(life.heartbeats)
        await settle()
        count = len(life.heartbeats())
        link.push({"op": "event", "event": event_value("agent.config_changed", {"settings_version": 6})})
        await life.until(lambda: len(life.heartbeats()) > count)
        await life.until(lambda: acks(link))

    living(tmp_path, steps, started=False)


# The end ------------------------------------------------------------------------------------------


def test_stopping_twice_and_before_the_start_is_harmless(tmp_path):
    async def steps(life):
        await life.adapter.stop()
        life.start()
        await asyncio.wait_for(life.task, 5)
        await life.adapter.stop()
        return life.connector.attempts

    assert living(tmp_path, steps, greeted(), started=False) == []


def test_a_cancelled_loop_winds_up_as_well(tmp_path):
    """Hermes may cancel the task instead of asking."""

    async def steps(life):
        await life.until(life.heartbeats)
        life.task.cancel()
        await asyncio.wait({life.task}, timeout=5)
        assert life.task.cancelled()
        StateLock.acquire(life.directory).release()

    living(tmp_path, steps, greeted())


def test_the_transport_that_was_handed_in_is_closed_at_the_end(tmp_path):
    async def steps(life):
        await life.until(life.heartbeats)
        await life.adapter.stop()
        return life.transport.closed

    assert living(tmp_path, steps, greeted()) is True


def test_a_quiet_adapter_only_beats(tmp_path):
    """Five minutes without a message: a heartbeat at each interval, one connection, nothing else asked."""

    async def steps(life):
        await life.until(life.heartbeats)
        asked = len(life.transport.requests)
        for count in range(10):
            await life.until(lambda count=count: len(life.heartbeats()) > count)
            await life.until(lambda: life.fake.sleepers >= QUIET_SLEEPERS)
            await life.fake.advance(30)
        await life.until(lambda: len(life.heartbeats()) > 10)
        beats = [
            request for request in life.transport.requests[asked:] if request.operation != "putHeartbeat"
        ]
        return [request.operation for request in beats], len(life.connector.attempts)

    asked, attempts = living(tmp_path, steps, greeted())
    assert set(asked) <= {"listRuns"}
    assert attempts == 1
