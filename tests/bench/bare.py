"""What network and disk cost by themselves, to be taken off what passes over them."""

import asyncio
import json
import time

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from bothy_hermes.bothy_http import HttpTransport, Request
from bothy_hermes.clock import system_clock
from bothy_hermes.store import OutboxCall, Store
from tests.bench.figures import median
from tests.fakes.edge_kit import RUN
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


async def commit_seconds(directory):
    """Median seconds of one commit of the store."""
    ways = []
    store = await Store.open(directory, system_clock())
    for number in range(ROUNDS):
        call = OutboxCall(f"k{number}", RUN, "createMessage", body={"content": "x"})
        began = time.perf_counter()
        await store.put_calls([call])
        ways.append(time.perf_counter() - began)
    await store.close()
    return median(ways)


async def all_seconds(directory):
    """Medians of a frame, a call and a commit."""
    return await frame_seconds(), await call_seconds(), await commit_seconds(directory)


def measured(directory):
    """The same, outside a loop."""
    return asyncio.run(all_seconds(directory))
