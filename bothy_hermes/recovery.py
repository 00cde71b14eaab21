"""What the adapter does with what the process before it left behind.

Layer: flows. Runs once after the first `ready` and before any event is judged (docs/protocol.md,
section 7): send what is still owed, take up what never started, end what this runtime has lost. A run
of another adapter is left alone until that adapter has not been seen for a while. Later it looks now and
then for runs of its own process that nobody works on any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NoReturn
from uuid import UUID

from .backoff import BASE_SECONDS, CAP_SECONDS, Backoff
from .defaults import LOGGER_NAME
from .errors import BothyError, describe
from .handler import Handler
from .run_calls import finish_call, response_call
from .run_cards import NOT_WAITING, UNCERTAIN, failed
from .services import Services
from .store import CardGone, EntryState, InboxEntry
from .store_values import CLOSED_ENTRIES
from .wire import FinishRun, Metrics, Run
from .wire_events import ListedRun
from .wire_words import Outcome, Reason, RunState

_log = logging.getLogger(LOGGER_NAME)

OUTBOX_SECONDS = 30.0
"""How long events wait for what is still owed; a server that takes longer gets it meanwhile."""

DEAF_SECONDS = 5.0
"""Longest pause between two tries of the first steps: no event is judged before they have succeeded."""

LEFT_SECONDS = 5.0
"""Between two looks whether what was still being sent is sent, and its run can be ended."""

FOREIGN_SECONDS = 90
"""An adapter not seen for this long is gone, as the server counts it."""

FOREIGN_PAUSE_SECONDS = 95.0
"""When runs of another adapter are looked at again."""

STARTED_STATES = frozenset({RunState.RUNNING, RunState.WAITING_INPUT})

ABANDONED_PAUSE_SECONDS = 600.0
"""Between two looks for runs of this process that nobody works on: as long as the server waits for an adapter
that is gone."""

LOST = FinishRun(outcome=Outcome.FAILED, reason=Reason.ADAPTER_RESTARTED, metrics=Metrics())
"""The end of a run whose turn died with its process."""

ABANDONED = FinishRun(outcome=Outcome.FAILED, reason=Reason.ADAPTER_ERROR, metrics=Metrics())
"""The end of a run whose own end the server has refused."""


class Recovery:
    """The steps after a start.

    Args:
        services: Rooms and settings.
        handler: Takes up runs and sends what is owed.
        agent_id: The agent.
        adapter_id: This adapter, as its state file names it.
    """

    def __init__(self, services: Services, handler: Handler, *, agent_id: UUID, adapter_id: UUID) -> None:
        self._services = services
        self._handler = handler
        self._agent_id = agent_id
        self._adapter_id = adapter_id
        self._left: set[UUID] = set()  # events whose runs still sent what they owed when it was their turn

    async def run(self, recovered: asyncio.Event) -> None:
        """Do all steps, set the event, and look again later at what could not be decided then.

        Whatever breaks is tried again: an adapter that hears nothing any more must not look alive, and a
        run that nobody ends keeps its thread busy.
        """
        await self._insist(self.recover, DEAF_SECONDS)
        recovered.set()
        await asyncio.gather(self._finish_left(), self._look_again())

    async def watch(self) -> NoReturn:
        """End what this process has started and does not work on any more, for as long as it lives.

        That is a run whose end the server, or somebody on the way, has refused: it would keep its thread busy
        until the next start.
        """
        while True:
            await self._services.clock.sleep(ABANDONED_PAUSE_SECONDS)
            try:
                await self.end_abandoned_runs()
            except BothyError as error:
                _log.debug("runs that nobody works on are looked for later: %s", error)

    async def end_abandoned_runs(self) -> None:
        """End the started runs of this adapter that nobody works on."""
        for listed in (await self._listed()).values():
            if listed.adapter_id == self._adapter_id and self._is_abandoned(listed.run):
                # What was listed may have ended meanwhile.
                now = await self._services.api.get_run(listed.run.id)
                if self._is_abandoned(now.run):
                    await self._end(listed.run.id, how=ABANDONED)

    def _is_abandoned(self, run: Run) -> bool:
        return run.state in STARTED_STATES and not self._handler.knows(run.id)

    async def _finish_left(self) -> None:
        while self._left:
            await self._services.clock.sleep(LEFT_SECONDS)
            await self._insist(self.recover_left)

    async def _look_again(self) -> None:
        await self._services.clock.sleep(FOREIGN_PAUSE_SECONDS)
        await self._insist(self.end_lost_runs)

    async def _insist(self, step: Callable[[], Awaitable[None]], cap: float = CAP_SECONDS) -> None:
        clock = self._services.clock
        backoff = Backoff(BASE_SECONDS, cap, clock.uniform)
        while True:
            try:
                return await step()
            except Exception as error:  # noqa: BLE001  # see `run`
                _log.error("what the last process left cannot be settled yet: %s", describe(error))
            await clock.sleep(backoff.next_delay())

    async def recover(self) -> None:
        """Do all steps, once."""
        await self._answer_late_clicks()
        await self._give_up_cards()
        await self._send_what_is_owed()
        listed = await self._listed()
        for entry in await self._services.store.open_entries():
            await self._recover_entry(entry, listed.get(entry.run_id) if entry.run_id else None)
        await self.end_lost_runs()

    async def recover_left(self) -> None:
        """Do for the runs that were still sending what is done for the others, once they have sent it."""
        store = self._services.store
        entries = [await store.entry(event_id) for event_id in self._left]
        still = [one for one in entries if one is not None and one.state not in CLOSED_ENTRIES]
        self._left = {one.event_id for one in still}
        if not any(one.run_id is not None and not self._handler.knows(one.run_id) for one in still):
            return
        listed = await self._listed()
        for entry in still:
            await self._recover_entry(entry, listed.get(entry.run_id) if entry.run_id else None)

    async def end_lost_runs(self) -> None:
        """End every started run whose adapter is gone, and whose turn with it."""
        for listed in (await self._listed()).values():
            if listed.run.state in STARTED_STATES and self._is_lost(listed):
                await self._end(listed.run.id)

    async def _answer_late_clicks(self) -> None:
        """Answer what people clicked and the last process did not answer.

        Before anything ends: once a run has ended by our own word, no token is to be had for its answers.
        """
        store = self._services.store
        for entry in await store.open_entries():
            if entry.run_id is None or entry.subject_id is None:
                continue
            text = NOT_WAITING if await store.claim_of(entry.subject_id) is None else UNCERTAIN
            response = response_call(entry.run_id, entry.subject_id, failed(text))
            await store.move_entry(entry.event_id, EntryState.DONE, [response])

    async def _give_up_cards(self) -> None:
        """No prompt outlives the process it was shown in: a card that has not reached its people never will.

        One that has is closed by the end of its run.
        """
        store = self._services.store
        for card in await store.cards():
            await store.record(CardGone(card.card_id))

    async def _send_what_is_owed(self) -> None:
        store = self._services.store
        entries = {
            entry.run_id: entry.event_id for entry in await store.open_entries() if entry.run_id is not None
        }
        for run_id in {stored.call.run_id: None for stored in await store.calls()}:
            self._handler.send_leftovers(run_id, None, entries.get(run_id))
        if not await self._handler.settle(OUTBOX_SECONDS):
            _log.warning("what the last process owed the server is still being sent")

    async def _listed(self) -> dict[UUID, ListedRun]:
        listing = await self._services.api.list_runs(self._agent_id, ())
        return {listed.run.id: listed for listed in listing.runs}

    async def _recover_entry(self, entry: InboxEntry, listed: ListedRun | None) -> None:
        store = self._services.store
        if entry.run_id is None:
            return
        if self._handler.knows(entry.run_id):
            self._left.add(entry.event_id)
            return
        self._left.discard(entry.event_id)
        if listed is None:
            await self._close(entry)
        elif entry.state is EntryState.FINISHING:
            await self._end(entry.run_id, entry)  # refused or over: whatever the run looks like, no turn
        elif listed.run.state is RunState.QUEUED and self._is_ours(listed):
            _log.info("run %s: taken up again", entry.run_id)
            self._handler.begin(entry, listed.invocation, None)
        elif listed.run.state is RunState.QUEUED:
            await store.forget_entry(entry.event_id)
        else:
            await self._end(entry.run_id, entry)

    async def _close(self, entry: InboxEntry) -> None:
        """The server has no such run any more: nothing is left to do for its event."""
        if entry.state is EntryState.ACCEPTED:
            await self._services.store.forget_entry(entry.event_id)
        else:
            await self._services.store.move_entry(entry.event_id, EntryState.DONE)

    async def _end(self, run_id: UUID, entry: InboxEntry | None = None, how: FinishRun = LOST) -> None:
        """Store the end of a run that this process cannot continue, and send it."""
        _log.warning("run %s: nobody works on it any more, it ends (%s)", run_id, how.reason)
        call = finish_call(run_id, how)
        if entry is None or entry.state is EntryState.FINISHING:
            await self._services.store.put_calls([call])
        else:
            await self._services.store.move_entry(entry.event_id, EntryState.FINISHING, [call])
        self._handler.send_leftovers(run_id, None, entry.event_id if entry is not None else None)

    def _is_ours(self, listed: ListedRun) -> bool:
        ours = listed.run.consumer == self._services.settings.consumer
        return ours and listed.adapter_id == self._adapter_id

    def _is_lost(self, listed: ListedRun) -> bool:
        if self._handler.knows(listed.run.id):
            return False
        if listed.adapter_id == self._adapter_id:
            return True
        seen = listed.adapter_seen_at
        age = timedelta(seconds=FOREIGN_SECONDS)
        return seen is None or self._services.api.server_now() - seen >= age
