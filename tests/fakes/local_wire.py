"""Calls to a running embedded server over its socket."""

import http.client
import json
import socket
from urllib.parse import urlsplit


class WireAnswer:
    """What came back."""

    def __init__(self, response, body):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = body

    @property
    def json(self):
        """The body as JSON."""
        return json.loads(self.body)


def call(server, method, path, token=None, body=None, *, base="/api/v1", **headers):
    """Make one call on a connection of its own."""
    parts = urlsplit(server.origin)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    data = None
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body)
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, base + path, data, sent)
        response = connection.getresponse()
        return WireAnswer(response, response.read())
    finally:
        connection.close()


def raw(server, data, *, timeout=10):
    """Send bytes and return everything that comes back until the server closes."""
    parts = urlsplit(server.origin)
    with socket.create_connection((parts.hostname, parts.port), timeout=timeout) as connection:
        connection.sendall(data)
        return read_all(connection)


def read_all(connection):
    """Read until the other side closes."""
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
    return found
