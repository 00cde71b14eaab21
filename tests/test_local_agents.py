"""From a request to an operation and its answer; what is counted and logged on the way."""

import asyncio
import json
import logging
import random
import sqlite3

import pytest

from bothy_hermes.local_agents import AnswerLostError, Fault
from bothy_hermes.local_http import Request
from bothy_hermes.wire_operations import OPERATIONS
from bothy_hermes.wire_words import ProblemCode
from tests.fakes.local_kit import EVIDENCE, button, rig, select
from tests.fakes.mutants import WORD, garbled, mutant
from tests.fakes.wire_examples import EXAMPLES

NOBODY = "00000000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "", 404),
        ("DELETE", "/me", 405),
        ("GET", "/runs/not-an-id", 404),
        ("GET", "/runs/00000000-0000-4000-8000-00000000000A", 404),
        ("GET", f"/agents/{NOBODY}/allow-list", 404),
        ("GET", f"/runs/{NOBODY}", 404),
    ],
)
def test_what_is_not_there(tmp_path, method, path, status):
    with rig(tmp_path, clean=False) as made:
        answer = made.call(method, path, made.agent_token)
        assert (answer.status, answer.code) == (status, "not_found")
        assert answer.headers.get("Allow") == ("GET" if status == 405 else None)
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert len(made.violations) == 1


@pytest.mark.parametrize(
    ("raw", "media", "status", "code"),
    [
        (b"{}", "text/plain", 415, "unsupported_media_type"),
        (b"{}", "", 415, "unsupported_media_type"),
        (b"{", "application/json", 400, "validation_failed"),
        (b"\xff", "application/json", 400, "validation_failed"),
        (b'{"a":1,"a":2}', "application/json", 400, "validation_failed"),
        (b"[]", "application/json; charset=utf-8", 422, "validation_failed"),
        (b"[" * 100_000, "application/json", 400, "validation_failed"),
    ],
)
def test_a_body_that_is_no_json_object(tmp_path, raw, media, status, code):
    with rig(tmp_path, clean=False) as made:
        job = made.offered()
        answer = made.call("POST", f"/runs/{job.id}/start", job.token, raw=raw, content_type=media)
        assert (answer.status, answer.code) == (status, code)
        assert len(made.violations) == 1


def test_a_patch_nested_deeply_costs_an_answer_only(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        deep = b'{"base_version":1,"patch":[{"op":"add","path":"/x","value":%s}]}'
        raw = deep % (b"[" * 400 + b"]" * 400)
        answer = made.call(
            "PATCH", f"/runs/{job.id}/document", job.token, raw=raw, content_type="application/json"
        )
        assert answer.status in (400, 422)
        assert not any("server" in one for one in made.violations)


def test_a_patch_with_half_a_character_is_refused_as_any_other(tmp_path):
    with rig(tmp_path, clean=False) as made:
        answer = made.running().status(1, "\ud800")
        assert (answer.status, answer.code) == (422, "validation_failed")
        assert made.violations == ["updateRun: value: holds a lone surrogate"]


def test_a_body_over_the_limit(tmp_path):
    with rig(tmp_path, clean=False) as made:
        path = f"/api/v1/agents/{made.instance.agent.id}/heartbeat"
        headers = {"authorization": f"Bearer {made.agent_token}", "content-type": "application/json"}
        request = Request("PUT", path, {"consumer": "x"}, headers, target=path, oversize=True)
        response = asyncio.run(made.side.answer(request))
        assert response.status == 413
        assert made.violations == ["putHeartbeat: the body is too long"]


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.body is not None], ids=lambda one: one.name
)
def test_a_missing_member_is_named_by_its_path(tmp_path, operation):
    """Every body is read strictly before anything is judged."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        ids = dict.fromkeys(["message_id", "interaction_id"], NOBODY)
        path = operation.path.format(
            run_id=job.id, thread_id=job.thread_id, agent_id=made.instance.agent.id, **ids
        )
        token = made.agent_token if "agents" in path else job.token
        answer = made.call(operation.method, path, token, {}, If_Match='"1"')
        assert (answer.status, answer.code) == (422, "validation_failed")
        assert answer.json["detail"].endswith("is missing")
        assert made.violations == [f"{operation.name}: {answer.json['detail']}"]


# Disturbances


def test_a_fault_answers_instead_of_the_call(tmp_path):
    with rig(tmp_path) as made:
        job = made.offered()
        made.side.fault = lambda name, _request: (
            Fault.answer(503, retry_after=7) if name == "startRun" else None
        )
        answer = job.start()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
        assert job.run.state == "queued"
        made.side.fault = lambda _name, _request: Fault.answer(409, "run_ended")
        assert job.start().code == "run_ended"
        made.side.fault = None
        assert job.start().status == 200


def test_an_answer_is_lost_before_or_after_the_call(tmp_path):
    with rig(tmp_path) as made:
        job = made.offered()
        for fault, state in [(Fault.LOSE_BEFORE, "queued"), (Fault.LOSE_AFTER, "running")]:
            made.side.fault = lambda _name, _request, fault=fault: fault
            with pytest.raises(AnswerLostError):
                job.start()
            assert job.run.state == state


# Failures of the server itself


def test_a_disk_that_does_not_take_it(tmp_path, caplog):
    """Nothing has changed, the answer is 503, and the failure is counted."""
    with rig(tmp_path, clean=False) as made:
        job = made.offered()
        commit = made.instance.state._commit

        def full(_changes):
            with made.instance.store._errors():
                raise sqlite3.OperationalError("database or disk is full")

        made.instance.state._commit = full
        assert job.start().status == 503
        assert job.run.state == "queued"
        assert made.violations == ["server: startRun failed (StateError)"]
        made.instance.state._commit = commit
        assert job.start().status == 200
        assert "disk is full" in caplog.text


def test_a_bug_of_the_server_is_a_500_and_counted(tmp_path, monkeypatch, caplog):
    """Its message is not logged: it may hold what somebody wrote."""
    with rig(tmp_path, clean=False) as made:
        job = made.offered()

        def broken(*_args):
            raise KeyError("a secret of Ada")

        monkeypatch.setattr(made.instance.runs_side, "start", broken)
        answer = job.start()
        assert answer.status == 500
        assert made.violations == ["server: startRun failed (KeyError)"]
        assert "secret" not in caplog.text
        assert job.run.state == "queued"


def test_violations_are_logged_without_content(tmp_path, caplog):
    with rig(tmp_path, clean=False) as made, caplog.at_level(logging.WARNING):
        job = made.running()
        job.write("private words", role="private role")
        assert caplog.messages == [
            "violation of the protocol: createMessage: role: is none of answer, interim"
        ]
        assert "private" not in caplog.text


def test_an_answer_code_is_always_one_of_the_protocols(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        answers = [
            job.start(tool_class="chat"),
            job.status(7, "x"),
            job.write(""),
            job.finish("failed"),
            job.call("POST", "start", EVIDENCE, Authorization="Bearer x"),
        ]
        for answer in answers:
            assert answer.code in set(ProblemCode)
            assert answer.json["status"] == answer.status


# Everything that is nearly right ------------------------------------------------------------------

NO_VIOLATION = {
    "run_ended",
    "run_not_startable",
    "billing_mode_mismatch",
    "tool_class_exceeded",
    "version_conflict",
    "precondition_failed",
    "title_not_auto",
}
"""Refusals that an adapter which keeps to the protocol meets as well."""


def in_state(made, state):
    """A run in a state, with a card that was used, a follow-up and a message."""
    if state == "queued":
        return made.offered(), dict.fromkeys(["message_id", "interaction_id"], NOBODY)
    job = made.running()
    card = job.card(select(), button())
    if state == "waiting_input":
        job.wait(card)
    used = job.use(card, "yes")
    made.take()
    if state == "failed":
        made.instance.end_run(job.id)
        made.take()
    return job, {"message_id": card, "interaction_id": str(used.interaction.id)}


def nearly(operation, job, ids):
    """A body that fits the operation and the run."""
    body = EXAMPLES[operation.body]()
    for name in ("message_id", "reply_to"):
        if name in body:
            body[name] = ids["message_id"]
    return body


@pytest.mark.parametrize("state", ["queued", "running", "waiting_input", "failed"])
def test_whatever_is_nearly_a_call_gets_an_answer_and_is_counted_once(tmp_path, caplog, state):
    """Every body of the protocol with something wrong: refused without its words, never a failure."""
    draw = random.Random(26)
    with rig(tmp_path, clean=False, run_update_min_interval_ms=0) as made:
        made.connect(max_active_runs=100)
        for operation in [one for one in OPERATIONS if one.body is not None]:
            job, ids = in_state(made, state)
            whole = ids | {"run_id": job.id, "thread_id": job.thread_id, "agent_id": made.instance.agent.id}
            path = operation.path.format_map(whole) + "?consumer=default"
            token = made.agent_token if "agents" in path else job.token
            for number in range(20):
                made.violations.clear()
                body = mutant(draw, nearly(operation, job, ids))
                raw = json.dumps(body).encode()
                raw = garbled(draw, raw) if number % 5 == 0 else raw
                answer = made.call(
                    operation.method, path, token, raw=raw, If_Match='"1"', Content_Type="application/json"
                )
                assert answer.status < 500, (operation.name, body)
                refused = answer.status >= 400 and answer.code not in NO_VIOLATION
                assert len(made.violations) == refused, (operation.name, answer)
                assert answer.status < 400 or WORD not in json.dumps(answer.json | {"document": None})
    assert WORD not in caplog.text
