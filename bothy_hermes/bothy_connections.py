"""HTTP connections to one server: how they are made and kept.

Layer: edges. One function constructs them, through the configured proxy and with verified certificates;
the process environment is not asked. What happens on a connection is `bothy_exchange`'s subject.
"""

from __future__ import annotations

import http.client
import select
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import ConfigError

CONNECT_TIMEOUT_SECONDS = 5.0
"""Longest wait for one address to accept, and for each step of a TLS handshake: while there is no
socket yet, nothing can interrupt the thread that makes it."""

MAX_IDLE_SECONDS = 30.0
"""How long an unused connection is kept: half of the shortest keep-alive that proxies usually have."""

CA_FILE_KEY = "hermes_adapter.ca_file"

_CONSTRUCTION = threading.Lock()
"""Construction is serialised for the whole process: recorders of HTTP traffic exchange the classes in
`http.client` while one of them is being made. A lock holds no state of any profile."""


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
    if isinstance(connection.sock, ssl.SSLSocket) and connection.sock.pending():
        return True
    poller = select.poll()
    poller.register(connection.sock, select.POLLIN | select.POLLPRI)
    return bool(poller.poll(0))
