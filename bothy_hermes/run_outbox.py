"""Sending what a run still owes the server, in order, from disk.

Layer: flows. A call is stored before it is sent and removed after it was answered, so that a crash
repeats it at most; the server takes a repetition for the same call. One `RunOutbox` sends one run's
calls one after the other; it serves a live run as well as what a run before a restart left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from uuid import UUID

from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .codec import dump, parse
from .defaults import LOGGER_NAME
from .errors import ProblemAnswer, RunEnded, WireError
from .store import EntryState, OutboxCall, Store, StoredCall
from .wire import CreateMessage, FinishRun
from .wire_operations import CREATE_MESSAGE, FINISH_RUN
from .wire_words import Outcome, Reason

_log = logging.getLogger(LOGGER_NAME)


class BeforeFinish(Protocol):
    """What a live run does right before its end is sent."""

    def __call__(self) -> Awaitable[None]:
        """Write what is pending."""


def message_call(run_id: UUID, message: CreateMessage) -> OutboxCall:
    """The stored form of a message that must reach the server."""
    return OutboxCall(
        key=f"{run_id}:{message.client_msg_id}",
        run_id=run_id,
        operation=CREATE_MESSAGE.name,
        target_id=None,
        if_match=None,
        body=dump(message),
    )


def finish_call(run_id: UUID, end: FinishRun) -> OutboxCall:
    """The stored form of a run's end; the first one stored for a run is its end."""
    return OutboxCall(
        key=f"{run_id}:{FINISH_RUN.name}",
        run_id=run_id,
        operation=FINISH_RUN.name,
        target_id=None,
        if_match=None,
        body=dump(end),
    )


class RunOutbox:
    """One run's stored calls on their way.

    Args:
        api: The server.
        store: Where the calls are.
        run_id: The run.
        token: The run's token.
        entry_id: The event whose entry is done once the run's end was answered; None for none.
        before_finish: Called before the run's end is sent.
    """

    def __init__(
        self,
        api: BothyApi,
        store: Store,
        run_id: UUID,
        token: TokenSource,
        *,
        entry_id: UUID | None,
        before_finish: BeforeFinish | None = None,
    ) -> None:
        self._api = api
        self._store = store
        self._run_id = run_id
        self._token = token
        self._entry_id = entry_id
        self._before_finish = before_finish
        self._changed = asyncio.Event()
        self._refused = 0
        self.message_ids: dict[str, UUID] = {}
        """The server's message IDs by `client_msg_id`, as far as this process saw the answers."""
        self._senders: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            CREATE_MESSAGE.name: self._send_message,
            FINISH_RUN.name: self._send_finish,
        }

    async def put(self, *calls: OutboxCall) -> None:
        """Store calls (one commit) and have them sent."""
        await self._store.put_calls(calls)
        self._changed.set()

    def poke(self) -> None:
        """Calls were stored by somebody else's commit."""
        self._changed.set()

    async def run(self) -> None:
        """Send until the run's end was answered, or until cancelled."""
        while not await self.drain():
            await self._changed.wait()
            self._changed.clear()

    async def drain(self) -> bool:
        """Send everything that is stored now; tell whether the run's end was among it."""
        while calls := await self._store.calls(self._run_id):
            for stored in calls:
                await self._send(stored)
                if stored.call.operation == FINISH_RUN.name:
                    return True
        return False

    async def _send(self, stored: StoredCall) -> None:
        call = stored.call
        try:
            await self._senders[call.operation](call.body)
        except (ProblemAnswer, WireError) as error:
            await self._give_up(stored, error)
            return
        await self._store.call_done(stored.sequence, entry=self._entry_after(call))

    def _entry_after(self, call: OutboxCall) -> tuple[UUID, EntryState] | None:
        if call.operation == FINISH_RUN.name and self._entry_id is not None:
            return self._entry_id, EntryState.DONE
        return None

    async def _give_up(self, stored: StoredCall, error: ProblemAnswer | WireError) -> None:
        """The server refuses the call for good: it is settled with the error, and counted."""
        word = (error.code or str(error.status)) if isinstance(error, ProblemAnswer) else "malformed"
        if not isinstance(error, RunEnded):
            self._refused += 1
            _log.error("run %s: %s was refused: %s", self._run_id, stored.call.operation, word)
        await self._store.call_failed(stored.sequence, word)
        after = self._entry_after(stored.call)
        if after is not None:
            await self._store.move_entry(*after)

    async def _send_message(self, body: Mapping[str, Any]) -> None:
        message = parse(CreateMessage, body)
        answer = await self._api.create_message(self._run_id, self._token, message)
        self.message_ids[message.client_msg_id] = answer.id

    async def _send_finish(self, body: Mapping[str, Any]) -> None:
        if self._before_finish is not None:
            await self._before_finish()
        end = parse(FinishRun, body)
        if self._refused and end.outcome is Outcome.COMPLETED:
            # A message of the run never reached its people: that is no completed run.
            end = FinishRun(
                outcome=Outcome.FAILED, reason=Reason.ADAPTER_ERROR, metrics=end.metrics, costs=end.costs
            )
        await self._api.finish_run(self._run_id, self._token, end)
