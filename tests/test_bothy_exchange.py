"""An answer is read whole or not at all, and every fault of an exchange has its word."""

import contextlib
import random
import socket
import threading

import pytest

from bothy_hermes.bothy_exchange import Request, join_fields
from bothy_hermes.errors import TransportError
from tests.fakes.certificate import certificate
from tests.fakes.exchange_kit import Client, peer_and_client
from tests.fakes.http_peer import HangUp, answer


def test_an_answer_comes_whole():
    """Status, header fields by lower-case names, body; the request as it was given."""
    with peer_and_client() as (peer, client):
        peer.routes["/a"] = lambda _: answer(b"body", "207 Odd", X_One="1", ETag='"2"')
        response = client.ask("/a", method="PUT", headers={"X-Two": "2"}, body=b"data")
        assert (response.status, response.body) == (207, b"body")
        assert response.headers["x-one"] == "1"
        assert response.headers["etag"] == '"2"'
        (arrived,) = peer.arrived
        assert (arrived.method, arrived.body, arrived.headers["x-two"]) == ("PUT", b"data", "2")
        assert arrived.headers["accept-encoding"] == "identity"


def hang_up(_):
    raise HangUp


def test_a_reused_connection_that_dies_is_called_stale():
    """The server closed it just when the request was under way; on a new one it is a reset."""
    with peer_and_client() as (peer, client):
        peer.routes["/die"] = hang_up
        assert client.fails("/die") == ("reset", True)
        client.ask()
        assert client.fails("/die") == ("stale", True)
        assert client.pool.idle == 0
        client.ask()
        assert client.fails("/die", method="POST", body=b"x" * 1000) == ("stale", True)


def test_a_death_within_the_answer_is_a_reset():
    """Once a byte came, the server has acted, on a reused connection too."""
    with peer_and_client() as (peer, client):

        def half(arrived):
            arrived.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            raise HangUp

        peer.routes["/half"] = half
        client.ask()
        assert client.fails("/half") == ("reset", True)
        assert client.pool.idle == 0


@pytest.mark.parametrize("sent", [10, 17, 20, 40], ids=["status", "no fields", "name", "field"])
def test_a_death_within_the_head_is_a_reset(sent):
    """What came of it is a well-formed answer without a body, and means nothing."""
    with peer_and_client() as (peer, client):

        def half(arrived):
            arrived.send(b"HTTP/1.1 200 OK\r\nDate: today\r\nServer: x\r\n"[:sent])
            raise HangUp

        peer.routes["/half"] = half
        client.ask()
        cause, acted = client.fails("/half")
        assert cause in {"reset", "malformed"}
        assert acted
        assert client.pool.idle == 0


def test_a_body_that_ends_with_its_connection_is_an_answer():
    """Somebody who states no length closes instead."""
    with peer_and_client() as (peer, client):

        def old(arrived):
            arrived.send(b"HTTP/1.1 200 OK\r\n\r\nwhole")
            raise HangUp

        peer.routes["/old"] = old
        assert client.ask("/old").body == b"whole"


def test_a_cut_chunked_body_is_a_reset():
    """The last chunk is what tells the end."""
    with peer_and_client() as (peer, client):

        def cut(arrived):
            arrived.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
            raise HangUp

        peer.routes["/cut"] = cut
        assert client.fails("/cut") == ("reset", True)


def test_a_chunk_of_less_than_nothing_is_no_answer():
    """The library lets an error of its own out that is none of HTTP."""
    with peer_and_client() as (peer, client):
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        peer.routes["/below"] = lambda _: head + b"-5\r\nhello\r\n0\r\n\r\n"
        assert client.fails("/below") == ("malformed", True)
        assert client.ask("/well").body == b"{}"


def test_a_whole_chunked_body_keeps_the_connection():
    """Read to its last chunk."""
    with peer_and_client() as (peer, client):
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfull\r\n0\r\n\r\n"
        peer.routes["/chunked"] = lambda _: chunked
        assert [client.ask("/chunked").body for _ in range(2)] == [b"full", b"full"]
        assert peer.connections == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 T", "308 P", "300 Many"])
def test_redirects_are_errors(status):
    """Nothing is followed, and what was asked may have been done."""
    with peer_and_client() as (peer, client):
        peer.routes["/"] = lambda _: answer(b"", status, Location="/elsewhere")
        assert client.fails() == ("redirect", True)
        assert peer.targets() == ["/"]
        assert client.pool.idle == 0


def test_not_modified_is_an_answer():
    """304 answers a question with `If-None-Match`."""
    with peer_and_client() as (peer, client):
        peer.routes["/"] = lambda _: b"HTTP/1.1 304 Not Modified\r\n\r\n"
        assert [client.ask().status for _ in range(2)] == [304, 304]
        assert peer.connections == 1


def test_continue_is_skipped_and_other_early_answers_are_errors():
    """A hint that surfaces as the final status is none."""
    with peer_and_client() as (peer, client):
        peer.routes["/100"] = lambda _: b"HTTP/1.1 100 Continue\r\n\r\n" + answer()
        peer.routes["/103"] = lambda _: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer()
        peer.routes["/101"] = lambda _: b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
        assert client.ask("/100").status == 200
        assert client.fails("/103") == ("malformed", True)
        assert client.fails("/101") == ("malformed", True)
        assert client.pool.idle == 0


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 9999 Much\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["other", "status", "number", "line", "lines", "chunk"],
)
def test_what_is_no_http_is_no_answer(data):
    """Another protocol, an impossible status, endless fields, a broken chunk."""
    with peer_and_client() as (peer, client):

        def odd(arrived):
            arrived.send(data)
            raise HangUp

        peer.routes["/"] = odd
        cause, sent = client.fails()
        assert cause in {"malformed", "reset"}
        assert sent


def test_a_body_over_the_limit_is_refused_before_it_is_read():
    """By its declared length, or once more than the limit came."""
    with peer_and_client() as (peer, client):
        peer.routes["/declared"] = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"
        peer.routes["/chunked"] = lambda _: (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n"
        )
        assert client.fails("/declared", max_answer_bytes=1000) == ("too_large", True)
        assert client.fails("/chunked", max_answer_bytes=1000) == ("too_large", True)
        peer.routes["/exact"] = lambda _: answer(b"x" * 1000)
        assert len(client.ask("/exact", max_answer_bytes=1000).body) == 1000
        assert client.pool.idle == 1


def test_a_beginning_can_be_all_that_is_wanted():
    """The rest is not read, and its connection is not used again."""
    with peer_and_client() as (peer, client):
        peer.routes["/big"] = lambda _: answer(b"x" * 50_000)
        assert len(client.ask("/big", max_answer_bytes=10, cut_answer=True).body) == 10
        assert client.pool.idle == 0
        peer.routes["/small"] = lambda _: answer(b"12345")
        assert client.ask("/small", max_answer_bytes=10, cut_answer=True).body == b"12345"
        assert client.pool.idle == 1


def test_a_refusal_before_the_body_was_read_is_heard():
    """A server that stops reading and answers 413 is not taken for a broken line."""
    with peer_and_client() as (peer, client):

        def refuse(arrived):
            arrived.send(answer(b"too long", "413 Content Too Large", Connection="close"))
            raise HangUp

        peer.routes["/"] = refuse
        response = client.ask(method="POST", headers={"X-Peer": "do-not-read"}, body=b"x" * 8_000_000)
        assert (response.status, response.body) == (413, b"too long")
        assert client.pool.idle == 0


def test_silence_is_a_timeout():
    """Of one read; the total is the transport's business."""
    with peer_and_client() as (peer, client):
        peer.routes["/"] = lambda arrived: arrived.hold()
        assert client.fails(timeout=0.05) == ("timeout", True)
        assert client.pool.idle == 0


def test_nobody_there_is_known_not_to_have_acted():
    """A refused connection sent nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert Client(f"http://127.0.0.1:{port}").fails() == ("connect", False)


def test_an_abandoned_exchange_sends_nothing_any_more():
    """Given up before it began, it never takes a connection."""
    with peer_and_client() as (peer, client):
        exchange = client.exchange()
        exchange.abandon()
        with pytest.raises(TransportError) as caught:
            exchange.run()
        assert (caught.value.cause, caught.value.sent) == ("closed", False)
        assert peer.connections == 0


def test_abandoned_while_connecting_it_sends_nothing():
    """There is no socket to shut down yet; the thread finds out before its first byte."""
    with peer_and_client() as (peer, client):
        exchange = client.exchange()
        connection = client.pool.take()[0]
        connect = connection.connect
        connection.connect = lambda: (connect(), exchange.abandon())
        client.pool.take = lambda: (connection, False)
        with pytest.raises(TransportError) as caught:
            exchange.run()
        assert (caught.value.cause, caught.value.sent) == ("closed", False)
        assert connection.sock is None
        assert peer.arrived == []


def test_abandoned_at_the_last_moment_it_keeps_nothing():
    """The answer is whole, but its connection was shut down in the same moment."""
    with peer_and_client() as (_, client):
        exchange = client.exchange()
        read = exchange._read
        exchange._read = lambda answered: (read(answered), exchange.abandon())[0]
        assert exchange.run().status == 200
        assert client.pool.idle == 0


def test_abandoning_twice_or_late_is_harmless():
    """After the answer the connection belongs to the pool again."""
    with peer_and_client() as (peer, client):
        exchange = client.exchange()
        exchange.run()
        exchange.abandon()
        exchange.abandon()
        assert client.ask().status == 200
        assert peer.connections == 1


def test_repeated_fields_are_joined():
    """As HTTP allows it for every field that is a list."""
    assert join_fields([("A", "1"), ("b", "2"), ("a", "3")]) == {"a": "1, 3", "b": "2"}


def test_nothing_secret_is_in_a_repr():
    """Neither header fields nor bodies."""
    request = Request("op", "GET", "/", {"Authorization": "Bearer hunter2"}, b"hunter2")
    assert "hunter2" not in repr(request)


def test_a_server_that_closes_while_it_is_sent_something_within_tls_is_a_reset(tmp_path):
    """Whether the end shows at the writing or at the reading: what TLS says of it is no answer."""
    file, context = certificate(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up():
            for _ in range(10):
                connection, _ = listener.accept()
                with context.wrap_socket(connection, server_side=True):
                    pass

        thread = threading.Thread(target=hang_up)
        thread.start()
        client = Client(f"https://localhost:{listener.getsockname()[1]}", ca_file=file)
        body = b"x" * 1_000_000
        assert {client.fails(method="POST", body=body) for _ in range(10)} == {("reset", True)}
        thread.join()


# Whatever bytes come ------------------------------------------------------------------------------

HEADS = [
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.0 204 No",
    "HTTP/1.1 304 Not",
    "HTTP/1.1 -200 x",
    "ICY 200 OK",
]
FIELDS = [
    b"Content-Length: 2",
    b"Content-Length: -1",
    b"Content-Length: 1_0",
    b"Content-Length: \xb2",
    b"Content-Length: " + b"9" * 30,
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Connection: close",
    b"Content-Encoding: gzip",
    b"Location: http://elsewhere/",
    b": no name",
    b"\xff\xfe: \x00",
    b" folded",
]
BODIES = [
    b"{}",
    b"",
    b"x" * 5000,
    b"2\r\n{}\r\n0\r\n\r\n",
    b"-5\r\nhello\r\n0\r\n\r\n",
    b"-1\r\n{}",
    b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
    b"f" * 20 + b"\r\nx",
    b"2\r\n{}XX0\r\n\r\n",
    b"0\r\n" + b"T: x\r\n" * 200 + b"\r\n",
]


def odd_answer(draw):
    """The bytes of an answer of which more or less is wrong."""
    fields = draw.sample(FIELDS, draw.randrange(4))
    data = b"\r\n".join([draw.choice(HEADS).encode(), *fields, b"", draw.choice(BODIES)])
    place = draw.randrange(len(data))
    return draw.choice([data, data, data[:place], data[:place] + b"\xff" + data[place + 1 :]])


def test_whatever_bytes_come_are_an_answer_or_an_error_of_ours():
    """And the next exchange is as good as any."""
    draw = random.Random(11)
    with peer_and_client() as (peer, client):

        def odd(arrived):
            arrived.send(odd_answer(draw))
            raise HangUp

        peer.routes["/odd"] = odd
        for _ in range(300):
            with contextlib.suppress(TransportError):
                answered = client.ask("/odd", max_answer_bytes=1000)
                assert answered.status >= 200
                assert len(answered.body) <= 1000
        assert client.ask("/well").body == b"{}"
