"""How long to wait before the next attempt.

Layer: values. Full jitter: a wait is drawn evenly between nothing and a ceiling that doubles with
each failure, so that many adapters that lost one server together do not return to it together. When
the time counts as well spent, and the count starts anew, is the caller's decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

BASE_SECONDS = 0.5
"""Ceiling of the first wait: shorter than a person notices."""

CAP_SECONDS = 30.0
"""Highest ceiling: an outage's end is noticed within half a minute."""

MAX_RETRY_AFTER_SECONDS = 900.0
"""Longest wait that a server can ask for; one typing error there must not silence an adapter."""

_MAX_DOUBLINGS = 30
"""Where the exponent stops growing: 2**30 exceeds any cap, and a float power cannot overflow."""

_SECONDS = re.compile(r"[0-9]{1,10}")


class Backoff:
    """Exponential backoff with full jitter.

    Args:
        base: Ceiling of the first wait, in seconds.
        cap: Highest ceiling, in seconds.
        uniform: Draws a float between two bounds.
    """

    def __init__(self, base: float, cap: float, uniform: Callable[[float, float], float]) -> None:
        self._base = base
        self._cap = cap
        self._uniform = uniform
        self._failures = 0

    @property
    def failures(self) -> int:
        """Waits asked for since the last `reset`."""
        return self._failures

    def next_delay(self, retry_after: float | None = None) -> float:
        """Return the seconds to wait after one more failure.

        Args:
            retry_after: What the server asked for, in seconds. The wait is never shorter, and the
                jitter lies on top: all clients were told the same.
        """
        ceiling = min(self._cap, self._base * 2.0 ** min(self._failures, _MAX_DOUBLINGS))
        self._failures += 1
        asked = min(max(retry_after or 0.0, 0.0), MAX_RETRY_AFTER_SECONDS)
        return asked + self._uniform(0.0, ceiling)

    def reset(self) -> None:
        """Start again with the shortest ceiling."""
        self._failures = 0


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Read a `Retry-After` header in either form (RFC 9110, section 10.2.3).

    Args:
        value: The header, None without one.
        now: The server's time, from which a date counts.

    Returns:
        Seconds, at least 0; None when there is no header or nobody can read it.
    """
    if value is None:
        return None
    text = value.strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    moment = parse_http_date(text)
    return None if moment is None else max(0.0, (moment - now).total_seconds())


def parse_http_date(value: str | None) -> datetime | None:
    """Read an HTTP date; None when there is none or nobody can read it."""
    if value is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
