"""The adapter's sign of life, at its interval and whenever something changed.

Layer: flows. Each heartbeat asks anew whose money and which tools the next turn would use; a turn that
no longer fits is interrupted by the handler, when in doubt only after a second look. It refuses to
remember an earlier answer, and to let a server that answers nothing keep it from looking again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from .codec import dump
from .defaults import LOGGER_NAME
from .errors import BothyError, describe
from .handler import Handler
from .heartbeat import build_heartbeat
from .proof import Proof
from .runtime import BusyMode
from .services import Services
from .wire import Heartbeat
from .wire_words import DegradedReason

_log = logging.getLogger(LOGGER_NAME)


class Flags:
    """Why the adapter is degraded, as the rooms that can see it say.

    Args:
        changed: Called when a reason comes or goes.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._said: set[tuple[DegradedReason, str]] = set()

    @property
    def reasons(self) -> frozenset[DegradedReason]:
        """Every reason that somebody holds up at this moment."""
        return frozenset(reason for reason, _ in self._said)

    def set(self, reason: DegradedReason, room: str, on: bool) -> None:
        """Hold a reason up, or take it down; other rooms that hold it up are left alone."""
        before = self.reasons
        if on:
            self._said.add((reason, room))
        else:
            self._said.discard((reason, room))
        if self.reasons != before:
            self._changed()


class Pulse:
    """Sends heartbeats.

    Args:
        services: Rooms and settings.
        handler: How many runs are active; told what each heartbeat found.
        agent_id: The agent.
        interval: Tells the seconds between two heartbeats at this moment.
        flags: Reasons that other rooms add.
        publish: Told each heartbeat before it is sent.
    """

    def __init__(
        self,
        services: Services,
        handler: Handler,
        *,
        agent_id: UUID,
        interval: Callable[[], float],
        flags: Flags,
        publish: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self._services = services
        self._handler = handler
        self._agent_id = agent_id
        self._interval = interval
        self._flags = flags
        self._publish = publish
        self._changed = asyncio.Event()
        self._last: Heartbeat | None = None

    def poke(self) -> None:
        """Something changed: send a heartbeat as soon as the last one was taken."""
        self._changed.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            self._changed.clear()
            sending = asyncio.ensure_future(self._beat())
            again = asyncio.ensure_future(self._after(sending))
            pause = asyncio.ensure_future(self._services.clock.sleep(self._interval()))
            try:
                await asyncio.wait((again, pause), return_when=asyncio.FIRST_COMPLETED)
                if not sending.done():
                    _log.warning("a heartbeat was not taken in time; the next one replaces it")
            finally:
                for task in (again, pause, sending):
                    task.cancel()

    async def _after(self, sending: asyncio.Future[None]) -> None:
        await asyncio.wait((sending,))
        await self._changed.wait()

    async def _beat(self) -> None:
        try:
            heartbeat = await self._look()
            await self._services.api.put_heartbeat(self._agent_id, heartbeat)
        except BothyError as error:
            _log.warning("a heartbeat was not taken: %s", error)
        except Exception as error:  # noqa: BLE001  # a mistake in one heartbeat must not end all of them
            _log.error("a heartbeat broke: %s", describe(error))

    async def _look(self) -> Heartbeat:
        """Find out how the adapter is, act on it and say it to the operator."""
        proof = await self._services.prover.now()
        if self._handler.doubts(proof):
            # One late answer breaks no turn off: whom its next request pays is looked at in any case.
            proof = await self._services.prover.now()
        self._handler.judge_turns(proof)
        heartbeat = self._build(proof)
        if self._last is None or heartbeat.state is not self._last.state:
            _log.info("the adapter is %s", heartbeat.state)
        self._last = heartbeat
        await self._publish(dump(heartbeat))
        return heartbeat

    def _build(self, proof: Proof) -> Heartbeat:
        runtime = self._services.runtime
        reasons = set(self._flags.reasons)
        if runtime.busy_mode in (None, BusyMode.INTERRUPT):
            reasons.add(DegradedReason.BUSY_MODE_INVALID)
        return build_heartbeat(
            actual=proof.actual,
            tool_class=proof.tool_class,
            capabilities=runtime.capabilities,
            active_runs=self._handler.active_runs,
            runtime_version=runtime.version,
            reasons=reasons,
        )
