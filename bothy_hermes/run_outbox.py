"""Sending what a run still owes the server, in order, from disk.

Layer: flows. A call is stored before it is sent and removed after it was answered, so that a crash
repeats it at most; the server takes a repetition for the same call. One `RunOutbox` sends one run's
calls one after the other; it serves a live run as well as what a run before a restart left behind.
What the calls are is `run_calls`' subject.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from http import HTTPStatus
from typing import Protocol
from uuid import UUID

from . import run_calls
from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .clock import Clock
from .defaults import LOGGER_NAME
from .errors import (
    BothyError,
    ClockRefused,
    ConfigError,
    ProblemAnswer,
    RunEnded,
    StateError,
    TokenRefused,
    TransportError,
    WireError,
    describe,
)
from .run_calls import Sending, failed_end, is_loss
from .store import CallDone, Change, EntryState, OutboxCall, Store, StoredCall
from .wire_operations import AWAIT_RUN_INPUT, FINISH_RUN

_log = logging.getLogger(LOGGER_NAME)


class OutboxEvents(Protocol):
    """What a live run is told about its calls."""

    def before(self, call: OutboxCall) -> Awaitable[None]:
        """Called before a wait or the end of the run is sent: write what is pending."""

    def done(self, call: OutboxCall) -> None:
        """The server has taken a call."""

    def refused(self, call: OutboxCall, word: str) -> None:
        """The server has refused a call for good."""


BARRIERS = frozenset({AWAIT_RUN_INPUT.name, FINISH_RUN.name})
"""Calls before which the live box must be up to date."""

MEND_SECONDS = 60.0
"""Between two tries of a call that only an operator can help along: a token that was replaced at the
server and not here yet, a clock that is to be set."""

MENDED = (TransportError, TokenRefused, ConfigError, ClockRefused)
"""Errors that say nothing about the call itself."""


class RunOutbox:
    """One run's stored calls on their way.

    Args:
        api: The server.
        store: Where the calls are.
        run_id: The run.
        token: The run's token.
        clock: Waiting.
        entry_id: The event whose entry is done once the run's end was answered; None for none.
        events: The live run, None for what another process left.
    """

    def __init__(
        self,
        api: BothyApi,
        store: Store,
        run_id: UUID,
        token: TokenSource,
        *,
        clock: Clock,
        entry_id: UUID | None,
        events: OutboxEvents | None = None,
    ) -> None:
        self._api = api
        self._store = store
        self._run_id = run_id
        self._token = token
        self._clock = clock
        self._entry_id = entry_id
        self._events = events
        self._changed = asyncio.Event()
        self._lost_messages = 0
        self._posted: dict[str, tuple[UUID, int]] = {}

    @property
    def has_lost(self) -> bool:
        """Whether the server has refused a message of the run for good."""
        return self._lost_messages > 0

    async def put(self, *changes: Change) -> None:
        """Store calls and what belongs to them (one commit) and have the calls sent."""
        await self._store.record(*changes)
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
                lost = self._lost_messages
                await self._send(stored)
                if stored.call.operation == FINISH_RUN.name:
                    return True
                if self._lost_messages != lost:
                    break  # the stored end is another one now
        return False

    async def _send(self, stored: StoredCall) -> None:
        call = stored.call
        if self._events is not None and call.operation in BARRIERS:
            await self._events.before(call)
        try:
            changes = await self._make(call)
        except (ProblemAnswer, WireError) as error:
            await self._give_up(stored, error)
        except StateError:
            raise  # nothing is known about the call: the next process makes it
        except Exception as error:
            if call.operation == FINISH_RUN.name:
                raise
            # A mistake of ours in one call would keep all that comes behind it, the run's end too.
            _log.error("run %s: %s broke: %s", self._run_id, call.operation, describe(error))
            await self._give_up(stored, WireError("", "cannot be made"))
        else:
            await self._settle(stored, changes)

    async def _make(self, call: OutboxCall) -> Sequence[Change]:
        """Make a call until the server has taken or refused it."""
        sending = Sending(self._api, self._store, self._token, self._lost_messages, self._posted)
        while True:
            try:
                return await run_calls.send(sending, call)
            except BothyError as error:
                if not can_be_mended(error):
                    raise
                _log.error("run %s: %s waits: %s", self._run_id, call.operation, error)
            await self._clock.sleep(MEND_SECONDS)

    async def _settle(self, stored: StoredCall, changes: Sequence[Change]) -> None:
        await self._store.call_done(stored.sequence, entry=self._entry_after(stored.call), also=changes)
        if self._events is not None:
            self._events.done(stored.call)

    async def _give_up(self, stored: StoredCall, error: ProblemAnswer | WireError) -> None:
        """The server refuses the call for good: it is settled with the error, and counted."""
        call, also = stored.call, list[Change]()
        word = (error.code or str(error.status)) if isinstance(error, ProblemAnswer) else "malformed"
        if isinstance(error, RunEnded) or not is_loss(call):
            _log.info("run %s: %s was not taken: %s", self._run_id, call.operation, word)
        else:
            self._lost_messages += 1
            also = await self._failed_end(behind=stored.sequence)
            _log.error("run %s: %s was refused: %s", self._run_id, call.operation, word)
        await self._store.call_failed(stored.sequence, word, entry=self._entry_after(call), also=also)
        if self._events is not None:
            self._events.refused(call, word)

    async def _failed_end(self, *, behind: int) -> list[Change]:
        """Put another end in the place of the one behind a loss: the next process knows of no loss."""
        calls = await self._store.calls(self._run_id)
        ends = [one for one in calls if one.call.operation == FINISH_RUN.name and one.sequence > behind]
        return [change for one in ends for change in (CallDone(one.sequence), failed_end(one.call))]

    def _entry_after(self, call: OutboxCall) -> tuple[UUID, EntryState] | None:
        if call.operation == FINISH_RUN.name and self._entry_id is not None:
            return self._entry_id, EntryState.DONE
        return None


def can_be_mended(error: BothyError) -> bool:
    """Whether the call may succeed later as it is: a refused token refuses no call."""
    if isinstance(error, ProblemAnswer):
        return error.status == HTTPStatus.UNAUTHORIZED
    return isinstance(error, MENDED)
