"""Who hears that the disk takes nothing, how often, and who waits for it."""

import asyncio
import logging

import pytest

from bothy_hermes.errors import StateError
from bothy_hermes.store import Store
from bothy_hermes.store_health import StoreHealth
from tests.fakes.clock import FakeClock, settle
from tests.fakes.store_kit import call, keys

FULL = StateError("state.sqlite3", "the disk is full")
CLOSED = StateError("state.sqlite3", "is closed")
READ_ONLY = StateError("state.sqlite3", "cannot be written")


class Watch:
    """A health whose disk is in the test's hand."""

    def __init__(self):
        self.commits = 0
        self.closed = False
        self.told = []
        self.fake = FakeClock()
        self.health = StoreHealth(self, self.fake.clock, self.told.append)
        self.outcomes = []

    async def _work(self):
        await asyncio.sleep(0)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, StateError):
            raise outcome
        self.commits += outcome == "commit"
        return outcome

    async def does(self, *outcomes, patient=False):
        """Try something once (or patiently) with these outcomes; returns the result or the error."""
        self.outcomes += outcomes
        try:
            return await self.health.attempt(self._work, patient=patient)
        except StateError as error:
            return error


def watching(steps):
    async def scenario():
        watch = Watch()
        await steps(watch)
        return watch

    return asyncio.run(scenario())


def test_a_trouble_is_told_once_and_its_end_once(caplog):
    """An operator reads one sentence, not one for every event of a night."""

    async def steps(watch):
        for _ in range(5):
            await watch.does(StateError(FULL.what, FULL.problem))
        await watch.does("commit")
        await watch.does("commit")

    with caplog.at_level(logging.WARNING):
        watch = watching(steps)
    assert [str(one) for one in watch.told] == [str(FULL), "None"]
    assert [record.getMessage() for record in caplog.records] == [
        "state.sqlite3: the disk is full",
        "state.sqlite3: can be used again",
    ]


def test_another_trouble_is_told_as_well():
    async def steps(watch):
        await watch.does(FULL)
        await watch.does(READ_ONLY)

    watch = watching(steps)
    assert watch.told == [FULL, READ_ONLY]
    assert watch.health.trouble is READ_ONLY


def test_what_could_be_read_ends_no_trouble():
    """Only a commit proves that the disk takes writes."""

    async def steps(watch):
        await watch.does(FULL)
        await watch.does("read")
        assert watch.health.trouble is FULL
        await watch.does("commit")
        assert watch.health.trouble is None

    watching(steps)


def test_a_commit_before_the_trouble_does_not_end_it():
    async def steps(watch):
        await watch.does("commit")
        await watch.does(FULL)
        await watch.does("read")
        assert watch.health.trouble is FULL

    watching(steps)


def test_a_trouble_is_not_over_while_somebody_waits_for_the_disk():
    """A full disk takes small things: between two tries of a large one nothing is well."""

    async def steps(watch):
        large = asyncio.ensure_future(watch.does(FULL, patient=True))
        await settle()
        await watch.does("commit")
        assert watch.told == [FULL]
        watch.outcomes = ["commit"]
        await watch.fake.advance(1)
        assert await large == "commit"
        assert watch.told == [FULL, None]

    watching(steps)


def test_who_gives_up_waiting_holds_no_trouble_up():
    async def steps(watch):
        large = asyncio.ensure_future(watch.does(FULL, patient=True))
        await settle()
        large.cancel()
        await settle()
        await watch.does("commit")
        assert watch.told == [FULL, None]

    watching(steps)


def test_patience_ends_with_the_file():
    """The adapter goes: whoever still waits for the disk hears that it is closed."""

    async def steps(watch):
        waiting = asyncio.ensure_future(watch.does(FULL, patient=True))
        await settle()
        watch.closed = True
        watch.outcomes = [CLOSED]
        await watch.fake.advance(1)
        assert await waiting is CLOSED
        assert await watch.does(CLOSED, patient=True) is CLOSED
        assert watch.told == [FULL]

    watching(steps)


# The store itself ---------------------------------------------------------------------------------


def full_disk(store, *, full):
    """Give the file no page more, or as many as it wants."""

    def limit(connection):
        count = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {count if full else 1_000_000}")

    return store._writer.run(limit)


def large(key):
    return call(key, body={"content": "x" * 200_000})


def with_clock(tmp_path, steps):
    async def scenario():
        fake, told = FakeClock(), []
        store = await Store.open(tmp_path, fake.clock, told.append)
        try:
            await steps(store, fake, told)
        finally:
            await store.close()

    asyncio.run(scenario())


async def real_pause(condition):
    """Let the writer's thread work until something is so."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # the writer is a thread of its own
            await asyncio.sleep(0.002)


def test_a_full_disk_refuses_and_says_so(tmp_path):
    async def steps(store, _fake, told):
        await full_disk(store, full=True)
        with pytest.raises(StateError, match="full"):
            await store.put_calls([large("k1")])
        assert store.trouble is told[0]
        await store.calls()
        assert store.trouble is not None
        await full_disk(store, full=False)
        await store.put_calls([large("k1")])
        assert store.trouble is None
        assert told[-1] is None

    with_clock(tmp_path, steps)


def test_a_patient_call_waits_until_the_disk_takes_it(tmp_path):
    """What a run owes is never given up for a full disk."""

    async def steps(store, fake, told):
        patient = store.patient()
        await full_disk(store, full=True)
        putting = asyncio.ensure_future(patient.put_calls([large("k1")]))
        await real_pause(lambda: fake.sleepers == 1)
        await fake.advance(1)
        await real_pause(lambda: fake.sleepers == 1)
        assert not putting.done()
        assert await keys(store) == []
        await full_disk(store, full=False)
        await fake.advance(1)
        await asyncio.wait_for(putting, 5)
        assert await keys(store) == ["k1"]
        assert [trouble is None for trouble in told] == [False, True]

    with_clock(tmp_path, steps)


def test_a_patient_call_of_a_closed_store_does_not_wait(tmp_path):
    async def steps(store, fake, told):
        patient = store.patient()
        await store.close()
        with pytest.raises(StateError, match="closed"):
            await patient.calls()
        assert fake.slept == []
        assert told == []

    with_clock(tmp_path, steps)


def test_a_patient_call_can_be_cancelled(tmp_path):
    async def steps(store, fake, _told):
        await full_disk(store, full=True)
        putting = asyncio.ensure_future(store.patient().put_calls([large("k1")]))
        await real_pause(lambda: fake.sleepers == 1)
        putting.cancel()
        await settle()
        await full_disk(store, full=False)
        assert putting.cancelled()
        assert await keys(store) == []

    with_clock(tmp_path, steps)


def test_a_probe_finds_out_that_the_trouble_is_over(tmp_path):
    """Nothing else is written while nobody talks, and an adapter must not look broken for ever."""

    async def steps(store, fake, told):
        await full_disk(store, full=True)
        with pytest.raises(StateError):
            await store.put_calls([large("k1")])
        await full_disk(store, full=False)
        fake.move(1)
        await store.probe()
        assert store.trouble is None
        assert told[-1] is None

    with_clock(tmp_path, steps)
