"""One WebSocket connection to the gateway: opening it, its frames, its end.

Layer: edges. The only user of websockets on the client's side; what differs between its versions stays
in here. Redirects are not followed, the environment's proxies not read, and the library's own loop of
reconnections is not used: it would send the same proof again and again.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from .bothy_exchange import Response, join_fields
from .defaults import ADAPTER_NAME, VERSION
from .errors import BothyError, TransportError
from .reconnect import LOST
from .secret import silent_logger
from .wire_operations import OPEN_GATEWAY
from .wire_words import SUBPROTOCOL

OPEN_TIMEOUT_SECONDS = 10.0
"""Longest opening handshake, name lookup and TLS included."""

CLOSE_TIMEOUT_SECONDS = 2.0
"""How long a closing handshake may take before the connection is cut: it must fit into a stop."""

PING_SECONDS = 20.0
"""Interval of pings, and how long a pong may take."""

HARD_FRAME_BYTES = 8_388_608
"""Where the library itself ends the connection (1009). Between the protocol's limit and this one a
frame is dropped and the connection lives on."""


class HandshakeRefused(BothyError):
    """The server answered the handshake with an HTTP status.

    Attributes:
        response: The answer.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response

    def __str__(self) -> str:
        return f"{OPEN_GATEWAY.name}: {self.response.status}"


class LinkClosed(BothyError):
    """The connection is over.

    Attributes:
        code: The server's close code, `LOST` when it sent none.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return f"the connection is over ({self.code})"


class Link(Protocol):
    """An open connection."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields of the answer that opened it, names in lower case."""

    async def receive(self) -> str | bytes:
        """Return the next frame.

        Raises:
            LinkClosed: There is none any more.
        """

    async def send(self, text: str) -> None:
        """Send a frame.

        Raises:
            LinkClosed: The connection is over.
        """

    async def close(self) -> None:
        """End the connection in good order, or cut it after a moment."""


class Connector(Protocol):
    """Opens connections."""

    async def __call__(self, url: str, headers: Mapping[str, str]) -> Link:
        """Open one.

        Raises:
            HandshakeRefused: The server answered with another status.
            TransportError: No usable answer came.
        """


class SocketConnector(Connector):
    """Opens real connections.

    Args:
        tls: The TLS context for wss, None for ws.
        proxy: `hermes_adapter.proxy`.
    """

    def __init__(self, tls: ssl.SSLContext | None, proxy: str | None) -> None:
        self._tls = tls
        self._proxy = proxy
        self._silence = silent_logger()  # the library writes whole frames and header fields

    async def __call__(self, url: str, headers: Mapping[str, str]) -> Link:
        """Open a connection, see `Connector`."""
        options: dict[str, Any] = {} if self._tls is None else {"ssl": self._tls}
        try:
            connection = await _Connect(
                url,
                additional_headers=dict(headers),
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                compression=None,
                user_agent_header=f"{ADAPTER_NAME}/{VERSION}",
                proxy=self._proxy,
                open_timeout=OPEN_TIMEOUT_SECONDS,
                close_timeout=CLOSE_TIMEOUT_SECONDS,
                ping_interval=PING_SECONDS,
                ping_timeout=PING_SECONDS,
                max_size=HARD_FRAME_BYTES,
                logger=self._silence,
                **options,
            )
        except InvalidStatus as error:
            raise HandshakeRefused(_response(error)) from None
        except ssl.SSLError:
            raise TransportError(OPEN_GATEWAY.name, "tls", sent=False) from None
        except TimeoutError:
            raise TransportError(OPEN_GATEWAY.name, "timeout", sent=False) from None
        except (OSError, EOFError):
            raise TransportError(OPEN_GATEWAY.name, "connect", sent=False) from None
        except WebSocketException:
            raise TransportError(OPEN_GATEWAY.name, "malformed", sent=False) from None
        link = SocketLink(connection)
        if connection.subprotocol != SUBPROTOCOL:
            await link.close()
            raise TransportError(OPEN_GATEWAY.name, "malformed", sent=False)
        return link


class _Connect(connect):
    """A handshake that takes a redirect for what it is here: a refusal.

    The library asks this method, which its documentation does not name, in 15.0 and 17.4 alike; left
    to itself it would carry the proof to another address.
    """

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow nothing."""
        return exc


class SocketLink(Link):
    """An open connection of websockets.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields of the answer that opened it, names in lower case."""
        response = self._connection.response
        return {} if response is None else join_fields(response.headers.raw_items())

    async def receive(self) -> str | bytes:
        """Return the next frame, see `Link`."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as error:
            raise LinkClosed(_close_code(error)) from None

    async def send(self, text: str) -> None:
        """Send a frame, see `Link`."""
        try:
            await self._connection.send(text)
        except ConnectionClosed as error:
            raise LinkClosed(_close_code(error)) from None

    async def close(self) -> None:
        """End the connection with 1000, whatever ended its use: the library's versions differ there."""
        await self._connection.close(1000)


def _close_code(error: ConnectionClosed) -> int:
    return LOST if error.rcvd is None else error.rcvd.code


def _response(error: InvalidStatus) -> Response:
    answer = error.response
    return Response(answer.status_code, join_fields(answer.headers.raw_items()), bytes(answer.body or b""))
