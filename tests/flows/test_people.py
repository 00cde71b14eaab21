"""What people and owners see and do, with an agent on the other side."""

import http.client
import time
from uuid import uuid4

import jwt
import pytest

from bothy_hermes import local_sockets
from bothy_hermes.local_feed import READER_LIMIT
from bothy_hermes.local_port import LocalServer
from tests.fakes.agent import FakeAgent, button, select, step
from tests.fakes.people import PersonClient


@pytest.fixture
def member(server, owner):
    """Mira: a member who may address the agent and may not approve its actions."""
    added = owner.do("POST", "/admin/people", {"name": "Mira"})
    allow(owner, added["person"]["id"])
    person = PersonClient(server, added["token"])
    person.id = added["person"]["id"]
    return person


def allow(owner, *people):
    kinds = ["operator", "guest"]
    listed = owner.get("/admin")["allow_list"]
    entries = [*listed, *({"principal_id": one, "run_kinds": kinds} for one in people)]
    owner.do("PUT", "/admin/allow-list", {"entries": entries})


def in_state(state):
    return "run", lambda view: view["run"]["state"] == state


# Talking ------------------------------------------------------------------------------------------


def test_a_message_becomes_a_run_and_its_answer_is_read(owner, agent):
    thread = owner.thread(title="Nightly build")
    with owner.events() as events:
        posted = owner.post(thread, "Why is it red?")
        run = agent.take()
        run.say("Because of a missing import.")
        run.finish()
        answer = events.until(("message", lambda one: one["author"]["kind"] == "agent"))
        events.until(in_state("completed"))
    page = owner.get(f"/threads/{thread}")
    assert posted["run_id"] == run.id
    assert posted["followup_of"] is None
    assert answer["content"] == "Because of a missing import."
    assert [one["content"] for one in page["messages"]] == ["Why is it red?", "Because of a missing import."]
    assert [(one["run"]["state"], one["run"]["reason"]) for one in page["runs"]] == [("completed", None)]
    assert page["earlier"] is False


def test_the_same_client_msg_id_is_the_same_message(owner, server):
    thread = owner.thread()
    first = owner.post(thread, "Once", "my-id")
    again = owner.post(thread, "Once", "my-id")
    assert again["message"]["id"] == first["message"]["id"]
    assert len(owner.get(f"/threads/{thread}")["messages"]) == 1
    assert len(owner.get(f"/threads/{thread}")["runs"]) == 1


def test_a_message_while_the_agent_works_shows_how_far_it_came(owner, agent):
    thread = owner.thread()
    owner.post(thread, "Begin")
    run = agent.take()
    with owner.events() as events:
        posted = owner.post(thread, "And mind the tests")
        late = posted["message"]["id"]
        agent.event("agent.followup")
        seen = [posted["message"]["followup"]]
        for state in ("delivered", "absorbed"):
            run.followed(late, state)
            seen.append(
                events.until(("message", lambda one, state=state: one["followup"] == state))["followup"]
            )
    assert (posted["run_id"], posted["followup_of"]) == (None, run.id)
    assert seen == ["waiting", "delivered", "absorbed"]
    run.finish()


def test_the_live_box_is_watched_as_it_grows(owner, agent):
    thread = owner.thread()
    owner.post(thread, "Look around")
    run = agent.take()
    with owner.events() as events:
        run.show(status_line="Reading the log", steps=[step("tail build.log")], last_text_excerpt="It seems")
        box = events.until(("run", lambda view: view["document"]["steps"]))["document"]
    assert (box["status_line"], box["last_text_excerpt"]) == ("Reading the log", "It seems")
    assert [(one["title"], one["state"]) for one in box["steps"]] == [("tail build.log", "running")]
    assert [view["run"]["id"] for view in owner.get("/threads")["active_runs"]] == [run.id]
    run.finish()
    assert owner.get("/threads")["active_runs"] == []


def test_a_person_cancels_a_run_and_the_agent_hears_of_it(owner, agent):
    thread = owner.thread()
    owner.post(thread, "Count to a million")
    run = agent.take()
    view = owner.do("POST", f"/runs/{run.id}/cancel")
    ended = agent.event("run.ended")["payload"]
    assert (view["run"]["state"], view["run"]["reason"]) == ("cancelled", "cancelled_by_person")
    assert (ended["run_id"], ended["state"], ended["by"]) == (run.id, "cancelled", owner.get("/me")["id"])
    run.finish("cancelled")


def test_what_the_agent_gave_as_reason_is_what_people_see(owner, agent):
    thread = owner.thread()
    owner.post(thread, "Try it")
    agent.take().finish("failed", "runtime_error")
    (view,) = owner.get(f"/threads/{thread}")["runs"]
    assert (view["run"]["state"], view["run"]["reason"]) == ("failed", "runtime_error")


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({}, ("new", None)),
        ({"session_mode": "new"}, ("new", None)),
        ({"session_mode": "bind", "bind_ref": "20261130_1"}, ("bind", "20261130_1")),
    ],
)
def test_the_session_of_the_next_run_is_chosen_with_the_message(owner, agent, asked, sent):
    owner.post(owner.thread(), "Go on", **asked)
    run = agent.take()
    payload = run.invocation
    assert (payload["session_mode"], payload["agent_session"]["external_session_ref"]) == sent
    run.finish()


def test_the_agent_is_shown_as_it_is(owner, server):
    assert owner.get("/me")["agent"]["online"] is False
    with owner.events() as events, FakeAgent(server) as agent:
        events.until(("agent", lambda one: one["online"]))
        agent.heartbeat("degraded", ["billing_evidence_unknown"])
        limited = events.until(("agent", lambda one: one["degraded_reasons"]))
    assert limited["degraded_reasons"] == ["billing_evidence_unknown"]


# Cards --------------------------------------------------------------------------------------------


def approval(run):
    limits = {"restricted_to": "run_starter", "required_capability": "approve_actions"}
    return run.ask(
        "Run `make clean`?",
        [button("allow", "Allow once", style="primary", **limits), button("deny", "Deny", **limits)],
    )


def test_a_card_is_answered_by_the_person_who_may_and_shows_what_became_of_it(owner, member, agent):
    thread = owner.thread()
    owner.post(thread, "Clean up")
    run = agent.take()
    card = approval(run)
    assert member.use(card, card["components"][0])[1]["code"] == "forbidden"
    with owner.events() as events:
        status, used = owner.use(card, card["components"][0])
        interaction = agent.event("interaction.created")["payload"]["interaction"]
        run.resume(card)
        run.respond(interaction, text="Running it")
        answered = events.until(("interaction", lambda row: row["status"]))
    assert (status, used["status"], interaction["custom_id"]) == (201, None, "allow")
    assert (answered["id"], answered["status"], answered["text"]) == (
        used["id"],
        "acknowledged",
        "Running it",
    )
    assert answered["operator"]["display_name"] == owner.get("/me")["name"]
    (row,) = owner.get(f"/threads/{thread}")["interactions"]
    assert row == answered
    assert owner.use(card, card["components"][1])[1]["code"] == "card_closed"
    run.finish()


def test_the_starter_without_the_capability_does_not_approve(member, agent):
    member.post(member.thread(), "Clean up")
    run = agent.take()
    card = approval(run)
    assert member.use(card, card["components"][0])[0] == 403
    run.resume(card, "prompt_expired")
    run.finish()


def test_the_capability_is_given_by_an_owner_and_counts_at_once(owner, member, agent):
    member.post(member.thread(), "Clean up")
    run = agent.take()
    card = approval(run)
    changed = owner.do("PUT", f"/admin/people/{member.id}", {"role": "member", "approve_actions": True})
    assert changed["approve_actions"] is True
    assert member.use(card, card["components"][0])[0] == 201
    interaction = agent.event("interaction.created")["payload"]["interaction"]
    assert interaction["operator_id"] == member.id
    run.resume(card)
    run.respond(interaction)
    run.finish()


def test_a_select_takes_one_of_its_values(owner, agent):
    owner.post(owner.thread(), "Deploy")
    run = agent.take()
    card = run.ask("Where to?", [select("target", "Target", [("eu", "Europe"), ("us", "America")])])
    assert owner.use(card, card["components"][0], "mars")[0] == 422
    assert owner.use(card, card["components"][0])[0] == 422
    assert owner.use(card, card["components"][0], "eu")[0] == 201
    interaction = agent.event("interaction.created")["payload"]["interaction"]
    assert interaction["values"] == ["eu"]
    run.resume(card)
    run.respond(interaction)
    run.finish()


# Streams ------------------------------------------------------------------------------------------


def test_a_reader_that_comes_back_misses_nothing(owner, agent):
    thread = owner.thread()
    with owner.events() as events:
        owner.post(thread, "One")
        events.until(("message", lambda one: one["content"] == "One"))
        seen, _, _ = events.next()
    run = agent.take()
    run.say("While nobody looked")
    with owner.events(since=seen) as events:
        message = events.until(("message", lambda one: one["author"]["kind"] == "agent"))
    assert message["content"] == "While nobody looked"
    run.finish()


def test_a_restarted_server_tells_its_readers_to_start_anew(owner, server, tmp_path):
    position = owner.get("/me")["position"]
    owner.thread()
    server.stop()
    again = LocalServer.start(tmp_path / "server")
    try:
        person = PersonClient(again, owner.token)
        with person.events(since=position) as events:
            _, name, value = events.next()
    finally:
        again.stop()
    assert name == "reset"
    assert value["position"] > position


def readers(server):
    return server._sockets._people.feed.readers


def wait_for(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


def test_a_reader_that_is_gone_is_forgotten(owner, server):
    with owner.events() as events:
        events.next()
        assert readers(server) == 1
    wait_for(lambda: readers(server) == 0)


def test_a_reader_that_does_not_read_is_dropped(owner, server, monkeypatch):
    """Nobody takes what is sent, the buffers fill, and the connection is ended."""
    monkeypatch.setattr(local_sockets, "SEND_SECONDS", 0.2)
    thread = owner.thread()
    with owner.events() as events:
        wait_for(lambda: readers(server) == 1)
        for _ in range(60):
            owner.post(thread, "x" * 250_000)
        wait_for(lambda: readers(server) == 0)
        with pytest.raises((OSError, http.client.HTTPException, AssertionError)):
            events.until(("thread", lambda _thread: False))


def test_more_readers_than_there_is_room_for_are_asked_to_wait(owner, server):
    feed = server._sockets._people.feed
    feed.readers = READER_LIMIT
    status, value = owner.ask("GET", "/events?since=0")
    feed.readers = 0
    assert (status, value["code"]) == (429, "rate_limited")


def test_a_long_thread_is_read_page_by_page(owner):
    thread = owner.thread()
    for number in range(205):
        owner.post(thread, f"{number}")
    newest = owner.get(f"/threads/{thread}")
    older = owner.get(f"/threads/{thread}?before={newest['messages'][0]['id']}")
    assert (len(newest["messages"]), newest["earlier"]) == (200, True)
    assert ([one["content"] for one in older["messages"]], older["earlier"]) == (list("01234"), False)


# Managing -----------------------------------------------------------------------------------------


def test_the_allow_list_is_what_the_agent_is_told(owner, member, agent):
    def entries():
        path = f"/agents/{agent.server.agent.id}/allow-list"
        listed = agent.call("GET", path, agent.token)["entries"]
        return {one["principal_id"]: one["run_kinds"] for one in listed}

    assert sorted(entries()[member.id]) == ["guest", "operator"]
    owner.do("PUT", "/admin/allow-list", {"entries": [{"principal_id": member.id, "run_kinds": ["guest"]}]})
    assert entries() == {member.id: ["guest"]}


def test_a_person_who_is_added_may_not_address_the_agent_at_once(owner, agent):
    added = owner.do("POST", "/admin/people", {"name": "Noor"})
    listed = [one["principal_id"] for one in owner.get("/admin")["allow_list"]]
    assert added["person"]["id"] not in listed


def test_an_allow_list_names_people_only(owner):
    entries = [{"principal_id": str(uuid4()), "run_kinds": ["operator"]}]
    before = owner.get("/admin")["allow_list"]
    assert owner.ask("PUT", "/admin/allow-list", {"entries": entries})[0] == 404
    assert owner.get("/admin")["allow_list"] == before


def test_a_channels_prompt_and_skills_reach_the_agent(owner, agent):
    channel = owner.do("POST", "/admin/channels", {"name": "builds"})
    skills = [{"name": "Deploying", "text": "Ask before you deploy."}]
    owner.do("PUT", f"/admin/channels/{channel['id']}", {"prompt": "Be brief.", "skills": skills})
    agent.event("agent.config_changed")
    owner.post(owner.thread(channel_id=channel["id"]), "Hello")
    run = agent.take()
    config = agent.call("GET", f"/channels/{channel['id']}/served-config", run.token)
    assert (config["prompt"], config["skills"]) == ("Be brief.", skills)
    run.finish()


def test_in_a_channel_that_the_agent_does_not_serve_it_is_a_guest(owner, agent):
    channel = owner.do("POST", "/admin/channels", {"name": "random", "served": False})
    thread = owner.thread(channel_id=channel["id"])
    assert owner.post(thread, "Just between us")["run_id"] is None
    assert owner.post(thread, "@Hermes what do you think?")["run_id"] is not None
    run = agent.take()
    assert run.invocation["run"]["kind"] == "guest"
    run.finish()


@pytest.mark.parametrize(("scan_status", "status"), [("clean", 200), ("infected", 403)])
def test_a_file_reaches_the_agent_as_its_scan_allows(owner, agent, scan_status, status):
    thread = owner.thread()
    path = f"/admin/threads/{thread}/files?name=notes.txt&scan_status={scan_status}"
    file = owner.do("POST", path, b"red since Monday", **{"Content-Type": "text/plain"})
    posted = owner.post(thread, "Read this", attachments=[file["id"]])
    run = agent.take()
    context = agent.call("GET", f"/runs/{run.id}/context", run.token)
    (message,) = owner.get(f"/threads/{thread}")["messages"]
    assert posted["message"]["attachments"] == message["attachments"] == [file]
    assert file == {
        "id": file["id"],
        "name": "notes.txt",
        "media_type": "text/plain",
        "size_bytes": 16,
        "scan_status": scan_status,
    }
    assert context["elements"][-1]["attachments"] == [file]
    assert agent.fetch(f"/files/{file['id']}", run.token)[0] == status
    run.finish()


def test_a_title_that_a_person_gave_stays(owner, agent):
    thread = owner.thread()
    owner.post(thread, "Why is it red?")
    run = agent.take()
    titled = owner.do("PUT", f"/admin/threads/{thread}/title", {"title": "Red build"})
    path, body = f"/threads/{thread}/title", {"title": "Build analysis"}
    version = {"If-Match": f'"{titled["version"]}"'}
    refused = agent.try_call("PUT", path, run.token, body, version)
    assert (titled["title"], titled["title_source"]) == ("Red build", "manual")
    assert (refused[0], refused[1]["code"]) == (409, "title_not_auto")
    freed = owner.do("PUT", f"/admin/threads/{thread}/title", {"title": None})
    agent.call("PUT", path, run.token, body, {"If-Match": f'"{freed["version"]}"'})
    assert owner.get(f"/threads/{thread}")["thread"]["title"] == "Build analysis"
    run.finish()


def test_after_a_rotation_tokens_are_signed_with_a_new_key(owner, agent):
    before = {key["kid"] for key in agent.call("GET", "/jwks.json", agent.token)["keys"]}
    owner.do("POST", "/admin/keys/rotate")
    after = {key["kid"] for key in agent.call("GET", "/jwks.json", agent.token)["keys"]}
    owner.post(owner.thread(), "Hello")
    run = agent.take()
    assert len(after - before) == 1
    assert jwt.get_unverified_header(run.token)["kid"] in after - before
    run.finish()


def test_nonces_are_demanded_as_an_owner_says(owner):
    assert owner.get("/admin")["require_nonces"] is False
    assert owner.do("PUT", "/admin/nonces", {"required": True})["require_nonces"] is True
    assert owner.do("PUT", "/admin/nonces", {"required": False})["require_nonces"] is False


def test_an_owner_hands_over_a_login(owner, server, member):
    login = owner.get(f"/admin/people/{member.id}/login")
    assert login["person"]["name"] == "Mira"
    assert PersonClient(server, login["token"]).get("/me")["id"] == member.id


def test_an_owner_stays_one(owner):
    me = owner.get("/me")["id"]
    assert owner.ask("PUT", f"/admin/people/{me}", {"role": "member", "approve_actions": True})[0] == 409
    assert owner.get("/me")["role"] == "owner"
