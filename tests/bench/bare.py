"""What network and disk cost by themselves, to be taken off what passes over them.

The network is measured beside the figure. The disk is timed while the figure is measured: other programs
use it too, and what a commit takes changes from one moment to the next.
"""

import json
import time

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from bothy_hermes.bothy_http import HttpTransport, Request
from bothy_hermes.clock import system_clock
from bothy_hermes.local_store import LocalStore
from bothy_hermes.store_writer import Writer
from tests.bench.figures import median
from tests.fakes.http_peer import HttpPeer, answer

ROUNDS = 200
FRAME = json.dumps({"op": "event", "event": {"filler": "x" * 2000}})
ANSWER = answer(json.dumps({"filler": "x" * 1000}).encode())


async def frame_seconds():
    """Median seconds of one frame's way from sender to reader."""
    ways = []

    async def send(connection):
        async for _ in connection:
            await connection.send(json.dumps({"at": time.perf_counter(), "frame": FRAME}))

    async with (
        serve(send, "127.0.0.1", 0, compression=None) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", compression=None, proxy=None) as link,
    ):
        for _ in range(ROUNDS):
            await link.send("next")
            text = await link.recv()
            ways.append(time.perf_counter() - json.loads(text)["at"])
    return median(ways)


async def call_seconds():
    """Median seconds of one HTTP exchange that asks nobody anything."""
    ways = []
    with HttpPeer() as peer:
        peer.routes["/x"] = lambda _: ANSWER
        transport = HttpTransport(peer.url, clock=system_clock())
        request = Request("bare", "GET", "/x", {})
        for _ in range(ROUNDS):
            began = time.perf_counter()
            await transport.send(request, timeout=30)
            ways.append(time.perf_counter() - began)
        await transport.close()
    return median(ways)


async def network_seconds():
    """Medians of a frame and of a call."""
    return await frame_seconds(), await call_seconds()


class Disk:
    """Times every transaction of adapter and server; use it as a context manager."""

    def __enter__(self):
        self._times = []
        self._own = Writer._transaction, LocalStore.commit
        Writer._transaction, LocalStore.commit = map(self._timed, self._own)
        return self

    def __exit__(self, *_):
        Writer._transaction, LocalStore.commit = self._own

    def seconds(self, begin, end):
        """How long something was being written or read between two moments."""
        total, until = 0.0, begin
        for start, stop in sorted(self._times):
            if stop > until and start < end:
                total += min(stop, end) - max(start, until)
                until = min(stop, end)
        return total

    def _timed(self, function):
        def timed(*arguments):
            start = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self._times.append((start, time.perf_counter()))

        return timed
