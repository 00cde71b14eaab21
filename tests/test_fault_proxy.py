"""The fault proxy passes everything on as it is, and breaks exactly what a test asks for."""

import contextlib
import http.client
import json
import time
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from tests.fakes import faults
from tests.fakes.agent import FakeAgent
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.judged import Judge


@pytest.fixture
def proxy():
    with FaultProxy(Judge()) as made:
        yield made


@pytest.fixture
def server(tmp_path, proxy):
    made = LocalServer.start(tmp_path / "server", options=ServerOptions(public_url=proxy.url))
    proxy.aim(urlsplit(made.origin).port)
    yield made
    made.stop()


@pytest.fixture
def client(proxy):
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=20)
    with contextlib.closing(connection):
        yield connection


def get(client, server, path="/me"):
    """Ask the server something through the proxy."""
    token = server.agent.token_file.read_text("utf-8").strip()
    client.request("GET", urlsplit(server.api_url).path + path, headers={"Authorization": f"Bearer {token}"})
    found = client.getresponse()
    return found.status, found.headers, found.read()


def say(server, text="hello"):
    ada = server.people[0].id
    return server.instance.post_message(ada, server.instance.create_thread(ada).id, text).run_id


def test_without_faults_everything_passes_as_it_is(server, proxy, client):
    for _ in range(2):
        status, _, body = get(client, server)
        assert (status, json.loads(body)["id"]) == (200, str(server.agent.id))
    with FakeAgent(server) as agent:
        run_id = say(server)
        run = agent.take()
        run.say("here")
        run.finish()
    assert str(server.instance.run(run_id).run.state) == "completed"
    assert [one.operation for one in proxy.passed] == [
        "getMe",
        "getMe",
        "openGateway",
        "putHeartbeat",
        "startRun",
        "createMessage",
        "finishRun",
    ]
    assert [one.status for one in proxy.passed] == [200, 200, 101, 204, 200, 201, 200]
    assert proxy.frames == [
        ("server", "hello"),
        ("adapter", "identify"),
        ("server", "ready"),
        ("server", "event"),
        ("adapter", "ack"),
    ]
    assert server.violations == []


def test_the_judge_sees_what_both_sides_said(server, proxy, client):
    proxy.on("getMe", faults.page())
    get(client, server)
    get(client, server)
    judge = proxy._judge
    assert judge.found == []
    assert judge.seen == 2, "the answer of a fault is nobody's"
    with FakeAgent(server):
        pass
    assert judge.found == []
    assert judge.seen > 5


BROKEN = {
    "reset": (faults.reset(), ConnectionResetError),
    "reset after": (faults.reset().after, ConnectionResetError),
    "hang up": (faults.hang_up(), http.client.RemoteDisconnected),
    "hang up after": (faults.hang_up().after, http.client.RemoteDisconnected),
    "stall": (faults.stall(), TimeoutError),
    "stall after": (faults.stall().after, TimeoutError),
    "short stall": (faults.stall(0.05), http.client.RemoteDisconnected),
    "cut": (faults.cut(), http.client.IncompleteRead),
}


@pytest.mark.parametrize(("fault", "error"), BROKEN.values(), ids=BROKEN)
def test_a_call_without_an_answer(server, proxy, client, fault, error):
    """The client sees what a network would show it; the next call on a new connection is fine."""
    client.timeout = 0.3
    proxy.on("getMe", fault)
    with pytest.raises(error):
        get(client, server)
    client.close()
    assert get(client, server)[0] == 200
    assert [one.fault for one in proxy.passed] == [fault.name, None]
    assert proxy.passed[0].status == (200 if fault.acted else None)
    assert proxy.unused == []


def test_an_answer_that_breaks_off_in_its_head_looks_like_an_empty_one(server, proxy, client):
    """To this client: whoever uses it has to know."""
    proxy.on("getMe", faults.cut_head())
    status, headers, body = get(client, server)
    assert (status, headers["Content-Length"], body) == (200, None, b"")


ANSWERED = {
    "401": (faults.answer(401, "unauthorized"), 401, "application/problem+json"),
    "429": (faults.answer(429, "rate_limited", retry_after=7), 429, "application/problem+json"),
    "503 after": (faults.answer(503).after, 503, "application/problem+json"),
    "page": (faults.page(), 502, "text/html"),
    "untyped page": (faults.page(504, None), 504, None),
    "page that looks well": (faults.page(200), 200, "text/html"),
    "retyped": (faults.retyped("text/plain"), 200, "text/plain"),
    "slow": (faults.slow(0.1), 200, "application/json"),
    "trickle": (faults.trickle(0.1), 200, "application/json"),
}


@pytest.mark.parametrize(("fault", "status", "media_type"), ANSWERED.values(), ids=ANSWERED)
def test_a_call_with_another_answer(server, proxy, client, fault, *, status, media_type):
    """It keeps the connection, and only the server's own calls count as asked."""
    proxy.on("getMe", fault)
    began = time.monotonic()
    got, headers, _ = get(client, server)
    assert (got, headers["Content-Type"]) == (status, media_type)
    assert headers["Retry-After"] == ("7" if status == 429 else None)
    if fault.name in {"slow", "trickle"}:
        assert time.monotonic() - began >= 0.09
    assert get(client, server)[0] == 200
    assert proxy.passed[0].status == (200 if fault.acted else None)


def test_faults_are_used_in_their_order_and_once(server, proxy, client):
    proxy.on("getMe", faults.answer(503), faults.answer(500))
    proxy.on("getJwks", faults.answer(429), times=2)
    assert [get(client, server)[0] for _ in range(3)] == [503, 500, 200]
    assert proxy.unused == [("getJwks", 2)]
    assert [get(client, server, "/jwks.json")[0] for _ in range(3)] == [429, 429, 200]


def test_an_operation_that_is_none_is_a_mistake_of_the_test(proxy):
    with pytest.raises(AssertionError):
        proxy.on("getmeat", faults.reset())


def test_a_refused_handshake(server, proxy):
    proxy.on("openGateway", faults.answer(401, "unauthorized"))
    with pytest.raises(InvalidStatus) as caught, FakeAgent(server):
        pass
    assert caught.value.response.status_code == 401


def test_a_doubled_frame_comes_twice(server, proxy):
    proxy.on_frame("ready", faults.doubled())
    with FakeAgent(server) as agent:
        assert agent._receive()["op"] == "ready"


def test_a_doubled_ack_is_no_violation(server, proxy):
    proxy.on_frame("ack", faults.doubled())
    with FakeAgent(server) as agent:
        say(server)
        agent.take().finish()
    assert server.violations == []


def test_a_dropped_and_a_late_frame(server, proxy):
    proxy.on_frame("event", faults.dropped(), faults.late(0.1))
    with FakeAgent(server) as agent:
        say(server, "lost")
        say(server, "late")
        event = agent.event("agent.invocation")
        assert event["payload"]["content_excerpt"] == "late"


def test_a_garbled_frame_is_a_whole_frame_of_half_a_text(server, proxy):
    proxy.on_frame("event", faults.garbled())
    with FakeAgent(server) as agent:
        say(server)
        text = agent._socket.recv(timeout=20)
        assert text.startswith("{")
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            json.loads(text)


@pytest.mark.parametrize("fault", [faults.truncated(), faults.torn()], ids=lambda one: one.name)
def test_a_torn_connection_brings_nothing(server, proxy, fault):
    proxy.on_frame("event", fault)
    with FakeAgent(server) as agent:
        say(server)
        with pytest.raises((ConnectionClosed, ConnectionError)):
            agent._socket.recv(timeout=20)


def test_a_frame_can_come_before_the_connection_tears(server, proxy):
    proxy.on_frame("event", faults.passed_and_torn())
    with FakeAgent(server) as agent:
        say(server)
        assert agent._receive()["op"] == "event"
        with pytest.raises((ConnectionClosed, ConnectionError)):
            agent._socket.recv(timeout=20)


def test_a_silence_ends_nothing_and_lets_nothing_through(server, proxy, client):
    """Open connections stay half-open for good; new ones work once it is over."""
    client.timeout = 0.2
    with FakeAgent(server) as agent:
        proxy.silence()
        say(server)
        with pytest.raises(TimeoutError):
            agent._socket.recv(timeout=0.2)
        with pytest.raises(TimeoutError):
            get(client, server)
        proxy.heal()
        with pytest.raises(TimeoutError):
            agent._socket.recv(timeout=0.2)
        client.close()
        assert get(client, server)[0] == 200
        proxy.tear()
        with pytest.raises((ConnectionClosed, ConnectionError)):
            agent._socket.recv(timeout=20)


def test_a_server_that_is_not_there_is_a_reset(proxy, client, server):
    server.stop()
    with pytest.raises((ConnectionResetError, http.client.RemoteDisconnected)):
        get(client, server)
