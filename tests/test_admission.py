"""What is done about an event: remembered first, acked then, worked on last, and exactly once."""

import asyncio
import logging
from uuid import UUID

import pytest

from bothy_hermes.errors import ClockRefused, ProblemAnswer, StateError
from bothy_hermes.store import EntryState, InboxEntry
from bothy_hermes.wire import AllowList
from tests.fakes.admission_kit import at_desk
from tests.fakes.edge_kit import OTHER_KEY, PERSON, RUN, THREAD, run_token
from tests.fakes.flow_kit import EVENT, FakeDelivery, event_value, invocation_value
from tests.fakes.wire_examples import EVENT_EXAMPLES

OTHER_EVENT = UUID("0192f4a0-7b1c-7000-8000-0000000000e2")
CLICK = "0192f4a0-7b1c-7000-8000-0000000000e3"
BAD = run_token(key=OTHER_KEY)


def followup(**changes):
    payload = {**EVENT_EXAMPLES["agent.followup"], "run_id": str(RUN), "thread_id": str(THREAD)}
    payload["author_id"] = str(PERSON)
    return event_value("agent.followup", payload, **changes)


def interaction(**changes):
    used = {**EVENT_EXAMPLES["interaction.created"]["interaction"], "id": CLICK, "run_id": str(RUN)}
    used["operator_id"] = str(PERSON)
    return event_value("interaction.created", {"interaction": used}, **changes)


def run_ended(**changes):
    payload = {**EVENT_EXAMPLES["run.ended"], "run_id": str(RUN), "thread_id": str(THREAD)}
    return event_value("run.ended", payload, **changes)


def taking(tmp_path, *events, before=None):
    """Take events one after the other; returns the desk, with deliveries, entry and calls."""

    async def steps(desk):
        if before is not None:
            await before(desk)
        desk.deliveries = [await desk.take(event) for event in events]
        desk.entry = await desk.rooms.store.entry(EVENT)
        desk.stored = await desk.calls()
        desk.open = await desk.rooms.store.open_entries()
        return desk

    return at_desk(tmp_path, steps)


def acked(desk):
    return [delivery.acked for delivery in desk.deliveries]


# What is accepted ---------------------------------------------------------------------------------


def test_an_invocation_is_remembered_acked_and_begun(tmp_path):
    desk = taking(tmp_path, event_value())
    assert acked(desk) == [[EVENT]]
    assert (desk.entry.state, desk.entry.run_id, desk.entry.jti) == (EntryState.ACCEPTED, RUN, "t1")
    ((what, entry, invocation, token),) = desk.handler.told
    assert (what, entry.event_id, invocation.run.id) == ("begin", EVENT, RUN)
    assert token.reveal().startswith("eyJ")


def test_decision_3_nothing_is_acked_that_is_not_on_disk(tmp_path):
    """At the moment of the ack the entry can be read back."""

    async def steps(desk):
        seen = []

        async def ack(event_id):
            entry = await desk.rooms.store.entry(event_id)
            seen.append((entry.state, list(desk.handler.told)))

        delivery = type("Delivery", (), {"event": event_value(), "ack": staticmethod(ack)})()
        await desk.admission.take(delivery, 0.0)
        return seen

    assert at_desk(tmp_path, steps) == [(EntryState.ACCEPTED, [])]


def test_a_follow_up_is_given_to_its_run(tmp_path):
    desk = taking(tmp_path, followup())
    assert desk.handler.names() == ["take_token", "followup"]
    assert desk.entry.state is EntryState.SETTLED
    assert desk.open == []


def test_a_click_is_open_until_it_is_answered(tmp_path):
    """A process that dies before the answer leaves something to be found."""
    desk = taking(tmp_path, interaction())
    assert desk.handler.names() == ["take_token", "interaction"]
    assert (desk.entry.state, str(desk.entry.subject_id)) == (EntryState.ACCEPTED, CLICK)


def test_the_end_of_a_run_and_new_settings_are_passed_on(tmp_path):
    changed = event_value("agent.config_changed", EVENT_EXAMPLES["agent.config_changed"], id=str(OTHER_EVENT))
    desk = taking(tmp_path, run_ended(), changed)
    assert desk.handler.names() == ["run_ended"]
    assert desk.config_changes == 1
    assert acked(desk) == [[EVENT], [OTHER_EVENT]]


# Once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [event_value, followup, interaction, run_ended])
def test_a_delivery_after_a_lost_ack_is_only_acked(tmp_path, make):
    """Each delivery has a token of its own; the event's ID says that it was decided."""
    second = {**make(), "attempt": 2}
    if "token" in second:
        second["token"] = run_token(claims={"jti": "t2"}).reveal()
    desk = taking(tmp_path, make(), second)
    assert acked(desk) == [[EVENT], [EVENT]]
    assert len([name for name in desk.handler.names() if name != "take_token"]) == 1


def test_two_deliveries_at_once_are_one_event(tmp_path):
    """The second one came while the allow list was being asked for the first."""

    async def steps(desk):
        again = event_value(attempt=2, token=run_token(claims={"jti": "t2"}))
        first, second = await asyncio.gather(desk.take(event_value()), desk.take(again))
        return first.acked, second.acked, desk.handler.names()

    assert at_desk(tmp_path, steps) == ([EVENT], [EVENT], ["begin"])


def test_a_token_that_opened_another_event_opens_none(tmp_path):
    """Whoever repeats somebody's token starts nothing with it."""
    payload = invocation_value({"id": str(RUN)})
    desk = taking(tmp_path, event_value(id=str(OTHER_EVENT), payload=payload), followup())
    assert desk.handler.names() == ["begin"]
    assert acked(desk) == [[OTHER_EVENT], [EVENT]]
    assert (desk.entry.state, desk.entry.jti, desk.entry.run_id) == (EntryState.SETTLED, None, None)


def test_a_replayed_click_gives_the_card_back(tmp_path):
    """The card is answered like one of a token that is not believed."""
    desk = taking(tmp_path, event_value(id=str(OTHER_EVENT)), interaction())
    assert desk.handler.names() == ["begin", "send_owed"]
    ((operation, body),) = desk.stored
    assert (operation, body["status"], body["reopen"]) == ("respondToInteraction", "failed", True)
    assert [entry.event_id for entry in desk.open] == [OTHER_EVENT]


def test_a_run_is_taken_once_whatever_events_offer_it(tmp_path):
    """startRun takes a repetition for the same start: a second work would be a second turn."""
    again = event_value(id=str(OTHER_EVENT), token=run_token(claims={"jti": "t2"}))
    desk = taking(tmp_path, event_value(), again)
    assert desk.handler.names() == ["begin"]
    assert acked(desk) == [[EVENT], [OTHER_EVENT]]
    assert [entry.event_id for entry in desk.open] == [EVENT]


def test_an_event_nobody_believes_does_not_block_its_run(tmp_path):
    """A forged offer is settled under its own ID; the server's own offer is taken."""
    forged = event_value(id=str(OTHER_EVENT), token=BAD)
    desk = taking(tmp_path, forged, event_value())
    assert acked(desk) == [[OTHER_EVENT], [EVENT]]
    assert desk.handler.names() == ["begin"]


def test_a_token_of_another_run_does_not_use_its_own_up(tmp_path):
    """An event with the right token on the wrong payload leaves that token to its own event."""
    wrong = event_value(id=str(OTHER_EVENT), payload=invocation_value({"id": str(OTHER_EVENT)}))
    desk = taking(tmp_path, wrong, event_value())
    assert acked(desk) == [[OTHER_EVENT], [EVENT]]
    assert desk.handler.names() == ["begin"]


# What is refused ----------------------------------------------------------------------------------


async def nobody_listed(desk):
    desk.rooms.api.allow = AllowList(version=2, entries=())


def test_a_refused_run_ends_in_the_commit_that_settles_its_event(tmp_path):
    """A crash between the two would leave a run that nobody ends."""
    desk = taking(tmp_path, event_value(), before=nobody_listed)
    ((operation, body),) = desk.stored
    assert (operation, body["outcome"], body["reason"]) == ("finishRun", "failed", "not_allowed")
    assert desk.entry.state is EntryState.FINISHING
    assert acked(desk) == [[EVENT]]
    ((what, run_id, token, entry_id),) = desk.handler.told
    assert (what, run_id, entry_id) == ("send_leftovers", RUN, EVENT)
    assert token is not None


def test_a_refused_offer_of_a_run_that_was_taken_ends_nothing(tmp_path):
    """The person was taken from the list, and another event offers the run that is being worked on."""

    async def steps(desk):
        await desk.take(event_value())
        await nobody_listed(desk)
        again = await desk.take(event_value(id=str(OTHER_EVENT), token=run_token(claims={"jti": "t2"})))
        return desk.handler.names(), await desk.calls(), again.acked

    assert at_desk(tmp_path, steps) == (["begin"], [], [OTHER_EVENT])


def test_a_follow_up_of_somebody_who_may_not_leaves_the_run_alone(tmp_path):
    """It stays at the server and becomes the next run, which is refused visibly."""
    desk = taking(tmp_path, followup(), before=nobody_listed)
    assert (desk.handler.told, desk.stored) == ([], [])
    assert desk.entry.state is EntryState.SETTLED
    assert acked(desk) == [[EVENT]]


def test_a_follow_up_that_meets_another_mode_stops_the_turn(tmp_path):
    async def before(desk):
        desk.rooms.runtime.credential = None
        desk.rooms.runtime.resolved_credential = _raises

    desk = taking(tmp_path, followup(), before=before)
    assert desk.handler.told == [("end_run", RUN, "failed", "billing_mode_mismatch")]
    assert acked(desk) == [[EVENT]]


async def _raises():
    raise RuntimeError


def test_a_click_nobody_believes_is_given_back_with_the_runs_own_token(tmp_path):
    desk = taking(tmp_path, interaction(token=BAD))
    ((operation, body),) = desk.stored
    assert (operation, body["status"], body["reopen"]) == ("respondToInteraction", "failed", True)
    assert desk.handler.told == [("send_owed", RUN)]
    assert desk.entry.state is EntryState.SETTLED


# What cannot be judged now ------------------------------------------------------------------------


def test_an_event_that_cannot_be_judged_leaves_no_trace(tmp_path):
    async def before(desk):
        desk.rooms.api.on["get_allow_list"] = ProblemAnswer("getAllowList", 503, None)

    desk = taking(tmp_path, event_value(), before=before)
    assert acked(desk) == [[]]
    assert (desk.entry, desk.handler.told) == (None, [])


def test_after_it_was_left_the_same_event_is_taken(tmp_path):
    """The redelivery comes with another token; nothing of the first try is in its way."""

    async def steps(desk):
        desk.rooms.api.on["get_allow_list"] = [ProblemAnswer("getAllowList", 500, None), None]
        first = await desk.take(event_value())
        second = await desk.take(event_value(attempt=2, token=run_token(claims={"jti": "t2"})))
        return first.acked, second.acked, desk.handler.names()

    assert at_desk(tmp_path, steps) == ([], [EVENT], ["begin"])


def test_a_clock_that_is_wrong_judges_nothing(tmp_path, caplog):
    """A token would be called expired that is not: the event waits until the clock is set."""

    async def before(desk):
        def wrong():
            raise ClockRefused(4000.0)

        desk.rooms.api.server_now = wrong

    with caplog.at_level(logging.ERROR):
        desk = taking(tmp_path, event_value(), before=before)
    assert acked(desk) == [[]]
    assert "left for redelivery: the server's clock differs" in caplog.text


class BrokenDisk:
    """A store of which one method fails as a full disk does, a number of times."""

    def __init__(self, store, method, times):
        self._store, self._method, self.times = store, method, times

    def __getattr__(self, name):
        found = getattr(self._store, name)
        if name != self._method:
            return found

        async def failing(*args, **kwargs):
            if self.times:
                self.times -= 1
                raise StateError("state.sqlite3", "the disk is full")
            return await found(*args, **kwargs)

        return failing


@pytest.mark.parametrize("method", ["entry", "entry_of_run", "take_event"])
@pytest.mark.parametrize("listed", [True, False])
def test_a_disk_that_fails_costs_no_event(tmp_path, method, listed, caplog):
    """Whatever step it was, the event stays at the server and is taken when it comes again."""

    async def steps(desk):
        if not listed:
            await nobody_listed(desk)
        broken = BrokenDisk(desk.rooms.store, method, 1)
        object.__setattr__(desk.rooms.services, "store", broken)
        first = await desk.take(event_value())
        before = await desk.rooms.store.entry(EVENT), await desk.calls(), list(desk.handler.told)
        second = await desk.take(event_value(attempt=2))
        return first.acked, before, second.acked, desk.handler.names()

    with caplog.at_level(logging.ERROR):
        first, before, second, told = at_desk(tmp_path, steps)
    assert (first, before) == ([], (None, [], []))
    assert second == [EVENT]
    assert told == (["begin"] if listed else ["send_leftovers"])
    assert "left for redelivery: state.sqlite3: the disk is full" in caplog.text


def test_work_that_breaks_after_the_ack_is_not_called_left(tmp_path, caplog):
    async def before(desk):
        desk.handler.error = ProblemAnswer("getRunContext", 404, "not_found")

    with caplog.at_level(logging.ERROR):
        desk = taking(tmp_path, followup(), before=before)
    assert acked(desk) == [[EVENT]]
    assert "its work broke off: getRunContext: 404 not_found" in caplog.text
    assert "left for redelivery" not in caplog.text


# Events nobody can read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        event_value(payload={}),
        event_value(payload=invocation_value(message_id="no ID")),
        event_value(attempt=0),
        event_value(created_at="yesterday"),
        event_value(agent_id=None),
        {key: value for key, value in event_value().items() if key != "token"},
        {"id": str(EVENT)},
        {"id": str(EVENT), "type": 5, "payload": "xyzzy"},
    ],
    ids=["empty", "member", "attempt", "time", "agent", "token", "nothing", "types"],
)
def test_a_malformed_event_is_settled_by_its_id(tmp_path, event, caplog):
    """It would come again for a day; its content is in no log."""
    with caplog.at_level(logging.DEBUG):
        desk = taking(tmp_path, event)
    assert acked(desk) == [[EVENT]]
    assert desk.entry.state is EntryState.SETTLED
    assert (desk.handler.told, desk.stored) == ([], [])
    assert "xyzzy" not in caplog.text


@pytest.mark.parametrize("event", [{}, {"id": None}, {"id": "5"}, {"id": ["x"]}, {"id": str(EVENT) + "0"}])
def test_an_event_without_an_id_cannot_be_acked(tmp_path, event):
    async def steps(desk):
        return (await desk.take(event)).acked, await desk.rooms.store.open_entries()

    assert at_desk(tmp_path, steps) == ([], [])


def test_an_event_of_a_later_version_is_acked_and_forgotten(tmp_path):
    desk = taking(tmp_path, event_value("agent.reaction", {"mood": "good"}))
    assert acked(desk) == [[EVENT]]
    assert desk.entry is None


def test_nothing_that_was_said_is_logged(tmp_path, caplog):
    """Accepted, refused and malformed: logs carry IDs and reasons."""
    said = invocation_value(content_excerpt="xyzzy plugh")
    with caplog.at_level(logging.DEBUG):
        taking(tmp_path, event_value(payload=said))
        taking(tmp_path / "2", event_value(payload=said), before=nobody_listed)
        taking(tmp_path / "3", event_value(payload={**said, "run": None}))
        taking(tmp_path / "4", event_value(payload=said, token=BAD))
    assert str(EVENT) in caplog.text
    for secret in ("xyzzy", "plugh", "eyJ"):
        assert secret not in caplog.text


# Before the last process is settled ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "acked_early"),
    [
        (None, False),
        ([EntryState.ACCEPTED], False),
        ([EntryState.ACCEPTED, EntryState.STARTING], False),
        ([EntryState.FINISHING], True),
        ([EntryState.SETTLED], True),
        ([EntryState.ACCEPTED, EntryState.DONE], True),
    ],
    ids=["unknown", "accepted", "starting", "refused", "settled", "done"],
)
def test_what_was_decided_for_good_is_acked_before_anything_is_sent(tmp_path, path, acked_early):
    """The server takes a refused run's end only after the ack; an accepted offer may yet be forgotten."""

    async def steps(desk):
        if path is not None:
            first = InboxEntry(EVENT, "agent.invocation", RUN, THREAD, None, path[0], desk.rooms.fake.time)
            await desk.rooms.store.take_event(first)
            for state in path[1:]:
                await desk.rooms.store.move_entry(EVENT, state)
        delivery = FakeDelivery(event_value(attempt=2))
        return await desk.admission.ack_decided(delivery), delivery.acked, desk.handler.told

    assert at_desk(tmp_path, steps) == (acked_early, [EVENT] if acked_early else [], [])


def test_a_click_that_was_taken_is_acked_before_it_is_answered(tmp_path):
    async def steps(desk):
        await desk.take(interaction())
        delivery = FakeDelivery(interaction(attempt=2))
        return await desk.admission.ack_decided(delivery), delivery.acked

    assert at_desk(tmp_path, steps) == (True, [EVENT])


def test_an_event_that_nobody_can_read_is_left_to_the_judgement(tmp_path):
    async def steps(desk):
        broken = BrokenDisk(desk.rooms.store, "entry", 1)
        unread = await desk.admission.ack_decided(FakeDelivery({}))
        object.__setattr__(desk.rooms.services, "store", broken)
        return unread, await desk.admission.ack_decided(FakeDelivery(event_value()))

    assert at_desk(tmp_path, steps) == (False, False)


# Cancellation at every await ----------------------------------------------------------------------


def cut_at(tmp_path, count, make, before):
    """Cancel the judging of an event at its count-th point, then deliver it again.

    A point is before and after each question to the disk or the server, and the ack.
    """

    async def steps(desk):
        if before is not None:
            await before(desk)
        points, rooms = [], desk.rooms
        usual_call, usual_run = rooms.api._call, type(rooms.store)._run

        def point(name):
            points.append(name)
            if len(points) == count:
                judging.cancel()

        async def call(operation, *args):
            point(f"before {operation}")
            found = await usual_call(operation, *args)
            point(f"after {operation}")
            return found

        async def run(job, *args, **kwargs):
            point("before the disk")
            result = await usual_run(rooms.services.store, job, *args, **kwargs)
            point("after the disk")
            return result

        rooms.api._call = call
        object.__setattr__(rooms.services.store, "_run", run)
        first = FakeDelivery(make())
        judging = asyncio.ensure_future(desk.admission.take(first, 0.0))
        await asyncio.wait({judging}, timeout=5)
        cancelled = judging.cancelled()
        del rooms.api._call
        del rooms.services.store.__dict__["_run"]
        remembered = await rooms.store.entry(EVENT)
        begun = [name for name in desk.handler.names() if name != "take_token"]
        again = {**make(), "attempt": 2}
        if "token" in again:
            again["token"] = run_token(claims={"jti": "t2"}).reveal()
        second = await desk.take(again)
        after = [name for name in desk.handler.names() if name != "take_token"]
        return cancelled, first.acked, remembered, begun, second.acked, after, len(await desk.calls())

    return at_desk(tmp_path, steps)


@pytest.mark.parametrize(
    ("make", "before"),
    [
        (event_value, None),
        (event_value, nobody_listed),
        (followup, None),
        (interaction, None),
        (run_ended, None),
    ],
    ids=["accepted", "refused", "followup", "click", "run.ended"],
)
def test_an_event_whose_judging_is_cancelled_anywhere_is_decided_once(tmp_path, make, before):
    """Nothing is acked that is not remembered, and the redelivery decides what was not decided."""
    for count in range(1, 60):
        found = cut_at(tmp_path / str(count), count, make, before)
        cancelled, acked_first, remembered, begun, acked_second, after, calls = found
        assert acked_second == [EVENT]
        if acked_first:
            assert remembered is not None
        if remembered is not None:
            assert after == begun
        else:
            assert (begun, len(after)) == ([], 1)
        assert len(after) <= 1
        assert calls == (1 if before is nobody_listed else 0)
        if not cancelled:
            break
    assert count > 2
