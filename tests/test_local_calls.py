"""The rules that all calls share: whose run, the end of a run, repetitions, preconditions (sections 3, 7)."""

import pytest

from bothy_hermes.local_rules import AFTER_END
from bothy_hermes.wire_operations import OPERATIONS
from tests.fakes.local_kit import EVIDENCE, Job, rig

NOBODY = "00000000-0000-4000-8000-000000000001"

OVER = {
    "startRun",
    "updateRun",
    "updateMessage",
    "awaitRunInput",
    "resumeRun",
    "setThreadTitle",
    "reportFollowup",
}
"""What a run that has ended takes no more, a repetition neither, beside a renewal (section 7)."""


def all_calls(made, job):
    """Return every changing call of a run as (operation, a function that makes it)."""
    card = job.card()
    job.wait(card)
    used = job.use(card)
    made.take()
    message = job.write("hi").json["id"]
    posted = made.say(made.instance.thread(job.thread_id), "more")
    made.take()
    session = {"external_session_ref": "s", "started": True}
    thread = f"/threads/{job.thread_id}"
    return {
        "startRun": job.start,
        "updateRun": lambda: job.status(1, "x"),
        "createMessage": lambda: job.write("again", client_msg_id="again"),
        "updateMessage": lambda: job.call(
            "PATCH", f"/messages/{message}", {"content": "new"}, If_Match='"1"'
        ),
        "awaitRunInput": lambda: job.wait(card),
        "resumeRun": lambda: job.resume(card),
        "respondToInteraction": lambda: job.respond(used.interaction.id),
        "closeCard": lambda: job.close(card, "answered"),
        "reportFollowup": lambda: job.followup(posted.message.id),
        "reportAgentSession": lambda: job.call("PUT", f"{thread}/agent-session", session, If_Match='"0"'),
        "setThreadTitle": lambda: job.call("PUT", f"{thread}/title", {"title": "T"}, If_Match='"1"'),
        "finishRun": job.finish,
    }


def test_every_changing_call_may_be_repeated(tmp_path):
    """The same call again is answered with 200 and the same body, and changes nothing."""
    with rig(tmp_path) as made:
        job = made.running()
        calls = all_calls(made, job)
        for name, call in calls.items():
            first = call()
            assert first.status in (200, 201), (name, first)
            before = made.instance.changes.latest
            again = call()
            assert (again.status, again.json) == (200, first.json), name
            assert made.instance.changes.latest == before, name
        assert set(calls) | {"renewRunToken"} == set(AFTER_END)


def test_after_the_end_only_some_calls_repeat(tmp_path):
    """The adapter's own end: createMessage and finishRun repeat, late reports stay open, the rest is over."""
    with rig(tmp_path) as made:
        job = made.running()
        calls = all_calls(made, job)
        for call in calls.values():
            call()
        answers = {name: call() for name, call in calls.items()}
        assert {name for name, answer in answers.items() if answer.status == 409} == OVER
        assert {answers[name].code for name in OVER} | {job.renew().code} == {"run_ended"}


def unacked(made, kind):
    """An event that was sent and not acked, and the call that answers it."""
    if kind == "invocation":
        made.connect()
        posted = made.say(made.thread())
        (event,) = made.events()
        return event, Job(made, posted.run_id, event).start
    job = made.running()
    card = job.card()
    job.wait(card)
    if kind.startswith("interaction"):
        used = job.use(card).interaction.id
        (event,) = made.events()
        if kind == "interaction":
            return event, lambda: job.respond(used, "failed")
        return event, lambda: job.resume(card)
    text = str(made.say(made.instance.thread(job.thread_id), "more").message.id)
    (event,) = made.events()
    if kind == "followup":
        return event, lambda: job.followup(text)
    return event, lambda: job.resume(card, "followup", followup_message_id=text)


@pytest.mark.parametrize(
    "kind", ["invocation", "followup", "followup resumes", "interaction", "interaction resumes"]
)
def test_what_answers_an_event_comes_after_its_ack(tmp_path, kind):
    """Before it the call is out of order; after it, or when the event's connection is gone, it is done."""
    with rig(tmp_path, clean=False) as made:
        event, call = unacked(made, kind)
        assert call().status == 409
        assert [one.partition(": ")[2] for one in made.violations] == [
            "the call came before the ack of its event"
        ]
        if "resumes" in kind:
            made.disconnect()
        else:
            made.ack(event)
        assert call().status == 200
        assert len(made.violations) == 1


def test_reads_stay_open_after_the_end(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        assert job.call("GET", "").json["run"]["state"] == "completed"
        assert job.context().status == 200


def test_a_repetition_outlives_a_restart_of_the_server(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        first = job.status(1, "one")
        made.restart()
        assert job.status(1, "one").json == first.json


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.if_match], ids=lambda one: one.name)
def test_if_match_is_demanded_of_a_repetition_as_well(tmp_path, operation):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        message = job.write("hi").json["id"]
        path = operation.path.format(message_id=message, thread_id=job.thread_id)
        body = {"content": "x", "title": "x", "external_session_ref": "x", "started": True}
        version = {"updateMessage": 1, "setThreadTitle": 1, "reportAgentSession": 0}[operation.name]
        assert job.call(operation.method, path, body, If_Match=f'"{version}"').status == 200
        answer = job.call(operation.method, path, body)
        assert (answer.status, answer.code) == (428, "precondition_required")
        assert made.violations == [f"{operation.name}: If-Match is missing"]


def test_the_agent_token_renews_for_the_starter_and_a_run_token_for_its_person(tmp_path):
    """A renewed token keeps the `sub` of the one it was asked with."""
    with rig(tmp_path) as made:
        job = made.running(person=made.ben)
        made.say(made.instance.thread(job.thread_id), "more", made.ada)
        followup = made.take()
        subjects = []
        for token in (followup["token"], job.token, made.agent_token):
            fresh = made.call("POST", f"/runs/{job.id}/token", token).json["token"]
            assert fresh != token
            subjects.append(claims(fresh)["sub"])
        assert subjects == [str(made.ada.id), str(made.ben.id), str(made.ben.id)]


def claims(token):
    """Read a token's claims without proving anything."""
    import base64
    import json

    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_token_of_an_event_is_new_for_every_attempt(tmp_path):
    with rig(tmp_path) as made:
        made.connect()
        made.say(made.thread())
        found = []
        for _ in range(3):
            (event,) = made.events()
            found.append(claims(event["token"])["jti"])
            made.clock.move(31)
        assert len(set(found)) == 3


def test_unknown_members_of_a_body_are_ignored(tmp_path):
    """Only the heartbeat is closed."""
    with rig(tmp_path) as made:
        job = made.offered()
        assert job.call("POST", "start", {**EVIDENCE, "more": [1]}).status == 200
