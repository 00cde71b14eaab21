"""What the judge of the wire finds, and that it sees everything."""

import asyncio
import json

import pytest

from bothy_hermes.bothy_http import Request, Response
from bothy_hermes.wire import FinishRun, Me, RunView
from tests.fakes.judged import Judge, JudgedConnector, JudgedTransport
from tests.fakes.links import FakeLink, hello
from tests.fakes.wire_examples import EXAMPLES, event

JSON = {"content-type": "application/json"}
PROBLEM = {"content-type": "application/problem+json"}


def encoded(value):
    return json.dumps(value).encode()


def judged(act):
    judge = Judge()
    act(judge)
    assert judge.seen == 1
    return judge.found


FITS = {
    "a body": lambda judge: judge.request("finishRun", encoded(EXAMPLES[FinishRun]())),
    "no body": lambda judge: judge.request("getMe", None),
    "an answer": lambda judge: judge.answer("getMe", 200, JSON, encoded(EXAMPLES[Me]())),
    "an answer without a body": lambda judge: judge.answer("putHeartbeat", 204, {}, b""),
    "a problem": lambda judge: judge.answer("getMe", 401, PROBLEM, encoded({"code": "unauthorized"})),
    "a 5xx": lambda judge: judge.answer("getMe", 502, {"content-type": "text/html"}, b"<html>"),
    "a frame": lambda judge: judge.frame("server", json.dumps(hello())),
    "an ack": lambda judge: judge.frame(
        "adapter", json.dumps({"op": "ack", "event_id": event("run.ended")["id"]})
    ),
}


@pytest.mark.parametrize("act", FITS.values(), ids=FITS)
def test_what_fits_is_not_found(act):
    assert judged(act) == []


STRAYS = {
    "a missing member": (
        lambda judge: judge.request("finishRun", b"{}"),
        "request finishRun: . breaks required",
    ),
    "a body where none is": (lambda judge: judge.request("getMe", b"{}"), "request getMe: AssertionError"),
    "no body where one is": (
        lambda judge: judge.request("finishRun", None),
        "request finishRun: AssertionError",
    ),
    "no JSON": (lambda judge: judge.request("finishRun", b"{"), "request finishRun: JSONDecodeError"),
    "an unknown operation": (lambda judge: judge.request("makeTea", None), "request makeTea: KeyError"),
    "an answer of another type": (
        lambda judge: judge.answer(
            "getRun", 200, JSON, encoded(EXAMPLES[RunView]() | {"open_cards": "none"})
        ),
        "answer getRun 200: open_cards breaks type",
    ),
    "an answer without its JSON": (
        lambda judge: judge.answer("getRun", 200, {"content-type": "text/html"}, b"<html>"),
        "answer getRun 200: . breaks type",
    ),
    "a status nobody names": (
        lambda judge: judge.answer("getMe", 202, JSON, b"{}"),
        "answer getMe 202: KeyError",
    ),
    "a frame of the other side": (
        lambda judge: judge.frame("adapter", json.dumps(hello())),
        "frame of the adapter: . breaks oneOf",
    ),
}


@pytest.mark.parametrize(("act", "finding"), STRAYS.values(), ids=STRAYS)
def test_what_does_not_fit_is_found_by_its_place(act, finding):
    assert judged(act) == [finding]


def test_a_finding_holds_nothing_of_what_was_said():
    body = EXAMPLES[FinishRun]() | {"outcome": "xyzzy"}
    (finding,) = judged(lambda judge: judge.request("finishRun", encoded(body)))
    assert "xyzzy" not in finding


def test_a_transport_shows_both_halves_of_an_exchange():
    class Inner:
        async def send(self, request, *, timeout):
            return Response(200, JSON, b"{}")

    judge = Judge()
    request = Request("startRun", "POST", "/runs/x/start", {}, b"{}")
    response = asyncio.run(JudgedTransport(Inner(), judge).send(request, timeout=1))
    assert response.status == 200
    assert [finding.split(":")[0] for finding in judge.found] == ["request startRun", "answer startRun 200"]


def test_a_connector_shows_the_frames_of_both_sides():
    link = FakeLink({"op": "hello"})
    judge = Judge()

    async def inner(_url, _headers):
        return link

    async def story():
        shown = await JudgedConnector(inner, judge)("ws://x", {})
        await shown.receive()
        await shown.send(json.dumps({"op": "ack"}))

    asyncio.run(story())
    assert link.sent == [{"op": "ack"}]
    assert [finding.split(":")[0] for finding in judge.found] == [
        "frame of the server",
        "frame of the adapter",
    ]
