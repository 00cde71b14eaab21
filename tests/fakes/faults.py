"""What networks and other people's proxies do to a call or a frame, each as a value with a name.

A `Fault` replaces the answer of a call, before the server is asked or (`after`) once it has acted; a
`FrameFault` replaces one frame. `fault_proxy` plays them.
"""

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field, replace
from http import HTTPStatus

from tests.fakes.raw_wire import End, Message

HTML = b"<html><body><h1>Bad Gateway</h1></body></html>"


class Gone(Exception):  # it ends a connection, it is no error
    """The connection is over for the proxy's part."""


@dataclass
class Exchange:
    """One call under a fault."""

    client: End
    request: Message
    answer: Message | None = None


@dataclass(frozen=True)
class Fault:
    """What happens to one call.

    Attributes:
        name: What it is called in a table.
        play: Called with the exchange instead of passing the answer on; `Gone` ends the connection.
        acted: Whether the server carries the call out, and only its answer suffers.
    """

    name: str
    play: object = field(repr=False)
    acted: bool = False

    @property
    def after(self):
        """The same once the server has acted: its answer is lost."""
        return replace(self, name=f"{self.name} after it acted", acted=True)


def reset():
    """The connection is reset."""

    async def play(exchange):
        exchange.client.reset()

    return Fault("reset", play)


def hang_up():
    """The connection ends in good order, without an answer."""

    async def play(_exchange):
        raise Gone

    return Fault("hang up", play)


def stall(seconds=None):
    """Nothing comes, for some seconds or until the client gives up; then the connection ends."""

    async def play(exchange):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await exchange.client.until_gone()
        raise Gone

    return Fault("stall", play)


def answer(status, code=None, *, retry_after=None, body=None, content_type="application/problem+json"):
    """Somebody on the way answers instead of the server."""
    if body is None:
        body = json.dumps(
            {"type": "about:blank", "status": status} | ({"code": code} if code else {})
        ).encode()
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
    lines += [f"Content-Type: {content_type}"] if content_type else []
    lines += [f"Retry-After: {retry_after}"] if retry_after is not None else []
    raw = "\r\n".join([*lines, "", ""]).encode() + body

    async def play(exchange):
        await exchange.client.write(raw)

    named = f"{status} {code}" if code else str(status)
    return Fault(named if retry_after is None else f"{named} retry after {retry_after}", play)


def page(status=502, content_type="text/html"):
    """A proxy's own page."""
    found = answer(status, body=HTML, content_type=content_type)
    return replace(found, name=f"{status} page of {content_type or 'no type'}")


def cut(share=0.5):
    """The answer breaks off in its body; the server has acted."""

    async def play(exchange):
        whole = exchange.answer
        await exchange.client.write(whole.head + whole.body[: int(len(whole.body) * share)])
        raise Gone

    return Fault("cut", play, acted=True)


def cut_head():
    """The answer breaks off in its head; the server has acted."""

    async def play(exchange):
        await exchange.client.write(exchange.answer.head[:20])
        raise Gone

    return Fault("cut head", play, acted=True)


def trickle(seconds, pieces=20):
    """The answer comes a few bytes at a time, in so many seconds; the server has acted."""

    async def play(exchange):
        raw = exchange.answer.raw
        step = max(1, len(raw) // pieces)
        for start in range(0, len(raw), step):
            await exchange.client.write(raw[start : start + step])
            await asyncio.sleep(seconds / pieces)

    return Fault("trickle", play, acted=True)


def slow(seconds):
    """The answer comes late, but in time; the server has acted."""

    async def play(exchange):
        await asyncio.sleep(seconds)
        await exchange.client.write(exchange.answer.raw)

    return Fault("slow", play, acted=True)


def retyped(content_type):
    """The server's answer, announced as something else."""

    async def play(exchange):
        named = b"Content-Type: " + content_type.encode()
        head = re.sub(rb"(?i)content-type: [^\r]+", named, exchange.answer.head)
        await exchange.client.write(head + exchange.answer.body)

    return Fault(f"typed {content_type}", play, acted=True)


@dataclass(frozen=True)
class FrameFault:
    """What happens to one frame: `play(frame, sender)` with what writes to the receiving side."""

    name: str
    play: object = field(repr=False)


def passed():
    """Nothing happens to the frame; it only counts."""

    async def play(frame, sender):
        await sender.write(frame.raw)

    return FrameFault("passed", play)


def doubled():
    """The frame comes twice."""

    async def play(frame, sender):
        await sender.write(frame.raw + frame.raw)

    return FrameFault("doubled", play)


def dropped():
    """The frame does not come."""

    async def play(_frame, _sender):
        return

    return FrameFault("dropped", play)


def truncated():
    """Half of the frame's bytes, then the connection is reset."""

    async def play(frame, sender):
        await sender.write(frame.raw[: len(frame.raw) // 2])
        raise Gone

    return FrameFault("truncated", play)


def garbled():
    """A whole frame with half of the JSON."""

    async def play(frame, sender):
        await sender.write(frame.with_payload(frame.payload[: len(frame.payload) // 2]))

    return FrameFault("garbled", play)


def torn():
    """The connection is reset instead of the frame."""

    async def play(_frame, sender):
        sender.reset()
        raise Gone

    return FrameFault("torn", play)


def passed_and_torn():
    """The frame comes, then the connection is reset."""

    async def play(frame, sender):
        await sender.write(frame.raw)
        raise Gone

    return FrameFault("passed and torn", play)


def late(seconds):
    """The frame comes late, and all behind it."""

    async def play(frame, sender):
        await asyncio.sleep(seconds)
        await sender.write(frame.raw)

    return FrameFault("late", play)
