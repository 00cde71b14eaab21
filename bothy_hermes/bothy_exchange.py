"""One HTTP request and its answer on one connection.

Layer: edges. It blocks and runs in a worker thread of `bothy_http`, which owns time and cancellation.
Redirects are not followed, an answer is read whole or not at all, and a connection on which anything
went other than planned is never used again.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from .bothy_connections import ConnectionPool
from .errors import TransportError


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
        # The connection forgets its socket as soon as it has read "Connection: close".
        self._sock: socket.socket | None = None
        self._abandoned = False
        self.sent = False

    def abandon(self) -> None:
        """End the exchange at once; the thread in it finds its connection dead and cleans up."""
        with self._lock:
            self._abandoned = True
            if self._sock is not None:
                _shut_down(self._sock)

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
        if self._abandoned:
            raise self._error("closed")
        return self._pool.take()

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
            if isinstance(connection.sock, socket.socket):  # a recorder has none
                connection.sock.settimeout(self._timeout)
                self._sock = connection.sock
            self.sent = True

    def _exchange(self, connection: http.client.HTTPConnection, *, reused: bool) -> Response:
        answered = False
        try:
            whole = self._send(connection)
            answer = connection.getresponse()
            answered = True
            with contextlib.closing(answer):  # it alone has the socket after "Connection: close"
                response = self._read(answer)
                whole = whole and answer.isclosed()
        except TimeoutError:
            raise self._error("timeout") from None
        except (ConnectionError, ssl.SSLError, http.client.IncompleteRead):
            raise self._error("stale" if reused and not answered else "reset") from None
        except (OSError, http.client.HTTPException):
            raise self._error("malformed") from None
        self._settle(connection, keep=whole)
        return response

    def _send(self, connection: http.client.HTTPConnection) -> bool:
        """Send the request; False when the server stopped reading, which it may do to refuse it early."""
        request = self._request
        try:
            connection.request(request.method, self._path, body=request.body, headers=dict(request.headers))
        except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            return False
        return True

    def _read(self, answer: http.client.HTTPResponse) -> Response:
        """Read an answer; it is closed afterwards when it was read to its end."""
        self._check_status(answer.status)
        limit, cut = self._request.max_answer_bytes, self._request.cut_answer
        # A recorder's answer has no length, or one that is a text.
        declared = answer.length if isinstance(answer.length, int) else 0
        if declared > limit and not cut:
            raise self._error("too_large")
        try:
            body = answer.read(limit + 1)
        except ValueError:  # http.client takes the length of a chunk for one that is below nothing
            raise self._error("malformed") from None
        if len(body) < min(declared, limit + 1) or (not body and not _says_its_end(answer)):
            raise http.client.IncompleteRead(b"")
        if len(body) > limit and not cut:
            raise self._error("too_large")
        return Response(answer.status, join_fields(answer.getheaders()), body[:limit])

    def _check_status(self, status: int) -> None:
        """Refuse what is no final answer: a further 1xx, and a redirect, which is never followed."""
        if status < HTTPStatus.OK:
            raise self._error("malformed")
        redirected = HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        if redirected and status != HTTPStatus.NOT_MODIFIED:
            raise self._error("redirect")

    def _settle(self, connection: http.client.HTTPConnection, *, keep: bool) -> None:
        with self._lock:
            self._sock = None
            if keep and not self._abandoned:
                self._pool.give_back(connection)
                return
        connection.close()

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._sock = None
        connection.close()

    def _error(self, cause: str) -> TransportError:
        return TransportError(self._request.operation, cause, sent=self.sent)


def _says_its_end(answer: http.client.HTTPResponse) -> bool:
    """Whether an answer tells where its body ends.

    `http.client` takes a head that broke off for one that does not.
    """
    if answer.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return True
    return answer.getheader("Content-Length") is not None or answer.getheader("Transfer-Encoding") is not None


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
