"""The server as a whole: start, stop, restart, time, and a run over real sockets."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bothy_hermes.errors import StateError, StateLocked
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from tests.fakes.clock import FakeClock
from tests.fakes.local_wire import call


def test_how_to_get_in(tmp_path):
    server = LocalServer.start(tmp_path / "state")
    try:
        assert server.api_url == f"{server.origin}/api/v1"
        assert server.page_url == f"{server.origin}/"
        assert [(one.name, one.role) for one in server.people] == [("Ada", "owner"), ("Ben", "member")]
        ada = server.people[0]
        assert ada.login_url == f"{server.page_url}#token={ada.token}"
        assert ada.token not in repr(ada)
        assert server.agent.token_file == tmp_path / "state" / "agent.token"
        assert server.agent.dpop_key_file is None
        token = server.agent.token_file.read_text().strip()
        assert call(server, "GET", "/me", token).json["id"] == str(server.agent.id)
    finally:
        server.stop()
        server.stop()


def test_a_restart_continues(tmp_path):
    """Same instance, people, tokens, threads, keys, on the same port if asked."""
    server = LocalServer.start(tmp_path)
    before = (server.instance_id, server.agent, server.people, server.api_url)
    ada = server.people[0]
    thread = server.instance.create_thread(ada.id, title="Kept")
    posted = server.instance.post_message(ada.id, thread.id, "hello")
    keys = call(server, "GET", "/jwks.json").json
    port = int(server.origin.rpartition(":")[2])
    server.stop()
    server = LocalServer.start(tmp_path, port=port)
    try:
        assert (server.instance_id, server.agent, server.people, server.api_url) == before
        assert server.instance.threads()[0].title == "Kept"
        assert server.instance.messages(thread.id) == (posted.message,)
        assert server.instance.run(posted.run_id).run.state == "queued"
        assert call(server, "GET", "/jwks.json").json == keys
    finally:
        server.stop()


def test_a_stop_leaves_no_connection_behind(tmp_path):
    """Not even one that was accepted in the last moment: whoever is on it would wait for ever."""
    for _ in range(15):
        server = LocalServer.start(tmp_path)
        address = ("127.0.0.1", int(server.origin.rpartition(":")[2]))
        clients = [socket.create_connection(address) for _ in range(4)]
        server.stop()
        for client in clients:
            client.settimeout(5)
            with client, contextlib.suppress(ConnectionError):
                assert client.recv(1) == b""


def test_a_second_server_on_the_directory_is_refused(tmp_path):
    server = LocalServer.start(tmp_path / "state")
    try:
        with pytest.raises(StateLocked, match="another server"):
            LocalServer.start(tmp_path / "state")
        code = (
            f"from bothy_hermes.local_port import LocalServer; LocalServer.start({str(tmp_path / 'state')!r})"
        )
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        other = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert "StateLocked: state: another server uses this state directory" in other.stderr
    finally:
        server.stop()


def test_a_port_that_is_taken_is_named_and_nothing_stays_open(tmp_path):
    server = LocalServer.start(tmp_path / "one")
    try:
        port = int(server.origin.rpartition(":")[2])
        sentence = rf"^127\.0\.0\.1:{port}: cannot be listened on \(Address already in use\)$"
        with pytest.raises(StateError, match=sentence):
            LocalServer.start(tmp_path / "two", port=port)
        LocalServer.start(tmp_path / "two").stop()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 99_999), ("256.0.0.1", 0), ("chat..example", 0), ("x" * 64, 0), ("\udcff", 0)],
    ids=["port", "number", "empty part", "long part", "no text"],
)
def test_an_address_that_is_none_is_named(tmp_path, host, port):
    with pytest.raises(StateError, match=rf"^{host}:{port}: cannot be listened on"):
        LocalServer.start(tmp_path, host=host, port=port)
    LocalServer.start(tmp_path).stop()


def test_a_broken_directory_leaves_nothing_locked(tmp_path):
    server = LocalServer.start(tmp_path)
    server.stop()
    (tmp_path / "agent.token").unlink()
    (tmp_path / "agent.token").mkdir()
    with pytest.raises(StateError, match=r"^agent\.token"):
        LocalServer.start(tmp_path)
    (tmp_path / "agent.token").rmdir()
    LocalServer.start(tmp_path).stop()


def test_time_is_the_clocks(tmp_path):
    """A test moves a clock and has what is due done at once; the `Date` follows it."""
    clock = FakeClock()
    server = LocalServer.start(tmp_path, clock=clock.clock)
    try:
        ada = server.people[0]
        posted = server.instance.post_message(ada.id, server.instance.create_thread(ada.id).id, "hello")
        clock.move(86_401)
        server.tick()
        assert server.instance.run(posted.run_id).run.reason == "expired"
        assert call(server, "GET", "/jwks.json").headers["date"] == "Tue, 01 Dec 2026 12:00:01 GMT"
    finally:
        server.stop()


def test_what_is_due_is_done_without_being_asked(tmp_path):
    clock = FakeClock()
    server = LocalServer.start(tmp_path, clock=clock.clock)
    try:
        ada = server.people[0]
        posted = server.instance.post_message(ada.id, server.instance.create_thread(ada.id).id, "hello")
        clock.move(86_401)
        for _ in range(200):
            if server.instance.run(posted.run_id).run.state.ended:
                return
            time.sleep(0.02)
        pytest.fail("nothing was done")
    finally:
        server.stop()


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_the_address_this_machine_reaches_it_under(tmp_path, host, shown):
    server = LocalServer.start(tmp_path, host=host)
    try:
        assert server.origin.startswith(f"http://{shown}:")
        assert call(server, "GET", "/jwks.json").status == 200
    finally:
        server.stop()


def test_every_address_of_the_newer_kind_is_reached_by_one_of_that_kind(tmp_path):
    """What listens on `::` hears nothing that is sent to 127.0.0.1."""
    try:
        server = LocalServer.start(tmp_path, host="::")
    except StateError:
        pytest.skip("this machine has no IPv6")
    try:
        assert server.origin.startswith("http://[::1]:")
        assert call(server, "GET", "/jwks.json").status == 200
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["https://chat.example.com/bothy/api/v1", "http://127.0.0.1:9/api/v1"])
def test_a_proxy_that_passes_only_the_agent_api_leaves_the_page_where_it_is(tmp_path, url):
    """Below a path of its own the page would not find its server, and without TLS nobody is far away."""
    server = LocalServer.start(tmp_path, options=ServerOptions(public_url=url))
    try:
        assert (server.api_url, server.page_url) == (url, f"{server.origin}/")
    finally:
        server.stop()


def test_a_public_url_is_what_adapters_use(tmp_path):
    """Proofs are made for it, and the page works under its name: people get links to it."""
    options = ServerOptions(public_url="https://chat.example.com/api/v1")
    server = LocalServer.start(tmp_path, options=options)
    try:
        assert server.api_url == "https://chat.example.com/api/v1"
        assert server.page_url == "https://chat.example.com/"
        ada = server.people[0]
        assert ada.login_url == f"https://chat.example.com/#token={ada.token}"
        for origin, status in (("https://chat.example.com", 201), ("http://chat.example.com", 403)):
            sent = {"Host": "chat.example.com", "Origin": origin}
            answer = call(server, "POST", "/threads", ada.token, {}, base="/people/v1", **sent)
            assert answer.status == status
        assert call(server, "GET", "/", base="", Host="chat.example.com").status == 200
        assert call(server, "GET", "/", base="", Host="evil.example.com").status == 403
    finally:
        server.stop()
