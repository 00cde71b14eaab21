"""Fifty adapters lose one server together and do not return to it together."""

import asyncio
import contextlib
from collections import Counter

import pytest

from bothy_hermes.bothy_api import AgentToken, BothyApi
from bothy_hermes.bothy_gateway import Gateway, GatewayEvents
from bothy_hermes.bothy_socket import HandshakeRefused
from bothy_hermes.codec import parse
from bothy_hermes.errors import TransportError
from bothy_hermes.reconnect import ConnectionState
from bothy_hermes.wire_events import Identify
from tests.fakes.clock import FakeClock
from tests.fakes.edge_kit import AGENT, private_file, settings
from tests.fakes.links import greeted
from tests.fakes.transport import FakeTransport, problem
from tests.fakes.wire_examples import EXAMPLES

ADAPTERS = 50


class Quiet(GatewayEvents):
    """Somebody who only wants to be connected."""

    async def on_ready(self, hello, ready):
        pass

    def on_delivery(self, delivery):
        pass

    def on_lost(self):
        pass


class Server:
    """A server that can be there, gone, or busy."""

    def __init__(self, clock):
        self.refusal = None
        self.links = []
        self.attempts = []
        self.successes = []
        self._clock = clock

    async def __call__(self, url, headers):
        self.attempts.append(self._clock.monotonic())
        if self.refusal is not None:
            raise self.refusal
        self.successes.append(self._clock.monotonic())
        self.links.append(greeted())
        return self.links[-1]

    def restart(self, refusal):
        """End every connection and refuse new ones that way."""
        self.refusal = refusal
        self.attempts.clear()
        self.successes.clear()
        links, self.links = self.links, []
        for link in links:
            link.end(1012)

    def crowd(self, moments, width):
        """The most attempts in any stretch of time of that width."""
        return max(Counter(int(moment / width) for moment in moments).values(), default=0)


@contextlib.asynccontextmanager
async def fleet(directory, server, fake):
    token = AgentToken(private_file(directory / "token", "t"))
    identify = parse(Identify, EXAMPLES[Identify]())
    config = settings()
    api = BothyApi(config, FakeTransport(), fake.clock, token)
    gateways = [
        Gateway(api, config, fake.clock, lambda: identify, AGENT, Quiet(), server) for _ in range(ADAPTERS)
    ]
    tasks = [asyncio.create_task(gateway.run()) for gateway in gateways]
    try:
        yield gateways
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


GONE = TransportError("openGateway", "connect", sent=False)
BUSY = HandshakeRefused(problem(503, retry_after="5"))


OUTAGES = {"long": (GONE, 20), "short": (GONE, 2), "busy": (BUSY, 8)}


@pytest.mark.parametrize(("refusal", "down"), OUTAGES.values(), ids=OUTAGES)
def test_attempts_after_a_restart_are_spread(tmp_path, refusal, down):
    """Half a second holds the first attempts, far more the others; all are back within a minute."""
    fake = FakeClock(seed=11, spread=True)
    server = Server(fake.clock)

    async def story():
        async with fleet(tmp_path, server, fake) as gateways:
            await fake.advance(60)
            assert len(server.links) == ADAPTERS
            server.restart(refusal)
            await fake.advance(down)
            assert server.successes == []
            server.refusal = None
            await fake.advance(60)
            assert {gateway.state for gateway in gateways} == {ConnectionState.READY}

    asyncio.run(story())
    assert len(server.successes) == ADAPTERS
    later = [moment for moment in server.attempts if moment > 62]
    assert server.crowd(server.attempts, 0.1) <= 0.5 * ADAPTERS  # in step it would be all of them
    assert server.crowd(later, 0.1) <= 0.25 * ADAPTERS
    assert server.crowd(server.successes, 0.1) <= 0.25 * ADAPTERS
    assert max(server.successes) - min(server.successes) > 1


def test_a_long_outage_is_not_hammered(tmp_path):
    """Five minutes without a server: each adapter tries about four times a minute, none is in step."""
    fake = FakeClock(seed=12, spread=True)
    server = Server(fake.clock)

    async def story():
        async with fleet(tmp_path, server, fake):
            await fake.advance(60)
            server.restart(GONE)
            await fake.advance(300)

    asyncio.run(story())
    late = [moment for moment in server.attempts if moment > 180]
    assert 2.5 * ADAPTERS <= len(late) / 3 <= 6 * ADAPTERS
    assert server.crowd(late, 0.1) <= 8


def test_a_retry_after_for_all_is_not_a_date_for_all(tmp_path):
    """Everybody was told five seconds; nobody comes earlier, and not everybody comes then."""
    fake = FakeClock(seed=13, spread=True)
    server = Server(fake.clock)

    async def story():
        async with fleet(tmp_path, server, fake):
            await fake.advance(60)
            server.restart(BUSY)
            await fake.advance(30)

    asyncio.run(story())
    first = sorted(server.attempts)[:ADAPTERS]
    second = sorted(server.attempts)[ADAPTERS : 2 * ADAPTERS]
    assert second[0] - first[0] >= 5
    assert server.crowd(second, 0.1) <= 0.5 * ADAPTERS
