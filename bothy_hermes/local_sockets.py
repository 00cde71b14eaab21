"""Connections of the server's port: requests read, answered and timed, WebSockets handed on.

Layer: default. Every wait on a client has a limit, and a slow, silent or hostile one costs its own
connection only. What requests mean is decided elsewhere (`local_agents`, `local_people`, `local_gateway`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .local_agents import API_BASE, AgentSide, AnswerLostError
from .local_gateway import Gateways
from .local_http import MAX_HEAD_BYTES, BadRequest, Request, Response, problem, read_head, write_head
from .local_instance import Instance
from .local_people import PeopleSide
from .local_rules import Violation
from .wire_words import MAX_BODY_BYTES, ProblemCode

IDLE_SECONDS = 75.0
"""How long a connection may wait for its next request, and a request's head may take."""

BODY_SECONDS = 60.0
"""How long a request's body may take."""

SEND_SECONDS = 10.0
"""How long a client may take to make room for the next piece of an answer."""

END_SECONDS = 0.5
"""How long connections may take to end when the server stops."""

MAX_CONNECTIONS = 512
"""Connections at once: ten times what a busy instance has, far below the usual limit of open files."""

MAX_UPLOAD_BYTES = 16_777_216
"""Bytes of an uploaded file."""

UPLOADS = "/people/v1/admin/threads/"
DROPPED_BODIES = 4
"""A body up to so many times the limit is read before it is refused; a longer one ends the connection."""


class Sockets:
    """Serves every connection of the port.

    Args:
        instance: For the time.
        agents: Answers the agent API.
        people: Answers people and sends the page.
        gateways: Serves WebSockets.
    """

    def __init__(self, instance: Instance, agents: AgentSide, people: PeopleSide, gateways: Gateways) -> None:
        self._instance = instance
        self._agents = agents
        self._people = people
        self._gateways = gateways
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[Any]] = set()

    async def end(self) -> None:
        """End the connections that wait for a request or stream, and give the others a moment."""
        for task in self._idle:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.current_task()
        assert task is not None, "it runs as a task"
        self._tasks.add(task)
        try:
            if len(self._tasks) > MAX_CONNECTIONS:
                await self._send(writer, problem(503), keep_alive=False)
            else:
                while await self._serve_one(reader, writer):
                    pass
        except (OSError, TimeoutError, AnswerLostError, asyncio.CancelledError):
            writer.transport.abort()
        except Exception as error:  # noqa: BLE001  # one bad connection must not take the server down
            self._agents.failed("connection", error)
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection may serve another."""
        head = b""
        try:
            with self._no_request():
                head = await self._read_head(reader)
            if not head:
                return False
            request = read_head(head)
            if self._agents.is_gateway(request):
                await self._open_gateway(reader, writer, head, request)
                return False
            request = await self._read_body(reader, writer, request)
        except BadRequest as error:
            if not error.cut and _is_for_agents(head):
                self._agents.report(Violation("http", error.why))
            await self._send(writer, problem(error.status, error.code), keep_alive=False)
            return False
        response = await self._answer(request)
        stream, keep_alive = response.stream, request.keep_alive and response.stream is None
        await self._send(writer, response, keep_alive=keep_alive, bodiless=request.method == "HEAD")
        if stream is not None:
            with self._no_request():
                await self._stream(reader, writer, stream)
        return keep_alive

    @contextmanager
    def _no_request(self) -> Iterator[None]:
        """Note that the current connection has no request that somebody waits for an answer to."""
        task = asyncio.current_task()
        assert task is not None, "connections are served by tasks"
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    async def _read_head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                return await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise BadRequest(400, "a request without an end", cut=True) from None
            return b""
        except asyncio.LimitOverrunError:
            raise BadRequest(431, "a head that is too long") from None

    async def _read_body(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request
    ) -> Request:
        upload = request.path.startswith(UPLOADS) and request.method == "POST"
        limit = MAX_UPLOAD_BYTES if upload else MAX_BODY_BYTES
        if request.length > limit * DROPPED_BODIES:
            raise BadRequest(413, "a body that is far too long")
        if request.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with asyncio.timeout(BODY_SECONDS):
            if request.length <= limit:
                return dataclasses.replace(request, body=await _read_exactly(reader, request.length))
            left = request.length
            while left:
                left -= len(await _read_exactly(reader, min(left, MAX_HEAD_BYTES)))
        return dataclasses.replace(request, oversize=True)

    async def _answer(self, request: Request) -> Response:
        if request.path == API_BASE or request.path.startswith(f"{API_BASE}/"):
            return await self._agents.answer(request)
        if request.path == "/" or request.path.startswith("/people/"):
            try:
                return self._people.answer(request)
            except Exception as error:  # noqa: BLE001  # one bad call must not take the server down
                return self._agents.failed("people", error)
        return problem(404, ProblemCode.NOT_FOUND)

    async def _open_gateway(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, request: Request
    ) -> None:
        response = await self._agents.gateway_fault(request)
        admitted = response or self._agents.admit(request)
        if isinstance(admitted, Response):
            await self._send(writer, admitted, keep_alive=False)
        else:
            await self._gateways.serve(reader, writer, head, *admitted)

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        response: Response,
        *,
        keep_alive: bool,
        bodiless: bool = False,
    ) -> None:
        head = write_head(response, now=self._instance.core.now(), keep_alive=keep_alive)
        await _write(writer, head + (b"" if bodiless else response.body))

    async def _stream(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: AsyncIterator[bytes]
    ) -> None:
        """Send a stream until it ends or the client is gone, and close it then."""
        sending = asyncio.create_task(_send_all(writer, stream))
        gone = asyncio.create_task(_until_eof(reader))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, gone):
                task.cancel()
            failed, _ = await asyncio.gather(sending, gone, return_exceptions=True)
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        if isinstance(failed, Exception):
            raise failed


def _is_for_agents(head: bytes) -> bool:
    """Whether a head that may be none at all asks for something of the agent API."""
    target = head.partition(b" ")[2]
    return target.startswith(API_BASE.encode())


async def _send_all(writer: asyncio.StreamWriter, stream: AsyncIterator[bytes]) -> None:
    async for chunk in stream:
        await _write(writer, chunk)


async def _until_eof(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(MAX_HEAD_BYTES):
            pass


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    async with asyncio.timeout(SEND_SECONDS):
        await writer.drain()


async def _read_exactly(reader: asyncio.StreamReader, length: int) -> bytes:
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise BadRequest(400, "a body that ends too early", cut=True) from None
