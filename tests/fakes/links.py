"""Gateway connections without sockets: a test pushes frames, ends them, and sees what was sent."""

import asyncio
import json

from bothy_hermes.bothy_socket import Connector, HandshakeRefused, Link, LinkClosed
from bothy_hermes.errors import TransportError
from bothy_hermes.reconnect import LOST
from bothy_hermes.wire_events import Hello
from tests.fakes.wire_examples import EXAMPLES


def hello(**changes):
    """A hello frame; changes to its settings are given by their names."""
    value = EXAMPLES[Hello]()
    own = {name: change for name, change in changes.items() if name in value}
    settings = {name: change for name, change in changes.items() if name not in value}
    return {"op": "hello"} | value | own | {"settings": value["settings"] | settings}


READY = {"op": "ready", "pending": 0}


class FakeLink(Link):
    """A connection whose other end is the test.

    Args:
        frames: What the server sends at once: frames as JSON, or raw texts and bytes.

    Attributes:
        sent: The frames that the adapter sent, as JSON.
        closed: Whether the adapter closed it.
    """

    def __init__(self, *frames, headers=None):
        self.sent = []
        self.closed = False
        self._headers = headers or {}
        self._frames = asyncio.Queue()
        self._ended = None
        for frame in frames:
            self.push(frame)

    @property
    def headers(self):
        """The header fields of the handshake's answer."""
        return self._headers

    def push(self, frame):
        """Let the server send a frame."""
        self._frames.put_nowait(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    def end(self, code=LOST):
        """Let the server end the connection."""
        self._frames.put_nowait(LinkClosed(code))

    async def receive(self):
        """Return what the server sent next."""
        if self._ended is None:
            frame = await self._frames.get()
            if not isinstance(frame, LinkClosed):
                return frame
            self._ended = frame
        raise self._ended

    async def send(self, text):
        """Take a frame of the adapter's."""
        if self._ended is not None:
            raise self._ended
        self.sent.append(json.loads(text))

    async def close(self):
        """End it from the adapter's side."""
        self.closed = True
        self._ended = self._ended or LinkClosed(LOST)


def greeted(*frames, **changes):
    """A connection that greets the adapter and takes it."""
    return FakeLink(hello(**changes), READY, *frames)


class FakeConnector(Connector):
    """Opens connections from a script: links, errors, or answers that refuse the handshake.

    Attributes:
        attempts: The time, URL and header fields of each attempt.
    """

    def __init__(self, clock, *outcomes):
        self.attempts = []
        self._clock = clock
        self._outcomes = list(outcomes)

    @property
    def times(self):
        """When the attempts were made, in seconds since the start."""
        return [at for at, _, _ in self.attempts]

    async def __call__(self, url, headers):
        """Take the next outcome; nobody is there when the script is over."""
        self.attempts.append((self._clock.monotonic(), url, headers))
        if not self._outcomes:
            raise TransportError("openGateway", "connect", sent=False)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if not isinstance(outcome, FakeLink):
            raise HandshakeRefused(outcome)
        return outcome
