"""A real WebSocket connection: its handshake, its frames and its end are the same in every version."""

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import socket
import time

import pytest
from websockets.asyncio.server import serve

from bothy_hermes import bothy_socket
from bothy_hermes.bothy_connections import tls_context
from bothy_hermes.bothy_gateway import Gateway, GatewayEvents
from bothy_hermes.bothy_socket import HandshakeRefused, LinkClosed, SocketConnector
from bothy_hermes.clock import system_clock
from bothy_hermes.codec import parse
from bothy_hermes.errors import TransportError
from bothy_hermes.reconnect import LOST
from bothy_hermes.wire_events import Identify
from tests.fakes.certificate import certificate
from tests.fakes.edge_kit import AGENT, settings
from tests.fakes.http_peer import HangUp, HttpPeer, answer, tunnel
from tests.fakes.links import READY, hello
from tests.fakes.wire_examples import EXAMPLES

HEADERS = {"Authorization": "DPoP hunter2-token", "DPoP": "hunter2-proof"}


@contextlib.asynccontextmanager
async def server(handler, **options):
    """A WebSocket server of the protocol; yields its port."""
    options = {"subprotocols": ["bothy.agent.v1"]} | options
    async with serve(handler, "127.0.0.1", 0, **options) as made:
        yield made.sockets[0].getsockname()[1]


def connect(port, *, scheme="ws", tls=None, proxy=None, headers=HEADERS):
    return SocketConnector(tls, proxy)(f"{scheme}://localhost:{port}/gateway?consumer=c", headers)


async def echo(connection):
    async for frame in connection:
        await connection.send(frame)


def test_the_handshake_carries_what_it_is_given():
    """Token, proof, subprotocol and name; no compression, no cookies."""
    seen = []

    async def handler(connection):
        seen.append(connection.request)
        await connection.wait_closed()

    async def story():
        async with server(handler) as port:
            link = await connect(port)
            await link.close()

    asyncio.run(story())
    (request,) = seen
    assert request.path == "/gateway?consumer=c"
    assert request.headers["Authorization"] == "DPoP hunter2-token"
    assert request.headers["DPoP"] == "hunter2-proof"
    assert request.headers["Sec-WebSocket-Protocol"] == "bothy.agent.v1"
    assert request.headers["User-Agent"] == "bothy-hermes/0.1.0"
    assert "Sec-WebSocket-Extensions" not in request.headers


def test_frames_go_both_ways():
    """Texts as texts, bytes as bytes, and the answer's header fields are there."""

    async def story():
        async with server(echo) as port:
            link = await connect(port)
            await link.send("{}")
            assert await link.receive() == "{}"
            await link._connection.send(b"raw")
            assert await link.receive() == b"raw"
            assert link.headers["sec-websocket-protocol"] == "bothy.agent.v1"
            assert "date" in link.headers
            await link.close()

    asyncio.run(story())


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
def test_a_redirect_is_a_refusal(status):
    """Nothing travels to another address, not even on the same server."""

    async def story(peer):
        with pytest.raises(HandshakeRefused) as caught:
            await connect(peer.port)
        assert caught.value.response.status == int(status[:3])

    with HttpPeer() as other, HttpPeer() as peer:
        for target in ("/elsewhere", f"ws://localhost:{other.port}/x"):
            peer.routes["/gateway"] = lambda _, target=target: answer(b"", status, Location=target)
            asyncio.run(story(peer))
        assert peer.targets() == ["/gateway?consumer=c"] * 2
        assert other.connections == 0


def test_a_refusal_is_told_whole():
    """Status, header fields and body: nonce, wait and code are in them."""

    async def story(peer):
        with pytest.raises(HandshakeRefused) as caught:
            await connect(peer.port)
        return caught.value.response

    with HttpPeer() as peer:
        peer.routes["/gateway"] = lambda _: answer(
            b'{"code":"use_dpop_nonce"}', "401 Unauthorized", DPoP_Nonce="n1", Retry_After="7"
        )
        response = asyncio.run(story(peer))
    assert (response.status, response.body) == (401, b'{"code":"use_dpop_nonce"}')
    assert response.headers["dpop-nonce"] == "n1"
    assert response.headers["retry-after"] == "7"


def fails(port, **options):
    async def story():
        with pytest.raises(TransportError) as caught:
            await connect(port, **options)
        return caught.value

    error = asyncio.run(story())
    assert error.operation == "openGateway"
    return error.cause


def test_a_server_without_our_subprotocol_is_none():
    """Some other WebSocket answered."""

    async def story():
        async with server(echo, subprotocols=None) as port:
            with pytest.raises(TransportError) as caught:
                await connect(port)
            assert caught.value.cause == "malformed"

    asyncio.run(story())


def test_nobody_there():
    """A refused connection."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert fails(port) == "connect"


def test_another_protocol(monkeypatch):
    """Bytes that are no HTTP, a connection that ends at once, an answer that is no handshake."""

    def other(arrived):
        arrived.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        raise HangUp

    def nothing(_):
        raise HangUp

    with HttpPeer() as peer:
        for route in (other, nothing):
            peer.routes["/gateway"] = route
            assert fails(peer.port) in {"malformed", "connect"}


def test_a_silent_server_is_left(monkeypatch):
    """The whole handshake has one deadline."""
    monkeypatch.setattr(bothy_socket, "OPEN_TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert fails(listener.getsockname()[1]) == "timeout"


def test_certificates_are_verified(tmp_path):
    """With the configured certificates, for the host's own name, or not at all."""
    file, context = certificate(tmp_path)

    async def story():
        async with server(echo, ssl=context) as port:
            link = await connect(port, scheme="wss", tls=tls_context(file))
            await link.send("{}")
            assert await link.receive() == "{}"
            await link.close()
            with pytest.raises(TransportError) as caught:
                await connect(port, scheme="wss", tls=tls_context(None))
            assert caught.value.cause == "tls"
            foreign, _ = certificate(tmp_path, "other.example.com")
            with pytest.raises(TransportError) as caught:
                await connect(port, scheme="wss", tls=tls_context(foreign))
            assert caught.value.cause == "tls"

    asyncio.run(story())


def test_decision_2_a_proxy_is_used_when_it_is_configured(monkeypatch):
    """And the environment's is not."""
    for name in ("http_proxy", "HTTP_PROXY", "ws_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def story(proxy):
        async with server(echo) as port:
            proxy.routes[f"localhost:{port}"] = tunnel(port)
            for address, uses in ((None, 0), (proxy.url.replace("//", "//me:secret@"), 1)):
                link = await connect(port, proxy=address)
                await link.send("{}")
                assert await link.receive() == "{}"
                await link.close()
                assert len(proxy.arrived) == uses

    with HttpPeer() as proxy:
        asyncio.run(story(proxy))
        assert proxy.arrived[0].method == "CONNECT"
        assert proxy.arrived[0].headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"
        assert "authorization" not in proxy.arrived[0].headers


@pytest.mark.parametrize("code", [1000, 1012, 4401, 4409])
def test_a_close_code_comes_through(code):
    """For reading and for writing."""

    async def handler(connection):
        await connection.close(code, "hunter2")

    async def story():
        async with server(handler) as port:
            link = await connect(port)
            for action in (link.receive(), link.send("{}"), link.receive()):
                with pytest.raises(LinkClosed) as caught:
                    await action
                assert caught.value.code == code
            assert "hunter2" not in str(caught.value)
            await link.close()

    asyncio.run(story())


def test_a_connection_that_breaks_off_is_lost():
    """No close frame, no code."""

    async def handler(connection):
        connection.transport.abort()

    async def story():
        async with server(handler) as port:
            link = await connect(port)
            with pytest.raises(LinkClosed) as caught:
                await link.receive()
            assert caught.value.code == LOST

    asyncio.run(story())


def test_we_leave_with_1000_whatever_happened():
    """By itself one version of the library says 1000 and another 1011 for an exception."""
    codes, opened = asyncio.Queue(), asyncio.Event()

    async def handler(connection):
        await connection.wait_closed()
        await codes.put(connection.close_code)

    async def leave(port, how):
        link = await connect(port)
        opened.set()
        try:
            if how is KeyError:
                raise KeyError("x")
            await link.receive()
        finally:
            await link.close()

    async def story():
        async with server(handler) as port:
            with pytest.raises(KeyError):
                await leave(port, KeyError)
            assert await codes.get() == 1000
            opened.clear()
            task = asyncio.create_task(leave(port, None))
            await opened.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await codes.get() == 1000

    asyncio.run(story())


def test_closing_does_not_wait_for_a_dead_peer(monkeypatch):
    """A stop has little time, and the other side may be gone without a word."""
    monkeypatch.setattr(bothy_socket, "CLOSE_TIMEOUT_SECONDS", 0.1)

    async def story(peer):
        link = await connect(peer.port)
        begin = time.monotonic()
        await link.close()
        assert time.monotonic() - begin < 2

    with HttpPeer() as peer:
        peer.routes["/gateway"] = mute
        asyncio.run(story(peer))


def mute(arrived):
    """Accept the handshake and never say anything again."""
    magic = arrived.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
    arrived.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: bothy.agent.v1\r\n\r\n".encode()
    )
    arrived.hold()
    raise HangUp


def test_a_peer_that_vanished_is_noticed(monkeypatch):
    """No reset, no close: pings go unanswered, and the connection is lost within two of them."""
    monkeypatch.setattr(bothy_socket, "PING_SECONDS", 0.1)
    monkeypatch.setattr(bothy_socket, "CLOSE_TIMEOUT_SECONDS", 0.1)

    def silent(arrived):
        arrived.hold = lambda: time.sleep(2)
        mute(arrived)

    async def story(peer):
        link = await connect(peer.port)
        with pytest.raises(LinkClosed) as caught:
            await asyncio.wait_for(link.receive(), 1.5)
        assert caught.value.code == LOST

    with HttpPeer() as peer:
        peer.routes["/gateway"] = silent
        asyncio.run(story(peer))


def test_a_large_frame_does_not_end_the_connection():
    """The library's own limit lies above the protocol's; what is beyond both is cut off with 1009."""
    codes = []

    async def handler(connection):
        await connection.send("x" * 2_000_000)
        await connection.send("small")
        with contextlib.suppress(Exception):
            await connection.send("x" * 9_000_000)
        await connection.wait_closed()
        codes.append(connection.close_code)

    async def story():
        async with server(handler) as port:
            link = await connect(port)
            assert len(await link.receive()) == 2_000_000
            assert await link.receive() == "small"
            with pytest.raises(LinkClosed):
                await link.receive()

    asyncio.run(story())
    assert codes == [1009]


def test_nothing_is_logged_of_what_travels(caplog):
    """At its debug level the library would write tokens and frames."""

    async def story():
        silent = logging.Logger("peer", logging.CRITICAL)  # noqa: LOG001  # the peer's own words do not count
        async with server(echo, logger=silent) as port:
            link = await connect(port)
            await link.send("hunter2-frame")
            await link.receive()
            await link.close()

    with caplog.at_level(logging.DEBUG):
        logging.getLogger("websockets").setLevel(logging.DEBUG)
        try:
            asyncio.run(story())
        finally:
            logging.getLogger("websockets").setLevel(logging.NOTSET)
    assert "hunter2" not in caplog.text


class Listener(GatewayEvents):
    """Counts what the gateway tells."""

    def __init__(self):
        self.ready = 0
        self.got = []
        self.done = asyncio.Event()

    async def on_ready(self, hello, ready):
        self.ready += 1

    def on_delivery(self, delivery):
        self.got.append(delivery.event["n"])
        if delivery.event["n"] == 1999:
            self.done.set()

    def on_lost(self):
        pass


class Signing:
    """What the gateway needs of the API, without one."""

    def __init__(self, port):
        self._url = f"ws://localhost:{port}/gateway"

    async def gateway_request(self, agent_id, consumer):
        return self._url, HEADERS

    def observe_headers(self, headers):
        pass

    def observe_hello(self, hello):
        pass


def test_the_gateway_lives_on_a_real_connection(monkeypatch):
    """Greeting, a restart of the server, and two thousand events in a row without a missed ping."""
    monkeypatch.setattr(bothy_socket, "PING_SECONDS", 0.3)
    seen = []

    async def handler(connection):
        await connection.send(json.dumps(hello()))
        seen.append(json.loads(await connection.recv())["op"])
        await connection.send(json.dumps(READY))
        if len(seen) == 1:
            await connection.close(1012)
            return
        for number in range(2000):
            await connection.send(json.dumps({"op": "event", "event": {"n": number}}))
        await connection.wait_closed()

    async def story():
        listener = Listener()
        async with server(handler, ping_interval=0.1, ping_timeout=0.3) as port:
            config = settings(f"http://localhost:{port}")
            identify = parse(Identify, EXAMPLES[Identify]())
            gateway = Gateway(Signing(port), config, system_clock(), lambda: identify, AGENT, listener)
            task = asyncio.create_task(gateway.run())
            await asyncio.wait_for(listener.done.wait(), 20)
            await asyncio.sleep(0.7)  # two pings of each side
            assert not task.done()
            assert listener.ready == 2
            assert listener.got == list(range(2000))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(story())
    assert seen == ["identify", "identify"]
