"""HTTP messages and WebSocket frames as they travel, as far as a proxy reads them, and a connection's end."""

import asyncio
import contextlib
import json
import socket
import struct
from dataclasses import dataclass
from typing import NamedTuple

MAX_HEAD = 65_536


@dataclass
class Message:
    """A request or an answer as it came."""

    first: list
    headers: dict
    head: bytes
    body: bytes = b""

    @property
    def raw(self):
        return self.head + self.body

    @property
    def length(self):
        return int(self.headers.get("content-length", 0))


async def read_message(reader, *, answer=False):
    """Read a message with its body; None at the connection's end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, OSError):
        return None
    first, *lines = head.decode("latin-1").strip().split("\r\n")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    found = Message(first.split(" "), headers, head)
    if not (answer and int(found.first[1]) in (101, 204, 304)):
        found.body = await reader.readexactly(found.length)
    return found


class Frame(NamedTuple):
    """One WebSocket frame.

    Attributes:
        raw: All its bytes.
        head: How many of them come before the payload.
        payload: The payload, unmasked.
        op: The `op` of the JSON in it, None for other frames.
    """

    raw: bytes
    head: int
    payload: bytes
    op: str | None

    @property
    def masked(self):
        return bool(self.raw[1] & 0x80)

    def with_payload(self, payload):
        """The bytes of a frame of the same kind with another payload."""
        mask = bytes(4) if self.masked else b""  # a mask of zeros changes nothing
        flag = 0x80 if self.masked else 0
        return self.raw[:1] + struct.pack("!BQ", flag | 127, len(payload)) + mask + payload


async def read_frame(reader):
    """Read one frame; None at the connection's end."""
    try:
        raw = await reader.readexactly(2)
        size = raw[1] & 0x7F
        if size >= 126:
            more = await reader.readexactly(2 if size == 126 else 8)
            raw += more
            size = int.from_bytes(more, "big")
        mask = await reader.readexactly(4) if raw[1] & 0x80 else b""
        data = await reader.readexactly(size)
    except (asyncio.IncompleteReadError, OSError):
        return None
    payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data)) if mask else data
    op = None
    if raw[0] & 0x0F == 1:
        with contextlib.suppress(ValueError, AttributeError):
            op = json.loads(payload).get("op")
    head = raw + mask
    return Frame(head + data, len(head), payload, op)


class End:
    """One end of a connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def write(self, data):
        self.writer.write(data)
        with contextlib.suppress(OSError):
            await self.writer.drain()

    def reset(self):
        """End the connection by RST, as a dead host does."""
        found = self.writer.get_extra_info("socket")
        if found is not None:
            with contextlib.suppress(OSError):
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self):
        """Wait until the other side ends the connection."""
        with contextlib.suppress(OSError):
            while await self.reader.read(MAX_HEAD):
                pass
