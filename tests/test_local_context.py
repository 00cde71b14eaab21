"""The context of a run on the embedded server (section 9)."""

from tests.fakes.local_kit import rig


def seen(job):
    """Return (content, already_delivered) of each element."""
    return [(one["content"], one["already_delivered"]) for one in job.context().json["elements"]]


def test_a_context_as_it_is_answered(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.offered(thread, "hello")
        context = job.context().json
        assert context["run"] == job.event["payload"]["run"]
        assert context["thread"] == {
            "id": str(thread.id),
            "title": None,
            "title_source": "auto",
            "version": 1,
        }
        assert context["channel"] == {"id": str(thread.channel_id), "name": "general"}
        assert context["starter"] == {"id": str(made.ada.id), "display_name": "Ada"}
        assert context["truncated"] is False
        assert context["elements"] == [
            {
                "id": str(job.run.trigger_message_id),
                "kind": "message",
                "author": {"id": str(made.ada.id), "kind": "person", "display_name": "Ada"},
                "trust": "trusted",
                "created_at": "2026-11-30T12:00:00.000000Z",
                "already_delivered": False,
                "content": "hello",
                "attachments": [],
                "transcripts": [],
            }
        ]


def test_what_an_earlier_turn_had_is_already_delivered(tmp_path):
    """The agent's own messages always are; the trigger of the run itself is not, before and after start."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread, "one")
        job.write("answer one")
        job.finish()
        job = made.offered(thread, "two")
        expected = [("one", True), ("answer one", True), ("two", False)]
        assert seen(job) == expected
        job.start()
        assert seen(job) == expected


def test_a_run_that_never_started_delivered_nothing(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        made.offered(thread, "one").finish("failed", "not_allowed")
        assert seen(made.offered(thread, "two")) == [("one", False), ("two", False)]


def test_a_new_session_has_had_nothing(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread, "one")
        job.write("answer")
        job.finish()
        job = made.running(thread, "two", session_mode="new")
        assert seen(job) == [("one", False), ("answer", True), ("two", False)]
        job.finish()
        assert [one[1] for one in seen(made.running(thread, "three"))] == [True, True, True, False]


def test_a_session_that_was_lost_has_had_only_what_its_first_turn_got(tmp_path):
    """A report with `started` on a run that was to resume tells that the turn went into a new session."""
    with rig(tmp_path) as made:
        thread = made.thread()
        made.running(thread, "one").finish()
        job = made.running(thread, "two")
        body = {"external_session_ref": "s2", "started": True}
        job.call("PUT", f"/threads/{thread.id}/agent-session", body, If_Match='"0"')
        job.finish()
        assert seen(made.running(thread, "three")) == [("one", False), ("two", True), ("three", False)]


def test_followups_of_the_run_come_after_its_trigger(tmp_path):
    """Absorbed ones count as delivered; what was left is the trigger of the next run."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread, "one")
        first = made.say(thread, "two")
        made.say(thread, "three", made.ben)
        for _ in range(2):
            made.take()
        job.followup(first.message.id)
        job.write("answer")
        assert seen(job) == [("one", False), ("two", True), ("three", False), ("answer", True)]
        job.finish()
        job = made.running_next()
        assert seen(job) == [("one", True), ("two", True), ("three", False), ("answer", True)]


def test_a_group_of_followups_is_undelivered_in_its_own_run(tmp_path):
    """The trigger is the last of them, the others stand before it."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread, "one")
        for text in ("two", "three"):
            made.say(thread, text, made.ben)
            made.take()
        job.finish()
        job = made.running_next()
        assert seen(job) == [("one", True), ("two", False), ("three", False)]
        assert job.context().json["elements"][-1]["id"] == str(job.run.trigger_message_id)


def test_followups_from_before_the_start_are_undelivered_too(tmp_path):
    """The run that began after them had them in its context, but not in its turn."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.offered(thread, "one")
        for text in ("two", "three"):
            made.say(thread, text)
        job.start()
        for _ in range(2):
            made.take()
        job.finish()
        assert seen(made.running_next()) == [("one", True), ("two", False), ("three", False)]


def test_trust_follows_the_author(tmp_path):
    """The agent and its owner are trusted, members are members, everybody else is unverified."""
    with rig(tmp_path) as made:
        thread = made.thread()
        eve = made.instance.add_person("Eve", "guest")
        for person in (made.ada, made.ben, eve):
            job = made.running(thread, "x", person=person)
            job.write("y")
            job.finish()
        job = made.running(thread)
        trusts = [one["trust"] for one in job.context().json["elements"]]
        assert trusts == ["trusted", "trusted", "member", "trusted", "unverified", "trusted", "trusted"]


def test_elements_that_nobody_wrote(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        made.instance.add_element(thread.id, "summary", "what was said before")
        job = made.running(thread)
        first = job.context().json["elements"][0]
        assert (first["kind"], first["author"], first["trust"]) == ("summary", None, "unverified")
        assert len(made.instance.messages(thread.id)) == 1


def test_a_guest_run_has_had_nothing(tmp_path):
    """Each guest run is a session of its own."""
    with rig(tmp_path) as made:
        channel = made.instance.add_channel("elsewhere", served=False)
        thread = made.thread(channel_id=channel.id)
        made.running(thread, "@Hermes one").finish()
        assert seen(made.running(thread, "@Hermes two")) == [
            ("@Hermes one", False),
            ("@Hermes two", False),
        ]


def test_a_long_thread_is_cut_at_its_old_end(tmp_path):
    """At most 200 elements, and `truncated` says that there were more."""
    with rig(tmp_path) as made:
        thread = made.thread()
        for number in range(205):
            made.instance.add_element(thread.id, "message", str(number), "member")
        context = made.running(thread, "now").context().json
        assert (len(context["elements"]), context["truncated"]) == (200, True)
        assert [context["elements"][at]["content"] for at in (0, -2, -1)] == ["6", "204", "now"]


def test_a_heavy_thread_is_cut_at_its_old_end(tmp_path):
    """About a mebibyte of text; the trigger is never left out."""
    with rig(tmp_path) as made:
        thread = made.thread()
        for _ in range(6):
            made.instance.add_element(thread.id, "message", "x" * 262_000, "member")
        context = made.running(thread, "now").context().json
        assert (len(context["elements"]), context["truncated"]) == (5, True)
        assert context["elements"][-1]["content"] == "now"


def test_the_context_is_there_in_any_state(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        assert job.context().json["run"]["state"] == "completed"
