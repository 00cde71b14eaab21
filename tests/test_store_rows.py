"""Events, calls and age: what each change does, and what it refuses."""

import dataclasses
from contextlib import nullcontext
from datetime import timedelta
from uuid import UUID

import pytest

from bothy_hermes.errors import IllegalMove, StateError, WireError
from bothy_hermes.store import (
    CallDone,
    CallFailed,
    CardGone,
    ClaimMove,
    ClaimState,
    EntryMove,
    EntryState,
    OpenCard,
    StoredCall,
    Taken,
    ThreadSession,
)
from bothy_hermes.store_values import ENTRY_MOVES, ENTRY_STARTS
from tests.fakes.clock import START, FakeClock
from tests.fakes.store_kit import OTHER_RUN, RUN, THREAD, call, entry, event_id, keys, with_store

MESSAGE = UUID("44444444-4444-4444-8444-444444444444")
FIRST, SECOND = UUID(int=101), UUID(int=102)


# Events -------------------------------------------------------------------------------------------


def test_the_adapter_id_is_made_once(tmp_path):
    """It survives the closing, and a directory of its own gets another one."""

    async def ask(store):
        return await store.adapter_id(), await store.adapter_id()

    first = with_store(tmp_path / "a", ask, FakeClock(seed=1))
    again = with_store(tmp_path / "a", ask, FakeClock(seed=2))
    other = with_store(tmp_path / "b", ask, FakeClock(seed=3))
    assert len({*first, *again}) == 1
    assert other[0] != first[0]


def test_an_entry_reads_as_it_was_taken(tmp_path):
    """Every field comes back, after a restart as well."""
    taken = entry(1, jti="token-1")
    bare = dataclasses.replace(entry(2, EntryState.SETTLED), run_id=None, thread_id=None)

    async def take(store):
        return [await store.take_event(one) for one in (taken, bare)]

    async def read(store):
        return [await store.entry(event_id(number)) for number in (1, 2, 3)]

    assert with_store(tmp_path, take) == [Taken.NEW, Taken.NEW]
    assert with_store(tmp_path, read) == [taken, bare, None]


def test_a_known_event_writes_nothing(tmp_path):
    """A redelivery brings neither its state nor its calls into the file."""

    async def use(store):
        await store.take_event(entry(1))
        commits = store.commits
        again = await store.take_event(entry(1, EntryState.FINISHING, jti="new"), [call()])
        return again, (await store.entry(event_id(1))).state, await store.calls(), store.commits - commits

    assert with_store(tmp_path, use) == (Taken.KNOWN, EntryState.ACCEPTED, [], 0)


def test_a_token_id_is_bound_to_its_event(tmp_path):
    """Under another event it is a replay and nothing is written; a forgotten event keeps its binding."""

    async def use(store):
        await store.take_event(entry(1, jti="j"))
        replay = await store.take_event(entry(2, jti="j"), [call()])
        written = await store.entry(event_id(2)), await store.calls()
        await store.forget_entry(event_id(1))
        still = await store.take_event(entry(2, jti="j"))
        own = await store.take_event(entry(1, jti="j"))
        other = await store.take_event(entry(3, jti="k"))
        return replay, written, still, own, other

    assert with_store(tmp_path, use) == (
        Taken.REPLAYED,
        (None, []),
        Taken.REPLAYED,
        Taken.NEW,
        Taken.NEW,
    )


def test_taking_an_event_is_one_commit(tmp_path):
    """Entry, token's ID and calls are on disk together."""

    async def use(store):
        before = store.commits
        await store.take_event(entry(1, EntryState.FINISHING, jti="j"), [call("a"), call("b")])
        return store.commits - before, await keys(store)

    assert with_store(tmp_path, use) == (1, ["a", "b"])


def test_an_event_whose_calls_cannot_be_written_is_not_taken(tmp_path):
    """All of a step or nothing of it: a later mistake takes the entry and the token's ID back."""

    async def use(store):
        with pytest.raises(WireError):
            await store.take_event(entry(1, jti="j"), [call("a"), call("b", body={"content": "\ud800"})])
        return await store.entry(event_id(1)), await store.calls(), await store.take_event(entry(2, jti="j"))

    assert with_store(tmp_path, use) == (None, [], Taken.NEW)


@pytest.mark.parametrize("state", EntryState)
def test_an_entry_begins_only_where_it_may(tmp_path, state):
    """Whatever the table of beginnings lacks raises and writes nothing."""

    async def use(store):
        if state in ENTRY_STARTS:
            return await store.take_event(entry(1, state))
        with pytest.raises(IllegalMove, match=f"inbox entry: no move from none to {state}"):
            await store.take_event(entry(1, state))
        return await store.entry(event_id(1))

    assert with_store(tmp_path, use) == (Taken.NEW if state in ENTRY_STARTS else None)


PATHS = {
    EntryState.SETTLED: (EntryState.SETTLED,),
    EntryState.ACCEPTED: (EntryState.ACCEPTED,),
    EntryState.STARTING: (EntryState.ACCEPTED, EntryState.STARTING),
    EntryState.FINISHING: (EntryState.FINISHING,),
    EntryState.DONE: (EntryState.ACCEPTED, EntryState.DONE),
}


@pytest.mark.parametrize("source", EntryState)
def test_an_entry_moves_only_as_the_table_says(tmp_path, source):
    """From each state every other is tried: legal ones move with their calls, others raise and write none."""

    async def use(store):
        for number, target in enumerate(EntryState, start=1):
            first, *way = PATHS[source]
            await store.take_event(entry(number, first))
            for step in way:
                await store.move_entry(event_id(number), step)
            legal = target in ENTRY_MOVES[source]
            with nullcontext() if legal else pytest.raises(IllegalMove) as caught:
                await store.move_entry(event_id(number), target, [call(f"k{number}")])
            if not legal:
                assert str(caught.value) == f"inbox entry: no move from {source} to {target}"
            found = await store.entry(event_id(number))
            assert found.state == (target if legal else source)
            assert (f"k{number}" in await keys(store)) == legal

    with_store(tmp_path, use)


def test_an_unknown_entry_does_not_move(tmp_path):
    """Moving what nobody took is a mistake that is told."""

    async def use(store):
        with pytest.raises(IllegalMove, match="inbox entry: no move from none to done"):
            await store.move_entry(event_id(9), EntryState.DONE)

    with_store(tmp_path, use)


def test_open_entries_come_in_the_order_of_their_taking(tmp_path):
    """What is settled or done is not among them."""

    async def use(store):
        for number in (5, 3, 4, 1):
            await store.take_event(entry(number))
        await store.take_event(entry(2, EntryState.SETTLED))
        await store.move_entry(event_id(4), EntryState.DONE)
        await store.move_entry(event_id(5), EntryState.STARTING)
        return [(one.event_id.int, one.state) for one in await store.open_entries()]

    assert with_store(tmp_path, use) == [
        (5, EntryState.STARTING),
        (3, EntryState.ACCEPTED),
        (1, EntryState.ACCEPTED),
    ]


def test_a_runs_entry_is_its_invocation(tmp_path):
    """Follow-ups and ends of the same run are not it."""

    async def use(store):
        await store.take_event(entry(1, kind="agent.followup"))
        await store.take_event(entry(2))
        await store.take_event(entry(3, EntryState.SETTLED, kind="run.ended"))
        return (await store.entry_of_run(RUN)).event_id.int, await store.entry_of_run(OTHER_RUN)

    assert with_store(tmp_path, use) == (2, None)


# Calls --------------------------------------------------------------------------------------------


def test_calls_come_in_order_and_by_run(tmp_path):
    """A run's calls keep the order in which they were put, whatever stands between them."""

    async def use(store):
        await store.put_calls([call("a"), call("b", OTHER_RUN), call("c")])
        await store.put_calls([call("d"), call("e", OTHER_RUN)])
        return await keys(store), await keys(store, RUN), await keys(store, OTHER_RUN)

    assert with_store(tmp_path, use) == (["a", "b", "c", "d", "e"], ["a", "c", "d"], ["b", "e"])


def test_a_call_reads_as_it_was_put(tmp_path):
    """Every field and every kind of JSON value comes back after a restart."""
    body = {"text": 'שלום "\n\u0000', "list": [1, 2.5, None, True], "object": {"a": {}}}
    put = dataclasses.replace(call("k", body=body), target_id=MESSAGE, if_match=7)

    async def write(store):
        await store.put_calls([put])

    async def read(store):
        return await store.calls()

    with_store(tmp_path, write)
    assert with_store(tmp_path, read) == [StoredCall(1, put)]


def test_a_call_put_twice_is_the_first_one(tmp_path):
    """The key is the intent: a repetition keeps place and content, in one step or in two."""

    async def use(store):
        await store.put_calls([call("a", body={"n": 1}), call("b"), call("a", body={"n": 2})])
        await store.put_calls([call("a", body={"n": 3})])
        return [(one.call.key, one.call.body.get("n")) for one in await store.calls()]

    assert with_store(tmp_path, use) == [("a", 1), ("b", None)]


def test_a_sequence_is_never_used_twice(tmp_path):
    """A late answer to a removed call cannot remove another one, not even after a restart."""

    async def put(store):
        await store.put_calls([call("a")])
        (stored,) = await store.calls()
        await store.call_done(stored.sequence)
        return stored.sequence

    assert [with_store(tmp_path, put), with_store(tmp_path, put), with_store(tmp_path, put)] == [1, 2, 3]


def test_a_done_call_moves_its_entry_in_one_commit(tmp_path):
    """The row goes and the entry is done together; the second answer changes nothing."""

    async def use(store):
        await store.take_event(entry(1, EntryState.FINISHING), [call("finish"), call("other")])
        before = store.commits
        session = ThreadSession(THREAD, "s")
        await store.call_done(1, entry=(event_id(1), EntryState.DONE), also=[session])
        commits = store.commits - before
        await store.call_done(1)
        return commits, await keys(store), (await store.entry(event_id(1))).state

    assert with_store(tmp_path, use) == (1, ["other"], EntryState.DONE)


def test_a_done_call_whose_entry_cannot_move_stays(tmp_path):
    """Nothing of the step is written when one part of it is illegal."""

    async def use(store):
        await store.take_event(entry(1), [call("a")])
        with pytest.raises(IllegalMove):
            await store.call_done(1, entry=(event_id(1), EntryState.SETTLED))
        return await keys(store)

    assert with_store(tmp_path, use) == ["a"]


def test_a_poisoned_call_is_removed_and_counted_once(tmp_path):
    """The counters outlive the restart, and a repetition counts nothing."""

    async def use(store):
        await store.take_event(entry(1, EntryState.FINISHING), [call("a"), call("b"), call("c")])
        await store.call_failed(1, "validation_failed")
        await store.call_failed(1, "validation_failed")
        await store.call_failed(2, "validation_failed", entry=(event_id(1), EntryState.DONE))
        await store.call_failed(3, "run_ended")
        return await keys(store), (await store.entry(event_id(1))).state

    async def read(store):
        return dict(await store.counters())

    assert with_store(tmp_path, use) == ([], EntryState.DONE)
    assert with_store(tmp_path, read) == {"run_ended": 1, "validation_failed": 2}


def test_one_step_may_mix_every_change(tmp_path):
    """Whatever a durable step consists of, it is one commit."""

    async def use(store):
        await store.take_event(entry(1), [call("old"), call("bad")])
        await store.record(OpenCard("card", RUN), OpenCard("gone", RUN))
        await store.claim(FIRST, "card", RUN)
        before = store.commits
        await store.record(
            EntryMove(event_id(1), EntryState.STARTING),
            ClaimMove(FIRST, ClaimState.RESOLVED),
            CallDone(1),
            CallFailed(2, "x"),
            CardGone("gone"),
            ThreadSession(THREAD, "session"),
            call("new"),
        )
        return (
            store.commits - before,
            (await store.entry(event_id(1))).state,
            (await store.claim_of(FIRST)).state,
            await keys(store),
            [one.card_id for one in await store.cards()],
            await store.get_session(THREAD),
        )

    assert with_store(tmp_path, use) == (
        1,
        EntryState.STARTING,
        ClaimState.RESOLVED,
        ["new"],
        ["card"],
        ThreadSession(THREAD, "session"),
    )


# Sessions -----------------------------------------------------------------------------------------


def test_what_is_put_again_replaces_what_was_there(tmp_path):
    """A thread's session is the last one known."""
    session = ThreadSession(THREAD, "s2", "s1")

    async def write(store):
        await store.record(ThreadSession(THREAD, "s1"))
        await store.record(session)

    async def read(store):
        return await store.get_session(THREAD), await store.get_session(RUN)

    with_store(tmp_path, write)
    assert with_store(tmp_path, read) == (session, None)


# Age ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "remembered"), [(47.9, True), (48.1, False)])
def test_a_settled_event_is_remembered_for_48_hours(tmp_path, hours, remembered):
    """Counted from its settling, with the ID of its token; longer than any redelivery (24 h)."""

    async def use(store):
        await store.take_event(entry(1, EntryState.SETTLED, jti="j"))
        await store.prune(START + timedelta(hours=hours))
        return await store.entry(event_id(1)), await store.take_event(entry(2, jti="j"))

    found, replay = with_store(tmp_path, use)
    assert (found is not None) == remembered
    assert replay is (Taken.REPLAYED if remembered else Taken.NEW)


def test_age_counts_from_the_last_move(tmp_path):
    """A run that took three days is remembered for 48 h after its end; an open one for ever."""
    fake = FakeClock()

    async def use(store):
        await store.take_event(entry(1, jti="j"))
        await store.take_event(entry(2, run_id=OTHER_RUN))
        fake.move(72 * 3600)
        await store.move_entry(event_id(1), EntryState.DONE)
        await store.prune(fake.time + timedelta(hours=47))
        kept = await store.entry(event_id(1)), await store.take_event(entry(3, jti="j"))
        await store.prune(fake.time + timedelta(hours=49))
        return kept, await store.entry(event_id(1)), await store.entry(event_id(2))

    (kept, replay), gone, still_open = with_store(tmp_path, use, fake)
    assert kept is not None
    assert replay is Taken.REPLAYED
    assert gone is None
    assert still_open is not None


@pytest.mark.parametrize("busy", ["entry", "outbox", "nothing"])
def test_what_belongs_to_a_busy_run_is_kept(tmp_path, busy):
    """Cards and claims go by age only when their run has nothing left to do."""

    async def use(store):
        await store.record(OpenCard("a", RUN))
        await store.claim(FIRST, "a", RUN)
        if busy == "entry":
            await store.take_event(entry(1))
        if busy == "outbox":
            await store.put_calls([call("late")])
        gone = await store.prune(START + timedelta(days=30))
        left = await store.card("a"), await store.claim_of(FIRST)
        return gone, [one is not None for one in left]

    assert with_store(tmp_path, use) == ((2, [False] * 2) if busy == "nothing" else (0, [True] * 2))


@pytest.mark.parametrize(("days", "remembered"), [(364, True), (366, False)])
def test_a_threads_session_is_remembered_for_a_year(tmp_path, days, remembered):
    """A person who comes back after months finds the conversation."""

    async def use(store):
        await store.record(ThreadSession(THREAD, "s"))
        await store.prune(START + timedelta(days=days))
        return await store.get_session(THREAD) is not None

    assert with_store(tmp_path, use) == remembered


# A file that is damaged ---------------------------------------------------------------------------

COLUMNS = {
    "inbox": ["event_id", "run_id", "thread_id", "subject_id", "state", "created_at"],
    "outbox": ["run_id", "target_id", "body"],
    "cards": ["run_id", "message_id"],
    "claims": ["callback_id", "run_id", "state"],
    "meta": ["value"],
}


@pytest.mark.parametrize("value", ["", "x", "null", 5, b"\xff\x00"])
@pytest.mark.parametrize(
    ("table", "column"), [(table, one) for table, ones in COLUMNS.items() for one in ones]
)
def test_a_value_that_nobody_wrote_is_a_sentence(tmp_path, table, column, value):
    """SQLite sees no fault in it; whoever reads it is told what to do with the file."""

    async def steps(store):
        await store.adapter_id()
        await store.take_event(entry(1), [call(1)])
        await store.record(OpenCard("card", RUN, MESSAGE))
        await store.claim(FIRST, "card", RUN)
        await store._writer.run(lambda disk: disk.execute(f"UPDATE {table} SET {column} = ?", (value,)))
        reads = [
            store.adapter_id,
            lambda: store.entry(event_id(1)),
            store.open_entries,
            store.calls,
            store.cards,
            lambda: store.claim_of(FIRST),
            lambda: store.move_entry(event_id(1), EntryState.STARTING),
            lambda: store.prune(START),
        ]
        said = set()
        for read in reads:
            try:
                await read()
            except StateError as error:
                said.add(str(error).partition(";")[0])
            except IllegalMove:
                assert column == "event_id"  # an entry of another event now
        return said

    assert with_store(tmp_path, steps) <= {"state.sqlite3: is damaged"}
