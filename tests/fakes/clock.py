"""A clock that a test holds in its hand: time moves, and sleepers wake, only when the test says so."""

import asyncio
import heapq
import itertools
import math
import random
from datetime import UTC, datetime, timedelta

from bothy_hermes.clock import Clock

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)

REAL_PATIENCE = 20.0
"""Real seconds after which `drive` gives up on work that neither sleeps nor ends."""


class FakeClock:
    """Time, sleep, chance and IDs of a test.

    `clock.clock` is the value to hand in. `await clock.advance(s)` moves time and lets everybody whose
    sleep ends in it run, in order; `await clock.drive(work)` moves it as far as some work needs. IDs and
    random bytes come from a seed; `uniform` gives the upper bound, or with `spread` a number of the seed.
    """

    def __init__(self, start=START, seed=0, *, spread=False):
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
            uniform=self._random.uniform if spread else lambda _low, high: high,
            random_bytes=self._random.randbytes,
        )

    @property
    def sleepers(self):
        """How many sleep at this moment."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

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

    def step_wall(self, seconds):
        """Set the wall clock alone, as an operator or a time service does."""
        self.time += timedelta(seconds=seconds)

    async def advance(self, seconds):
        """Move time forwards, waking each sleeper at its own moment."""
        await settle()
        end = self.elapsed + seconds
        while self._next_moment() <= end:
            self._wake_next()
            await settle()
        self.move(end - self.elapsed)
        await settle()

    async def drive(self, work):
        """Run some work to its end, moving time to the next sleeper whenever all of it sleeps.

        Returns:
            What the work returns; what it raises is raised.
        """
        task = asyncio.ensure_future(work)
        idle_until = asyncio.get_running_loop().time() + REAL_PATIENCE
        try:
            while not task.done():
                await settle()
                if not task.done() and self.sleepers:
                    self._wake_next()
                elif not task.done():  # threads or sockets are at work
                    assert asyncio.get_running_loop().time() < idle_until, "the work neither sleeps nor ends"
                    await asyncio.sleep(0.001)
            return task.result()
        finally:
            task.cancel()

    def _next_moment(self):
        """When the next one wakes who has not given up sleeping."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else math.inf

    def _wake_next(self):
        while self._sleepers:
            moment, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self.move(max(0.0, moment - self.elapsed))
                woken.set_result(None)
                return


async def settle(rounds=20):
    """Let tasks that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
