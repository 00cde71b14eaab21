"""Exchanges with a peer of raw bytes, one after another, without any thread of their own."""

import contextlib
import select

import pytest

from bothy_hermes.bothy_connections import ConnectionFactory, ConnectionPool
from bothy_hermes.bothy_exchange import Exchange, Request
from bothy_hermes.errors import TransportError
from tests.fakes.clock import FakeClock
from tests.fakes.http_peer import HttpPeer


class Client:
    """A client with a pool of two connections and a clock that a test holds.

    Attributes:
        fake: The clock.
        pool: The connections.
    """

    def __init__(self, url, **options):
        self.fake = FakeClock()
        factory = ConnectionFactory(url, **({"ca_file": None, "proxy": None} | options))
        self.pool = ConnectionPool(factory, self.fake.clock.monotonic, 2)

    def exchange(self, path="/", timeout=20.0, **request):
        """Prepare an exchange."""
        options = {"operation": "op", "method": "GET", "target": path, "headers": {}} | request
        return Exchange(Request(**options), path, self.pool, timeout)

    def ask(self, path="/", timeout=20.0, **request):
        """Do an exchange and return its answer."""
        return self.exchange(path, timeout, **request).run()

    def wait_for_bytes(self):
        """Wait until something has arrived on the idle connection."""
        ((connection, _),) = self.pool._idle
        assert select.select([connection.sock], [], [], 2)[0]

    def fails(self, path="/", timeout=20.0, **request):
        """Do an exchange that fails; returns the cause and whether it was sent."""
        with pytest.raises(TransportError) as caught:
            self.ask(path, timeout, **request)
        return caught.value.cause, caught.value.sent


@contextlib.contextmanager
def peer_and_client(tls=None, **options):
    """A peer and a client of it."""
    with HttpPeer(tls) as peer:
        client = Client(peer.url, **options)
        try:
            yield peer, client
        finally:
            client.pool.close()
