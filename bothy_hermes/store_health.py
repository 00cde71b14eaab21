"""Whether the disk takes what is asked of it, and the patience of those who can only wait until it does.

Layer: edges. A trouble is said once when it begins and once when it is over. Only a commit that changed
something ends it: what could be read proves nothing about the next write. Nor is it over while somebody
still waits for the disk: a full one takes small things.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, final

from .clock import Clock
from .defaults import LOGGER_NAME
from .errors import StateError

T = TypeVar("T")

Tell = Callable[[StateError | None], None]
"""Told a trouble when it begins or changes its kind, and None when it is over."""

PATIENCE_SECONDS = 1.0
"""Between two tries of a patient call: an operator who frees some space is at a prompt."""

_log = logging.getLogger(LOGGER_NAME)


class Disk(Protocol):
    """What is watched (`store_writer.Writer`)."""

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more, on purpose."""

    @property
    def commits(self) -> int:
        """How many transactions have changed something so far."""


@final
class StoreHealth:
    """The trouble that a state file has at this moment.

    Args:
        disk: What is watched.
        clock: Waiting.
        tell: Who is told.

    Attributes:
        trouble: What the disk refused last, None when all is well.
    """

    def __init__(self, disk: Disk, clock: Clock, tell: Tell) -> None:
        self.trouble: StateError | None = None
        self._disk = disk
        self._clock = clock
        self._tell = tell
        self._since = 0
        self._waiting = 0

    async def attempt(self, work: Callable[[], Awaitable[T]], *, patient: bool) -> T:
        """Do something with the disk; patiently, until it is done or the file is closed.

        Raises:
            StateError: The disk does not take or give it.
        """
        try:
            result = await self._once(work)
        except StateError:
            if not patient or self._disk.closed:
                raise
            self._waiting += 1
            try:
                result = await self._until_done(work)
            finally:
                self._waiting -= 1
        self._worked()
        return result

    async def _until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            await self._clock.sleep(PATIENCE_SECONDS)
            try:
                return await self._once(work)
            except StateError:
                if self._disk.closed:
                    raise

    async def _once(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await work()
        except StateError as error:
            if not self._disk.closed:
                self._failed(error)
            raise

    def _failed(self, error: StateError) -> None:
        self._since = self._disk.commits
        if str(error) != str(self.trouble):
            _log.error("%s", error)
            self._set(error)

    def _worked(self) -> None:
        if self.trouble is not None and not self._waiting and self._disk.commits > self._since:
            _log.warning("%s: can be used again", self.trouble.what)
            self._set(None)

    def _set(self, trouble: StateError | None) -> None:
        self.trouble = trouble
        self._tell(trouble)
