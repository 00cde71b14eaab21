"""The adapter's end of the gateway: one connection at a time, kept up as long as the adapter lives.

Layer: edges. The loop makes an attempt, reads frames while it lasts, and asks `reconnect` what comes
after its end. It reads and hands on, nothing else: what an event means and when it may be acked is for
the flows, whose work never makes the reader wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import NoReturn, Protocol, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from .bothy_api import BothyApi
from .bothy_connections import tls_context
from .bothy_socket import Connector, HandshakeRefused, Link, LinkClosed, SocketConnector
from .clock import Clock
from .codec import JsonObject
from .config import Settings
from .defaults import LOGGER_NAME
from .errors import ClockRefused, TransportError, WireError
from .reconnect import (
    FIRST_OWN_CODE,
    LOST,
    ConnectionState,
    Ending,
    Reconnector,
    Wait,
    Where,
    check_move,
    no_answer,
)
from .wire_events import (
    SERVER_FRAMES,
    Ack,
    EventFrame,
    Frame,
    Goodbye,
    Hello,
    Identify,
    Ready,
    dump_frame,
    frame_op,
    parse_frame,
)
from .wire_words import MAX_FRAME_BYTES, PROTOCOL_VERSION

GREETING_SECONDS = 10.0
"""How long the server may take for `hello`, and again for `ready`."""

GOODBYE_SECONDS = 5.0
"""How long the server may take to close after its goodbye."""

T = TypeVar("T")

_log = logging.getLogger(LOGGER_NAME)


class Delivery:
    """One event as it came, and the connection that its ack belongs to.

    Args:
        event: The event, not judged in any way.
        link: The connection that brought it.
    """

    __slots__ = ("_link", "event")

    def __init__(self, event: JsonObject, link: Link) -> None:
        self.event = event
        self._link = link

    def __repr__(self) -> str:
        return "Delivery(…)"

    @property
    def event_id(self) -> UUID | None:
        """The event's ID; None when not even that can be read."""
        try:
            return UUID(str(self.event.get("id")))
        except ValueError:
            return None

    async def ack(self, event_id: UUID) -> None:
        """Tell the server that the event is decided for good.

        Nothing happens when its connection is gone: the server delivers the event again on the next
        one, where an ack of this delivery would be none of its business.
        """
        try:
            await self._link.send(dump_frame(Ack(event_id=event_id)))
        except LinkClosed:
            _log.debug("event %s: the connection of its delivery is gone, no ack", event_id)


class GatewayEvents(Protocol):
    """What the gateway tells. Nothing here may wait for work: nothing is read meanwhile."""

    async def on_ready(self, hello: Hello, ready: Ready) -> None:
        """The server takes this connection; events follow."""

    def on_delivery(self, delivery: Delivery) -> None:
        """An event came."""

    def on_lost(self) -> None:
        """A connection that was ready is gone."""


class Gateway:
    """The connection and its loop.

    Args:
        api: Signs handshakes and keeps the server's time.
        settings: The configuration.
        clock: Time and chance.
        identify: Makes the first frame of each connection.
        agent_id: The agent.
        events: Who is told.
        connector: Opens connections; None for real ones.

    Raises:
        ConfigError: The certificates cannot be read.
    """

    def __init__(  # noqa: PLR0917  # the rooms it stands on, each of its own type
        self,
        api: BothyApi,
        settings: Settings,
        clock: Clock,
        identify: Callable[[], Identify],
        agent_id: UUID,
        events: GatewayEvents,
        connector: Connector | None = None,
    ) -> None:
        self._api = api
        self._consumer = settings.consumer
        self._clock = clock
        self._identify = identify
        self._agent_id = agent_id
        self._events = events
        self._connector = connector or _real_connector(settings)
        self._reconnector = Reconnector(clock.monotonic, clock.uniform)
        self._state = ConnectionState.WAITING

    @property
    def state(self) -> ConnectionState:
        """How far the connection is."""
        return self._state

    async def run(self) -> NoReturn:
        """Keep a connection until cancelled.

        Raises:
            GatewayRefused: The server takes no connection of this adapter.
            ConfigError: The token's file was never readable.
        """
        try:
            while True:
                ending = await self._connect_once()
                wait = self._reconnector.after(ending)
                self._move(ConnectionState.WAITING)
                self._log_wait(ending, wait)
                await self._clock.sleep(wait.seconds)
        finally:
            self._move(ConnectionState.STOPPED)

    async def _connect_once(self) -> Ending:
        """Make one attempt and live with it to its end."""
        self._move(ConnectionState.CONNECTING)
        try:
            link = await self._open()
        except (TransportError, ClockRefused) as error:
            return no_answer(str(error))
        if isinstance(link, Ending):
            return link
        self._move(ConnectionState.IDENTIFYING)
        try:
            return await self._serve(_Reader(link))
        finally:
            if self._state is ConnectionState.READY:
                self._events.on_lost()
            await link.close()

    async def _open(self) -> Link | Ending:
        """Open a connection; a refusal that is mended at once is tried once more."""
        spent: set[str] = set()
        while True:
            url, headers = await self._api.gateway_request(self._agent_id, self._consumer)
            try:
                link = await self._connector(url, headers)
            except HandshakeRefused as error:
                problem, word = await self._api.gateway_refused(error.response)
                if word is None or word in spent:
                    return Ending(Where.HTTP, problem.status, problem.retry_after, problem.code or "")
                spent.add(word)
            else:
                self._api.observe_headers(link.headers)
                return link

    async def _serve(self, reader: _Reader) -> Ending:
        try:
            await self._greet(reader)
            while True:
                frame = await reader.next_frame()
                if isinstance(frame, EventFrame):
                    self._events.on_delivery(Delivery(frame.event, reader.link))
                else:
                    _log.warning("gateway: a second %s frame is ignored", frame_op(frame))
        except LinkClosed as closed:
            return reader.ending(closed.code)

    async def _greet(self, reader: _Reader) -> None:
        hello = await reader.expect(Hello)
        if hello.protocol_version != PROTOCOL_VERSION:
            _log.warning("the server speaks version %d of the protocol", hello.protocol_version)
        self._api.observe_hello(hello)
        await reader.link.send(dump_frame(self._identify()))
        ready = await reader.expect(Ready)
        self._move(ConnectionState.READY)
        self._reconnector.ready()
        await self._events.on_ready(hello, ready)

    def _move(self, target: ConnectionState) -> None:
        self._state = check_move(self._state, target)

    def _log_wait(self, ending: Ending, wait: Wait) -> None:
        level = logging.ERROR if wait.say else logging.WARNING
        text = f": {wait.say}" if wait.say else ""
        _log.log(level, "gateway: %s%s; next attempt in %.1f s", ending, text, wait.seconds)


class _Reader:
    """The frames of one connection, without those that nobody can read."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._goodbye: Goodbye | None = None
        self._until: float | None = None

    async def next_frame(self) -> Frame:
        """Return the next usable frame; a goodbye is kept for the ending.

        Raises:
            LinkClosed: The connection is over, or the server said goodbye and does not close.
        """
        while True:
            async with _patience(self._until):
                raw = await self.link.receive()
            frame = _read_frame(raw)
            if isinstance(frame, Goodbye):
                _log.info("gateway: the server says goodbye (%d)", frame.code)
                self._goodbye = frame
                self._until = asyncio.get_running_loop().time() + GOODBYE_SECONDS
            elif frame is not None:
                return frame

    async def expect(self, kind: type[T]) -> T:
        """Return the first frame of a kind within the time of a greeting; others are not due yet.

        Raises:
            LinkClosed: The connection is over, or the frame did not come.
        """
        async with _patience(asyncio.get_running_loop().time() + GREETING_SECONDS):
            while not isinstance(frame := await self.next_frame(), kind):
                _log.warning("gateway: a %s frame came too early and is ignored", frame_op(frame))
        return frame

    def ending(self, code: int) -> Ending:
        """The connection's ending: a goodbye tells more than a general close code or none."""
        if self._goodbye is not None and code < FIRST_OWN_CODE:
            code = self._goodbye.code
        return Ending(Where.CLOSE, code)


@contextlib.asynccontextmanager
async def _patience(until: float | None) -> AsyncIterator[None]:
    """Give a connection up that is silent until that time of the loop, None for no limit."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        _log.warning("gateway: the server was silent for too long")
        raise LinkClosed(LOST) from None


def _read_frame(raw: str | bytes) -> Frame | None:
    """Read a frame; one that cannot be read is logged without its content and costs nothing else."""
    if isinstance(raw, bytes):
        _log.warning("gateway: a binary frame is ignored")
        return None
    size = len(raw.encode("utf-8", "surrogatepass"))
    if size > MAX_FRAME_BYTES:
        _log.error("gateway: a frame of %d bytes is ignored, allowed are %d", size, MAX_FRAME_BYTES)
        return None
    try:
        return parse_frame(raw, SERVER_FRAMES)
    except WireError as error:
        _log.warning("gateway: a frame is ignored: %s", error)
        return None


def _real_connector(settings: Settings) -> Connector:
    secure = urlsplit(settings.server_url).scheme == "https"
    return SocketConnector(tls_context(settings.ca_file) if secure else None, settings.proxy)
