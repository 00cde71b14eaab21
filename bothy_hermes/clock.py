"""Time, waiting, chance and new IDs as one value that is handed in.

Layer: words. Nothing else in the package asks the operating system for the time, sleeps, draws a
random number or makes an ID; a test hands in a clock of its own and decides all of them.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Clock:
    """The outside world's time and chance.

    Attributes:
        now: The wall time, aware, in UTC.
        monotonic: Seconds of a clock that never goes back; only differences mean something.
        sleep: Waits that many seconds; cancellable.
        uniform: A random float between two bounds (jitter).
        random_bytes: That many unpredictable bytes (boundaries, proof IDs).
    """

    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    uniform: Callable[[float, float], float]
    random_bytes: Callable[[int], bytes]

    def new_id(self) -> UUID:
        """Return a new random ID (version 4), as an adapter makes them."""
        raw = bytearray(self.random_bytes(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        return UUID(bytes=bytes(raw))

    def new_ordered_id(self) -> UUID:
        """Return a new ID that sorts by time (version 7, RFC 9562), as a server makes them."""
        millis = int(self.now().timestamp() * 1000)
        raw = bytearray(millis.to_bytes(6, "big") + self.random_bytes(10))
        raw[6] = (raw[6] & 0x0F) | 0x70
        raw[8] = (raw[8] & 0x3F) | 0x80
        return UUID(bytes=bytes(raw))


def system_clock() -> Clock:
    """Return the clock of the running machine."""
    return Clock(
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        sleep=asyncio.sleep,
        uniform=random.SystemRandom().uniform,
        random_bytes=secrets.token_bytes,
    )


async def within(clock: Clock, wait: Awaitable[Any], seconds: float) -> bool:
    """Wait for something that long at most, by this clock; returns whether it came.

    What did not come is cancelled; shield what is to go on.
    """
    waiting = asyncio.ensure_future(wait)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
        return waiting.done()
    finally:
        waiting.cancel()
        timer.cancel()
