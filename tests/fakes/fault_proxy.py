"""A proxy between an adapter and a server that does to their traffic what networks and other proxies do.

It knows HTTP and WebSocket as far as it must: a request's operation, an answer's end, a frame's op. Until
a test says otherwise it passes everything on as it is. `on` queues faults for the next calls of an
operation, `on_frame` for the next frames of an op, each used once; `silence` makes everything half-open.
A judge, when there is one, sees what both sides really said, never what the proxy made of it.
"""

import asyncio
import re
import threading
from collections import defaultdict, deque
from http import HTTPStatus
from typing import NamedTuple

from bothy_hermes.wire_operations import OPEN_GATEWAY, OPERATIONS
from tests.fakes.faults import Exchange, Gone
from tests.fakes.raw_wire import MAX_HEAD, End, read_frame, read_message

BASE = "/api/v1"
ROUTES = [
    (one.name, one.method, re.compile(BASE + re.sub(r"\{\w+\}", "[0-9a-f-]{36}", one.path) + r"(\?.*)?"))
    for one in OPERATIONS
]


class Passed(NamedTuple):
    """One call that came by.

    Attributes:
        operation: The operation.
        status: The server's own status, None when it was not asked or did not answer.
        fault: The fault's name, None without one.
    """

    operation: str
    status: int | None
    fault: str | None


class FaultProxy:
    """The proxy, on a loopback port and a thread of its own.

    Attributes:
        url: The API base that the adapter is given.
        passed: The calls that came by, in order.
        frames: The ops of the frames that came by, as (side, op).
    """

    def __init__(self, judge=None):
        self.passed = []
        self.frames = []
        self._judge = judge
        self._port = None
        self._calls = defaultdict(deque)
        self._frame_faults = defaultdict(deque)
        self._silent = asyncio.Event()
        self._ends = set()
        self._tasks = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)

    def __enter__(self):
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{BASE}"
        return self

    def __exit__(self, *_):
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def aim(self, port):
        """Pass on to this port of the machine."""
        self._port = port

    def on(self, operation, *faults, times=1):
        """Queue faults for the next calls of an operation."""
        assert any(operation == name for name, _, _ in ROUTES), operation
        self._calls[operation].extend(faults * times)

    def on_frame(self, op, *faults, times=1):
        """Queue faults for the next frames of an op."""
        self._frame_faults[op].extend(faults * times)

    @property
    def unused(self):
        """Faults that nothing met, as (operation or op, how many)."""
        queues = (*self._calls.items(), *self._frame_faults.items())
        return [(name, len(queue)) for name, queue in queues if queue]

    def forget(self):
        """Break nothing more; returns how many faults were left."""
        left = sum(count for _, count in self.unused)
        for queue in (*self._calls.values(), *self._frame_faults.values()):
            queue.clear()
        return left

    def named(self, operation):
        """The calls of an operation that came by."""
        return [one for one in self.passed if one.operation == operation]

    def silence(self):
        """From now on nothing passes and nothing ends: open and new connections are half-open."""
        self._call(self._set_silent(silent=True))

    def heal(self):
        """Let new connections pass again; those of the silence stay half-open."""
        self._call(self._set_silent(silent=False))

    def tear(self):
        """Reset every open connection."""
        self._call(self._tear())

    # Connections

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _set_silent(self, *, silent):
        if silent:
            self._silent.set()
        else:
            self._silent = asyncio.Event()

    async def _tear(self):
        for end in tuple(self._ends):
            end.reset()

    async def _close(self):
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        client = End(reader, writer)
        server = None
        self._ends.add(client)
        silent = self._silent
        try:
            await self._unless(silent, asyncio.sleep(0))
            try:
                server = End(*await asyncio.open_connection("127.0.0.1", self._port, limit=MAX_HEAD))
            except OSError:
                client.reset()
                return
            self._ends.add(server)
            while await self._unless(silent, self._exchange(client, server, silent)):
                pass
        except (Gone, OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            for end in filter(None, (client, server)):
                end.writer.close()
                self._ends.discard(end)
            self._tasks.discard(task)

    async def _unless(self, silent, work):
        """Do some work; from the moment of a silence on, nothing, for ever."""
        working = asyncio.ensure_future(work)
        hushed = asyncio.ensure_future(silent.wait())
        try:
            await asyncio.wait({working, hushed}, return_when=asyncio.FIRST_COMPLETED)
            if hushed.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                await asyncio.Event().wait()
            return working.result()
        finally:
            working.cancel()
            hushed.cancel()

    # Calls

    async def _exchange(self, client, server, silent):
        request = await read_message(client.reader)
        if request is None:
            return False
        operation = _operation(request)
        queue = self._calls[operation]
        fault = queue.popleft() if queue else None
        exchange = Exchange(client, request)
        try:
            if fault is None or fault.acted:
                exchange.answer = await self._forward(operation, exchange, server)
        finally:
            status = None if exchange.answer is None else int(exchange.answer.first[1])
            self.passed.append(Passed(operation, status, None if fault is None else fault.name))
        if fault is not None:
            await fault.play(exchange)
            return True
        await client.write(exchange.answer.raw)
        if int(exchange.answer.first[1]) == HTTPStatus.SWITCHING_PROTOCOLS:
            await self._frames_pass(client, server)
            return False
        return "close" not in exchange.answer.headers.get("connection", "").lower()

    async def _forward(self, operation, exchange, server):
        request = exchange.request
        if self._judge is not None:
            self._judge.request(operation, request.body)
        await server.write(request.raw)
        found = await read_message(server.reader, answer=True)
        if found is None:
            exchange.client.reset()
            raise Gone
        if self._judge is not None and operation != OPEN_GATEWAY.name:
            self._judge.answer(operation, int(found.first[1]), found.headers, found.body)
        return found

    # Frames

    async def _frames_pass(self, client, server):
        directions = (("adapter", client, server), ("server", server, client))
        tasks = [asyncio.create_task(self._pump(*direction)) for direction in directions]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for end in (client, server):
                if any(not task.cancelled() and isinstance(task.exception(), Gone) for task in tasks):
                    end.reset()

    async def _pump(self, side, source, target):
        while (frame := await read_frame(source.reader)) is not None:
            if frame.op is not None:
                self.frames.append((side, frame.op))
                if self._judge is not None:
                    self._judge.frame(side, frame.payload)
            queue = self._frame_faults[frame.op]
            if queue:
                await queue.popleft().play(frame, target)
            else:
                await target.write(frame.raw)


def _operation(request):
    method, target = request.first[:2]
    return next(
        (name for name, wanted, pattern in ROUTES if wanted == method and pattern.fullmatch(target)),
        "unknown",
    )
