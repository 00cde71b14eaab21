"""The port against clients that are slow, silent, wrong or many."""

import asyncio
import gc
import json
import socket
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest

from bothy_hermes import local_sockets
from bothy_hermes.local_agents import Fault
from bothy_hermes.local_http import Response
from bothy_hermes.local_port import LocalServer
from tests.fakes.local_wire import call, raw, read_all

JWKS = b"GET /api/v1/jwks.json HTTP/1.1\r\nHost: h\r\n"
TWICE = "a header that may be there once is there twice"


@contextmanager
def served(tmp_path, *, clean=True):
    server = LocalServer.start(tmp_path / "state")
    try:
        yield server
        if clean:
            assert server.violations == []
    finally:
        server.stop()


def opened(server):
    parts = urlsplit(server.origin)
    return socket.create_connection((parts.hostname, parts.port), timeout=10)


def alive(server):
    """Whether the server answers at once."""
    return call(server, "GET", "/jwks.json").status == 200


def test_requests_on_one_connection(tmp_path):
    """Kept alive until the client asks to close, pipelined ones are answered in order."""
    with served(tmp_path) as server:
        answers = raw(server, JWKS + b"\r\n" + JWKS + b"\r\n" + JWKS + b"Connection: close\r\n\r\n")
        assert answers.count(b"HTTP/1.1 200 OK") == 3
        assert answers.count(b"Connection: close") == 1


def test_a_request_in_small_pieces(tmp_path):
    with served(tmp_path) as server, opened(server) as connection:
        for byte in JWKS + b"Connection: close\r\n\r\n":
            connection.sendall(bytes([byte]))
        assert b"200 OK" in read_all(connection)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (JWKS + b"Transfer-Encoding: chunked\r\n\r\n", 411),
        (JWKS + b"X: " + b"y" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 70_000, 431),
        (b"PUT /api/v1/me HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET /api/v1/../secret HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
    ],
)
def test_bytes_that_are_no_good_request(tmp_path, data, status):
    """One answer with a code and the connection ends; nobody else notices."""
    codes = {404: "not_found", 413: "content_too_long"}
    with served(tmp_path, clean=False) as server:
        answer = raw(server, data)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == codes.get(status, "validation_failed")
        assert not any("server" in one for one in server.violations)
        assert alive(server)


@pytest.mark.parametrize(
    ("data", "counted"),
    [
        (JWKS + b"Transfer-Encoding: chunked\r\n\r\n", ["http: a body without a length"]),
        (JWKS + b"Content-Length: 99999999\r\n\r\n", ["http: a body that is far too long"]),
        (JWKS + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", [f"http: {TWICE}"]),
        (JWKS + b"Content-Length: 5\r\n\r\nabc", []),
        (JWKS, []),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", []),
    ],
)
def test_what_the_adapter_may_not_send_is_counted_before_it_is_a_request(tmp_path, data, counted):
    """What only breaks off was a connection that was lost, and what others send is no violation."""
    with served(tmp_path, clean=False) as server, opened(server) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).startswith(b"HTTP/1.1 4")
        assert server.violations == counted


def test_a_body_that_ends_too_early(tmp_path):
    with served(tmp_path) as server, opened(server) as connection:
        connection.sendall(b"PUT /api/v1/me HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection).startswith(b"HTTP/1.1 400 ")


def test_a_body_over_the_limit_is_read_and_refused(tmp_path):
    """The answer is 413 after the body was read, and the connection goes on."""
    with served(tmp_path, clean=False) as server, opened(server) as connection:
        size = 2**20 + 1
        agent, token = server.agent.id, server.agent.token_file.read_text().strip()
        connection.sendall(
            f"PUT /api/v1/agents/{agent}/heartbeat?consumer=x HTTP/1.1\r\nContent-Length: {size}\r\n"
            f"Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        connection.sendall(b"x" * size)
        connection.sendall(JWKS + b"Connection: close\r\n\r\n")
        answers = read_all(connection)
        assert answers.startswith(b"HTTP/1.1 413 ")
        assert b"content_too_long" in answers
        assert b"HTTP/1.1 200 OK" in answers
        assert server.violations == ["putHeartbeat: the body is too long"]


def test_a_client_may_ask_before_it_sends_a_body(tmp_path):
    with served(tmp_path) as server, opened(server) as connection:
        connection.sendall(
            b"POST /people/v1/threads HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.sendall(b"{}")
        assert b" 403 " in read_all(connection)


def test_head_has_no_body(tmp_path):
    with served(tmp_path) as server:
        answer = raw(server, b"HEAD /elsewhere HTTP/1.1\r\nConnection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"404 Not Found" in head
        assert b"Content-Length: 0" not in head
        assert body == b""


def test_the_page_has_a_head(tmp_path):
    """What looks whether the page is there gets its headers, and not a page that needs a login."""
    with served(tmp_path) as server:
        authority = urlsplit(server.origin).netloc
        line = "{} / HTTP/1.1\r\nHost: " + authority + "\r\nConnection: close\r\n\r\n"
        page, head = (raw(server, line.format(method).encode()) for method in ("GET", "HEAD"))
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert _headers(head) == _headers(page)


def _headers(answer):
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return [line for line in lines if not line.startswith(b"Date: ")]


def test_silent_clients_cost_their_own_connection_only(tmp_path):
    """A hundred half requests stand around while the server answers as quickly as ever."""
    with served(tmp_path) as server:
        silent = [opened(server) for _ in range(100)]
        try:
            for connection in silent:
                connection.sendall(b"GET /api/v1/jwks.json HTT")
            started = time.monotonic()
            for _ in range(10):
                assert alive(server)
            assert time.monotonic() - started < 5
        finally:
            for connection in silent:
                connection.close()


def test_a_silent_client_is_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(local_sockets, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(local_sockets, "BODY_SECONDS", 0.1)
    with served(tmp_path) as server:
        for data in (b"", b"GET / HT", b"PUT /api/v1/me HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"):
            with opened(server) as connection:
                connection.sendall(data)
                with suppress(ConnectionResetError):
                    assert read_all(connection) == b""


def test_too_many_connections(tmp_path, monkeypatch):
    monkeypatch.setattr(local_sockets, "MAX_CONNECTIONS", 3)
    with served(tmp_path) as server:
        held = [opened(server) for _ in range(3)]
        for connection in held:
            connection.sendall(JWKS + b"\r\n")
            assert b"200" in connection.recv(1000)
        with opened(server) as connection:
            assert read_all(connection).startswith(b"HTTP/1.1 503 ")
        for connection in held:
            connection.close()
        for _ in range(100):
            with suppress(OSError):
                if raw(server, JWKS + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 "):
                    return
        pytest.fail("connections that ended still count")


def test_a_client_that_does_not_read_its_answer(tmp_path, monkeypatch):
    """A large file stops at what the socket holds, the client is let go, nobody else waits."""
    monkeypatch.setattr(local_sockets, "SEND_SECONDS", 0.2)
    with served(tmp_path) as server:
        ada = server.people[0]
        thread = server.instance.create_thread(ada.id)
        file = server.instance.add_file(ada.id, thread.id, "a", "text/plain", b"x" * 30_000_000)
        posted = server.instance.post_message(ada.id, thread.id, "hi", file_ids=[file.id])
        run = server.instance.state.runs.need(posted.run_id)
        token = server.instance.payloads.mint(run, ada.id).reveal()
        with opened(server) as connection:
            connection.sendall(
                f"GET /api/v1/files/{file.id} HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert alive(server)
            _wait_until(lambda: server._sockets._tasks == set())
            # By its type: a weak proxy that somebody left would be asked for its class, and raise.
            transports = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Transport)]
            assert not any(one.get_write_buffer_size() for one in transports)
            got = 0
            with suppress(ConnectionResetError):
                while chunk := connection.recv(65536):
                    got += len(chunk)
            assert got < 30_000_000
        whole = call(server, "GET", f"/files/{file.id}", token)
        assert (whole.status, len(whole.body)) == (200, 30_000_000)


def _wait_until(true):
    for _ in range(250):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("it did not come true")


def test_a_stream_ends_when_its_reader_is_gone(tmp_path, monkeypatch):
    """Also while there is nothing to send."""
    closed = []

    async def forever():
        try:
            yield b"first"
            await asyncio.sleep(60)
        finally:
            closed.append(True)

    with served(tmp_path) as server:
        answer = Response(200, stream=forever())
        monkeypatch.setattr(server._sockets._people, "answer", lambda _request: answer)
        with opened(server) as connection:
            connection.sendall(b"GET /people/v1/events HTTP/1.1\r\n\r\n")
            while b"first" not in connection.recv(1000):
                pass
        _wait_until(lambda: closed)


def test_a_lost_answer_closes_the_connection(tmp_path):
    with served(tmp_path) as server:
        server.fault = lambda _name, _request: Fault.LOSE_AFTER
        with suppress(ConnectionResetError):
            assert raw(server, JWKS + b"\r\n") == b""


def test_a_slow_call_makes_nobody_wait(tmp_path):
    with served(tmp_path) as server, opened(server) as slow:
        server.fault = lambda name, _request: Fault.delay(1.5) if name == "getMe" else None
        slow.sendall(b"GET /api/v1/me HTTP/1.1\r\nConnection: close\r\n\r\n")
        started = time.monotonic()
        assert alive(server)
        assert time.monotonic() - started < 1.2
        server.fault = None


def test_stopping_waits_for_answers_and_for_nothing_else(tmp_path):
    """Idle connections and streams end at once; a call under way is answered."""
    with served(tmp_path) as server:
        token = server.people[0].token
        with opened(server) as idle, opened(server) as stream, opened(server) as slow:
            idle.sendall(JWKS + b"\r\n")
            assert b"200" in idle.recv(1000)
            stream.sendall(
                f"GET /people/v1/events?since={server.instance.changes.latest} HTTP/1.1\r\n"
                f"Host: {urlsplit(server.origin).netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert b"200" in stream.recv(1000)
            server.fault = lambda _name, _request: Fault.delay(0.2)
            slow.sendall(JWKS + b"\r\n")
            time.sleep(0.1)
            started = time.monotonic()
            server.stop()
            assert time.monotonic() - started < 3
            assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_what_is_elsewhere(tmp_path):
    with served(tmp_path) as server:
        assert call(server, "GET", "/", base="").status == 200
        assert call(server, "GET", "/elsewhere", base="").status == 404
        assert call(server, "GET", "/people/v1/me", base="").status == 401
        token = server.people[0].token
        assert call(server, "GET", "/people/v1/me", token, base="").json["name"] == "Ada"


def test_a_failure_of_the_peoples_side_is_an_answer(tmp_path, monkeypatch):
    with served(tmp_path, clean=False) as server:
        monkeypatch.setattr(server._sockets._people, "answer", lambda _request: 1 / 0)
        assert call(server, "GET", "/people/v1/me", base="").status == 500
        assert server.violations == ["server: people failed (ZeroDivisionError)"]


def test_uploads_may_be_large(tmp_path):
    """Only there: sixteen mebibytes of a file, one of anything else."""
    with served(tmp_path) as server:
        ada = server.people[0]
        thread = server.instance.create_thread(ada.id)
        path = f"/people/v1/admin/threads/{thread.id}/files?name=a.bin"
        answer = call(
            server, "POST", path, ada.token, b"x" * 3_000_000, base="", Content_Type="application/x-a"
        )
        assert (answer.status, answer.json["size_bytes"]) == (201, 3_000_000)
        answer = call(server, "POST", "/people/v1/threads", ada.token, b"x" * 3_000_000, base="")
        assert (answer.status, json.loads(answer.body)["code"]) == (413, "content_too_long")
