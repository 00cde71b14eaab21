"""The inbox and the outbox against a model: random steps, failures and restarts, the same memory."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bothy_hermes.errors import IllegalMove
from bothy_hermes.store import CallDone, EntryMove, EntryState, Store, Taken
from tests.fakes.clock import FakeClock
from tests.fakes.store_kit import OTHER_RUN, RUN, call, entry, event_id
from tests.test_store_values import ENTRY_TABLE

EVENTS = st.integers(1, 4)
KEYS = st.sampled_from("abcd")
STATES = st.sampled_from(list(EntryState))
RUNS = {"a": RUN, "b": OTHER_RUN, "c": RUN, "d": OTHER_RUN}


class StoreModel(RuleBasedStateMachine):
    """A store beside dictionaries that do the same."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.directory = tempfile.TemporaryDirectory()
        self.entries, self.tokens, self.calls, self.failed = {}, {}, [], 0
        self.places, self.last = {}, 0
        self.store = self.run(self.open())

    def run(self, coroutine):
        return self.loop.run_until_complete(coroutine)

    async def open(self):
        return await Store.open(Path(self.directory.name), FakeClock().clock)

    def teardown(self):
        self.run(self.store.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        self.directory.cleanup()

    # What the model does with a step.

    def put(self, keys):
        self.calls.extend(key for key in dict.fromkeys(keys) if key not in self.calls)

    def take_away(self, sequence):
        """Remove the call at a place; tells whether there was one."""
        key = self.places.get(sequence)
        if key in self.calls:
            self.calls.remove(key)
        return self.places.pop(sequence, None) is not None

    def legal(self, number, state):
        return number in self.entries and state in ENTRY_TABLE[self.entries[number]]

    @rule(number=EVENTS, jti=st.sampled_from(["j1", "j2", None]), keys=st.lists(KEYS, max_size=2))
    def take(self, number, jti, keys):
        """An event is offered, new, known or with another one's token."""
        result = self.run(
            self.store.take_event(entry(number, jti=jti), [call(key, RUNS[key]) for key in keys])
        )
        if number in self.entries:
            assert result is Taken.KNOWN
        elif jti is not None and self.tokens.get(jti, number) != number:
            assert result is Taken.REPLAYED
        else:
            assert result is Taken.NEW
            self.entries[number] = EntryState.ACCEPTED
            if jti is not None:
                self.tokens[jti] = number
            self.put(keys)

    @rule(number=EVENTS, state=STATES, keys=st.lists(KEYS, max_size=2))
    def move(self, number, state, keys):
        """An entry is moved, legally or not, with calls that are put only when it moves."""
        legal = self.legal(number, state)
        try:
            self.run(self.store.move_entry(event_id(number), state, [call(key, RUNS[key]) for key in keys]))
        except IllegalMove:
            assert not legal
            return
        assert legal
        self.entries[number] = state
        self.put(keys)

    @rule(number=EVENTS)
    def forget(self, number):
        """An entry is dropped; its token stays bound."""
        self.run(self.store.forget_entry(event_id(number)))
        self.entries.pop(number, None)

    @rule(sequence=st.integers(1, 12), number=EVENTS, state=STATES)
    def done(self, sequence, number, state):
        """A call is answered together with a move; an illegal move keeps the call."""
        legal = self.legal(number, state)
        try:
            self.run(self.store.call_done(sequence, entry=(event_id(number), state)))
        except IllegalMove:
            assert not legal
            return
        assert legal
        self.take_away(sequence)
        self.entries[number] = state

    @rule(sequence=st.integers(1, 12))
    def fail(self, sequence):
        """A call is given up; only one that was there is counted."""
        self.run(self.store.call_failed(sequence, "x"))
        self.failed += self.take_away(sequence)

    @rule(steps=st.lists(st.tuples(EVENTS, STATES, KEYS), min_size=2, max_size=6))
    def at_once(self, steps):
        """Several steps in flight: each is whole, in the order of asking, whatever its neighbours do."""

        async def all_of_them():
            return await asyncio.gather(
                *(
                    self.store.record(call(key, RUNS[key]), EntryMove(event_id(number), state))
                    for number, state, key in steps
                ),
                return_exceptions=True,
            )

        for (number, state, key), result in zip(steps, self.run(all_of_them()), strict=True):
            if self.legal(number, state):
                assert result is None
                self.put([key])
                self.entries[number] = state
            else:
                assert isinstance(result, IllegalMove)

    @rule()
    def empty(self):
        """Everything that waits is answered in one step."""
        self.run(self.store.record(*(CallDone(sequence) for sequence in list(self.places))))
        self.calls.clear()
        self.places.clear()

    @rule()
    def restart(self):
        """The process ends and another one opens the file."""
        self.run(self.store.close())
        self.store = self.run(self.open())

    @invariant()
    def the_store_remembers_what_the_model_does(self):
        """Entries, calls with their order and places, and the count of failures agree."""

        async def look():
            found = [await self.store.entry(event_id(number)) for number in range(1, 5)]
            return found, await self.store.calls(), await self.store.calls(RUN), await self.store.counters()

        found, calls, of_run, counters = self.run(look())
        assert {n: one.state for n, one in enumerate(found, 1) if one} == self.entries
        assert [(one.call.key, one.call.run_id) for one in calls] == [(key, RUNS[key]) for key in self.calls]
        assert [one.call.key for one in of_run] == [key for key in self.calls if RUNS[key] == RUN]
        self.check_places({one.sequence: one.call.key for one in calls})
        assert counters.get("x", 0) == self.failed

    def check_places(self, places):
        """A call keeps its place, and a new one comes after every place that was ever used."""
        new = places.keys() - self.places.keys()
        assert {place: key for place, key in places.items() if place not in new} == self.places
        assert all(place > self.last for place in new)
        self.last = max([self.last, *places])
        self.places = places


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
