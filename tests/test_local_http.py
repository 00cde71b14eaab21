"""Requests and answers as values: what is read as HTTP and what is refused."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothy_hermes.local_http import (
    BadRequest,
    Request,
    Response,
    json_response,
    problem,
    read_head,
    write_head,
)
from bothy_hermes.local_rules import Refused
from bothy_hermes.wire_words import ProblemCode

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def head(*lines):
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def test_a_head_is_read():
    request = read_head(
        head("POST /a%20b/c?x=1&y=a%2Fb&x=2&z= HTTP/1.1", "Host: h", "Content-Length:  12 ", "X: a", "x:b")
    )
    assert (request.method, request.path, request.target) == (
        "POST",
        "/a b/c",
        "/a%20b/c?x=1&y=a%2Fb&x=2&z=",
    )
    assert request.query == {"x": "2", "y": "a/b", "z": ""}
    assert request.headers == {"host": "h", "content-length": "12", "x": "a, b"}
    assert (request.length, request.keep_alive, request.upgrade) == (12, True, False)


@pytest.mark.parametrize(
    ("line", "keep_alive"),
    [
        (("GET / HTTP/1.1",), True),
        (("GET / HTTP/1.1", "Connection: Close"), False),
        (("GET / HTTP/1.0",), False),
        (("GET / HTTP/1.0", "Connection: keep-alive"), True),
    ],
)
def test_who_closes_the_connection(line, keep_alive):
    assert read_head(head(*line)).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET /",), 400),
        (("GET / HTTP/2.0",), 400),
        (("GET http://h/ HTTP/1.1",), 400),
        (("GET /a b HTTP/1.1",), 400),
        (("G\x00T / HTTP/1.1",), 400),
        (("GET / HTTP/1.1", "no colon"), 400),
        (("GET / HTTP/1.1", "A : b"), 400),
        (("GET / HTTP/1.1", "A: b", " folded"), 400),
        (("GET / HTTP/1.1", "A: b\nB: c"), 400),
        (("GET / HTTP/1.1", "A: b\x00"), 400),
        (("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 1"), 400),
        (("GET / HTTP/1.1", "Content-Length: -1"), 400),
        (("GET / HTTP/1.1", "Content-Length: 1, 1"), 400),
        (("GET / HTTP/1.1", "Content-Length: ٣"), 400),
        (("GET / HTTP/1.1", "If-Match: 1", "if-match: 2"), 400),
        (("POST / HTTP/1.1", "Transfer-Encoding: chunked"), 411),
        (("POST / HTTP/1.1", "Transfer-Encoding: chunked", "Content-Length: 4"), 411),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(lines, status):
    data = "\r\n".join([*lines, "", ""]).encode("utf-8")
    with pytest.raises(BadRequest) as caught:
        read_head(data)
    assert caught.value.status == status


def test_a_hostile_header_is_refused_in_the_time_of_a_good_one():
    """A head full of blanks costs no more than its length: reading it holds up every other connection."""
    head = b"GET / HTTP/1.1\r\nA:" + b" " * 8_000 + b"\x00\r\n\r\n"
    began = time.process_time()
    with pytest.raises(BadRequest):
        read_head(head)
    assert time.process_time() - began < 0.1


@pytest.mark.parametrize(
    ("line", "value"),
    [("A:", ""), ("A: \t ", ""), ("A:b", "b"), ("A: \t b\tc \t", "b\tc"), ("A: \xff", "\xff")],
)
def test_the_blanks_around_a_headers_value_are_not_part_of_it(line, value):
    assert read_head(f"GET / HTTP/1.1\r\n{line}\r\n\r\n".encode("latin-1")).headers == {"a": value}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(data):
    """Nothing but BadRequest comes out of hostile bytes."""
    try:
        request = read_head(data + b"\r\n\r\n")
    except BadRequest:
        return
    assert request.path.startswith("/")


def test_a_json_body_is_announced():
    assert Request("POST", "/", headers={"content-type": "application/json"}, body=b"[1]").json() == [1]
    for headers, body, status in [({}, b"{}", 415), ({"content-type": "application/json"}, b"NaN", 400)]:
        with pytest.raises(Refused) as caught:
            Request("POST", "/", headers=headers, body=body).json()
        assert (caught.value.status, caught.value.violation) == (status, True)


def test_nothing_private_is_in_a_repr():
    request = Request("GET", "/p", {"q": "secret"}, {"authorization": "secret"}, b"secret", "/p?secret")
    assert "secret" not in repr(request)
    assert "secret" not in repr(Response(200, b"secret", {"x": "secret"}))


def test_an_answer_is_written():
    response = json_response(200, {"a": datetime(2026, 1, 2, tzinfo=UTC)}, {"ETag": '"1"'})
    assert response.body == b'{"a":"2026-01-02T00:00:00.000000Z"}'
    assert write_head(response, now=NOW, keep_alive=True) == head(
        "HTTP/1.1 200 OK",
        "Date: Mon, 30 Nov 2026 12:00:00 GMT",
        "Content-Type: application/json",
        'ETag: "1"',
        "Content-Length: 35",
        "Connection: keep-alive",
    )


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_names_no_length(status):
    assert b"Content-Length" not in write_head(Response(status), now=NOW, keep_alive=False)


def test_a_value_cannot_add_a_header():
    """A file's media type is what somebody sent."""
    text = write_head(Response(200, headers={"X": "a\r\nY: b"}), now=NOW, keep_alive=False)
    assert b"\r\nY:" not in text


def test_problems():
    refused = Refused(409, ProblemCode.VERSION_CONFLICT, "why", extra={"version": 3})
    answer = problem(refused, headers={"X": "1"})
    assert (answer.status, answer.headers["Content-Type"]) == (409, "application/problem+json")
    assert Request("GET", "/", headers={"content-type": "application/json"}, body=answer.body).json() == {
        "type": "about:blank",
        "title": "Conflict",
        "status": 409,
        "code": "version_conflict",
        "detail": "why",
        "version": 3,
    }
    assert b"code" not in problem(503).body
    assert b'"code":"not_found"' in problem(404, ProblemCode.NOT_FOUND).body
    assert b"Unknown" in problem(799).body
