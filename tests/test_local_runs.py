"""Runs on the embedded server: how they begin, start, show themselves, age and end (section 7)."""

import pytest

from bothy_hermes.codec import parse
from bothy_hermes.local_rules import Refused
from bothy_hermes.wire import StartRun
from bothy_hermes.wire_words import RunState
from tests.fakes.local_kit import EVIDENCE, button, rig


def test_a_message_makes_a_queued_run(tmp_path):
    """The run knows its starter, its trigger, what it may use, and belongs to nobody yet."""
    with rig(tmp_path, tool_class="scoped", billing_mode="personal") as made:
        thread = made.thread()
        posted = made.say(thread, person=made.ben)
        run = made.instance.run(posted.run_id).run
        assert (run.run_starter, run.trigger_message_id) == (made.ben.id, posted.message.id)
        assert (run.state, run.kind, run.consumer) == (RunState.QUEUED, "operator", None)
        assert (run.tool_class, run.billing_mode) == ("scoped", "personal")
        assert (run.session_mode, run.trigger_kind) == ("new", "message")
        assert posted.message.run_id == run.id


def test_a_plain_run(tmp_path):
    """Queued, running, completed, each with its time."""
    with rig(tmp_path) as made:
        job = made.offered()
        made.clock.move(1)
        view = job.start().json
        assert (view["run"]["state"], view["document"]["version"], view["open_cards"]) == ("running", 1, [])
        assert view["run"]["started_at"] == "2026-11-30T12:00:01.000000Z"
        assert job.write().status == 201
        made.clock.move(1)
        assert job.finish().json["run"]["state"] == "completed"
        assert job.run.finished_at.second == 2
        assert (job.run.reason, job.run.consumer) == (None, "default")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"billing_mode": "personal"}, "billing_mode_mismatch"),
        ({"tool_class": "host"}, "tool_class_exceeded"),
        ({"tool_class": "unheard"}, "tool_class_exceeded"),
    ],
)
def test_evidence_that_changed_leaves_the_run_queued(tmp_path, changes, code):
    """The adapter then finishes the run with that reason; none of it is a violation."""
    with rig(tmp_path, tool_class="scoped") as made:
        job = made.offered()
        refused = job.start(**{"tool_class": "scoped", **changes})
        assert (refused.status, refused.code) == (409, code)
        assert job.run.state is RunState.QUEUED
        assert job.finish("failed", code).json["run"]["reason"] == code


def test_a_weaker_class_than_granted_starts(tmp_path):
    with rig(tmp_path, tool_class="host") as made:
        assert made.offered().start(tool_class="chat").status == 200


def test_a_run_starts_once(tmp_path):
    """Another start of a started run is refused, and that is expected."""
    with rig(tmp_path) as made:
        job = made.running()
        refused = job.start(tool_class="chat")
        assert (refused.status, refused.code) == (409, "run_not_startable")


def test_two_runs_of_a_thread_are_never_started_at_once(tmp_path):
    """The second one is not even offered; should a call for it come all the same, it is refused."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        for person in (made.ada, made.ben):
            made.say(thread, "more", person)
            made.take()
        job.finish()
        made.running_next()
        _, second = made.instance.state.runs.group("active", thread.id)
        with pytest.raises(Refused) as caught, made.instance.state.unit():
            made.instance.runs_side.start(second, parse(StartRun, EVIDENCE))
        assert caught.value.code == "run_not_startable"


def test_an_unacked_invocation_is_not_started(tmp_path):
    """A call that comes before the ack of its event is out of order."""
    with rig(tmp_path, clean=False) as made:
        made.connect()
        posted = made.say(made.thread())
        (event,) = made.events()
        refused = made.call("POST", f"/runs/{posted.run_id}/finish", event["token"], _FAILED)
        assert (refused.status, refused.code) == (409, "run_not_startable")
        assert made.violations == ["finishRun: the call came before the ack of its event"]


_FAILED = {"outcome": "failed", "reason": "not_allowed", "metrics": {}}


def test_a_lost_connection_does_not_make_a_call_early(tmp_path):
    """Whether the ack was lost on the way nobody can know, so the call is taken."""
    with rig(tmp_path) as made:
        made.connect()
        posted = made.say(made.thread())
        (event,) = made.events()
        made.disconnect()
        assert made.call("POST", f"/runs/{posted.run_id}/finish", event["token"], _FAILED).status == 200


# The document


def test_patches_count_versions(tmp_path):
    """Each patch makes the next version, and what people see is the patched document."""
    with rig(tmp_path) as made:
        job = made.running()
        step = {"id": "1", "kind": "tool_call", "title": "ls", "state": "running", "started_at": NOON}
        assert job.patch(1, {"op": "add", "path": "/steps/-", "value": step}).json == {"version": 2}
        made.clock.move(1)
        assert job.status(2, "looking").json == {"version": 3}
        document = job.view.document
        assert (document.version, document.status_line, document.steps[0].title) == (3, "looking", "ls")


NOON = "2026-11-30T12:00:00Z"


def test_a_stale_patch_gets_the_document(tmp_path):
    """The conflict carries the document, and the patch after it does not wait for the interval."""
    with rig(tmp_path) as made:
        job = made.running()
        job.status(1, "one")
        conflict = job.status(1, "two")
        assert (conflict.status, conflict.code) == (409, "version_conflict")
        assert (conflict.json["document"]["version"], conflict.json["document"]["status_line"]) == (2, "one")
        assert job.status(2, "two").status == 200
        made.clock.move(1)
        assert job.status(3, "three").status == 200


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nothing"},
        {"op": "replace", "path": "/version", "value": 7},
        {"op": "replace", "path": "/status_line", "value": "x" * 201},
        {"op": "replace", "path": "/last_text_excerpt", "value": "x" * 4001},
        {"op": "add", "path": "/more", "value": 1},
        {"op": "replace", "path": "/steps", "value": [{"id": "1"}]},
        {
            "op": "replace",
            "path": "/steps",
            "value": [{"id": "1", "kind": "tool_call", "title": "", "state": "running", "started_at": NOON}]
            * 2,
        },
    ],
)
def test_a_patch_that_leaves_no_valid_document_changes_nothing(tmp_path, operation):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        refused = job.patch(1, operation)
        assert (refused.status, refused.code) == (422, "validation_failed")
        assert job.view.document.version == 1
        assert len(made.violations) == 1


def test_a_queued_run_has_no_patches(tmp_path):
    with rig(tmp_path, clean=False) as made:
        refused = made.offered().status(1, "x")
        assert (refused.status, refused.code) == (409, "run_not_running")
        assert made.violations == ["updateRun: the run was not started"]


def test_patches_before_the_interval_are_violations(tmp_path):
    """The early one is seen when another patch follows it; one that is early as well is refused."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        job.status(1, "one")
        made.clock.move(0.1)
        assert job.status(2, "two").status == 200
        made.clock.move(0.1)
        refused = job.status(3, "three")
        assert (refused.status, refused.code) == (429, "rate_limited")
        assert refused.headers["Retry-After"] == "1"
        made.clock.move(5)
        assert job.status(3, "three").status == 200
        assert made.violations == [
            "updateRun: patches came before the interval",
            "updateRun: a patch came before the interval",
        ]


def test_what_is_pending_may_be_sent_before_a_wait(tmp_path):
    """An early patch that awaitRunInput, resumeRun or finishRun follows is right."""
    with rig(tmp_path) as made:
        job = made.running()
        card = job.card(button())
        job.status(1, "one")
        made.clock.move(0.1)
        job.status(2, "two")
        job.wait(card)
        made.clock.move(1)
        job.status(3, "three")
        made.clock.move(0.1)
        job.status(4, "four")
        assert job.resume(card, "prompt_expired").status == 200
        made.clock.move(1)
        job.status(5, "five")
        made.clock.move(0.1)
        job.status(6, "six")
        assert job.finish().status == 200


def test_a_steady_interval_with_jitter_is_no_violation(tmp_path):
    """A busy machine shifts patches by some milliseconds; the pace over time counts."""
    with rig(tmp_path) as made:
        job = made.running()
        for number in range(1, 21):
            assert job.status(number, str(number)).status == 200
            made.clock.move(0.8 if number % 2 else 1.2)


# The end


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [("completed", "x"), ("cancelled", "x"), ("failed", None), ("failed", "expired"), ("failed", "mood")],
)
def test_an_end_says_what_it_has_to(tmp_path, outcome, reason):
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        assert job.finish(outcome, reason).status == 422
        assert job.run.state is RunState.RUNNING


def test_a_queued_run_does_not_complete(tmp_path):
    with rig(tmp_path, clean=False) as made:
        job = made.offered()
        assert job.finish().code == "run_not_running"
        assert job.finish("cancelled").json["run"]["state"] == "cancelled"


def test_costs_are_kept_once(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        cost = {"provider": "p", "model": "m", "currency": "USD", "amount_micros": 5, "estimated": True}
        assert job.finish(costs=[cost], metrics={"tokens_in": 7}).status == 200
        record = made.instance.state.runs.need(job.id)
        assert (record.costs[0].amount_micros, record.metrics.tokens_in) == (5, 7)


def test_two_costs_for_one_model_are_refused(tmp_path):
    with rig(tmp_path, clean=False) as made:
        cost = {"provider": "p", "model": "m", "currency": "USD", "estimated": True}
        assert made.running().finish(costs=[cost, cost]).status == 422


def test_costs_where_none_are_booked(tmp_path):
    """Refused once when the adapter could not know it, a violation when its hello said so."""
    with rig(tmp_path, clean=False) as made:
        job = made.running()
        made.instance.set_options(costs_enabled=False)
        cost = {"provider": "p", "model": "m", "currency": "USD", "estimated": True}
        refused = job.finish(costs=[cost])
        assert (refused.status, refused.code) == (422, "costs_not_enabled")
        assert made.violations == []
        assert job.finish(costs=None).status == 200
        made.take()
        made.connect()
        other = made.running()
        assert other.finish(costs=[cost]).status == 422
        assert made.violations == ["finishRun: no costs are booked"]


def test_a_person_cancels_a_run(tmp_path):
    """The adapter hears of it, and its report with the same outcome is taken once."""
    with rig(tmp_path) as made:
        job = made.running()
        made.instance.cancel_run(made.ben.id, job.id)
        assert (job.run.state, job.run.reason) == (RunState.CANCELLED, "cancelled_by_person")
        event = made.take()
        assert event["type"] == "run.ended"
        assert "token" not in event or event["token"] is None
        assert event["payload"] == {
            "run_id": str(job.id),
            "thread_id": str(job.thread_id),
            "state": "cancelled",
            "reason": "cancelled_by_person",
            "by": str(made.ben.id),
        }
        wrong = job.finish("failed", "interrupted")
        assert (wrong.status, wrong.code) == (409, "run_ended")
        assert job.finish("cancelled", metrics={"tokens_in": 1}).status == 200
        assert job.finish("cancelled", metrics={"tokens_in": 2}).status == 200
        assert made.instance.state.runs.need(job.id).metrics.tokens_in == 1


def test_an_ended_run_is_not_cancelled(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        with pytest.raises(Refused) as caught:
            made.instance.cancel_run(made.ada.id, job.id)
        assert caught.value.code == "run_ended"


def test_an_end_the_adapter_never_heard_of_is_not_told(tmp_path):
    """`run.ended` is sent only when the invocation was."""
    with rig(tmp_path) as made:
        posted = made.say(made.thread())
        made.instance.cancel_run(made.ada.id, posted.run_id)
        made.connect()
        assert made.events() == []
        (invocation,) = made.instance.state.events.all()
        assert invocation.settled_at is not None


def test_the_end_withdraws_what_was_not_acked(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        made.say(made.instance.thread(job.thread_id), "more")
        assert [event["type"] for event in made.events()] == ["agent.followup"]
        made.instance.cancel_run(made.ada.id, job.id)
        made.clock.move(31)
        types = [event["type"] for event in made.events()]
        assert types == ["run.ended", "agent.invocation"]


# Follow-ups


def test_a_message_during_a_run_follows_it_up(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        posted = made.say(thread, "more", made.ben)
        assert (posted.run_id, posted.followup_of) == (None, job.id)
        event = made.take()
        assert event["type"] == "agent.followup"
        assert event["payload"] == {
            "run_id": str(job.id),
            "thread_id": str(thread.id),
            "message_id": str(posted.message.id),
            "author_id": str(made.ben.id),
            "run_state": "running",
        }
        assert job.followup(posted.message.id, "delivered").json == {"state": "delivered"}
        assert made.instance.followup_state(posted.message.id) == "delivered"
        assert job.followup(posted.message.id).status == 200
        job.finish()
        assert len(made.instance.runs(thread.id)) == 1
        assert made.instance.message(posted.message.id).run_id == job.id


def test_what_was_not_absorbed_becomes_the_next_runs(tmp_path):
    """Consecutive messages of one author are one run, the last of them its trigger."""
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        ones = [made.say(thread, text, person) for text, person in _talk(made)]
        for _ in ones:
            made.take()
        job.followup(ones[0].message.id)
        job.followup(ones[1].message.id, "delivered")
        job.finish()
        _, *later = [view.run for view in made.instance.runs(thread.id)]
        triggers = [ones[2].message.id, ones[3].message.id, ones[4].message.id]
        assert [run.trigger_message_id for run in later] == triggers
        assert [run.run_starter for run in later] == [made.ada.id, made.ben.id, made.ada.id]
        assert [run.session_mode for run in later] == ["resume"] * 3
        assert made.instance.message(ones[1].message.id).run_id == later[0].id
        assert made.instance.state.messages.need(ones[1].message.id).followup_of is None
        follower = made.say(thread, "six")
        assert follower.followup_of == later[0].id


def _talk(made):
    people = [made.ada, made.ada, made.ada, made.ben, made.ada]
    return zip(["one", "two", "three", "four", "five"], people, strict=True)


def test_the_runs_of_a_thread_come_one_after_the_other(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        for person in (made.ada, made.ben):
            made.say(thread, "more", person)
            made.take()
        job.finish()
        (first,) = made.events()
        made.ack(first)
        assert made.events() == []
        made.call("POST", f"/runs/{first['payload']['run']['id']}/finish", first["token"], _FAILED)
        (second,) = made.events()
        assert second["payload"]["run"]["run_starter"] == str(made.ben.id)


# Time


def test_a_run_that_could_start_and_does_not_expires(tmp_path):
    """Ten minutes count while it could be offered or was offered to a connected consumer."""
    with rig(tmp_path) as made:
        posted = made.say(made.thread())
        made.tick(3600)
        assert made.instance.run(posted.run_id).run.state is RunState.QUEUED
        made.connect()
        made.take()
        made.tick(540)
        assert made.instance.run(posted.run_id).run.state is RunState.QUEUED
        made.tick(120)
        run = made.instance.run(posted.run_id).run
        assert (run.state, run.reason) == (RunState.FAILED, "expired")
        assert made.take()["payload"]["by"] is None


def test_a_run_behind_another_does_not_age(tmp_path):
    with rig(tmp_path) as made:
        thread = made.thread()
        job = made.running(thread)
        made.say(thread, "more", made.ben)
        made.take()
        made.say(thread, "and more", made.ada)
        made.take()
        job.finish()
        made.take()
        for _ in range(8):
            made.beat()
            made.tick(60)
        first, second = made.instance.state.runs.group("active", thread.id)
        assert (first.waited_ms > 0, second.waited_ms) == (True, 0)


def test_a_queued_run_ends_after_a_day_in_any_case(tmp_path):
    with rig(tmp_path) as made:
        posted = made.say(made.thread())
        made.tick(86_350)
        assert made.instance.run(posted.run_id).run.state is RunState.QUEUED
        made.tick(120)
        assert made.instance.run(posted.run_id).run.reason == "expired"


def test_the_runs_of_a_silent_consumer_end(tmp_path):
    """After ten minutes without a heartbeat; the consumer is shown offline after 90 s."""
    with rig(tmp_path) as made:
        job = made.running()
        made.beat()
        made.tick(60)
        assert made.instance.consumers()[0].online
        made.tick(60)
        assert not made.instance.consumers()[0].online
        made.tick(420)
        assert job.run.state is RunState.RUNNING
        made.tick(120)
        assert (job.run.state, job.run.reason) == (RunState.FAILED, "agent_offline")


def test_late_messages_and_the_report_are_taken_for_a_day(tmp_path):
    """After agent_offline the outbox may still empty itself, with a token renewed by the agent's own."""
    with rig(tmp_path) as made:
        job = made.running()
        made.tick(660)
        made.take()
        assert job.renew().code == "run_ended"
        job.token = job.renew(with_agent=True).json["token"]
        assert job.write("late").status == 201
        message = made.instance.messages(job.thread_id)[-1]
        assert made.instance.is_late(message.id)
        assert job.write("", kind="card", role="interim").code == "run_ended"
        assert job.status(1, "x").code == "run_ended"
        assert job.finish("failed", "agent_offline").status == 200
        made.tick(86_400)
        assert job.renew(with_agent=True).code == "run_ended"


def test_a_day_later_no_report_is_taken(tmp_path):
    """Not even with a token that was renewed in time and still lives."""
    with rig(tmp_path) as made:
        job = made.running()
        made.instance.cancel_run(made.ada.id, job.id)
        made.take()
        made.clock.move(86_300)
        job.token = job.renew(with_agent=True).json["token"]
        made.clock.move(200)
        assert job.finish("cancelled").code == "run_ended"


def test_a_run_cancelled_by_a_person_takes_no_late_messages(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        made.instance.cancel_run(made.ada.id, job.id)
        made.take()
        assert job.write("late").code == "run_ended"
        assert job.renew().code == "run_ended"
        assert job.renew(with_agent=True).status == 200


def test_a_run_the_adapter_ended_renews_no_token(tmp_path):
    with rig(tmp_path) as made:
        job = made.running()
        job.finish()
        assert job.renew(with_agent=True).code == "run_ended"
        assert job.renew().code == "run_ended"


def test_a_restarted_server_gives_consumers_time(tmp_path):
    """While the server was away nobody could send a heartbeat."""
    with rig(tmp_path) as made:
        job = made.running()
        made.clock.move(3600)
        made.restart()
        made.tick(60)
        assert made.instance.run(job.id).run.state is RunState.RUNNING
        made.tick(600)
        assert made.instance.run(job.id).run.reason == "agent_offline"
