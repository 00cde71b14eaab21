"""The file as a whole: nothing is lost, nothing is half-done, nothing that was sent stays."""

import asyncio
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bothy_hermes.errors import IllegalMove, StateError, StateTooNew
from bothy_hermes.store import EntryMove, EntryState, Store, Taken
from bothy_hermes.store_schema import FILE_NAME
from tests.fakes.clock import FakeClock
from tests.fakes.store_kit import RUN, call, entry, event_id, keys, with_store

ROOT = Path(__file__).parents[1]


# Nothing of what was sent stays -------------------------------------------------------------------


def traces(directory, word):
    """The files of a directory in which a word can be found."""
    return [path.name for path in sorted(directory.iterdir()) if word in path.read_bytes()]


def secrets_of_sizes():
    """Calls of every size that SQLite stores differently: shared pages, own pages, overflow pages."""
    return [
        call(f"k{number}", body={"content": f"GREPME-{number:04}-" + "GREPME" * size})
        for number, size in enumerate([0, 1, 5, 40, 150, 600, 700, 5_000, 40_000] * 3)
    ]


@pytest.mark.parametrize("order", ["forwards", "backwards", "inwards"])
def test_nothing_of_a_sent_call_is_left_in_the_files(tmp_path, order):
    """While it waits it is there; when the outbox has run empty neither file nor log holds a trace."""

    async def use(store):
        await store.adapter_id()
        for one in secrets_of_sizes():
            await store.put_calls([one])
        sequences = [one.sequence for one in await store.calls()]
        waiting = traces(tmp_path, b"GREPME")
        if order == "backwards":
            sequences.reverse()
        if order == "inwards":
            sequences.sort(key=lambda sequence: (sequence % 3, -sequence))
        for number, sequence in enumerate(sequences):
            if number % 2:
                await store.call_done(sequence)
            else:
                await store.call_failed(sequence, "gone")
        await store.counters()  # one more batch: the scrubbing of the last one is over
        return waiting, traces(tmp_path, b"GREPME")

    waiting, after = with_store(tmp_path, use)
    assert waiting
    assert after == []
    assert traces(tmp_path, b"GREPME") == []


def test_a_step_that_was_taken_back_leaves_no_trace(tmp_path):
    """What a refused step was to write is in no file either."""

    async def use(store):
        for one in secrets_of_sizes():
            with pytest.raises(IllegalMove):
                await store.record(one, EntryMove(event_id(1), EntryState.DONE))
        await store.adapter_id()
        return traces(tmp_path, b"GREPME")

    assert with_store(tmp_path, use) == []


def test_a_killed_process_leaves_its_traces_to_the_next(tmp_path):
    """What lay in the log of a process that died goes with the next opening, when nothing waits."""
    script = (
        "import asyncio, os, sys, pathlib\n"
        "from bothy_hermes.clock import system_clock\n"
        "from bothy_hermes.store import Store\n"
        "from tests.fakes.store_kit import call\n"
        "async def main():\n"
        "    store = await Store.open(pathlib.Path(sys.argv[1]), system_clock())\n"
        "    store._writer._tidy = lambda connection: None\n"
        "    await store.put_calls([call(body={'content': 'GREPME'})])\n"
        "    await store.call_done(1)\n"
        "    os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=False, timeout=60)
    assert killed.returncode == 9
    assert traces(tmp_path, b"GREPME") == ["state.sqlite3-wal"]

    async def use(store):
        await store.calls()
        await store.calls()
        return traces(tmp_path, b"GREPME")

    assert with_store(tmp_path, use) == []


# A disk that refuses ------------------------------------------------------------------------------


def test_a_full_disk_is_a_sentence_and_passes(tmp_path):
    """The big call fails, small ones go on, nothing is half-written, and room makes it work again."""

    async def use(store):
        await store.take_event(entry(1))
        pages = await store._writer.run(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        await store._writer.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
        big = call("big", body={"content": "x" * 100_000})
        results = await asyncio.gather(
            store.take_event(entry(2)),
            store.move_entry(event_id(1), EntryState.FINISHING, [big]),
            store.take_event(entry(3)),
            return_exceptions=True,
        )
        state = (await store.entry(event_id(1))).state
        await store._writer.run(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
        await store.move_entry(event_id(1), EntryState.FINISHING, [big])
        return results, state, await keys(store)

    (first, second, third), state, after = with_store(tmp_path, use)
    assert (first, third) == (Taken.NEW, Taken.NEW)
    assert isinstance(second, StateError)
    assert str(second).startswith("state.sqlite3: the disk is full; free some space")
    assert state is EntryState.ACCEPTED
    assert after == ["big"]


def test_a_disk_that_became_read_only_is_a_sentence_and_passes(tmp_path):
    """What is remembered can still be read; writing is refused as a whole and works again afterwards."""

    async def use(store):
        await store.take_event(entry(1))
        await store._writer.run(lambda c: c.execute("PRAGMA query_only = ON"))
        with pytest.raises(StateError, match=r"^state.sqlite3: cannot be written; check the owner"):
            await store.take_event(entry(2), [call("a")])
        seen = await store.entry(event_id(1)) is not None, await store.entry(event_id(2))
        await store._writer.run(lambda c: c.execute("PRAGMA query_only = OFF"))
        return seen, await store.take_event(entry(2), [call("a")]), await keys(store)

    assert with_store(tmp_path, use) == ((True, None), Taken.NEW, ["a"])


FULL_DISK = """
import asyncio, pathlib, resource, sys
from bothy_hermes.clock import system_clock
from bothy_hermes.errors import StateError
from bothy_hermes.store import Store
from tests.fakes.store_kit import call, entry, event_id

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    store = await Store.open(pathlib.Path(sys.argv[1]), system_clock())
    await store.take_event(entry(1))
    limit(100_000)
    refused = 0
    for number in range(20):
        try:
            await store.put_calls([call(f"k{number}", body={"content": "x" * 50_000})])
        except StateError as error:
            assert "state.sqlite3: the disk" in str(error), error
            refused += 1
    assert refused > 10, refused
    assert await store.entry(event_id(1)) is not None
    limit(resource.RLIM_INFINITY)
    await store.put_calls([call("after")])
    found = [one.call.key for one in await store.calls()]
    assert found[-1] == "after" and len(found) == 21 - refused, (found, refused)
    await store.close()

asyncio.run(main())
"""


def test_a_disk_that_takes_no_more_bytes_is_survived(tmp_path):
    """Real refused writes in a process of its own: sentences, no crash, and it goes on afterwards."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert soft == resource.RLIM_INFINITY
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FULL_DISK, str(tmp_path)],
        cwd=ROOT,
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr

    async def use(store):
        return (await keys(store))[-1]

    assert with_store(tmp_path, use) == "after"


# Waiting ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", range(4))
def test_a_cancelled_taking_is_whole(tmp_path, turns):
    """Cancelled at any moment, an event is taken with its call or not at all."""

    async def use(store):
        taking = asyncio.create_task(store.take_event(entry(1), [call("a")]))
        for _ in range(turns):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        return await store.entry(event_id(1)) is not None, await keys(store)

    taken, found = with_store(tmp_path, use)
    assert found == (["a"] if taken else [])
    assert taken == (turns > 0)


def test_a_closed_store_says_so(tmp_path):
    """A call after the end is an error of the state."""

    async def main():
        store = await Store.open(tmp_path, FakeClock().clock)
        await store.close()
        await store.close()
        with pytest.raises(StateError, match=r"state.sqlite3: is closed"):
            await store.calls()

    asyncio.run(main())


def test_an_unusable_directory_is_told_at_the_opening(tmp_path):
    """The opening raises what the file's room says."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError):
        with_store(tmp_path / "state", None)


def test_many_waiters_share_commits(tmp_path):
    """A thousand claims of 64 waiters take far fewer commits than claims."""

    async def use(store):
        numbers = iter(range(1, 1001))

        async def waiter():
            for number in numbers:
                assert await store.take_event(entry(number, jti=f"j{number}")) is Taken.NEW

        await asyncio.gather(*(waiter() for _ in range(64)))
        return store.commits, len(await store.open_entries())

    commits, found = with_store(tmp_path, use)
    assert found == 1000
    assert commits <= 500


# What is not in the file is not looked for --------------------------------------------------------


def test_what_is_new_is_known_to_be_new_without_the_disk(tmp_path):
    """Every event asks for itself and for its run; only what the file may remember waits for the writer."""

    async def use(store):
        async def nobody(_job):
            raise AssertionError("the writer was asked")

        await store.take_event(entry(1))
        ask, store._writer.run = store._writer.run, nobody
        new = [await one.entry(event_id(2)) for one in (store, store.patient())]
        new.append(await store.entry_of_run(event_id(2)))
        store._writer.run = ask
        return new, await known(store)

    async def known(store):
        return await store.entry(event_id(1)) is not None, await store.entry_of_run(RUN) is not None

    assert with_store(tmp_path, use) == ([None, None, None], (True, True))
    assert with_store(tmp_path, known) == (True, True)


def test_what_was_forgotten_by_age_is_new(tmp_path):
    """As if it had never been there; the others stay, and a run stays with the last of its events."""
    fake = FakeClock()

    async def use():
        store = await Store.open(tmp_path, fake.clock)
        other = event_id(77)
        await store.take_event(entry(1, state=EntryState.SETTLED))
        await store.take_event(entry(2, state=EntryState.SETTLED, run_id=other))
        fake.move(30 * 3600)
        await store.take_event(replace(entry(3, state=EntryState.SETTLED), created_at=fake.time))
        await store.prune(fake.time + timedelta(hours=20))
        left = [await store.entry(event_id(number)) is not None for number in (1, 2, 3)]
        known = set(store._known)
        await store.close()
        return left, known

    assert asyncio.run(use()) == ([False, False, True], {event_id(3), RUN})


# A newer version takes the file over ----------------------------------------------------------------


@pytest.mark.parametrize("patient", [False, True])
def test_a_newer_schema_under_an_open_store_is_noticed_and_left_alone(tmp_path, patient):
    """Another version of the adapter has migrated it: what this one would write could break it."""
    told = []

    def version(number=None):
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
            if number is not None:
                other.execute(f"PRAGMA user_version = {number}")
            return other.execute("PRAGMA user_version").fetchone()[0]

    async def main():
        store = await Store.open(tmp_path, FakeClock().clock, told.append)
        view = store.patient() if patient else store
        try:
            await view.check()
            assert told == []
            ours = version()
            version(ours + 1)
            with pytest.raises(StateTooNew, match="was written by a newer version"):
                await view.check()
            assert isinstance(store.trouble, StateTooNew)
            with pytest.raises(StateTooNew):
                await store.put_calls([call("k1")])
            version(ours)
            await store.put_calls([call("k2")])
            assert await keys(store) == ["k2"]
            assert (store.trouble, [type(one) for one in told]) == (None, [StateTooNew, type(None)])
        finally:
            await store.close()

    asyncio.run(main())
