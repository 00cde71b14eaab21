"""Status and draft updates of a turn: what one costs, and how many patches come of them."""

import asyncio
import time

from bothy_hermes.clock import system_clock
from bothy_hermes.live_box import LiveBox
from bothy_hermes.run_patches import Patcher
from bothy_hermes.run_tokens import RunToken
from bothy_hermes.wire import RunDocument
from bothy_hermes.wire_words import RunState
from tests.bench.figures import at_most, median
from tests.fakes.clock import FakeClock
from tests.fakes.edge_kit import RUN, run_token
from tests.fakes.flow_kit import FakeApi

UPDATES = 100_000
BATCH = 100
INTERVAL = 0.1
DRAFT = "What the model has written so far, growing word by word. " * 100


class Watched:
    """A turn's box and its patcher at a server that takes everything at once.

    It stands for `TurnView`, whose methods for updates are these two calls.
    """

    def __init__(self):
        clock = system_clock()
        self.api = FakeApi(FakeClock())
        self.api.runs[RUN] = RunState.RUNNING
        self.api.documents[RUN] = document = RunDocument(version=1, status_line=None, steps=())
        self.box = LiveBox(clock.now, lambda: str(clock.new_id()))
        token = RunToken(self.api, RUN, run_token())
        self.patcher = Patcher(
            self.api, RUN, token, self.box, document, interval=lambda: INTERVAL, clock=clock
        )

    def update(self, number):
        """One update: a tool's sentence, its end, or a longer draft."""
        kind = number % 4
        if kind == 0:
            self.box.status(f"is running step {number}")
        elif kind == 2:
            self.box.status(None)
        else:
            self.box.draft(DRAFT[: 40 + number % 5000])
        self.patcher.poke()


async def turn():
    """Make all updates; returns seconds of the updates alone, of the turn, and the patches."""
    watched = Watched()
    patching = asyncio.create_task(watched.patcher.run())
    began = time.perf_counter()
    batches = []
    for start in range(0, UPDATES, BATCH):
        at = time.perf_counter()
        for number in range(start, start + BATCH):
            watched.update(number)
        batches.append((time.perf_counter() - at) / BATCH)
        await asyncio.sleep(0)
    duration = time.perf_counter() - began
    await watched.patcher.flush()
    patching.cancel()
    await asyncio.gather(patching, return_exceptions=True)
    return batches, duration, watched.patcher.patches


def measure(_directory):
    """The figures."""
    batches, duration, patches = asyncio.run(turn())
    allowed = duration / INTERVAL + 2
    return [
        at_most("one of 100,000 updates of a turn", median(batches) * 1e6, 20, "µs"),
        at_most("patches over what the interval allows", patches / allowed, 1.0, "ratio"),
    ]
