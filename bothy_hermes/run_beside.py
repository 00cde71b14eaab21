"""What is done beside a run's turn: it ends with the work on the run, and its failure ends nothing else.

Layer: flows. A task group alone would end the turn with the first thing that fails beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from .defaults import LOGGER_NAME
from .errors import describe

_log = logging.getLogger(LOGGER_NAME)


class Beside:
    """The tasks beside one run's turn.

    Args:
        run_id: The run, for the log.
        group: What the work on the run is a part of.
    """

    def __init__(self, run_id: UUID, group: asyncio.TaskGroup) -> None:
        self._run_id = run_id
        self._group = group
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, what: Coroutine[Any, Any, None]) -> None:
        """Do something; nothing when the work is breaking off, for what is stored is then the next one's."""
        guarded = self._guarded(what)
        try:
            task = self._group.create_task(guarded, name=f"bothy-beside-{self._run_id}")
        except RuntimeError:
            guarded.close()
            what.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never comes to what it was to do.
        task.add_done_callback(lambda _: what.close())

    def cancel(self) -> None:
        """End what still goes on."""
        for task in list(self._tasks):
            task.cancel()

    async def _guarded(self, what: Coroutine[Any, Any, None]) -> None:
        try:
            await what
        except Exception as error:  # noqa: BLE001  # a card's trouble is not the turn's
            _log.error("run %s: something beside the turn broke: %s", self._run_id, describe(error))
