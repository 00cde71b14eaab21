"""What somebody hostile can do to people through the server: write, point at it, and ask without right."""

import json

import pytest

from bothy_hermes.local_web import PAGE_FILE
from tests.fakes.agent import button
from tests.fakes.people import PersonClient

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</script><svg onload=alert(1)>",
    "[click](javascript:alert(1)) ![x](http://attacker.example/pixel)",
    "\u202egpj.exe\u202c \u2066inside\u2069 zero\u200bwidth \x00 \x1b[31m",
    "{{constructor.constructor('alert(1)')()}} ${alert(1)} \r\n\r\nHTTP/1.1 200 OK\r\n",
    "x" * 262_144,
    "\U0001f600" * 65_536,
)


@pytest.fixture
def member(server):
    return PersonClient(server, server.people[1].token)


# What is written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_written_comes_back_as_it_is_and_as_json_only(owner, agent, content):
    thread = owner.thread()
    with owner.events() as events:
        owner.post(thread, "Begin")
        run = agent.take()
        run.say(content)
        told = events.until(("message", lambda one: one["author"]["kind"] == "agent"))
    status, headers, body = owner.ask_all("GET", f"/people/v1/threads/{thread}")
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    assert json.loads(body)["messages"][1]["content"] == told["content"] == content
    run.finish()


def test_the_page_is_the_same_file_whatever_was_written(owner):
    owner.thread(title="</script><script>alert(1)</script>")
    status, headers, body = owner.ask_all("GET", "/?x=<script>alert(1)</script>")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert body == PAGE_FILE.read_bytes()


def test_a_name_cannot_break_an_event_or_a_header(owner, member):
    """The line ends of a title are refused, those of a message are escaped in the event's one line."""
    assert owner.ask("POST", "/threads", {"title": "a\n\nevent: run\ndata: {}"})[0] == 422
    thread = owner.thread()
    with member.events() as events:
        owner.post(thread, "a\n\nevent: run\ndata: {}\r\r")
        assert events.until("message")["content"] == "a\n\nevent: run\ndata: {}\r\r"


# Who points at the server -------------------------------------------------------------------------


def as_sent(headers, server):
    port = server.page_url.rstrip("/").rpartition(":")[2]
    return {name: value and value.replace("PORT", port) for name, value in headers.items()}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "bothy.attacker.example:PORT"},
        {"Host": "127.0.0.1"},
        {"Host": None},
        {"Origin": "http://attacker.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/people/v1/threads"), ("POST", "/people/v1/threads"), ("GET", "/people/v1/events?since=0")],
)
def test_a_foreign_name_or_page_is_refused_even_with_the_token(owner, server, method, target, headers):
    body = {"title": "Planted"} if method == "POST" else None
    status, _, answer = owner.ask_all(method, target, body, as_sent(headers, server))
    assert (status, json.loads(answer)["code"]) == (403, "forbidden")
    assert owner.get("/threads")["threads"] == []


def test_the_page_itself_is_not_given_to_a_foreign_name(owner):
    status, _, body = owner.ask_all("GET", "/", headers={"Host": "attacker.example"})
    assert status == 403
    assert b"<script>" not in body


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "LocalHost:PORT"])
def test_the_servers_own_names_are_answered(owner, server, host):
    sent = as_sent({"Host": host, "Origin": f"http://{host}"}, server)
    assert owner.ask_all("GET", "/people/v1/me", headers=sent)[0] == 200


def test_a_form_of_another_page_posts_nothing(owner):
    """A form can send three media types without being asked, and none of them is JSON."""
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        status, _, _ = owner.ask_all("POST", "/people/v1/threads", b"{}", {"Content-Type": media_type})
        assert status == 415
    assert owner.get("/threads")["threads"] == []


def test_no_foreign_page_is_ever_invited(owner, server):
    headers = {
        "Origin": "http://attacker.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    for sent in (headers, {"Origin": server.page_url.rstrip("/")}):
        _, answered, _ = owner.ask_all("OPTIONS", "/people/v1/threads", headers=sent)
        assert not [name for name in answered if name.startswith("access-control-")]


# Who asks without right ---------------------------------------------------------------------------


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", "Basic eDp4"])
def test_without_a_login_there_is_nothing_to_see(owner, header):
    thread = owner.thread()
    for target in ("me", "threads", f"threads/{thread}", "events?since=0", "admin"):
        status, _, body = owner.ask_all("GET", f"/people/v1/{target}", headers={"Authorization": header})
        assert (status, json.loads(body)["code"]) == (401, "unauthorized")


def test_a_token_in_the_address_is_no_login(owner):
    target = f"/people/v1/me?token={owner.token}&access_token={owner.token}"
    assert owner.ask_all("GET", target, headers={"Authorization": None})[0] == 401


def test_the_agents_token_is_no_persons_and_a_persons_not_the_agents(owner, agent):
    bearer = {"Authorization": f"Bearer {agent.token}"}
    assert owner.ask_all("GET", "/people/v1/me", headers=bearer)[0] == 401
    assert agent.try_call("GET", "/me", owner.token)[0] == 401
    owner.post(owner.thread(), "Hello")
    run = agent.take()
    assert owner.ask_all("GET", "/people/v1/me", headers={"Authorization": f"Bearer {run.token}"})[0] == 401
    run.finish()
    agent.server.violations.clear()  # the person's token was shown to the agent's side above


def test_another_persons_thread_is_read_and_written_in_ones_own_name(owner, member, agent):
    """The instance is one team: what is shared is shared, who said it stays true."""
    thread = owner.thread(title="Ada's")
    owner.post(thread, "Begin", "id-1")
    run = agent.take()
    written = member.post(thread, "I am in as well", "id-1")
    agent.event("agent.followup")
    run.followed(written["message"]["id"])
    authors = [one["author"]["display_name"] for one in member.get(f"/threads/{thread}")["messages"]]
    assert authors == ["Ada", "Ben"]
    run.finish()


def test_another_persons_card_is_not_used(owner, member, agent):
    owner.post(owner.thread(), "Deploy")
    run = agent.take()
    card = run.ask("Sure?", [button("yes", "Yes", restricted_to="run_starter")])
    assert member.use(card, card["components"][0])[1]["code"] == "forbidden"
    assert owner.use(card, card["components"][0])[0] == 201
    interaction = agent.event("interaction.created")["payload"]["interaction"]
    run.resume(card)
    run.respond(interaction)
    run.finish()


def test_a_file_of_another_thread_is_not_attached(owner):
    theirs, mine = owner.thread(), owner.thread()
    path = f"/admin/threads/{theirs}/files?name=a.txt"
    file = owner.do("POST", path, b"x", **{"Content-Type": "text/plain"})
    body = {"client_msg_id": "1", "content": "x", "attachments": [file["id"]]}
    assert owner.ask("POST", f"/threads/{mine}/messages", body)[0] == 422


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/admin", None),
        ("POST", "/admin/people", {"name": "Eve", "role": "owner"}),
        ("PUT", "/admin/allow-list", {"entries": []}),
        ("POST", "/admin/keys/rotate", {}),
        ("PUT", "/admin/nonces", {"required": True}),
    ],
)
def test_a_member_manages_nothing(owner, member, method, path, body):
    before = owner.get("/admin")
    status, value = member.ask(method, path, body)
    assert (status, value["code"]) == (403, "forbidden")
    assert owner.get("/admin") == before


def test_a_member_makes_nobody_an_owner(owner, member):
    me = member.get("/me")["id"]
    body = {"role": "owner", "approve_actions": True}
    assert member.ask("PUT", f"/admin/people/{me}", body)[0] == 403
    assert (member.get("/me")["role"], member.get("/me")["approve_actions"]) == ("member", False)


def test_an_upload_is_no_larger_than_it_may_be(owner):
    thread = owner.thread()
    path = f"/people/v1/admin/threads/{thread}/files?name=a.bin"
    sent = {"Content-Type": "application/octet-stream"}
    assert owner.ask_all("POST", path, b"x" * 16_777_217, sent)[0] == 413
