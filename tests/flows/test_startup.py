"""A start takes as long as it takes: nothing is fetched too early, nothing that waited is lost."""

import asyncio

from bothy_hermes.runtime import BusyMode
from bothy_hermes.state_files import read_status
from bothy_hermes.wire_words import DegradedReason, HeartbeatState, RunState
from tests.fakes.adapter_kit import world


def flow(tmp_path, steps, **keys):
    async def scenario():
        async with world(tmp_path, start=False, **keys) as made:
            return await steps(made)

    return asyncio.run(scenario())


class Gate:
    """Hermes' flag: while it is shut, a message that Hermes is given is swallowed."""

    def __init__(self, made):
        self.open = False
        self.early = []
        made.runtime.script = self._script

    def __call__(self):
        return self.open

    async def _script(self, turn, events):
        if not self.open:
            self.early.append(turn.user_text)
            return
        await events.on_answer(f"heard {turn.user_text}")


def begin(made, gate):
    """Start the adapter behind a gate."""
    made.loop = made.new_loop(made.settings())
    made.loop._opened = gate
    made.task = asyncio.ensure_future(made.loop.run())


def reasons(made):
    """Why the server is told that the adapter is degraded."""
    beats = [view.heartbeat for view in made.instance.consumers() if view.heartbeat is not None]
    return beats[-1].details.degraded_reasons if beats else None


def test_a_restore_that_does_not_end_is_said_and_fetches_nothing(tmp_path):
    """The server and the operator are told why there is no connection, until the flag clears."""

    async def steps(made):
        gate = Gate(made)
        run_id = made.say(made.thread(), "are you there?")
        begin(made, gate)
        await made.until(lambda: reasons(made) == (DegradedReason.RESTORE_PENDING,))
        assert not any(view.connected for view in made.instance.consumers())
        await made.until(lambda: (read_status(made.state_dir) or {}).get("heartbeat") is not None)
        status = read_status(made.state_dir)
        assert status["heartbeat"]["state"] == HeartbeatState.DEGRADED
        assert status["heartbeat"]["details"]["degraded_reasons"] == ["restore_pending"]
        assert made.instance.run(run_id).run.state is RunState.QUEUED
        gate.open = True
        assert (await made.ended(run_id)).run.state is RunState.COMPLETED
        await made.until(lambda: reasons(made) is None)
        assert gate.early == []

    flow(tmp_path, steps, **{"hermes_adapter.restore_wait_seconds": 0})


def test_what_came_during_a_long_absence_is_done_once_and_in_order(tmp_path):
    """Messages of one thread while nobody was there: each is answered, in the order of their writing."""

    async def steps(made):
        made.runtime.busy_mode = BusyMode.QUEUE
        await made.start_adapter()
        await made.stop_adapter()
        thread = made.thread()
        first = made.say(thread, "one")
        for text in ("two", "three"):
            made.say(thread, text)
        await made.start_adapter()
        await made.ended(first)
        await made.until(lambda: all(view.run.state.ended for view in made.instance.runs(thread)))
        heard = "\n".join(turn.user_text for turn in made.runtime.turns)
        assert [heard.count(text) for text in ("one", "two", "three")] == [1, 1, 1]
        assert heard.index("one") < heard.index("two") < heard.index("three")

    flow(tmp_path, steps)
