"""Whether the disk takes what is asked of it: said once when it stops, and once when it does again.

Layer: edges. Only a commit that changed something ends a trouble: what could be read proves nothing about
the next write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final

from .defaults import LOGGER_NAME
from .errors import StateError

Tell = Callable[[StateError | None], None]
"""Told a trouble when it begins or changes its kind, and None when it is over."""

_log = logging.getLogger(LOGGER_NAME)


@final
class StoreHealth:
    """The trouble that a state file has at this moment.

    Args:
        commits: Tells how many transactions have changed something so far.
        tell: Who is told.

    Attributes:
        trouble: What the disk refused last, None when all is well.
    """

    def __init__(self, commits: Callable[[], int], tell: Tell) -> None:
        self.trouble: StateError | None = None
        self._commits = commits
        self._tell = tell
        self._since = 0

    def failed(self, error: StateError) -> None:
        """Note that the disk did not take or give something."""
        self._since = self._commits()
        if str(error) != str(self.trouble):
            _log.error("%s", error)
            self._set(error)

    def worked(self) -> None:
        """Note that something was done; it ends the trouble when it was a commit."""
        if self.trouble is not None and self._commits() > self._since:
            _log.warning("%s: can be used again", self.trouble.what)
            self._set(None)

    def _set(self, trouble: StateError | None) -> None:
        self.trouble = trouble
        self._tell(trouble)
