"""The server's time as this machine can know it.

Layer: values. The server's own statements (its `Date` headers, `hello.server_time`) are carried on by
the monotonic clock, so that a step of the local wall clock changes nothing. Proofs and tokens are
timed by it. A server that is more than ten minutes away is not believed and neither is this machine:
nothing is signed or judged until one of the two clocks is set.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from .clock import Clock
from .defaults import LOGGER_NAME
from .errors import ClockRefused

MAX_SKEW_SECONDS = 600.0
"""How far the server's clock may be from the local one: more is a fault, not drift."""

NOTED_SKEW_SECONDS = 30.0
"""From here on a skew is worth a word in the log, once: it is what the protocol's leeway bears."""

_log = logging.getLogger(LOGGER_NAME)


class ServerClock:
    """Server time, from the last statement of the server on.

    Args:
        clock: The local clocks; until the server said anything its time is the local one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stated: tuple[datetime, float] | None = None
        self._refused_skew: float | None = None
        self._noted = False

    @property
    def refused(self) -> bool:
        """Whether the last statement was too far away to be believed."""
        return self._refused_skew is not None

    def now(self) -> datetime:
        """Return the server's time.

        Raises:
            ClockRefused: The last statement was more than ten minutes from the local clock.
        """
        if self._refused_skew is not None:
            raise ClockRefused(self._refused_skew)
        return self.estimate()

    def observe(self, stated: datetime) -> float:
        """Take a statement of the server.

        Args:
            stated: The server's time at this moment.

        Returns:
            By how many seconds this moved the server's time; 0 when the statement is not believed.
        """
        skew = (stated - self._clock.now()).total_seconds()
        if abs(skew) > MAX_SKEW_SECONDS:
            self._refuse(skew)
            return 0.0
        self._note(skew)
        before = self.estimate()
        self._refused_skew = None
        self._stated = (stated, self._clock.monotonic())
        return (stated - before).total_seconds()

    def estimate(self) -> datetime:
        """The best guess of the server's time, even when nothing may be judged by it."""
        if self._stated is None:
            return self._clock.now()
        stated, at = self._stated
        return stated + timedelta(seconds=self._clock.monotonic() - at)

    def _refuse(self, skew: float) -> None:
        if self._refused_skew is None:
            _log.error("%s", ClockRefused(skew))
        self._refused_skew = skew

    def _note(self, skew: float) -> None:
        if abs(skew) > NOTED_SKEW_SECONDS and not self._noted:
            self._noted = True
            _log.warning("the server's clock differs from this machine's by %+.0f s", skew)
