"""The adapter's sign of life, at its interval and whenever something changed.

Layer: flows. Each heartbeat asks anew whose money and which tools the next turn would use; a turn that
no longer fits is interrupted by the handler. It refuses to remember an earlier answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from .codec import dump
from .defaults import LOGGER_NAME
from .errors import BothyError
from .handler import Handler
from .heartbeat import build_heartbeat
from .proof import Proof
from .runtime import BusyMode
from .services import Services
from .wire import Heartbeat
from .wire_words import DegradedReason

_log = logging.getLogger(LOGGER_NAME)


class Pulse:
    """Sends heartbeats.

    Args:
        services: Rooms and settings.
        handler: How many runs are active; told what each heartbeat found.
        agent_id: The agent.
        interval: Tells the seconds between two heartbeats at this moment.
        flags: Reasons that other rooms add (`state_unwritable` and the like).
        publish: Told each heartbeat, for `status.json`.
    """

    def __init__(
        self,
        services: Services,
        handler: Handler,
        *,
        agent_id: UUID,
        interval: Callable[[], float],
        flags: set[DegradedReason],
        publish: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._services = services
        self._handler = handler
        self._agent_id = agent_id
        self._interval = interval
        self._flags = flags
        self._publish = publish
        self._changed = asyncio.Event()
        self._sent: Heartbeat | None = None

    def poke(self) -> None:
        """Something changed: send a heartbeat now."""
        self._changed.set()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            self._changed.clear()
            await self._beat()
            waiting = asyncio.ensure_future(self._changed.wait())
            pause = asyncio.ensure_future(self._services.clock.sleep(self._interval()))
            try:
                await asyncio.wait((waiting, pause), return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
                pause.cancel()

    async def _beat(self) -> None:
        proof = await self._services.prover.now()
        self._handler.judge_turns(proof)
        heartbeat = self._build(proof)
        if self._sent is None or heartbeat.state is not self._sent.state:
            _log.info("the adapter is %s", heartbeat.state)
        self._sent = heartbeat
        self._publish(dump(heartbeat))
        try:
            await self._services.api.put_heartbeat(self._agent_id, heartbeat)
        except BothyError as error:
            _log.warning("a heartbeat was not taken: %s", error)

    def _build(self, proof: Proof) -> Heartbeat:
        runtime = self._services.runtime
        reasons = set(self._flags)
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
