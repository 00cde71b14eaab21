"""A clock that a test holds in its hand: time moves, and sleepers wake, only when the test says so."""

import asyncio
import heapq
import itertools
import random
from datetime import UTC, datetime, timedelta

from bothy_hermes.clock import Clock

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


class FakeClock:
    """Time, sleep, chance and IDs of a test.

    `clock.clock` is the value to hand in. `await clock.advance(s)` moves time and lets everybody whose
    sleep ends in it run, in order. IDs and random bytes come from a seed; `uniform` gives the upper bound.
    """

    def __init__(self, start=START, seed=0):
        self.time = start
        self.elapsed = 0.0
        self.slept = []
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._sleepers = []
        self.clock = Clock(
            now=lambda: self.time,
            monotonic=lambda: self.elapsed,
            sleep=self.sleep,
            uniform=lambda _low, high: high,
            random_bytes=self._random.randbytes,
        )

    async def sleep(self, seconds):
        """Wait until the test has moved time that far."""
        self.slept.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.elapsed + seconds, next(self._order), woken))
        await woken

    def move(self, seconds):
        """Move both clocks without waking anybody."""
        self.elapsed += seconds
        self.time += timedelta(seconds=seconds)

    async def advance(self, seconds):
        """Move time forwards, waking each sleeper at its own moment."""
        await settle()
        end = self.elapsed + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            moment, _, woken = heapq.heappop(self._sleepers)
            self.move(max(0.0, moment - self.elapsed))
            if not woken.done():
                woken.set_result(None)
            await settle()
        self.move(end - self.elapsed)
        await settle()


async def settle(rounds=20):
    """Let tasks that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
