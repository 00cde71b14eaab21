"""Threads on the embedded server: messages of people, titles, sessions, files (sections 4 and 8)."""

import asyncio

import pytest

from bothy_hermes.local_rules import Refused
from tests.fakes.local_kit import rig


def put_session(job, reference, version, **changes):
    body = {"external_session_ref": reference, "started": True, **changes}
    return job.call("PUT", f"/threads/{job.thread_id}/agent-session", body, If_Match=f'"{version}"')


def put_title(job, title, version):
    return job.call("PUT", f"/threads/{job.thread_id}/title", {"title": title}, If_Match=f'"{version}"')


def refusal(call, *args, **options):
    with pytest.raises(Refused) as caught:
        call(*args, **options)
    return caught.value.code


# Messages of people


def test_a_repeated_message_of_a_person_is_the_same(tmp_path):
    """One run, however often the page sends it; another content under the ID is refused."""
    with rig(tmp_path) as made:
        thread = made.thread()
        first = made.say(thread, client_msg_id="x")
        again = made.say(thread, client_msg_id="x")
        assert (first.message, first.run_id, again.fresh) == (again.message, again.run_id, False)
        assert refusal(made.say, thread, "other", client_msg_id="x") == "validation_failed"
        assert made.say(thread, client_msg_id="x", person=made.ben).fresh
        assert len(made.instance.runs(thread.id)) == 1


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("", {}, "validation_failed"),
        ("x" * 9, {}, "content_too_long"),
        ("x", {"session_mode": "other"}, "validation_failed"),
        ("x", {"session_mode": "bind"}, "validation_failed"),
        ("x", {"bind_ref": "s"}, "validation_failed"),
        ("x", {"file_ids": ["00000000-0000-4000-8000-000000000001"]}, "validation_failed"),
    ],
)
def test_a_bad_message_of_a_person_changes_nothing(tmp_path, text, options, code):
    with rig(tmp_path, max_content_bytes=8) as made:
        thread = made.thread()
        assert refusal(made.say, thread, text, **options) == code
        assert made.instance.messages(thread.id) == ()


def test_a_channel_that_is_not_served_calls_the_agent_in_by_name(tmp_path):
    """Its runs are guest runs; a message without the name is only a message."""
    with rig(tmp_path) as made:
        channel = made.instance.add_channel("elsewhere", served=False)
        thread = made.thread(channel_id=channel.id)
        assert made.say(thread, "hello all").run_id is None
        job = made.running(thread, "hello @hermes")
        assert (job.run.kind, job.event["payload"]["run"]["kind"]) == ("guest", "guest")
        assert made.say(thread, "more").followup_of == job.id


def test_a_command_is_marked_as_one(tmp_path):
    with rig(tmp_path) as made:
        job = made.offered(trigger_kind="command")
        assert job.event["payload"]["trigger_kind"] == "command"
        assert job.run.trigger_kind == "command"


# Sessions


def test_the_first_run_is_new_and_the_next_resumes(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        payload = job.event["payload"]
        assert (payload["session_mode"], payload["agent_session"]) == (
            "new",
            {"external_session_ref": None, "version": 0},
        )
        assert put_session(job, "s1", 0).json == {"external_session_ref": "s1", "version": 1}
        job.finish()
        payload = made.running(thread).event["payload"]
        assert (payload["session_mode"], payload["agent_session"]) == (
            "resume",
            {"external_session_ref": "s1", "version": 1},
        )


def test_people_ask_for_a_new_or_a_bound_session(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        made.running(thread).finish()
        job = made.offered(thread, session_mode="bind", bind_ref="s9")
        payload = job.event["payload"]
        assert (payload["session_mode"], payload["agent_session"]["external_session_ref"]) == ("bind", "s9")
        job.finish("cancelled")
        payload = made.offered(thread, session_mode="new").event["payload"]
        assert (payload["session_mode"], payload["agent_session"]["external_session_ref"]) == ("new", None)


def test_a_wish_of_a_followup_is_kept_for_the_run_it_becomes(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        made.say(thread, "from anew", session_mode="new")
        made.take()
        job.finish()
        assert made.events()[0]["payload"]["session_mode"] == "new"


def test_a_session_that_was_named_before_the_last_followup_is_bound(tmp_path):
    """The texts become one run: what one of them asked for holds for all."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        for wish in ({"session_mode": "bind", "bind_ref": "s9"}, {}):
            made.say(thread, "go on", **wish)
            made.take()
        job.finish()
        payload = made.events()[0]["payload"]
        assert (payload["session_mode"], payload["agent_session"]["external_session_ref"]) == ("bind", "s9")


def test_session_reports_carry_the_version(tmp_path):
    """Stale is 412 with the current version; the same report again is a repetition."""
    with rig(tmp_path) as made:
        job = made.running()
        assert put_session(job, "s1", 0).status == 200
        assert put_session(job, "s1", 0).json["version"] == 1
        stale = put_session(job, "s2", 0)
        assert (stale.status, stale.code, stale.json["version"]) == (412, "precondition_failed", 1)
        assert put_session(job, "s2", 1, started=False).json["version"] == 2


def test_a_session_is_reported_after_the_end_while_the_token_lives(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        assert put_session(job, "s1", 0).status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"bind_failed": "whatever"},
        {"bind_failed": "session_missing"},
        {"external_session_ref": ""},
    ],
)
def test_a_bad_session_report_is_a_violation(tmp_path, changes):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        assert put_session(job, **{"reference": "s1", "version": 0, **changes}).status == 422
        assert len(made.violations) == 1


def test_a_bind_that_failed(tmp_path):
    with rig(tmp_path) as made:
        job = made.running(session_mode="bind", bind_ref="gone")
        answer = put_session(job, "s1", 0, bind_failed="session_missing")
        assert answer.json == {"external_session_ref": "s1", "version": 1}


# Titles


def test_the_agent_gives_a_title_until_a_person_does(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        answer = put_title(job, "Greetings", 1)
        assert answer.json == {
            "id": str(job.thread_id),
            "title": "Greetings",
            "title_source": "auto",
            "version": 2,
        }
        assert put_title(job, "Greetings", 1).json["version"] == 2
        assert put_title(job, "Other", 1).status == 412
        made.instance.set_title(made.ada.id, job.thread_id, "Mine")
        refused = put_title(job, "Greetings", 2)
        assert (refused.status, refused.code) == (409, "title_not_auto")
        made.instance.set_title(made.ada.id, job.thread_id, None)
        assert put_title(job, "Yours", 4).json["version"] == 5


@pytest.mark.parametrize("title", ["", "x" * 121])
def test_a_title_has_its_length(tmp_path, title):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        assert put_title(job, title, 1).status == 422
        assert refusal(made.instance.set_title, made.ada.id, job.thread_id, title) == "validation_failed"


def test_a_thread_made_with_a_title_keeps_it(tmp_path):
    with rig(tmp_path) as made:
        job = made.running(made.thread(title="Mine"))
        assert put_title(job, "Yours", 1).code == "title_not_auto"


def test_guest_runs_report_nothing_and_set_nothing(tmp_path):
    with rig(tmp_path, clean=False) as made:
        channel = made.instance.add_channel("elsewhere", served=False)
        job = made.running(made.thread(channel_id=channel.id), "@Hermes hello")
        assert put_session(job, "s1", 0).code == "forbidden"
        assert put_title(job, "Title", 1).code == "forbidden"
        config = job.call("GET", f"/channels/{channel.id}/served-config")
        assert (config.status, config.code) == (403, "forbidden")
        assert len(made.violations) == 3


def test_a_served_channel_tells_its_configuration(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        channel = made.instance.channels()[0]
        made.instance.set_channel_config(channel.id, "Be brief.", [("tone", "dry")])
        assert job.call("GET", f"/channels/{channel.id}/served-config").json == {
            "settings_version": 2,
            "prompt": "Be brief.",
            "skills": [{"name": "tone", "text": "dry"}],
        }


# Files


def download(made, job, file_id, **headers):
    answer = job.call("GET", f"/files/{file_id}", **headers)
    if answer.response.stream is None:
        return answer.status, answer.json, answer.headers

    async def read():
        return b"".join([chunk async for chunk in answer.response.stream])

    return answer.status, asyncio.run(read()), answer.headers


def test_a_file_is_read_whole_or_in_part(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        data = bytes(range(256)) * 1000
        file = made.instance.add_file(made.ada.id, thread.id, "a.bin", "application/x-a", data)
        job = made.running(thread, file_ids=[file.id])
        status, body, headers = download(made, job, file.id)
        assert (status, body, headers["Content-Type"]) == (200, data, "application/x-a")
        status, body, headers = download(made, job, file.id, Range="bytes=10-19")
        assert (status, body, headers["Content-Range"]) == (206, data[10:20], "bytes 10-19/256000")
        (element,) = job.context().json["elements"]
        assert element["attachments"] == [
            {
                "id": str(file.id),
                "name": "a.bin",
                "media_type": "application/x-a",
                "size_bytes": 256_000,
                "scan_status": "clean",
            }
        ]


@pytest.mark.parametrize(
    ("scan_status", "status"), [("clean", 200), ("skipped", 200), ("pending", 403), ("infected", 403)]
)
def test_the_scanner_decides_what_is_read(tmp_path, scan_status, status):
    with rig(tmp_path) as made:
        thread = made.thread()
        file = made.instance.add_file(made.ada.id, thread.id, "a", "text/plain", b"a", "pending")
        made.instance.set_scan_status(file.id, scan_status)
        job = made.running(thread, file_ids=[file.id])
        found, body, _ = download(made, job, file.id)
        assert found == status
        assert status == 200 or body["code"] == "file_refused"
        assert job.context().json["elements"][0]["attachments"][0]["scan_status"] == scan_status


def test_only_files_of_the_runs_thread(tmp_path):
    with rig(tmp_path, clean=False) as made:
        file = made.instance.add_file(made.ada.id, made.thread().id, "a", "text/plain", b"a")
        job = made.running()
        assert download(made, job, file.id)[0] == 403
        assert download(made, job, job.id)[0] == 404
        assert len(made.violations) == 2


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"ab")])
def test_a_file_whose_bytes_are_gone_is_not_found(tmp_path, harm, caplog):
    """Not an answer that breaks off, which would be asked for again and again; it is the server's fault."""
    with rig(tmp_path, clean=False) as made:
        thread = made.thread()
        file = made.instance.add_file(made.ada.id, thread.id, "a", "text/plain", b"abc")
        job = made.running(thread, file_ids=[file.id])
        harm(made.instance.store.file_path(file.id))
        found, body, _ = download(made, job, file.id)
        assert (found, body["code"]) == (404, "not_found")
        assert made.violations == ["server: the bytes of a file are gone"]
    assert str(file.id) in caplog.text


def test_a_voice_message_has_a_transcript(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        file = made.instance.add_file(
            made.ada.id, thread.id, "a.ogg", "audio/ogg", b"a", transcript="hello there"
        )
        job = made.running(thread, "", file_ids=[file.id])
        (element,) = job.context().json["elements"]
        assert element["transcripts"] == [
            {"attachment_id": str(file.id), "text": "hello there", "trust": "member"}
        ]
