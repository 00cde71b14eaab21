"""Writing one run's live box to the server, as patches.

Layer: flows. What people see is always computed as the difference between the document the server
has and the box as it is now, so that changes that come faster than the interval merge by themselves.
It refuses to be in the way: a patch that cannot be written delays nothing but other patches.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from uuid import UUID

from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .clock import Clock, within
from .codec import dump, parse
from .defaults import LOGGER_NAME
from .errors import BothyError, ProblemAnswer, RunEnded, VersionConflict, WireError, describe
from .json_patch import apply_patch
from .live_box import LiveBox, diff
from .run_outbox import can_be_mended
from .wire import RunDocument, UpdateRun
from .wire_words import MAX_PATCH_OPERATIONS

_log = logging.getLogger(LOGGER_NAME)

FLUSH_SECONDS = 10.0
"""How long the end of a run waits for its last patch: the box is a view, the answer matters more."""


CONFLICTS = 3
"""Patches in a row that are sent at once: of a server that finds a conflict in each there would be no end."""

DRAFT_SECONDS = 0.2
"""How old a draft gets before it is shown, when nothing else is: that of a quick answer is worth no patch,
nor another one that takes it away."""


class Patcher:
    """Keeps the server's document like the box.

    Args:
        api: The server.
        run_id: The run.
        token: The run's token.
        box: The live box.
        document: The document as startRun returned it.
        interval: Tells the least seconds between two patches at this moment.
        clock: Time and waiting.
    """

    def __init__(
        self,
        api: BothyApi,
        run_id: UUID,
        token: TokenSource,
        box: LiveBox,
        document: RunDocument,
        *,
        interval: Callable[[], float],
        clock: Clock,
    ) -> None:
        self._api = api
        self._run_id = run_id
        self._token = token
        self._box = box
        self._have = document
        self._interval = interval
        self._clock = clock
        self._changed = asyncio.Event()
        self._urgent = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._draft_at = 0.0
        self._lock = asyncio.Lock()
        self._last_at: float | None = None
        self._over = False
        self.patches = 0
        """How many patches the server took."""

    def poke(self) -> None:
        """The box changed; written as soon as the interval allows."""
        self._urgent.set()
        self._changed.set()

    def poke_draft(self) -> None:
        """Only the draft changed; written a moment later."""
        if not self._changed.is_set():
            self._draft_at = self._clock.monotonic()
            self._changed.set()

    async def flush_for_call(self) -> None:
        """Write what is pending before a call that allows it at any time; no patch comes between the two."""
        self._free.clear()
        await self._flush()

    def call_made(self) -> None:
        """The call was made: patches come again, each in its time."""
        self._free.set()

    def awaited(self, status_line: str | None) -> None:
        """The server was told to wait, and has written the line of that itself."""
        if status_line is not None:
            self._have = dataclasses.replace(self._have, status_line=status_line)

    async def run(self) -> None:
        """Write changes as they come, until cancelled or the run has ended."""
        while not self._over:
            await self._changed.wait()
            await self._wait_for_interval()
            await self._wait_for_draft()
            await self._free.wait()
            self._urgent.clear()
            self._changed.clear()
            await self._try_to_write(early=False)

    async def flush(self) -> None:
        """Write what is pending now; the interval does not hold the end of a run up.

        Not while a call is under way before which all was written: what came since goes with the next one.
        """
        if self._free.is_set():
            await self._flush()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._try_to_write(early=True)
        except TimeoutError:
            _log.warning("run %s: the last patch of the live box could not be written", self._run_id)

    async def _wait_for_interval(self) -> None:
        while (rest := self._rest()) > 0:
            await self._clock.sleep(rest)

    def _rest(self) -> float:
        """The seconds until the next patch is due."""
        if self._last_at is None:
            return 0.0
        return self._interval() - (self._clock.monotonic() - self._last_at)

    async def _wait_for_draft(self) -> None:
        rest = DRAFT_SECONDS - (self._clock.monotonic() - self._draft_at)
        if not self._urgent.is_set() and rest > 0:
            await within(self._clock, self._urgent.wait(), rest)

    async def _try_to_write(self, *, early: bool) -> None:
        """Write, and keep whatever goes wrong: the box is a view, a mistake in it ends no turn and no run.

        After what an operator can help along, the next change or the run's end writes all of it.
        """
        try:
            await self._write(early=early)
        except Exception as error:  # noqa: BLE001  # see above
            if isinstance(error, BothyError) and can_be_mended(error):
                _log.warning("run %s: the live box waits: %s", self._run_id, describe(error))
                return
            _log.error("run %s: the live box is given up: %s", self._run_id, describe(error))
            self._over = True

    async def _write(self, *, early: bool) -> None:
        async with self._lock:
            if not early and (self._rest() > 0 or not self._free.is_set()):
                self._changed.set()  # another one was just written, or a call was just begun
                return
            for _ in range(CONFLICTS):
                operations = [] if self._over else diff(self._have, self._box.content)
                if not operations:
                    return
                try:
                    await self._send(operations)
                except VersionConflict as conflict:
                    self._have = parse(RunDocument, conflict.extra.get("document"), "document")
                    continue
                except RunEnded:
                    self._over = True
                except (ProblemAnswer, WireError) as error:
                    if can_be_mended(error):
                        raise
                    await self._start_over(error)
                return
            self._changed.set()  # at the interval again

    async def _send(self, operations: list[dict[str, object]]) -> None:
        body = UpdateRun(base_version=self._have.version, patch=tuple(operations))
        try:
            version = await self._api.update_run(self._run_id, self._token, body)
        finally:
            self._last_at = self._clock.monotonic()
        document = apply_patch(dump(self._have), operations)
        self._have = parse(RunDocument, {**document, "version": version})
        self.patches += 1
        if len(operations) >= MAX_PATCH_OPERATIONS:
            self.poke()

    async def _start_over(self, error: BothyError) -> None:
        """A patch was refused for another reason than its version: read the document again."""
        _log.warning("run %s: a patch was refused: %s", self._run_id, error)
        try:
            view = await self._api.get_run(self._run_id, self._token)
        except BothyError as failure:
            if can_be_mended(failure):
                raise
            _log.warning("run %s: its live box is given up: %s", self._run_id, failure)
            self._over = True
            return
        self._have = view.document
        self._over = view.run.state.ended
