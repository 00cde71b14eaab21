"""Connections are made by the configuration alone, and kept only while they are good for one more use."""

import socket
import threading

import pytest

from bothy_hermes.bothy_connections import MAX_IDLE_SECONDS, tls_context
from bothy_hermes.errors import ConfigError
from tests.fakes.certificate import certificate
from tests.fakes.exchange_kit import Client, peer_and_client
from tests.fakes.http_peer import HttpPeer, answer, tunnel


def test_a_connection_is_used_again():
    """Three requests, one connection."""
    with peer_and_client() as (peer, client):
        for _ in range(3):
            assert client.ask().status == 200
        assert peer.connections == 1
        assert client.pool.idle == 1


def test_the_connection_used_last_is_taken_first():
    """So the others can grow old and be dropped; more than the limit are not kept."""
    with peer_and_client() as (peer, client):
        both = threading.Barrier(3)
        peer.routes["/both"] = lambda _: (both.wait(2), answer())[1]
        threads = [threading.Thread(target=client.ask, args=("/both",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (peer.connections, client.pool.idle) == (3, 2)
        for _ in range(4):
            client.ask()
        assert len({request.connection for request in peer.arrived[-4:]}) == 1


def test_a_connection_that_idled_too_long_is_not_used():
    """The server may be about to close it."""
    with peer_and_client() as (peer, client):
        client.ask()
        client.fake.move(MAX_IDLE_SECONDS)
        client.ask()
        assert peer.connections == 1
        client.fake.move(MAX_IDLE_SECONDS + 0.1)
        client.ask()
        assert peer.connections == 2


def test_a_connection_that_the_server_closed_is_noticed():
    """Its end is there to be read before the request is sent."""
    with peer_and_client() as (peer, client):
        client.ask()
        peer.hang_up()
        client.wait_for_bytes()
        assert client.ask().status == 200
        assert peer.connections == 2


def test_an_answer_to_nothing_is_never_read_as_the_next_one():
    """Bytes that came too many make the connection useless, whenever they come."""
    with peer_and_client() as (peer, client):
        peer.routes["/at-once"] = lambda _: answer(b"1") + answer(b"too many")
        assert client.ask("/at-once").body == b"1"
        assert client.ask().body == b"{}"
        client.ask("/late")
        peer.arrived[-1].send(answer(b"too many"))
        client.wait_for_bytes()
        assert client.ask().body == b"{}"
        assert peer.connections == 2


def test_an_answer_to_nothing_is_found_within_tls_too(tmp_path):
    """Bytes that the TLS layer holds already do not show on the socket."""
    file, context = certificate(tmp_path)
    with peer_and_client(context, ca_file=file) as (peer, client):
        peer.routes["/twice"] = lambda _: answer(b"1") + answer(b"x" * 12_000)
        assert client.ask("/twice").body == b"1"
        assert client.ask().body == b"{}"
        assert peer.connections == 2


def test_a_trusted_certificate_connects(tmp_path):
    """With the certificates of `ca_file` and nothing else."""
    file, context = certificate(tmp_path)
    with peer_and_client(context, ca_file=file) as (peer, client):
        assert [client.ask().status for _ in range(2)] == [200, 200]
        assert peer.connections == 1


def test_an_unknown_certificate_is_refused(tmp_path):
    """Without `ca_file` the system's certificates count, and this one is not among them."""
    _, context = certificate(tmp_path)
    with peer_and_client(context) as (peer, client):
        assert client.fails() == ("tls", False)
        assert peer.arrived == []


def test_a_certificate_of_another_name_is_refused(tmp_path):
    """Trusted, but not for this host."""
    file, context = certificate(tmp_path, "other.example.com")
    with peer_and_client(context, ca_file=file) as (peer, client):
        assert client.fails() == ("tls", False)
        assert peer.arrived == []


def test_a_server_without_tls_is_refused():
    """No falling back to a plain connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(65536)

        thread = threading.Thread(target=refuse)
        thread.start()
        assert Client(f"https://localhost:{listener.getsockname()[1]}").fails() == ("tls", False)
        thread.join()


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_an_unusable_ca_file_names_its_key(tmp_path, content):
    """Missing, empty, something else."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        tls_context(file)
    assert caught.value.key == "hermes_adapter.ca_file"


def test_a_proxy_is_asked_for_a_tunnel(tmp_path):
    """With its own credentials, which the server never sees; the server's TLS goes through."""
    file, context = certificate(tmp_path)
    with HttpPeer() as proxy, HttpPeer(context) as peer:
        proxy.routes[f"localhost:{peer.port}"] = tunnel(peer.port)
        address = proxy.url.replace("http://", "http://me:p%40ss@")
        client = Client(peer.url, ca_file=file, proxy=address)
        assert client.ask(headers={"Authorization": "Bearer x"}).status == 200
        (connect,) = proxy.arrived
        assert (connect.method, connect.target) == ("CONNECT", f"localhost:{peer.port}")
        assert connect.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert "authorization" not in connect.headers
        assert "proxy-authorization" not in peer.arrived[0].headers
        client.pool.close()


def test_a_proxy_that_refuses_is_no_connection():
    """407 from the proxy sent nothing to the server."""
    with HttpPeer() as proxy, HttpPeer() as peer:
        proxy.routes[f"localhost:{peer.port}"] = lambda _: answer(b"", "407 Who are you")
        assert Client(peer.url, proxy=proxy.url).fails() == ("connect", False)
        assert peer.arrived == []


def test_decision_2_the_environment_names_no_proxy(monkeypatch):
    """Only the configuration does."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with peer_and_client() as (_, client):
        assert client.ask().status == 200


def test_a_closed_pool_keeps_nothing():
    """What comes back after the end is closed."""
    with peer_and_client() as (_, client):
        client.ask()
        client.pool.close()
        assert client.pool.idle == 0
        client.ask()
        assert client.pool.idle == 0
