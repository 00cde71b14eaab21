"""The gateway over real sockets: handshake, frames, replacement, the end (section 5)."""

import contextlib
import json
import logging
import random
import struct
import threading
import time
from contextlib import contextmanager
from socket import SHUT_WR, create_connection
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import connect

from bothy_hermes import local_gateway
from bothy_hermes.local_agents import Fault
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from tests.fakes.frozen_protocol import check_frame
from tests.fakes.local_kit import HEARTBEAT
from tests.fakes.local_wire import call, raw, read_all
from tests.fakes.mutants import WORD, garbled, mutant

SILENT = logging.Logger("client", logging.CRITICAL + 1)  # noqa: LOG001  # the client's own words do not count


@contextmanager
def served(tmp_path, *, clean=True, **options):
    server = LocalServer.start(tmp_path / "state", options=ServerOptions(**options))
    try:
        yield server
        if clean:
            assert server.violations == []
    finally:
        server.stop()


class Socket:
    """A gateway connection that a test plays by hand."""

    def __init__(self, server, consumer="default", **options):
        token = options.pop("token", None) or server.agent.token_file.read_text().strip()
        path = options.pop("path", f"/agents/{server.agent.id}/gateway?consumer={consumer}")
        options.setdefault("subprotocols", ["bothy.agent.v1"])
        headers = {"Authorization": f"Bearer {token}"} if token != "none" else {}
        opened = connect(
            server.api_url.replace("http", "ws", 1) + path,
            additional_headers=headers,
            max_size=2**21,
            **options,
        )
        self._stack = contextlib.ExitStack()
        self.ws = self._stack.enter_context(opened)
        self.consumer = consumer

    def close(self):
        self._stack.close()

    def receive(self, timeout=5):
        frame = json.loads(self.ws.recv(timeout))
        check_frame("server", frame)
        return frame

    def send(self, **frame):
        self.ws.send(json.dumps(frame))

    def identify(self, **changes):
        frame = {
            "op": "identify",
            "consumer": self.consumer,
            "adapter_id": str(uuid4()),
            "protocol_version": 1,
            "adapter": {"name": "bothy-hermes", "version": "1"},
            "runtime": {"name": "hermes-agent", "version": "1"},
            "max_active_runs": 8,
        }
        self.send(**{**frame, **changes})

    def ready(self):
        assert self.receive()["op"] == "hello"
        self.identify()
        return self.receive()

    def ended(self):
        """Return the frames before the close, and its code."""
        frames = []
        while True:
            try:
                frames.append(self.receive())
            except ConnectionClosed as closed:
                return frames, closed.rcvd.code if closed.rcvd else None


def test_hello_ready_event_ack(tmp_path):
    with served(tmp_path, ack_timeout_ms=300, costs_enabled=False) as server:
        ada = server.people[0]
        thread = server.instance.create_thread(ada.id)
        server.instance.post_message(ada.id, thread.id, "hello")
        socket = Socket(server)
        hello = socket.receive()
        assert (hello["protocol_version"], hello["ack_timeout_ms"], hello["max_in_flight"]) == (1, 300, 64)
        assert hello["settings"] == {
            "run_update_min_interval_ms": 1000,
            "max_content_bytes": 262144,
            "costs_enabled": False,
        }
        socket.identify()
        assert socket.receive() == {"op": "ready", "pending": 1}
        first, again = socket.receive()["event"], socket.receive()["event"]
        assert (first["attempt"], again["attempt"], first["id"]) == (1, 2, again["id"])
        socket.send(op="ack", event_id=again["id"])
        other = server.instance.create_thread(ada.id)
        server.instance.post_message(ada.id, other.id, "hello")
        assert socket.receive()["event"]["payload"]["run"]["thread_id"] == str(other.id)


def test_a_consumer_is_connected_after_its_heartbeat(tmp_path):
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.ready()
        assert not server.connected
        path = f"/agents/{server.agent.id}/heartbeat?consumer=default"
        token = server.agent.token_file.read_text().strip()
        assert call(server, "PUT", path, token, HEARTBEAT).status == 204
        assert server.connected
        socket.close()


@pytest.mark.parametrize(
    ("options", "status", "code", "violations"),
    [
        ({"token": "none"}, 401, "unauthorized", 1),
        ({"token": "old"}, 401, "unauthorized", 0),
        ({"path": "/agents/00000000-0000-4000-8000-000000000001/gateway?consumer=x"}, 404, "not_found", 1),
        ({"consumer": ""}, 422, "validation_failed", 1),
        ({"consumer": "a%20b"}, 422, "validation_failed", 1),
        ({"consumer": "x" * 101}, 422, "validation_failed", 1),
        ({"subprotocols": ["other"]}, 426, "validation_failed", 1),
        ({"subprotocols": None}, 426, "validation_failed", 1),
    ],
)
def test_handshakes_that_are_refused(tmp_path, options, status, code, violations):
    with served(tmp_path, clean=False) as server:
        with pytest.raises(InvalidStatus) as caught:
            Socket(server, **options)
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body).get("code") == code
        assert len(server.violations) == violations


def test_a_gateway_asked_for_without_a_websocket(tmp_path):
    with served(tmp_path, clean=False) as server:
        token = server.agent.token_file.read_text().strip()
        answer = call(server, "GET", f"/agents/{server.agent.id}/gateway?consumer=x", token)
        assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")


@pytest.mark.parametrize("key", ["", "Sec-WebSocket-Key: short\r\n"])
def test_a_handshake_that_is_none(tmp_path, key):
    """Everything else fits, and no WebSocket comes of it: an answer, a violation, and the end."""
    with served(tmp_path, clean=False) as server:
        token = server.agent.token_file.read_text().strip()
        answer = raw(
            server,
            f"GET /api/v1/agents/{server.agent.id}/gateway?consumer=x HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: Bearer {token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: bothy.agent.v1\r\n\r\n".encode(),
        )
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert server.violations == ["gateway: a handshake that opens no WebSocket"]


def test_a_handshake_with_more_than_websockets_reads_is_counted(tmp_path):
    with served(tmp_path, clean=False) as server:
        token = server.agent.token_file.read_text().strip()
        answer = raw(
            server,
            f"GET /api/v1/agents/{server.agent.id}/gateway?consumer=x HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: Bearer {token}\r\nUpgrade: websocket\r\n".encode()
            + b"X: y\r\n" * 200
            + b"Sec-WebSocket-Protocol: bothy.agent.v1\r\n\r\n",
        )
        assert answer == b""
        assert server.violations == ["gateway: a handshake that opens no WebSocket"]


def test_a_fault_of_the_handshake(tmp_path):
    with served(tmp_path) as server:
        server.fault = lambda name, _request: Fault.answer(503) if name == "openGateway" else None
        with pytest.raises(InvalidStatus) as caught:
            Socket(server)
        assert caught.value.response.status_code == 503


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("nonsense", "a frame that is not understood"),
        ("[]", "a frame that is not understood"),
        ('{"op":"dance"}', "a frame that is not understood"),
        ('{"op":"identify"}', "a frame that is not understood"),
        ('{"op":"hello"}', "a frame that is not understood"),
        (b"{}", "a binary frame"),
        ('{"op":"ack","event_id":"00000000-0000-4000-8000-000000000001"}', "an ack before identify"),
    ],
)
def test_a_frame_that_is_not_understood(tmp_path, sent, reason):
    """Goodbye and 4400, and one violation."""
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        assert socket.receive()["op"] == "hello"
        socket.ws.send(sent)
        assert socket.ended() == ([{"op": "goodbye", "code": 4400, "reconnect": False}], 4400)
        assert server.violations == [f"gateway: {reason}"]


@pytest.mark.parametrize(
    ("changes", "code", "violations"),
    [
        ({"consumer": "other"}, 4400, 1),
        ({"protocol_version": 2}, 4426, 0),
        ({"max_active_runs": 0}, 4400, 1),
        ({"consumer": "a b"}, 4400, 1),
    ],
)
def test_an_identify_that_does_not_fit(tmp_path, changes, code, violations):
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        socket.receive()
        socket.identify(**changes)
        frames, closed = socket.ended()
        assert (frames, closed) == ([{"op": "goodbye", "code": code, "reconnect": False}], code)
        assert len(server.violations) == violations


def test_a_second_identify(tmp_path):
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        socket.ready()
        socket.identify()
        assert socket.ended()[1] == 4400
        assert server.violations == ["gateway: a second identify"]


def test_an_ack_of_something_else_changes_nothing(tmp_path):
    """It is counted, and the connection goes on."""
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        socket.ready()
        socket.send(op="ack", event_id=str(uuid4()))
        ada = server.people[0]
        server.instance.post_message(ada.id, server.instance.create_thread(ada.id).id, "hello")
        assert socket.receive()["op"] == "event"
        for _ in range(100):
            if server.violations:
                break
            time.sleep(0.02)
        assert server.violations == ["gateway: an ack of an event that was not delivered"]
        socket.close()


def test_a_frame_over_one_mebibyte(tmp_path):
    with served(tmp_path, clean=False) as server:
        for parts in (["x" * (2**20 + 1)], ["x" * 2**19] * 3):
            socket = Socket(server)
            socket.receive()
            with contextlib.suppress(ConnectionClosed):
                socket.ws.send(iter(parts) if len(parts) > 1 else parts[0])
            assert socket.ended() == ([], 1009)
        assert server.violations == ["gateway: a frame over 1 MiB"] * 2


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x02{}", 1002),
        (b"\xf1\x80abcd", 1002),
        (b"\x83\x80abcd", 1002),
        (b"\x80\x80abcd", 1002),
        (b"\x88\x81abcd1", 1002),
        (b"\x88\x83\x00\x00\x00\x00\x03\xe8\xff", 1007),
    ],
    ids=["unmasked", "reserved bits", "unknown opcode", "nothing to continue", "half a code", "no UTF-8"],
)
def test_bytes_that_are_no_frame_are_counted_once(tmp_path, data, code):
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        socket.receive()
        socket.ws.socket.sendall(data * 3)
        assert socket.ended() == ([], code)
        assert server.violations == ["gateway: bytes that are no frame"]


def test_a_frame_that_breaks_off_is_a_lost_connection(tmp_path):
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.receive()
        socket.ws.socket.sendall(b"\x81\x90abcd")
        socket.ws.socket.shutdown(SHUT_WR)
        socket.ended()


def test_nothing_is_logged_of_what_travels(tmp_path, caplog):
    """At its debug level the library would write header fields and frames, tokens included."""
    with caplog.at_level(logging.DEBUG, "websockets"), served(tmp_path) as server:
        socket = Socket(server, logger=SILENT)
        socket.ready()
        socket.close()
    assert not [one for one in caplog.records if one.name.startswith("websockets")]


def test_a_frame_in_fragments_is_one_frame(tmp_path):
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.receive()
        text = json.dumps(
            {
                "op": "identify",
                "consumer": "default",
                "adapter_id": str(uuid4()),
                "protocol_version": 1,
                "adapter": {"name": "ä", "version": "1"},
                "runtime": {"name": "r", "version": "1"},
                "max_active_runs": 1,
            }
        )
        socket.ws.send(text[at : at + 7] for at in range(0, len(text), 7))
        assert socket.receive()["op"] == "ready"
        socket.close()


def test_a_second_connection_replaces_the_first(tmp_path):
    """The first is told 4409 and may come back; the second gets the events."""
    with served(tmp_path) as server:
        first = Socket(server)
        first.ready()
        second = Socket(server)
        second.ready()
        assert first.ended() == ([{"op": "goodbye", "code": 4409, "reconnect": True}], 4409)
        ada = server.people[0]
        server.instance.post_message(ada.id, server.instance.create_thread(ada.id).id, "hello")
        assert second.receive()["op"] == "event"
        second.close()


def test_another_agent_token_ends_the_connection(tmp_path):
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.ready()
        server.instance.rotate_agent_token()
        assert socket.ended() == ([{"op": "goodbye", "code": 4401, "reconnect": False}], 4401)


def test_a_server_that_stops_says_goodbye(tmp_path):
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.ready()
        stopper = threading.Thread(target=server.stop)
        stopper.start()
        assert socket.ended() == ([{"op": "goodbye", "code": 1012, "reconnect": True}], 1012)
        stopper.join()


def test_a_connection_that_is_cut(tmp_path):
    """No goodbye, no close frame; what was in flight comes again on the next connection."""
    with served(tmp_path) as server:
        socket = Socket(server)
        socket.ready()
        ada = server.people[0]
        server.instance.post_message(ada.id, server.instance.create_thread(ada.id).id, "hello")
        event = socket.receive()["event"]
        server.cut("other")
        server.cut("default")
        assert socket.ended() == ([], None)
        socket = Socket(server)
        assert socket.ready() == {"op": "ready", "pending": 1}
        assert socket.receive()["event"]["id"] == event["id"]
        socket.close()


def test_a_connection_that_does_not_identify_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(local_gateway, "IDENTIFY_SECONDS", 0.05)
    with served(tmp_path, clean=False) as server:
        socket = Socket(server)
        assert [frame["op"] for frame in socket.ended()[0]] == ["hello", "goodbye"]
        assert server.violations == ["gateway: no identify in time"]


def test_consumers_do_not_replace_each_other(tmp_path):
    """Not even one that has opened its connection and not yet identified itself."""
    with served(tmp_path) as server:
        first, second = Socket(server, "first"), Socket(server, "second")
        assert first.ready()["op"] == "ready"
        assert second.ready()["op"] == "ready"
        for socket in (first, second):
            socket.close()


def test_pings_keep_a_living_connection_and_end_a_dead_one(tmp_path, monkeypatch):
    """A half-open connection is noticed by the missing pong, without a close from the other side."""
    monkeypatch.setattr(local_gateway, "IDENTIFY_SECONDS", 1.0)
    monkeypatch.setattr(local_gateway, "PING_SECONDS", 0.4)
    with served(tmp_path) as server:
        living, dead = Socket(server, "living"), Socket(server, "dead")
        for socket in (living, dead):
            socket.ready()
        dead.ws.protocol.send_pong = lambda data: None
        dead.ws.protocol.recv_frame = _deaf(dead.ws.protocol.recv_frame)
        frames, code = dead.ended()
        assert (frames, code) == ([], None)
        for _ in range(100):
            connected = {one.name: one.connected for one in server.instance.consumers()}
            if not connected["dead"]:
                break
            time.sleep(0.02)
        assert connected == {"living": True, "dead": False}
        living.close()


def _deaf(receive):
    def skip_pings(frame):
        if frame.opcode is not Opcode.PING:
            receive(frame)

    return skip_pings


def test_nonces_are_given_at_the_handshake(tmp_path):
    with served(tmp_path, dpop=True, clean=False) as server:
        server.instance.require_nonces()
        with pytest.raises(InvalidStatus) as caught:
            Socket(server)
        assert caught.value.response.status_code == 401
        assert "DPoP-Nonce" in caught.value.response.headers
        assert urlsplit(server.api_url).scheme == "http"


# Whatever bytes come ------------------------------------------------------------------------------

IDENTIFY = {
    "op": "identify",
    "consumer": "default",
    "adapter_id": str(uuid4()),
    "protocol_version": 1,
    "adapter": {"name": "bothy-hermes", "version": "1"},
    "runtime": {"name": "hermes-agent", "version": "1"},
    "max_active_runs": 8,
}


def bytes_of(opcode, data, *, first=0x80, mask=b"abcd", size=None):
    """A frame as a client writes it, or with its first byte, mask or length wrong."""
    size = len(data) if size is None else size
    length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BQ", 0xFF, size)
    hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
    return bytes([first | opcode]) + length + mask + hidden


def odd_frames(draw):
    """What an adapter sends of which more or less is wrong."""
    ack = json.dumps({"op": "ack", "event_id": str(uuid4())}).encode()
    kinds = [
        lambda: bytes_of(Opcode.TEXT, json.dumps(mutant(draw, IDENTIFY)).encode()),
        lambda: bytes_of(Opcode.TEXT, garbled(draw, ack)),
        lambda: bytes_of(Opcode.TEXT, ack) * 3,
        lambda: bytes_of(Opcode.TEXT, WORD.encode()),
        lambda: bytes_of(Opcode.BINARY, ack),
        lambda: bytes_of(Opcode.TEXT, ack, first=0) + bytes_of(Opcode.PING, b"p"),
        lambda: bytes_of(Opcode.CONT, b"x"),
        lambda: bytes_of(Opcode.TEXT, ack, first=0xC0),
        lambda: bytes_of(draw.choice([3, 7, 11, 15]), b"x"),
        lambda: bytes_of(Opcode.PING, b"x" * draw.choice([0, 125, 126])) * 20,
        lambda: bytes_of(Opcode.CLOSE, draw.choice([b"", b"x", b"\x03\xe8", b"\x03\xed", b"\x11\x30\xff"])),
        lambda: bytes_of(Opcode.TEXT, b"", size=draw.choice([2**20 + 1, 2**63])),
        lambda: draw.randbytes(12),
    ]
    first = [bytes_of(Opcode.TEXT, json.dumps(IDENTIFY).encode())] if draw.random() < 0.7 else []
    return b"".join(first + [draw.choice(kinds)() for _ in range(draw.randrange(1, 5))])


def test_whatever_frames_come_cost_their_own_connection_only(tmp_path, caplog):
    """Each connection ends when its client is gone, and nothing that was sent is logged."""
    draw = random.Random(5)
    with served(tmp_path, clean=False) as server:
        parts = urlsplit(server.origin)
        token = server.agent.token_file.read_text().strip()
        opening = (
            f"GET /api/v1/agents/{server.agent.id}/gateway?consumer=default HTTP/1.1\r\nHost: h\r\n"
            f"Authorization: Bearer {token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: bothy.agent.v1\r\n\r\n"
        ).encode()
        for _ in range(60):
            with create_connection((parts.hostname, parts.port), timeout=10) as connection:
                frames = odd_frames(draw)
                with contextlib.suppress(ConnectionError):  # the server may be gone before all is sent
                    connection.sendall(opening + frames)
                with contextlib.suppress(OSError):  # or before this
                    connection.shutdown(SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    assert read_all(connection).startswith(b"HTTP/1.1 101 ")
        assert not [one for one in server.violations if one.startswith("server")]
        socket = Socket(server)
        assert socket.ready()["op"] == "ready"
        socket.close()
    assert WORD not in caplog.text
    assert token not in caplog.text
