"""HTTP connections to one server: how they are made, kept, judged and read.

Layer: edges. Everything here blocks and runs in a worker thread of `bothy_http`, which owns time and
cancellation. One function constructs connections. Redirects are not followed, environment proxies not
read, and no connection is kept on which anything went other than planned.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import ConfigError, TransportError

CONNECT_TIMEOUT_SECONDS = 5.0
"""Longest wait for one address to accept, and for each step of a TLS handshake: while there is no
socket yet, nothing can interrupt the thread that makes it."""

MAX_IDLE_SECONDS = 30.0
"""How long an unused connection is kept: half of the shortest keep-alive that proxies usually have."""

CA_FILE_KEY = "hermes_adapter.ca_file"

_CONSTRUCTION = threading.Lock()
"""Construction is serialised for the whole process: recorders of HTTP traffic exchange the classes in
`http.client` while one of them is being made. A lock holds no state of any profile."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP attempt.

    Attributes:
        operation: The operation's name, for errors.
        method: The HTTP method.
        target: Path and query below the server's API base, beginning with "/".
        headers: Header fields.
        body: The body, None without one.
        max_answer_bytes: Largest body that is read.
        cut_answer: Whether a larger body is cut there instead of being refused.
    """

    operation: str
    method: str
    target: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    max_answer_bytes: int = 1_048_576
    cut_answer: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that was read completely.

    Attributes:
        status: The HTTP status.
        headers: Header fields, names in lower case, repeated ones joined with ", ".
        body: The body.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """Make the TLS context of all connections; certificates are always verified.

    Args:
        ca_file: Certificates to trust instead of the system's.

    Raises:
        ConfigError: Naming `hermes_adapter.ca_file`.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError:  # ssl.SSLError is one
        raise ConfigError(CA_FILE_KEY, "the file is missing or holds no certificates") from None


class ConnectionFactory:
    """Makes connections to one server.

    Args:
        server_url: The API base.
        ca_file: `hermes_adapter.ca_file`.
        proxy: `hermes_adapter.proxy`.

    Raises:
        ConfigError: The certificates cannot be read.
    """

    def __init__(self, server_url: str, *, ca_file: Path | None, proxy: str | None) -> None:
        parts = urlsplit(server_url)
        self._host = parts.hostname or ""
        self._tls = tls_context(ca_file) if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._proxy = urlsplit(proxy) if proxy else None

    def new_connection(self) -> http.client.HTTPConnection:
        """Construct a connection; nothing is connected yet."""
        host, port = self._host, self._port
        if self._proxy is not None:
            host, port = self._proxy.hostname or "", self._proxy.port or 80
        # The classes are looked up at call time, see _CONSTRUCTION.
        with _CONSTRUCTION:
            if self._tls is None:
                made = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_SECONDS)
            else:
                made = http.client.HTTPSConnection(
                    host, port, timeout=CONNECT_TIMEOUT_SECONDS, context=self._tls
                )
            if self._proxy is not None:
                made.set_tunnel(self._host, self._port, headers=self._proxy_headers())
        return made

    def _proxy_headers(self) -> dict[str, str]:
        if self._proxy is None or self._proxy.username is None:
            return {}
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


class ConnectionPool:
    """Idle connections of one server; the one used last is taken first, so that the others can age.

    Args:
        factory: Makes new ones.
        monotonic: Seconds of a clock that never goes back.
        limit: How many idle ones are kept.
    """

    def __init__(self, factory: ConnectionFactory, monotonic: Callable[[], float], limit: int) -> None:
        self._factory = factory
        self._monotonic = monotonic
        self._limit = limit
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []
        self._closed = False

    @property
    def idle(self) -> int:
        """How many idle connections are kept."""
        return len(self._idle)

    def take(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before."""
        while True:
            with self._lock:
                kept = self._idle.pop() if self._idle else None
            if kept is None:
                return self._factory.new_connection(), False
            connection, since = kept
            if self._monotonic() - since <= MAX_IDLE_SECONDS and not _is_dead(connection):
                return connection, True
            connection.close()

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        with self._lock:
            kept = not self._closed and connection.sock is not None and len(self._idle) < self._limit
            if kept:
                self._idle.append((connection, self._monotonic()))
        if not kept:
            connection.close()

    def close(self) -> None:
        """Close the idle ones and keep none from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()


def _is_dead(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: its end, or an answer to nothing."""
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN | select.POLLPRI)
    return bool(poller.poll(0))


class Exchange:
    """One request and its answer on one connection, and the handle by which it is ended from outside.

    `run` is called in a worker thread, `abandon` on the event loop. Whatever happens between the two,
    the connection ends either in the pool with nothing left to read, or closed.

    Args:
        request: The request.
        path: The request's full path and query.
        pool: Where connections come from.
        timeout: Longest wait for one read or write, in seconds.
    """

    def __init__(self, request: Request, path: str, pool: ConnectionPool, timeout: float) -> None:
        self._request = request
        self._path = path
        self._pool = pool
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._abandoned = False
        self.sent = False

    def abandon(self) -> None:
        """End the exchange at once; the thread in it finds its connection dead and cleans up."""
        with self._lock:
            self._abandoned = True
            sock = None if self._connection is None else self._connection.sock
            if isinstance(sock, socket.socket):
                _shut_down(sock)

    def run(self) -> Response:
        """Do the exchange.

        Raises:
            TransportError: No usable answer came.
        """
        connection, reused = self._take()
        try:
            self._connect(connection)
            response = self._exchange(connection, reused=reused)
        except BaseException:
            self._drop(connection)
            raise
        return response

    def _take(self) -> tuple[http.client.HTTPConnection, bool]:
        with self._lock:
            if self._abandoned:
                raise self._error("closed")
            self._connection, reused = self._pool.take()
            return self._connection, reused

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None:
            try:
                connection.connect()
            except ssl.SSLError:
                raise self._error("tls") from None
            except TimeoutError:
                raise self._error("timeout") from None
            except (OSError, http.client.HTTPException):
                raise self._error("connect") from None
        with self._lock:
            if self._abandoned:
                raise self._error("closed")
            if connection.sock is not None:
                connection.sock.settimeout(self._timeout)
            self.sent = True

    def _exchange(self, connection: http.client.HTTPConnection, *, reused: bool) -> Response:
        answered = False
        try:
            whole = self._send(connection)
            answer = connection.getresponse()
            answered = True
            response, complete = self._read(answer)
        except TimeoutError:
            raise self._error("timeout") from None
        except (ConnectionError, http.client.IncompleteRead):
            raise self._error("stale" if reused and not answered else "reset") from None
        except (OSError, http.client.HTTPException):
            raise self._error("malformed") from None
        self._settle(connection, keep=whole and complete and answer.isclosed())
        return response

    def _send(self, connection: http.client.HTTPConnection) -> bool:
        """Send the request; False when the server stopped reading, which it may do to refuse it early."""
        request = self._request
        try:
            connection.request(request.method, self._path, body=request.body, headers=dict(request.headers))
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _read(self, answer: http.client.HTTPResponse) -> tuple[Response, bool]:
        """Read an answer; the second value tells whether it was read to its end."""
        self._check_status(answer.status)
        limit, cut = self._request.max_answer_bytes, self._request.cut_answer
        # A recorder's answer has no length, or one that is a text.
        declared = answer.length if isinstance(answer.length, int) else 0
        if declared > limit and not cut:
            raise self._error("too_large")
        body = answer.read(limit + 1)
        if len(body) < min(declared, limit + 1):
            raise http.client.IncompleteRead(b"")
        if len(body) > limit and not cut:
            raise self._error("too_large")
        return Response(answer.status, join_fields(answer.getheaders()), body[:limit]), len(body) <= limit

    def _check_status(self, status: int) -> None:
        """Refuse what is no final answer: a further 1xx, and a redirect, which is never followed."""
        if status < HTTPStatus.OK:
            raise self._error("malformed")
        redirected = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        if redirected and status != HTTPStatus.NOT_MODIFIED:
            raise self._error("redirect")

    def _settle(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        with self._lock:
            self._connection = None
            if keep and not self._abandoned:
                self._pool.give_back(connection)
                return
        connection.close()

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._connection = None
        connection.close()

    def _error(self, cause: str) -> TransportError:
        return TransportError(self._request.operation, cause, sent=self.sent)


def join_fields(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Header fields by their names in lower case, repeated ones joined with ", "."""
    found: dict[str, str] = {}
    for name, value in pairs:
        lower = name.lower()
        found[lower] = f"{found[lower]}, {value}" if lower in found else value
    return found


def _shut_down(sock: socket.socket) -> None:
    """Wake the thread that waits on a socket; closing it would not."""
    with contextlib.suppress(OSError):  # not connected, or gone already
        # The base class's method: that of a TLS socket also takes its session away under the reader.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
