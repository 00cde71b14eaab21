"""The calls of the people's side, one by one: who may make them, and what they refuse."""

import json
import random
import re
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from bothy_hermes import local_people
from bothy_hermes.clock import system_clock
from bothy_hermes.local_http import Request
from bothy_hermes.local_instance import Instance
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_people import ROUTES, PeopleSide, Route
from bothy_hermes.local_store import LocalStore
from bothy_hermes.local_web import SAFE_HEADERS
from tests.fakes.mutants import WORD, garbled, mutant

HOST = "127.0.0.1:8080"
NOBODY = "00000000-0000-4000-8000-000000000001"
DOCUMENT = Path(__file__).parents[1] / "docs" / "people-api.md"


@pytest.fixture
def side(tmp_path):
    instance = Instance(LocalStore(tmp_path / "server"), system_clock(), ServerOptions())
    yield PeopleSide(instance, lambda: frozenset({f"http://{HOST}"}))
    instance.close()


def person(side, role):
    return next(one for one in side.instance.people() if one.role == role)


def ask(side, method, path, body=None, *, as_role="owner", **headers):
    """Make one call in a person's name; returns the response."""
    token = person(side, as_role).token.reveal()
    sent = {"host": HOST, "authorization": f"Bearer {token}"}
    if isinstance(body, dict):
        body, sent["content-type"] = json.dumps(body).encode(), "application/json"
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    target, _, query = path.partition("?")
    parameters = dict(pair.split("=") for pair in query.split("&")) if query else {}
    request = Request(
        method=method, path=f"/people/v1{target}", query=parameters, headers=sent, body=body or b""
    )
    return side.answer(request)


def problem(response):
    value = json.loads(response.body)
    assert response.headers["Content-Type"] == "application/problem+json"
    return response.status, value["code"]


def some_path(route):
    return route.path.replace("{id}", str(uuid4()))


# Routes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/me", "GET"),
        ("PUT", "/threads", "GET, POST"),
        ("POST", "/admin/allow-list", "PUT"),
        ("GET", "/runs/01a22dc0-f15d-7fb7-8b4e-006f8b2ef949/cancel", "POST"),
    ],
)
def test_a_method_that_a_call_lacks_is_answered_with_those_it_has(side, method, path, allowed):
    refused = ask(side, method, path)
    assert problem(refused) == (405, "not_found")
    assert refused.headers["Allow"] == allowed


def test_the_stream_of_events_asks_a_proxy_to_collect_nothing(side):
    """And no cache to keep any of it."""
    stream = ask(side, "GET", "/events?since=0")
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert stream.headers["X-Accel-Buffering"] == "no"
    assert stream.headers["Cache-Control"] == "no-store"


def test_a_route_matches_its_own_method_and_path_only():
    route = Route("POST", "/threads/{id}/messages", lambda *_: None)
    thread = "01a22dc0-f15d-7fb7-8b4e-006f8b2ef949"
    assert route.match("POST", f"/threads/{thread}/messages") == UUID(thread)
    for method, path in (
        ("GET", f"/threads/{thread}/messages"),
        ("POST", f"/threads/{thread}"),
        ("POST", f"/threads/{thread}/messages/"),
        ("POST", f"/threads/{thread.upper()}/messages"),
        ("POST", "/threads/../messages"),
        ("POST", "/threads//messages"),
        ("POST", f"/threads/{{{thread}}}/messages"),
    ):
        assert route.match(method, path) is None, (method, path)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_call_is_in_the_docstring_and_in_the_document(route):
    path = route.path.removeprefix("/admin")
    listed = re.findall(r"^    (GET|POST|PUT) +(/[^ ?]*)", local_people.__doc__, re.MULTILINE)
    described = re.findall(r"^\| `(GET|POST|PUT) (/[^`?]*)", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    events = re.findall(r"`(GET) (/events)\?", DOCUMENT.read_text("utf-8"))
    assert (route.method, path or "/") in listed
    assert (route.method, route.path) in {*described, *events}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_no_call_is_answered_without_a_login(side, route):
    for header in ("", "Bearer ", "Bearer wrong", f"Basic {person(side, 'owner').token.reveal()}"):
        response = ask(side, route.method, some_path(route), {}, authorization=header)
        assert problem(response) == (401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "route",
    [one for one in ROUTES if one.path.startswith("/admin")],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_no_member_manages(side, route):
    assert problem(ask(side, route.method, some_path(route), {}, as_role="member")) == (403, "forbidden")


@pytest.mark.parametrize("path", ["", "/", "/nothing", "/me/", "/admin/", "/admin/nothing", "/../me"])
def test_there_is_no_other_call(side, path):
    assert problem(ask(side, "GET", path)) == (404, "not_found")


def test_the_calls_are_below_their_base_only(side):
    token = person(side, "owner").token.reveal()
    request = Request(method="GET", path="/me", headers={"host": HOST, "authorization": f"Bearer {token}"})
    assert problem(side.answer(request)) == (404, "not_found")


# Bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/threads", {"title": "x" * 121}),
        ("POST", "/threads", {"title": "a\nb"}),
        ("POST", "/threads", {"titel": "x"}),
        ("POST", "/threads/{id}/messages", {"content": "no id"}),
        ("POST", "/threads/{id}/messages", {"client_msg_id": "", "content": "x"}),
        ("POST", "/threads/{id}/messages", {"client_msg_id": "x" * 101, "content": "x"}),
        ("POST", "/threads/{id}/messages", {"client_msg_id": "1", "content": "x" * 262_145}),
        ("POST", "/threads/{id}/messages", {"client_msg_id": "1", "content": "x", "session_mode": "other"}),
        ("POST", "/threads/{id}/messages", {"client_msg_id": "1", "content": "x", "author": "somebody"}),
        ("POST", "/messages/{id}/interactions", {"component_id": str(uuid4()), "values": ["a", "b"]}),
        ("POST", "/messages/{id}/interactions", {"component_id": "x", "values": []}),
        ("POST", "/runs/{id}/cancel", {"state": "completed"}),
        ("POST", "/admin/people", {"name": ""}),
        ("POST", "/admin/people", {"name": "two\nlines"}),
        ("POST", "/admin/people", {"name": "trailing "}),
        ("POST", "/admin/people", {"name": "Mira", "role": "god"}),
        ("PUT", "/admin/people/{id}", {"role": "member"}),
        ("PUT", "/admin/allow-list", {"entries": [{"principal_id": str(uuid4()), "run_kinds": ["all"]}]}),
        ("PUT", "/admin/allow-list", {"entries": [{"principal_id": NOBODY, "run_kinds": [], "why": "x"}]}),
        ("PUT", "/admin/channels/{id}", {"prompt": None, "skills": [{"name": "", "text": "x"}]}),
        ("PUT", "/admin/channels/{id}", {"prompt": None, "skills": [{"name": "x" * 81, "text": "x"}]}),
        ("PUT", "/admin/channels/{id}", {"prompt": None, "skills": [{"name": "x", "text": "é" * 131_073}]}),
        (
            "PUT",
            "/admin/channels/{id}",
            {"prompt": None, "skills": [{"name": "x", "text": "", "title": "x"}]},
        ),
        ("PUT", "/admin/nonces", {"required": "yes"}),
    ],
)
def test_a_body_that_is_not_as_described_is_refused(side, method, path, body):
    response = ask(side, method, path.replace("{id}", str(uuid4())), body)
    assert problem(response) == (422, "validation_failed")


def nearly_calls(side):
    """A call for each body, with the IDs of things that are there."""
    instance, owner = side.instance, person(side, "owner")
    thread, channel = instance.create_thread(owner.id), instance.state.channels.all()[0]
    run = instance.post_message(owner.id, thread.id, "hello").run_id
    entry = {"principal_id": str(owner.id), "run_kinds": ["operator"]}
    message = {
        "client_msg_id": "1",
        "content": "x",
        "session_mode": "bind",
        "bind_ref": "s",
        "attachments": [],
    }
    return [
        ("POST", "/threads", {"channel_id": str(channel.id), "title": "x"}),
        ("POST", f"/threads/{thread.id}/messages", message),
        ("POST", f"/messages/{uuid4()}/interactions", {"component_id": str(uuid4()), "values": ["a"]}),
        ("POST", f"/runs/{run}/cancel", {}),
        ("POST", "/admin/people", {"name": "Mira", "role": "guest", "approve_actions": True}),
        ("PUT", f"/admin/people/{owner.id}", {"role": "owner", "approve_actions": True}),
        ("PUT", "/admin/allow-list", {"entries": [entry]}),
        ("POST", "/admin/channels", {"name": "x", "served": True}),
        ("PUT", f"/admin/channels/{channel.id}", {"prompt": "x", "skills": [{"name": "x", "text": "y"}]}),
        ("PUT", f"/admin/threads/{thread.id}/title", {"title": "x"}),
        ("PUT", "/admin/nonces", {"required": True}),
    ]


def test_whatever_is_nearly_a_call_gets_an_answer_without_its_words(side, caplog):
    draw = random.Random(3)
    for method, path, body in nearly_calls(side):
        for number in range(20):
            data = json.dumps(mutant(draw, body)).encode()
            data = garbled(draw, data) if number % 5 == 0 else data
            response = ask(side, method, path, data, content_type="application/json")
            assert response.status < 500
            assert response.status < 400 or WORD not in response.body.decode()
    assert WORD not in caplog.text
    assert ask(side, "GET", "/threads").status == 200


def test_a_body_that_was_too_long_is_refused_like_everything_else(side):
    """With the headers that every answer has, and after the look at who sent it."""
    token = person(side, "owner").token.reveal()
    sent = {"host": HOST, "authorization": f"Bearer {token}", "content-type": "application/json"}
    path = f"/people/v1/admin/threads/{uuid4()}/files"
    for target in (path, "/people/v1/threads", "/people/v1/nowhere"):
        answer = side.answer(Request("POST", target, {"name": "f"}, sent, oversize=True))
        assert problem(answer) == (413, "content_too_long")
        assert set(SAFE_HEADERS) <= set(answer.headers)
    foreign = Request("POST", path, {"name": "f"}, {**sent, "host": "evil.example"}, oversize=True)
    assert problem(side.answer(foreign)) == (403, "forbidden")


def test_a_refused_body_is_not_repeated_in_the_answer(side):
    response = ask(side, "POST", "/threads", {"title": "my secret\n"})
    assert b"secret" not in response.body


def test_a_body_is_json_and_says_so(side):
    assert problem(ask(side, "POST", "/threads", b"{}", content_type="text/plain"))[0] == 415
    assert problem(ask(side, "POST", "/threads", b"{", content_type="application/json"))[0] == 400


@pytest.mark.parametrize("since", ["", "-1", "1.5", "x", "1" * 19, "\u0661"])
def test_a_reader_names_a_position(side, since):
    assert problem(ask(side, "GET", f"/events?since={since}")) == (422, "validation_failed")


@pytest.mark.parametrize(
    ("query", "media_type"),
    [
        ("", "text/plain"),
        ("?name=", "text/plain"),
        ("?name=a&scan_status=perhaps", "text/plain"),
        ("?name=a", "text plain"),
        (f"?name={'a' * 256}", "text/plain"),
    ],
)
def test_a_file_has_a_name_a_type_and_a_scan_state(side, query, media_type):
    thread = json.loads(ask(side, "POST", "/threads", {}).body)["id"]
    path = f"/admin/threads/{thread}/files{query}"
    assert problem(ask(side, "POST", path, b"x", content_type=media_type))[0] == 422


# Answers ------------------------------------------------------------------------------------------


def test_what_is_unknown_is_not_found(side):
    nothing = str(uuid4())
    for method, path, body in (
        ("GET", f"/threads/{nothing}", None),
        ("POST", f"/threads/{nothing}/messages", {"client_msg_id": "1", "content": "x"}),
        ("POST", "/threads", {"channel_id": nothing}),
        ("POST", f"/runs/{nothing}/cancel", {}),
        ("POST", f"/messages/{nothing}/interactions", {"component_id": nothing, "values": []}),
        ("PUT", f"/admin/people/{nothing}", {"role": "member", "approve_actions": False}),
        ("GET", f"/admin/people/{nothing}/login", None),
        ("PUT", f"/admin/channels/{nothing}", {"prompt": None, "skills": []}),
        ("PUT", f"/admin/threads/{nothing}/title", {"title": "x"}),
    ):
        assert problem(ask(side, method, path, body)) == (404, "not_found"), path


def test_every_answer_carries_the_safe_headers(side):
    for response in (
        ask(side, "GET", "/me"),
        ask(side, "GET", "/nothing"),
        ask(side, "GET", "/me", authorization=""),
        ask(side, "GET", "/me", host="attacker.example"),
        ask(side, "GET", "/events?since=0"),
        ask(side, "POST", "/admin/keys/rotate", {}),
        side.answer(Request(method="GET", path="/", headers={"host": HOST})),
    ):
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]


def test_nobody_reads_a_token_but_an_owner_who_asks_for_a_login(side):
    tokens = [one.token.reveal() for one in side.instance.people()]
    for path in ("/me", "/channels", "/threads", "/admin"):
        body = ask(side, "GET", path).body.decode()
        assert not [token for token in tokens if token in body]
    ben = person(side, "member")
    login = json.loads(ask(side, "GET", f"/admin/people/{ben.id}/login").body)
    assert login["token"] == ben.token.reveal()


def test_what_nobody_may_read_in_a_log_is_in_no_repr(side):
    made = side.views.person(person(side, "owner"))
    message = local_people.NewMessage(client_msg_id="1", content="a secret plan")
    assert "Ada" not in repr(made)
    assert "secret" not in repr(message)


def test_an_allow_list_that_says_what_is_so_changes_nothing(side):
    before = side.instance.agent
    entries = [
        {"principal_id": str(entry.principal_id), "run_kinds": [str(kind) for kind in entry.run_kinds]}
        for entry in before.allow
    ]
    assert ask(side, "PUT", "/admin/allow-list", {"entries": entries}).status == 200
    assert side.instance.agent.allow_version == before.allow_version
