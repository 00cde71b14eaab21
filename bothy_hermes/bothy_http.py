"""HTTP requests to one server from an event loop: threads, total deadlines, cancellation.

Layer: edges. `Transport` is what the API's client needs; `HttpTransport` is the real one over
`http.client`, whose connections are the business of `bothy_connections` and `bothy_exchange`. An attempt
that is cancelled or late is given up at once: its socket is shut down, and nobody waits for the thread
that still cleans up behind it. Nothing is retried here, since every attempt needs a proof of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from .bothy_connections import ConnectionFactory, ConnectionPool
from .bothy_exchange import Exchange, Request, Response
from .clock import Clock
from .errors import TransportError

__all__ = ["HttpTransport", "Request", "Response", "Transport"]

DEFAULT_WORKERS = 8
"""Requests at the same time: one for each run that is active by default."""


Report = Callable[[], None]
"""Tells the event loop how a job ended."""


class Transport(Protocol):
    """Sends requests to one server."""

    async def send(self, request: Request, *, timeout: float) -> Response:
        """Send one request and read its whole answer.

        Args:
            request: The request.
            timeout: Longest time for all of it, in seconds.

        Raises:
            TransportError: No usable answer came; `sent` tells whether the server may have acted.
        """

    async def close(self) -> None:
        """Give up what is under way and close every connection."""


class HttpTransport(Transport):
    """The transport over `http.client`.

    Args:
        server_url: The API base; requests' targets are below its path.
        clock: Time.
        ca_file: `hermes_adapter.ca_file`.
        proxy: `hermes_adapter.proxy`.
        workers: How many requests run at the same time; others wait for their turn.

    Raises:
        ConfigError: The certificates cannot be read.
    """

    def __init__(
        self,
        server_url: str,
        *,
        clock: Clock,
        ca_file: Path | None = None,
        proxy: str | None = None,
        workers: int = DEFAULT_WORKERS,
    ) -> None:
        self._base = urlsplit(server_url).path.rstrip("/")
        factory = ConnectionFactory(server_url, ca_file=ca_file, proxy=proxy)
        self._pool = ConnectionPool(factory, clock.monotonic, workers)
        self._threads = _Threads(workers)
        self._turns = asyncio.Semaphore(workers)
        self._under_way: set[Exchange] = set()
        self._closed = False

    async def send(self, request: Request, *, timeout: float) -> Response:
        """Send one request and read its whole answer, see `Transport`."""
        exchange = Exchange(request, self._base + request.target, self._pool, timeout)
        if self._closed:
            raise TransportError(request.operation, "closed", sent=False)
        try:
            async with asyncio.timeout(timeout), self._turns:
                return await self._run(exchange)
        except TimeoutError:
            raise TransportError(request.operation, "timeout", sent=exchange.sent) from None
        except TransportError as error:
            if not self._closed:
                raise
            raise TransportError(request.operation, "closed", sent=error.sent) from None

    async def close(self) -> None:
        """Give up what is under way and close every connection."""
        self._closed = True
        for exchange in tuple(self._under_way):
            exchange.abandon()
        self._pool.close()
        self._threads.close()

    async def _run(self, exchange: Exchange) -> Response:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Response] = loop.create_future()
        self._under_way.add(exchange)
        if self._closed:  # while this request waited for its turn
            exchange.abandon()
        try:
            self._threads.start(lambda: _report(loop, outcome, exchange))
            return await outcome
        finally:
            self._under_way.discard(exchange)
            if not outcome.done() or outcome.cancelled():
                exchange.abandon()


def _report(loop: asyncio.AbstractEventLoop, outcome: asyncio.Future[Response], exchange: Exchange) -> Report:
    """Run an exchange in this thread; what is returned tells the loop how it ended."""
    response: Response | None = None
    failure: BaseException | None = None
    try:
        response = exchange.run()
    except BaseException as error:  # noqa: BLE001  # it is raised again where the answer is awaited
        failure = error

    def tell() -> None:
        if outcome.done():
            return
        if failure is not None:
            outcome.set_exception(failure)
        elif response is not None:
            outcome.set_result(response)

    def report() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits for the outcome
            loop.call_soon_threadsafe(tell)

    return report


class _Threads:
    """A few threads that do not keep the process alive.

    The standard executor waits for each of its threads when the interpreter ends, also for one that
    hangs in a name lookup; these are left behind.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._jobs: queue.SimpleQueue[Callable[[], Report] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._closed = False

    def start(self, job: Callable[[], Report]) -> None:
        """Run a job in an idle thread or in a new one; its report is called when the thread is free."""
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="bothy-http", daemon=True).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Let every thread end once it is idle."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            report = job()
            with self._lock:
                stays = not self._closed and self._idle < self._limit
                self._idle += stays
            report()
            if not stays:
                return
