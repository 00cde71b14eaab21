"""A server of raw bytes: every way in which an HTTP exchange can go wrong, on a real socket."""

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass, field


def answer(body=b"{}", status="200 OK", **headers):
    """The bytes of an answer that keeps the connection."""
    fields = {"Content-Length": len(body)} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


@dataclass
class Arrived:
    """A request as it arrived.

    Attributes:
        connection: The number of the connection it came on, from 0.
        method: The method of the request line.
        target: The target of the request line.
        headers: Names in lower case.
        body: The body.
        wire: The connection, for what the route wants to do with it.
        gone: Is set once the other side ended the connection while the route `hold`s it.
    """

    connection: int
    method: str
    target: str
    headers: dict
    body: bytes = field(repr=False)
    wire: socket.socket = field(repr=False)
    gone: threading.Event = field(default_factory=threading.Event, repr=False)

    def send(self, data):
        """Send bytes as they are."""
        self.wire.sendall(data)

    def hold(self, seconds=5.0):
        """Keep silent until the other side ends the connection."""
        self.wire.settimeout(seconds)
        with contextlib.suppress(OSError):
            if not self.wire.recv(1):
                self.gone.set()


class HttpPeer:
    """Answers requests by a function per path; a path without one gets `answer()`.

    A route returns bytes to send, None when it did everything itself, and raises `HangUp` to end the
    connection. Used as a context manager.

    Attributes:
        url: The base URL.
        arrived: The requests, in order.
        connections: How many connections were accepted.
    """

    def __init__(self, tls=None):
        self.routes = {}
        self.arrived = []
        self.connections = 0
        self._tls = tls
        self._open = set()
        self._news = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        # Shut down first: closing alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def hang_up(self):
        """End every open connection."""
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    async def wait_for(self, count=1):
        """Wait until that many requests have arrived."""

        def wait():
            with self._news:
                assert self._news.wait_for(lambda: len(self.arrived) >= count, 5)

        await asyncio.to_thread(wait)

    @property
    def open(self):
        """How many connections are open."""
        return len(self._open)

    def targets(self):
        """The targets that were asked for."""
        return [request.target for request in self.arrived]

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            number, self.connections = self.connections, self.connections + 1
            threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection, number):
        self._open.add(connection)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as reader:
                while (request := self._read(connection, reader, number)) is not None:
                    with self._news:
                        self.arrived.append(request)
                        self._news.notify_all()
                    data = self.routes.get(request.target.split("?")[0], lambda _: answer())(request)
                    if data is not None:
                        connection.sendall(data)
        except (OSError, HangUp):
            pass
        finally:
            self._open.discard(connection)
            connection.close()

    def _read(self, connection, reader, number):
        line = reader.readline().decode("latin-1").split()
        if not line:
            return None
        headers = {}
        while field_line := reader.readline().strip():
            name, _, value = field_line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        whole = headers.get("x-peer") != "do-not-read"
        body = reader.read(int(headers.get("content-length", 0))) if whole else b""
        return Arrived(number, line[0], line[1], headers, body, connection)


class HangUp(Exception):  # it is a request to the peer, not an error
    """End the connection now."""


def tunnel(port):
    """A route that is a proxy to a port of this machine."""

    def route(arrived):
        with socket.create_connection(("127.0.0.1", port)) as upstream:
            arrived.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(upstream, arrived.wire), daemon=True)
            back.start()
            _pump(arrived.wire, upstream)
            back.join()
        raise HangUp

    return route


def _pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
