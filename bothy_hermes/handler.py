"""The runs that are being worked on, and what events do to them.

Layer: flows. Holds one `RunWork` per run, gives each a slot, and passes on what the server or a changed
mode decides about a run. Whether an event is believed at all was settled by `admission` before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from .codec import JsonObject
from .defaults import LOGGER_NAME
from .errors import describe
from .proof import Proof
from .run_calls import finish_call, response_call
from .run_cards import NOT_WAITING, failed
from .run_outbox import RunOutbox
from .run_tokens import RunToken
from .runs import RunWork
from .secret import Secret
from .services import Services
from .store import EntryMove, EntryState, InboxEntry
from .store_values import ENTRY_MOVES
from .wire import FinishRun, Metrics
from .wire_events import FollowupEvent, Interaction, Invocation, RunEndedEvent
from .wire_words import Outcome, Reason

_log = logging.getLogger(LOGGER_NAME)

LINGERING = "lingering"
"""The stage of a run that is over while Hermes goes on with its turn, which hears no interrupt."""


class Handler:
    """Every run of this adapter that is not over.

    Args:
        services: What runs need.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._slots = asyncio.Semaphore(services.settings.max_active_runs)
        self._works: dict[UUID, RunWork] = {}
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        self._tokens: dict[UUID, RunToken] = {}
        self._owed: dict[UUID, UUID | None] = {}  # runs, and the event whose entry their end closes
        self._lingering: dict[UUID, RunWork] = {}
        self._closing = False
        self._closed = False

    @property
    def active_runs(self) -> int:
        """How many runs are being worked on."""
        return len(self._works)

    def knows(self, run_id: UUID) -> bool:
        """Whether something is still done for a run."""
        return run_id in self._tasks

    def works_on(self, run_id: UUID) -> bool:
        """Whether a run has not come to its end yet."""
        return run_id in self._works

    def overview(self) -> list[JsonObject]:
        """The runs being worked on: which, in which thread, how far, what was not posted.

        One that is over stays among them as `lingering` while Hermes has not let go of its turn.
        """
        return [
            {
                "run_id": str(work.run_id),
                "thread_id": str(work.thread_id),
                "stage": LINGERING if work.run_id in self._lingering else work.stage,
                "dropped": dict(work.dropped),
            }
            for work in (*self._works.values(), *self._lingering.values())
        ]

    def begin(self, entry: InboxEntry, invocation: Invocation, token: Secret | None) -> None:
        """Work on an accepted invocation, as soon as a slot is free.

        A run is worked on once, whatever events offer it; on the way out it is left to the next process,
        which finds its entry.
        """
        if self._closing or invocation.run.id in self._works:
            _log.warning("run %s: not begun", invocation.run.id)
            return
        work = RunWork(self._services, entry, invocation, token)
        self._works[work.run_id] = work
        self._spawn(work.run_id, work.token, self._work(work))

    def send_leftovers(self, run_id: UUID, token: Secret | None, entry_id: UUID | None = None) -> None:
        """Send the stored calls of a run that nobody works on (refused, or from before a restart)."""
        if run_id in self._tasks:
            if token is not None:
                self.take_token(run_id, token)
            self._owed[run_id] = self._owed.get(run_id) or entry_id
            return
        self._send_rest(run_id, RunToken(self._services.api, run_id, token), entry_id)

    def send_owed(self, run_id: UUID) -> None:
        """A call of a run was stored: have it sent, whoever works on the run."""
        work = self._works.get(run_id)
        if work is not None:
            work.poke()
        else:
            self.send_leftovers(run_id, None)

    def take_token(self, run_id: UUID, token: Secret) -> None:
        """A valid event of a run brought a token: use it for the run from now on.

        After the run's own end no other is to be had, and its answer may still be owed.
        """
        source = self._tokens.get(run_id)
        if source is not None:
            source.take(token)

    async def followup(self, event: FollowupEvent) -> None:
        """A person wrote while a run was active."""
        work = self._works.get(event.run_id)
        if work is not None:
            await work.followup(event)
            self._send_late(work)

    async def interaction(self, entry: InboxEntry, used: Interaction, token: Secret | None) -> None:
        """A person used a card; answered in any case, as the last thing of its event."""
        work = self._works.get(used.run_id)
        if work is not None:
            await work.interaction(used, entry.event_id)
            self._send_late(work)
            return
        response = response_call(used.run_id, used.id, failed(NOT_WAITING))
        await self._services.store.record(response, EntryMove(entry.event_id, EntryState.DONE))
        self.send_leftovers(used.run_id, token)

    def run_ended(self, event: RunEndedEvent) -> None:
        """The server ended a run: interrupt its turn and answer with the same outcome."""
        outcome = Outcome(event.state.value)
        reason = Reason.INTERRUPTED if outcome is Outcome.FAILED else None
        self.end_run(event.run_id, outcome, reason)

    def end_run(self, run_id: UUID, outcome: Outcome, reason: Reason | None) -> None:
        """End a run before its turn does; nothing happens to a run that nobody works on."""
        work = self._works.get(run_id)
        if work is not None:
            work.end_early(outcome, reason)

    def _send_late(self, work: RunWork) -> None:
        """Send what was stored for a run whose own sender may have come to its end meanwhile.

        With the run's own token: after its end no other is to be had.
        """
        if work.run_id in self._works:
            return
        if work.run_id in self._tasks:
            self._owed.setdefault(work.run_id, None)
        else:
            self._send_rest(work.run_id, work.token)

    def doubts(self, proof: Proof) -> bool:
        """Tell whether a turn would be interrupted for what may just not have been told in time.

        A mode that is proven and another one leaves no doubt.
        """
        runs = [work.invocation.run for work in self._works.values()]
        refusals = {proof.refusal(run.billing_mode, run.tool_class) for run in runs} - {None}
        return bool(refusals) and (proof.actual.mode is None or Reason.BILLING_MODE_MISMATCH not in refusals)

    def judge_turns(self, proof: Proof) -> None:
        """Interrupt every turn that no longer spends or touches what its run allows."""
        for work in list(self._works.values()):
            run = work.invocation.run
            if not proof.spends(run.billing_mode):
                work.end_early(Outcome.FAILED, Reason.BILLING_MODE_MISMATCH)
            elif not proof.stays_within(run.tool_class):
                work.end_early(Outcome.FAILED, Reason.TOOL_CLASS_EXCEEDED)

    async def settle(self, seconds: float) -> bool:
        """Wait until nothing is being done any more; tell whether that came in time."""
        if not self._tasks:
            return True
        _, rest = await asyncio.wait(self._tasks.values(), timeout=seconds)
        return not rest

    async def close(self, grace: float) -> None:
        """Interrupt what runs, give the ends `grace` seconds to reach the server, then stop.

        What did not reach it is stored, and sent or ended after the next start.
        """
        self._closing = True
        for work in list(self._works.values()):
            work.end_early(Outcome.FAILED, Reason.INTERRUPTED)
        await self.settle(grace)
        self._closed = True
        rest: list[asyncio.Task[Any]] = list(self._tasks.values())
        rest += [turn for work in self._lingering.values() if (turn := work.lingering) is not None]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _work(self, work: RunWork) -> None:
        try:
            await self._slots.acquire()
            try:
                await work.work()
            except Exception:
                await self._end_broken(work)
                raise
            finally:
                self._free_slot(work)
        finally:
            self._works.pop(work.run_id, None)
            self._owed[work.run_id] = work.entry_id

    async def _end_broken(self, work: RunWork) -> None:
        """Store an end for a run whose work broke off before it had one: nobody else would end it."""
        store = self._services.store
        entry = await store.entry(work.entry_id)
        if entry is not None and EntryState.FINISHING in ENTRY_MOVES[entry.state]:
            end = FinishRun(outcome=Outcome.FAILED, reason=Reason.ADAPTER_ERROR, metrics=Metrics())
            call = finish_call(work.run_id, end)
            await store.move_entry(work.entry_id, EntryState.FINISHING, [call])

    def _free_slot(self, work: RunWork) -> None:
        """Give the slot back, but not before Hermes has: a turn that it goes on with takes one of its own."""
        turn = work.lingering
        if turn is None:
            self._slots.release()
            return
        self._lingering[work.run_id] = work
        turn.add_done_callback(lambda _turn: self._let_go(work))

    def _let_go(self, work: RunWork) -> None:
        self._lingering.pop(work.run_id, None)
        self._slots.release()
        _log.warning("run %s: Hermes has let go of its turn", work.run_id)

    def _send_rest(self, run_id: UUID, source: RunToken, entry_id: UUID | None = None) -> None:
        services = self._services
        outbox = RunOutbox(
            services.api, services.store, run_id, source, clock=services.clock, entry_id=entry_id
        )
        self._spawn(run_id, source, _drain(outbox))

    def _spawn(self, run_id: UUID, source: RunToken, what: Coroutine[None, None, None]) -> None:
        if self._closed:
            what.close()  # what it would have done is stored, for the next process
            return
        task = asyncio.create_task(what, name=f"bothy-run-{run_id}")
        self._tasks[run_id], self._tokens[run_id] = task, source
        task.add_done_callback(lambda done: self._done(run_id, source, done))

    def _done(self, run_id: UUID, source: RunToken, task: asyncio.Task[None]) -> None:
        if self._tasks.get(run_id) is task:
            del self._tasks[run_id], self._tokens[run_id]
        if run_id in self._owed and run_id not in self._tasks:
            # Stored after the task looked for the last time: it is sent now.
            self._send_rest(run_id, source, self._owed.pop(run_id))
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("run %s: its work broke off: %s", run_id, describe(error))


async def _drain(outbox: RunOutbox) -> None:
    """Send everything, also what was stored behind the run's end."""
    while await outbox.drain():
        pass
