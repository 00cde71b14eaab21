"""What the adapter writes on the embedded server: messages, cards, contents, follow-ups (section 4)."""

from uuid import UUID

import pytest

from tests.fakes.local_kit import button, rig, select


def test_a_message_as_it_is_answered(tmp_path):
    """Every member is there, the author is the agent, and the version is in the ETag."""
    with rig(tmp_path) as made:
        job = made.running()
        trigger = str(job.run.trigger_message_id)
        answer = job.write("hi", reply_to=trigger, part={"index": 0, "last": True})
        assert answer.status == 201
        assert answer.headers["ETag"] == '"1"'
        made_id = answer.json.pop("id")
        assert answer.json == {
            "thread_id": str(job.thread_id),
            "run_id": str(job.id),
            "kind": "text",
            "role": "answer",
            "content": "hi",
            "part": {"index": 0, "last": True},
            "reply_to": trigger,
            "author": {
                "id": str(made.instance.agent.id),
                "kind": "agent",
                "display_name": "Hermes",
            },
            "components": [],
            "version": 1,
            "client_msg_id": "m1",
            "closed": None,
            "created_at": "2026-11-30T12:00:00.000000Z",
        }
        assert made.instance.message(UUID(made_id)).content == "hi"


def test_the_same_client_msg_id_is_the_same_message(tmp_path):
    """Looked up before the run's state; a missing member is a null one; another body is refused."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        first = job.write("hi", client_msg_id="x", reply_to=None)
        again = job.write("hi", client_msg_id="x")
        assert (first.status, again.status) == (201, 200)
        assert first.json == again.json
        assert job.write("other", client_msg_id="x").status == 422
        job.finish()
        assert job.write("hi", client_msg_id="x").status == 200
        assert job.write("new").code == "run_ended"
        assert len(made.instance.messages(job.thread_id)) == 2
        assert made.violations == ["createMessage: another message has this client_msg_id"]


def test_client_msg_ids_are_per_run(tmp_path):
    with rig(tmp_path) as made:
        for _ in range(2):
            job = made.running()
            assert job.write("hi", client_msg_id="x").status == 201


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"content": ""}, "validation_failed"),
        ({"client_msg_id": ""}, "validation_failed"),
        ({"client_msg_id": "x" * 101}, "validation_failed"),
        ({"role": "loud"}, "validation_failed"),
        ({"reply_to": "00000000-0000-4000-8000-000000000001"}, "validation_failed"),
        ({"part": {"index": 1, "last": True}}, "validation_failed"),
        ({"part": {"index": -1, "last": True}}, "validation_failed"),
        ({"components": [button()]}, "component_invalid"),
        ({"kind": "card", "role": "answer"}, "validation_failed"),
        ({"kind": "card", "role": "interim", "part": {"index": 0, "last": True}}, "validation_failed"),
        ({"kind": "card", "role": "interim", "components": [button(), button()]}, "component_invalid"),
        ({"kind": "card", "role": "interim", "components": [button(kind="dial")]}, "component_invalid"),
        ({"kind": "card", "role": "interim", "components": [button(label="")]}, "component_invalid"),
        ({"kind": "card", "role": "interim", "components": [button(options=[])]}, "component_invalid"),
        (
            {"kind": "card", "role": "interim", "components": [select(values=("a", "a"))]},
            "component_invalid",
        ),
        (
            {"kind": "card", "role": "interim", "components": [button("x", kind="select")]},
            "component_invalid",
        ),
        (
            {
                "kind": "card",
                "role": "interim",
                "components": [button(options=[{"value": "a", "label": "a"}])],
            },
            "component_invalid",
        ),
        (
            {"kind": "card", "role": "interim", "components": [button(str(n)) for n in range(11)]},
            "component_invalid",
        ),
    ],
)
def test_a_bad_message_is_a_violation(tmp_path, changes, code):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        answer = job.write(**{"content": "hi", **changes})
        assert (answer.status, answer.code) == (422, code)
        assert len(made.violations) == 1
        assert len(made.instance.messages(job.thread_id)) == 1


def test_a_reply_stays_in_its_thread(tmp_path):
    with rig(tmp_path, clean=False) as made:
        elsewhere = made.say(made.thread()).message.id
        made.connect(max_active_runs=1)
        made.take()
        made.instance.cancel_run(made.ada.id, made.instance.message(elsewhere).run_id)
        made.take()
        job = made.running()
        assert job.write(reply_to=str(elsewhere)).status == 422
        assert job.write(reply_to=str(job.run.trigger_message_id)).status == 201


def test_ten_components_are_taken(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(*(button(str(number)) for number in range(10)))
        ids = {one.id for one in made.instance.message(UUID(card)).components}
        assert len(ids) == 10


def test_content_is_measured_in_bytes(tmp_path):
    """A limit that the server lowered is answered with 413, and so is the protocol's own."""
    with rig(tmp_path, clean=False, max_content_bytes=8) as made:
        job = made.running()
        assert job.write("ααββ").status == 201
        answer = job.write("ααββγ")
        assert (answer.status, answer.code) == (413, "content_too_long")
        assert made.violations == ["createMessage: the content is too long"]


def test_the_largest_content(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        assert job.write("x" * 262_144).status == 201
        assert job.write("x" * 262_145).code == "content_too_long"


def test_parts_follow_each_other(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        for index in range(3):
            assert job.write(part={"index": index, "last": index == 2}).status == 201
        assert job.write(part={"index": 3, "last": True}).status == 422
        assert job.write(part={"index": 0, "last": False}).status == 201
        assert job.write(part={"index": 2, "last": True}).status == 422
        assert job.write(part={"index": 1, "last": True}).status == 201


# updateMessage


def edit(job, message, content, version):
    headers = {} if version is None else {"If_Match": version}
    return job.call("PATCH", f"/messages/{message}", {"content": content}, **headers)


def test_a_new_content(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        message = job.write("hi").json["id"]
        answer = edit(job, message, "hello", '"1"')
        assert (answer.json["content"], answer.json["version"]) == ("hello", 2)
        assert answer.headers["ETag"] == '"2"'
        repeated = edit(job, message, "hello", '"1"')
        assert (repeated.status, repeated.json, repeated.headers["ETag"]) == (200, answer.json, '"2"')
        stale = edit(job, message, "hello!", '"1"')
        assert (stale.status, stale.code, stale.json["version"]) == (412, "precondition_failed", 2)


def test_what_may_not_be_edited(tmp_path):
    """An empty content, a card, a person's message, another run's."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        message = job.write("hi").json["id"]
        assert edit(job, message, "", '"1"').status == 422
        assert edit(job, job.card(), "x", '"1"').status == 422
        assert edit(job, job.run.trigger_message_id, "x", '"1"').status == 403
        other = made.running()
        assert edit(other, message, "x", '"1"').status == 403
        assert edit(job, "00000000-0000-4000-8000-000000000001", "x", '"1"').status == 404
        assert len(made.violations) == 5


# reportFollowup


def test_absorbed_is_final(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        posted = made.say(made.instance.thread(job.thread_id), "more")
        made.take()
        job.followup(posted.message.id, "delivered")
        assert made.instance.message(posted.message.id).run_id is None
        job.followup(posted.message.id, "absorbed")
        assert made.instance.message(posted.message.id).run_id == job.id
        assert job.followup(posted.message.id, "absorbed").status == 200
        refused = job.followup(posted.message.id, "delivered")
        assert (refused.status, refused.code) == (409, "followup_absorbed")
        assert len(made.violations) == 1


def test_a_followup_is_reported_after_its_ack(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        posted = made.say(made.instance.thread(job.thread_id), "more")
        assert job.followup(posted.message.id).status == 409
        made.events()
        assert job.followup(posted.message.id).status == 409
        assert len(made.violations) == 2


def test_only_followups_of_the_run_are_reported(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job, other = made.running(), made.running()
        elsewhere = made.say(made.instance.thread(other.thread_id), "more").message.id
        made.take()
        assert job.followup(elsewhere).status == 403
        assert made.instance.followup_state(elsewhere) == "waiting"
        assert job.followup(job.run.trigger_message_id).status == 403
        assert job.followup("00000000-0000-4000-8000-000000000001").status == 404


def test_after_the_end_no_followup_is_reported(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        posted = made.say(made.instance.thread(job.thread_id), "more")
        made.take()
        job.followup(posted.message.id)
        job.finish()
        assert job.followup(posted.message.id).code == "run_ended"
