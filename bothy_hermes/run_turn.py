"""One turn in Hermes' hands: asked for, interrupted, and given up when Hermes does not let go of it.

Layer: flows. An interrupt is repeated until the turn is over. When Hermes hears none of them the run
ends without it, so that its people are not left waiting; the turn is still Hermes' work, and whoever
counts turns goes on counting it (`lingering`).
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from .defaults import LOGGER_NAME
from .errors import describe
from .runtime import Runtime, TurnEnd, TurnEvents, TurnOutcome, TurnRequest

_log = logging.getLogger(LOGGER_NAME)

INTERRUPT_TRIES = 10
"""How often a turn is interrupted that does not end; each try waits `INTERRUPT_SECONDS`."""

INTERRUPT_SECONDS = 2.0
"""How long an interrupted turn may take; measured are 0.02 to 2.1 seconds."""

NOT_ENDED = TurnEnd(TurnOutcome.CANCELLED, "not_ended")
"""How a turn ends for its run that Hermes goes on with."""


class RunTurn:
    """The one turn of a run.

    Args:
        runtime: Hermes.
        run_id: The run.
    """

    def __init__(self, runtime: Runtime, run_id: UUID) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self._task: asyncio.Task[TurnEnd] | None = None
        self._given_up = asyncio.Event()

    @property
    def lingering(self) -> asyncio.Task[TurnEnd] | None:
        """The turn that Hermes has not let go of although its run went on without it, None without one."""
        return self._task if self._given_up.is_set() and self._task and not self._task.done() else None

    async def do(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        """Have Hermes do the turn; returns at its end, or once it was given up."""
        asking = self._task = asyncio.create_task(self._ask(turn, events), name=f"bothy-turn-{self._run_id}")
        giving_up = asyncio.ensure_future(self._given_up.wait())
        try:
            await asyncio.wait((asking, giving_up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            asking.cancel()
            await asyncio.wait((asking,))
            raise
        finally:
            giving_up.cancel()
        return asking.result() if asking.done() else NOT_ENDED

    async def _ask(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        try:
            return await self._runtime.start_turn(turn, events)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            broken: BaseException = error  # something in the runtime was cancelled, this work was not
        except Exception as error:  # noqa: BLE001  # whatever broke in Hermes, the turn has an end
            broken = error
        _log.error("run %s: the runtime broke: %s", self._run_id, describe(broken))
        return TurnEnd(TurnOutcome.FAILED, type(broken).__name__)

    async def interrupt(self) -> None:
        """Interrupt until the turn is over: a turn that Hermes was just given may not hear the first."""
        if self._task is None:
            return
        for _ in range(INTERRUPT_TRIES):
            try:
                await self._runtime.interrupt(self._run_id)
            except Exception as error:  # noqa: BLE001  # whatever broke in Hermes, the turn must not go on
                _log.error("run %s: Hermes did not take an interrupt: %s", self._run_id, describe(error))
            await asyncio.wait((self._task,), timeout=INTERRUPT_SECONDS)
            if self._task.done():
                return
        _log.error("run %s: Hermes does not end an interrupted turn; the run ends without it", self._run_id)
        self._given_up.set()
