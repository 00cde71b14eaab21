"""The gateway's connections: frames in and out, pings, and the events that are due (section 5).

Layer: default. WebSocket frames are read and written by websockets' sans-I/O protocol on the socket that
the port accepted. What is delivered when is decided in `local_events`, what events say in
`local_payloads`. Runs in the server's loop; one slow connection never makes another one wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import format_datetime

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode
from websockets.http11 import Request as WebSocketRequest
from websockets.protocol import State as WebSocketState
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from .codec import dump, dump_json
from .errors import WireError
from .local_instance import Instance
from .local_options import IDENTIFY_SECONDS, MAX_IN_FLIGHT, PING_SECONDS
from .local_presence import Link
from .local_rules import Violation
from .secret import silent_logger
from .wire_events import (
    ADAPTER_FRAMES,
    Ack,
    Frame,
    Goodbye,
    Hello,
    HelloSettings,
    Identify,
    Ready,
    frame_op,
    parse_frame,
)
from .wire_words import MAX_FRAME_BYTES, PROTOCOL_VERSION, SUBPROTOCOL

CLOSE_SECONDS = 5.0
"""How long the other side may take to answer a close frame."""

MAX_UNSENT_BYTES = 8_388_608
"""Bytes that may wait for a client that does not read: more than all frames in flight, then it is cut."""

BAD_FRAME = 4400
UNAUTHORIZED = 4401
REPLACED = 4409
WRONG_VERSION = 4426
RESTARTING = 1012
_RECONNECT = frozenset({REPLACED, RESTARTING})
_READ_BYTES = 65_536
_NO_WEBSOCKET = "a handshake that opens no WebSocket"


class Gateways:
    """Every open connection.

    Args:
        instance: The domain.
        report: Takes violations.

    Attributes:
        silence: The logger of every connection's protocol; it says nothing.
    """

    def __init__(self, instance: Instance, report: Callable[[Violation], None]) -> None:
        self.instance = instance
        self.report = report
        self._connections: set[Connection] = set()
        self.silence = silent_logger()  # websockets writes whole frames and header fields

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        head: bytes,
        consumer: str,
        headers: Mapping[str, str],
    ) -> None:
        """Serve one connection from its handshake to its end.

        Args:
            reader: What comes from the client after the request's head.
            writer: What goes to it.
            head: The request's head as it came.
            consumer: What the query named.
            headers: For the handshake's answer, beside the usual.
        """
        connection = Connection(self, reader, writer, consumer)
        self._connections.add(connection)
        try:
            await connection.run(head, headers)
        finally:
            self._connections.discard(connection)
            if connection.link is not None:
                self.instance.presence.detach(connection.link)

    def pump(self) -> None:
        """Send what is due, and close what may not go on."""
        digest = self.instance.agent.token_digest
        for connection in tuple(self._connections):
            if connection.token_digest != digest:
                connection.leave(UNAUTHORIZED)
        if not any(connection.link for connection in self._connections):
            return
        links = {id(one.link): one for one in self._connections if one.link is not None}
        for delivery in self.instance.events.due():
            connection = links[id(delivery.link)]
            connection.send_text(self.instance.payloads.frame(delivery.event))

    def ready(self, connection: Connection, identify: Identify) -> None:
        """Take a connection that has identified itself; one of the same consumer goes."""
        costs_off = not connection.costs_enabled
        connection.link, replaced = self.instance.presence.attach(identify, costs_off=costs_off)
        for other in self._connections:
            if replaced is not None and other.link is replaced:
                other.link = None
                other.leave(REPLACED)
        connection.send(Ready(pending=self.instance.events.pending(identify.consumer)))
        self.pump()

    def leave(self, code: int) -> None:
        """Say goodbye on every connection and close it with a code."""
        for connection in tuple(self._connections):
            connection.leave(code)

    def cut(self, consumer: str | None = None) -> None:
        """Drop connections without a word, as a broken network does."""
        for connection in tuple(self._connections):
            if consumer in (None, connection.consumer):
                connection.abort()


class Connection:
    """One connection.

    Args:
        gateways: All of them.
        reader: From the client.
        writer: To the client.
        consumer: What the query named.

    Attributes:
        link: Its place among the deliveries once it has identified itself.
        costs_enabled: What its `hello` said.
        token_digest: Of the agent token that opened it.
    """

    def __init__(
        self,
        gateways: Gateways,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        consumer: str,
    ) -> None:
        self._gateways = gateways
        self._instance = gateways.instance
        self._reader = reader
        self._writer = writer
        self._protocol = ServerProtocol(
            subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=MAX_FRAME_BYTES, logger=gateways.silence
        )
        self._pong = asyncio.Event()
        self._parts: list[bytes] = []
        self._unreadable = False
        self.consumer = consumer
        self.link: Link | None = None
        self.costs_enabled = self._instance.options.costs_enabled
        self.token_digest = self._instance.agent.token_digest

    async def run(self, head: bytes, headers: Mapping[str, str]) -> None:
        """Serve the connection until it ends."""
        if not self._shake_hands(head, headers):
            return
        self.send(self._hello())
        keeper = asyncio.create_task(self._keep_alive())
        try:
            await self._read()
        finally:
            keeper.cancel()
            with suppress(asyncio.CancelledError):
                await keeper

    def send(self, frame: Frame) -> None:
        """Send one frame; nothing happens on a connection that is closing."""
        self.send_text(dump_json({"op": frame_op(frame), **dump(frame)}))

    def send_text(self, text: str) -> None:
        """Send one frame as text."""
        if self._protocol.state is WebSocketState.OPEN:
            self._protocol.send_text(text.encode())
            self._flush()

    def leave(self, code: int) -> None:
        """Say goodbye and close with a code."""
        if self._protocol.state is WebSocketState.OPEN:
            self.send(Goodbye(code=code, reconnect=code in _RECONNECT))
            self._close(code)

    def abort(self) -> None:
        """End the connection without a word."""
        self._writer.transport.abort()

    # Steps -----------------------------------------------------------------------------------------

    def _shake_hands(self, head: bytes, headers: Mapping[str, str]) -> bool:
        self._protocol.receive_data(head)
        requests = [one for one in self._protocol.events_received() if isinstance(one, WebSocketRequest)]
        if not requests:
            self._violation(_NO_WEBSOCKET)
            self.abort()
            return False
        response = self._protocol.accept(requests[0])
        date = format_datetime(self._instance.core.now(), usegmt=True)
        for name, value in {"Date": date, **headers}.items():
            with suppress(KeyError):
                del response.headers[name]
            response.headers[name] = value
        self._protocol.send_response(response)
        opened = self._protocol.state is WebSocketState.OPEN
        if not opened:
            self._violation(_NO_WEBSOCKET)
        self._flush()
        return opened

    def _hello(self) -> Hello:
        options = self._instance.options
        return Hello(
            server_time=self._instance.core.now(),
            protocol_version=PROTOCOL_VERSION,
            ack_timeout_ms=options.ack_timeout_ms,
            heartbeat_interval_ms=options.heartbeat_interval_ms,
            max_in_flight=MAX_IN_FLIGHT,
            settings=HelloSettings(
                run_update_min_interval_ms=options.run_update_min_interval_ms,
                max_content_bytes=options.max_content_bytes,
                costs_enabled=self.costs_enabled,
            ),
        )

    async def _read(self) -> None:
        """Read until the other side is gone, or has been asked to go and does not."""
        with suppress(TimeoutError, ConnectionError):
            while not self._protocol.close_expected():
                data = await self._receive()
                if not data:
                    return
            async with asyncio.timeout(CLOSE_SECONDS):
                while await self._receive():
                    pass

    async def _receive(self) -> bytes:
        data = await self._reader.read(_READ_BYTES)
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, WebSocketFrame):
                self._take(event)
        self._judge_bytes()
        self._flush()
        return data

    def _judge_bytes(self) -> None:
        """Count, once, what websockets ended the connection for; one that only broke off is no fault."""
        found = self._protocol.parser_exc
        if self._unreadable or not isinstance(found, (PayloadTooBig, ProtocolError, UnicodeDecodeError)):
            return
        self._unreadable = True
        self._violation(
            "a frame over 1 MiB" if isinstance(found, PayloadTooBig) else "bytes that are no frame"
        )

    def _take(self, frame: WebSocketFrame) -> None:
        if self.link is not None:
            self.link.seen_at = self._instance.core.now()
        if frame.opcode is Opcode.PONG:
            self._pong.set()
        elif frame.opcode is Opcode.BINARY:
            self._bad_frame("a binary frame")
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                data, self._parts = b"".join(self._parts), []
                self._understand(data)

    def _understand(self, data: bytes) -> None:
        if self._protocol.state is not WebSocketState.OPEN:
            return
        try:
            frame = parse_frame(data.decode("utf-8"), ADAPTER_FRAMES)
        except (WireError, UnicodeDecodeError):
            self._bad_frame("a frame that is not understood")
            return
        if isinstance(frame, Identify):
            self._identify(frame)
        elif isinstance(frame, Ack):
            self._ack(frame)

    def _identify(self, frame: Identify) -> None:
        if self.link is not None:
            self._bad_frame("a second identify")
        elif frame.protocol_version != PROTOCOL_VERSION:
            self.leave(WRONG_VERSION)
        elif frame.consumer != self.consumer:
            self._bad_frame("an identify for another consumer")
        else:
            self._gateways.ready(self, frame)

    def _ack(self, frame: Ack) -> None:
        if self.link is None:
            self._bad_frame("an ack before identify")
            return
        violation = self._instance.events.ack(self.link, frame.event_id)
        if violation is not None:
            self._gateways.report(violation)

    def _bad_frame(self, why: str) -> None:
        self._violation(why)
        self.leave(BAD_FRAME)

    def _violation(self, why: str) -> None:
        self._gateways.report(Violation("gateway", why))

    async def _keep_alive(self) -> None:
        """Wait for identify, then ping; a connection that does not answer ends."""
        await asyncio.sleep(IDENTIFY_SECONDS)
        if self.link is None and self._protocol.state is WebSocketState.OPEN:
            self._bad_frame("no identify in time")
        while self._protocol.state is WebSocketState.OPEN:
            await asyncio.sleep(PING_SECONDS)
            self._pong.clear()
            self._protocol.send_ping(b"")
            self._flush()
            try:
                async with asyncio.timeout(PING_SECONDS):
                    await self._pong.wait()
            except TimeoutError:
                self.abort()
                return
        await asyncio.sleep(CLOSE_SECONDS)
        self.abort()

    def _close(self, code: int) -> None:
        self._protocol.send_close(code)
        self._flush()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if self._writer.is_closing():
                return
            if data:
                self._writer.write(data)
            elif self._writer.can_write_eof():
                self._writer.write_eof()
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.abort()
