"""The sign of life: at its interval, at once when something changes, and true each time."""

import asyncio
import contextlib
import logging

import pytest

from bothy_hermes.errors import ProblemAnswer
from bothy_hermes.pulse import Flags, Pulse
from bothy_hermes.runtime import BusyMode, ResolvedCredential
from bothy_hermes.wire_words import DegradedReason, KeyType
from tests.fakes.clock import settle
from tests.fakes.edge_kit import AGENT
from tests.fakes.flow_kit import with_rooms

UNWRITABLE, RESTORE = DegradedReason.STATE_UNWRITABLE, DegradedReason.RESTORE_PENDING


class Handler:
    active_runs = 0

    def __init__(self):
        self.judged = []
        self.doubted = []

    def doubts(self, proof):
        return bool(self.doubted) and self.doubted.pop()

    def judge_turns(self, proof):
        self.judged.append(proof)


class Beating:
    """A running pulse on a fake clock."""

    def __init__(self, made):
        self.rooms = made
        self.api = made.api
        self.handler = Handler()
        self.published = []
        self.flags = Flags(lambda: self.pulse.poke())  # noqa: PLW0108  # the pulse is made after them
        self.pulse = Pulse(
            made.services,
            self.handler,
            agent_id=AGENT,
            interval=lambda: 30.0,
            flags=self.flags,
            publish=self._publish,
        )

    async def _publish(self, heartbeat):
        self.published.append(heartbeat)

    @property
    def sent(self):
        """The heartbeats that the server was asked to take."""
        return [heartbeat for (heartbeat,) in self.api.named("put_heartbeat")]

    async def pass_time(self, seconds):
        await self.rooms.fake.advance(seconds)
        await settle(60)


def beating(tmp_path, steps, **options):
    """Run `steps(beating)` beside a pulse."""

    async def on_rooms(made):
        beat = Beating(made)
        task = asyncio.ensure_future(beat.pulse.run())
        try:
            await settle(60)
            return await steps(beat)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    return with_rooms(tmp_path, on_rooms, **options)


def test_a_heartbeat_is_sent_at_once_and_then_at_its_interval(tmp_path):
    async def steps(beat):
        counts = [len(beat.sent)]
        for _ in range(3):
            await beat.pass_time(29)
            counts.append(len(beat.sent))
            await beat.pass_time(1)
            counts.append(len(beat.sent))
        return counts

    assert beating(tmp_path, steps) == [1, 1, 2, 2, 3, 3, 4]


def test_a_change_is_told_at_once(tmp_path):
    async def steps(beat):
        beat.handler.active_runs = 3
        beat.pulse.poke()
        await settle(60)
        return [heartbeat.details.active_runs for heartbeat in beat.sent]

    assert beating(tmp_path, steps) == [0, 3]


@pytest.mark.parametrize(("doubted", "questions"), [(False, 1), (True, 2)])
def test_decision_4_what_would_break_a_turn_off_in_doubt_is_asked_once_more(tmp_path, doubted, questions):
    """Turns are judged once a heartbeat, by the last answer."""

    async def steps(beat):
        before = beat.rooms.runtime.questions
        beat.handler.doubted = [doubted]
        judged = len(beat.handler.judged)
        beat.pulse.poke()
        await settle(60)
        assert beat.rooms.runtime.questions - before == questions
        assert len(beat.handler.judged) - judged == 1

    beating(tmp_path, steps)


def test_changes_that_come_together_are_one_heartbeat(tmp_path):
    async def steps(beat):
        for _ in range(10):
            beat.pulse.poke()
        await settle(60)
        return len(beat.sent)

    assert beating(tmp_path, steps) == 2


def test_decision_4_mode_and_class_are_asked_for_each_heartbeat_and_judge_the_turns(tmp_path):
    """A login that replaces a key is found by the next sign of life, and stops what it must not pay."""

    async def steps(beat):
        beat.rooms.runtime.credential = ResolvedCredential("anthropic", KeyType.OAUTH)
        await beat.pass_time(30)
        modes = [str(heartbeat.reported_billing_mode) for heartbeat in beat.sent]
        return modes, [str(proof.actual.mode) for proof in beat.handler.judged]

    assert beating(tmp_path, steps) == (["organization", "personal"], ["organization", "personal"])


@pytest.mark.parametrize(
    ("mode", "reasons"),
    [
        (BusyMode.QUEUE, None),
        (BusyMode.STEER, None),
        (BusyMode.INTERRUPT, (DegradedReason.BUSY_MODE_INVALID,)),
        (None, (DegradedReason.BUSY_MODE_INVALID,)),
    ],
)
def test_a_busy_mode_that_interrupts_is_a_reason(tmp_path, mode, reasons):
    async def steps(beat):
        beat.rooms.runtime.busy_mode = mode
        await beat.pass_time(30)
        return beat.sent[-1]

    heartbeat = beating(tmp_path, steps)
    assert heartbeat.details.degraded_reasons == reasons
    assert str(heartbeat.state) == ("online" if reasons is None else "degraded")


def test_a_reason_that_comes_or_goes_is_told_at_once(tmp_path):
    async def steps(beat):
        beat.flags.set(UNWRITABLE, "store", on=True)
        await settle(60)
        beat.flags.set(UNWRITABLE, "store", on=False)
        await settle(60)
        return [heartbeat.details.degraded_reasons for heartbeat in beat.sent]

    assert beating(tmp_path, steps) == [None, (UNWRITABLE,), None]


def test_the_operator_sees_what_the_server_is_told(tmp_path):
    """Before the server has it: it may be the server that is away."""

    async def steps(beat):
        beat.api.on["put_heartbeat"] = ProblemAnswer("putHeartbeat", 404, None)
        beat.flags.set(RESTORE, "gate", on=True)
        await settle(60)
        return beat.published[-1]

    assert beating(tmp_path, steps)["details"]["degraded_reasons"] == ["restore_pending"]


def test_the_log_has_the_state_when_it_changes(tmp_path, caplog):
    """Not with every heartbeat; one that was taken is not called late."""

    async def steps(beat):
        await beat.pass_time(30)
        beat.flags.set(UNWRITABLE, "test", on=True)
        await settle(60)
        await beat.pass_time(30)
        return [str(heartbeat.state) for heartbeat in beat.sent]

    with caplog.at_level(logging.INFO):
        assert beating(tmp_path, steps) == ["online", "online", "degraded", "degraded"]
    said = [record.getMessage() for record in caplog.records if "adapter is" in record.getMessage()]
    assert said == ["the adapter is online", "the adapter is degraded"]
    assert "not taken in time" not in caplog.text


def test_a_refused_heartbeat_ends_no_pulse(tmp_path, caplog):
    async def steps(beat):
        beat.api.on["put_heartbeat"] = ProblemAnswer("putHeartbeat", 422, "validation_failed")
        await beat.pass_time(30)
        beat.api.on.clear()
        await beat.pass_time(30)
        return len(beat.sent)

    with caplog.at_level(logging.WARNING):
        assert beating(tmp_path, steps) == 3
    assert "422 validation_failed" in caplog.text


def test_a_mistake_in_one_heartbeat_ends_no_pulse(tmp_path, caplog):
    """Whatever breaks while one is made: the next is made, and the log repeats no foreign text."""

    async def steps(beat):
        beat.handler.judge_turns = _break
        await beat.pass_time(30)
        beat.handler = beat.pulse._handler = Handler()
        await beat.pass_time(30)
        return len(beat.sent)

    with caplog.at_level(logging.ERROR):
        assert beating(tmp_path, steps) == 2
    assert "xyzzy" not in caplog.text


def _break(_proof):
    raise KeyError("xyzzy")


def test_a_server_that_does_not_answer_keeps_nobody_from_looking(tmp_path, caplog):
    """The next heartbeat replaces the one that hangs, with what is true by then."""

    async def steps(beat):
        never = asyncio.Event()
        beat.api.on["put_heartbeat"] = [lambda _heartbeat: never.wait()]
        await beat.pass_time(30)
        hanging = len(beat.sent)
        beat.rooms.runtime.credential = ResolvedCredential("anthropic", KeyType.OAUTH)
        await beat.pass_time(30)
        return hanging, str(beat.sent[-1].reported_billing_mode), len(beat.handler.judged)

    assert beating(tmp_path, steps) == (2, "personal", 3)
    assert caplog.text.count("a heartbeat was not taken in time") == 1


def test_a_change_does_not_tear_a_heartbeat_that_is_on_its_way(tmp_path):
    """Many changes and a slow server: one after the other gets through."""

    async def steps(beat):
        slow = asyncio.Event()
        beat.api.on["put_heartbeat"] = [lambda _heartbeat: slow.wait()]
        beat.pulse.poke()
        await settle(60)
        for _ in range(5):
            beat.pulse.poke()
            await settle(20)
        before = len(beat.sent)
        slow.set()
        await settle(60)
        return before, len(beat.sent)

    assert beating(tmp_path, steps) == (2, 3)


# Flags --------------------------------------------------------------------------------------------


def flags():
    changes = []
    made = Flags(lambda: changes.append(1))
    return made, changes


def test_a_reason_stays_as_long_as_one_room_holds_it_up():
    """The state file and the status file fail apart and recover apart."""
    made, changes = flags()
    made.set(UNWRITABLE, "store", on=True)
    made.set(UNWRITABLE, "status", on=True)
    made.set(UNWRITABLE, "store", on=False)
    assert made.reasons == {UNWRITABLE}
    made.set(UNWRITABLE, "status", on=False)
    assert made.reasons == frozenset()
    assert len(changes) == 2


def test_saying_a_reason_again_changes_nothing():
    made, changes = flags()
    made.set(RESTORE, "gate", on=False)
    made.set(RESTORE, "gate", on=True)
    made.set(RESTORE, "gate", on=True)
    assert len(changes) == 1
