"""How each question about an event is answered."""

import asyncio
from uuid import UUID

import pytest

from bothy_hermes.errors import ConfigError, ProblemAnswer, TransportError, WireError
from bothy_hermes.inquiry import Inquirer, open_inquiry
from bothy_hermes.intake import Answer, Step
from bothy_hermes.runtime import ResolvedCredential
from bothy_hermes.wire import AllowEntry, AllowList
from bothy_hermes.wire_words import KeyType
from tests.fakes.admission_kit import KeySource
from tests.fakes.edge_kit import AGENT, OTHER_KEY, PERSON, RUN, THREAD, run_token
from tests.fakes.flow_kit import EVENT, FakeDelivery, event_value, invocation_value, run_value, with_rooms
from tests.fakes.wire_examples import EVENT_EXAMPLES

STRANGER = UUID("0192f4a0-7b1c-7000-8000-0000000000e9")


class Desk:
    """An inquirer on real rooms, and the key set that the server shows it."""

    def __init__(self, made, jkt):
        from bothy_hermes.bothy_keys import KeyRing

        self.rooms = made
        self.source = KeySource()
        self.inquirer = Inquirer(
            made.services, KeyRing(self.source, made.fake.clock), agent_id=AGENT, jkt=jkt
        )

    def open(self, event):
        return open_inquiry(FakeDelivery(event), self.rooms.fake.elapsed)

    async def up_to(self, step, event):
        """Ask the questions before a step, and the step's own answer."""
        inquiry = self.open(event)
        for earlier in Step:
            answer = await self.inquirer.ask(earlier, inquiry)
            if earlier is step:
                return answer
            assert answer is Answer.PASS, earlier
        raise AssertionError(step)


def answer(tmp_path, step, event=None, before=None, *, jkt=None):
    """The answer to one question about an event."""

    async def on_rooms(made):
        desk = Desk(made, jkt)
        if before is not None:
            before(desk)
        return await desk.up_to(step, event or event_value())

    return with_rooms(tmp_path, on_rooms)


def with_payload(kind, **changes):
    payload = {**EVENT_EXAMPLES[kind], "run_id": str(RUN), "thread_id": str(THREAD)}
    if kind == "agent.followup":
        payload["author_id"] = str(PERSON)
    return event_value(kind, payload | changes)


def used(**changes):
    found = {**EVENT_EXAMPLES["interaction.created"]["interaction"], "run_id": str(RUN)}
    return event_value("interaction.created", {"interaction": found | {"operator_id": str(PERSON)} | changes})


# The token ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [event_value(), with_payload("agent.followup"), used()], ids=["invocation", "followup", "click"]
)
def test_the_token_of_the_event_itself_is_believed(tmp_path, event):
    assert answer(tmp_path, Step.TOKEN, event) is Answer.PASS


OTHER_ID = str(STRANGER)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": OTHER_ID}, "another instance"),
        ({"aud": OTHER_ID}, "another agent"),
        ({"exp": 1}, "expired"),
        ({"nbf": 1_999_999_999}, "not yet"),
        ({"jti": None}, "no ID"),
        ({"run_id": OTHER_ID}, "another run"),
        ({"thread_id": OTHER_ID}, "another thread"),
        ({"channel_id": OTHER_ID}, "another channel"),
        ({"sub": OTHER_ID}, "another person"),
        ({"run_kind": "guest"}, "another kind"),
    ],
)
def test_a_token_that_says_something_else_is_not_believed(tmp_path, claims, why):
    event = event_value(token=run_token(claims=claims))
    assert answer(tmp_path, Step.TOKEN, event) is Answer.BAD_TOKEN, why


@pytest.mark.parametrize(
    ("claims", "event"),
    [
        ({"sub": OTHER_ID}, "agent.followup"),
        ({"thread_id": OTHER_ID}, "agent.followup"),
        ({"run_id": OTHER_ID}, "agent.followup"),
        ({"sub": OTHER_ID}, "interaction.created"),
        ({"run_id": OTHER_ID}, "interaction.created"),
    ],
)
def test_the_author_and_the_operator_are_the_tokens_person(tmp_path, claims, event):
    found = with_payload(event) if event == "agent.followup" else used()
    found["token"] = run_token(claims=claims).reveal()
    assert answer(tmp_path, Step.TOKEN, found) is Answer.BAD_TOKEN


@pytest.mark.parametrize(
    "token",
    [
        run_token(key=OTHER_KEY).reveal(),
        run_token(header={"alg": "none"}).reveal(),
        run_token(header={"typ": "JWT"}).reveal(),
        run_token(header={"kid": None}).reveal(),
        run_token(header={"kid": "another"}).reveal(),
        "not.a.token",
        "",
    ],
    ids=["key", "alg", "typ", "no kid", "kid", "text", "empty"],
)
def test_a_token_that_is_none_is_not_believed(tmp_path, token):
    """An unknown `kid` among them: the set that was fetched after the event's arrival lacks it."""
    assert answer(tmp_path, Step.TOKEN, event_value() | {"token": token}) is Answer.BAD_TOKEN


@pytest.mark.parametrize(
    ("jkt", "bound", "expected"),
    [
        (None, None, Answer.PASS),
        (None, "k" * 43, Answer.BAD_TOKEN),
        ("k" * 43, "k" * 43, Answer.PASS),
        ("k" * 43, "x" * 43, Answer.BAD_TOKEN),
        ("k" * 43, None, Answer.BAD_TOKEN),
    ],
)
def test_a_token_is_bound_to_the_key_of_this_agent(tmp_path, jkt, bound, expected):
    claims = {"cnf": None if bound is None else {"jkt": bound}}
    event = event_value(token=run_token(claims=claims))
    assert answer(tmp_path, Step.TOKEN, event, jkt=jkt) is expected


@pytest.mark.parametrize(
    "event",
    [event_value(agent_id=OTHER_ID), event_value(payload=invocation_value(run_value(agent_id=OTHER_ID)))],
    ids=["event", "run"],
)
def test_an_event_for_another_agent_is_not_ours(tmp_path, event):
    """Its token is for us, what it asks for is not."""
    assert answer(tmp_path, Step.TOKEN, event) is Answer.BAD_TOKEN


def test_a_token_is_not_judged_without_keys(tmp_path):
    def before(desk):
        desk.source.error = ProblemAnswer("getJwks", 404, None)

    assert answer(tmp_path, Step.TOKEN, before=before) is Answer.NO_KEYS


def test_what_a_refused_token_claims_is_forgotten(tmp_path):
    """Nothing of it may be stored, its ID least of all."""

    async def on_rooms(made):
        desk = Desk(made, None)
        inquiry = desk.open(event_value(token=run_token(claims={"run_id": OTHER_ID})))
        for step in (Step.SCHEMA, Step.KNOWN, Step.TOKEN):
            await desk.inquirer.ask(step, inquiry)
        return inquiry.claims, inquiry.is_believed

    assert with_rooms(tmp_path, on_rooms) == (None, False)


@pytest.mark.parametrize("kind", ["run.ended", "agent.config_changed"])
def test_events_without_a_token_need_no_proof(kind):
    event = event_value(kind, EVENT_EXAMPLES[kind])
    assert open_inquiry(FakeDelivery(event), 0.0).is_believed


# The allow list -----------------------------------------------------------------------------------


def listing(*kinds, version=2, person=PERSON):
    return AllowList(version=version, entries=(AllowEntry(principal_id=person, run_kinds=kinds),))


def on_list(tmp_path, found):
    """The answer when the server shows or does something."""

    def before(desk):
        if isinstance(found, AllowList):
            desk.rooms.api.allow = found
        else:
            desk.rooms.api.on["get_allow_list"] = found

    return answer(tmp_path, Step.ALLOW_LIST, before=before)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (listing("operator"), Answer.PASS),
        (listing("operator", "guest"), Answer.PASS),
        (listing("guest"), Answer.NOT_LISTED),
        (listing("operator", person=STRANGER), Answer.NOT_LISTED),
        (AllowList(version=2, entries=()), Answer.NOT_LISTED),
        (ProblemAnswer("getAllowList", 404, "not_found"), Answer.NO_LIST),
        (ProblemAnswer("getAllowList", 401, "unauthorized"), Answer.NO_ANSWER),
        (ProblemAnswer("getAllowList", 403, "forbidden"), Answer.NO_ANSWER),
        (ProblemAnswer("getAllowList", 429, "rate_limited"), Answer.NO_ANSWER),
        (ProblemAnswer("getAllowList", 500, None), Answer.NO_ANSWER),
        (TransportError("getAllowList", "timeout", sent=True), Answer.NO_ANSWER),
        (WireError("version", "is missing"), Answer.NO_ANSWER),
        (ConfigError("hermes_adapter.token_file", "cannot be read"), Answer.NO_ANSWER),
    ],
)
def test_who_may_address_the_agent_is_what_the_list_says_now(tmp_path, found, expected):
    """Nothing but a list is a yes or a no; everything else is asked again."""
    assert on_list(tmp_path, found) is expected


def test_what_hermes_would_do_is_asked_while_the_list_is(tmp_path):
    """And once: the answer is judged in its turn."""

    async def on_rooms(made):
        desk = Desk(made, None)

        async def late(*_args):
            await made.until(lambda: made.runtime.questions == 1)
            return made.api.allow

        made.api.on["get_allow_list"] = late
        return await desk.up_to(Step.BILLING_MODE, event_value()), made.runtime.questions

    found, questions = with_rooms(tmp_path, on_rooms)
    assert (found, questions) == (Answer.PASS, 1)


def asked_twice(tmp_path, second):
    """Ask for two events, with something between; returns both answers and what was asked with."""

    async def on_rooms(made):
        desk = Desk(made, None)
        first = await desk.up_to(Step.ALLOW_LIST, event_value())
        second(made.api)
        again = await desk.up_to(Step.ALLOW_LIST, event_value(token=run_token(claims={"jti": "t2"})))
        return first, again, made.api.named("get_allow_list")

    return with_rooms(tmp_path, on_rooms)


def test_a_list_that_did_not_change_is_not_sent_again(tmp_path):
    first, again, asked = asked_twice(tmp_path, lambda api: None)
    assert (first, again) == (Answer.PASS, Answer.PASS)
    assert asked == [(None,), (1,)]


def test_a_person_who_was_taken_from_the_list_may_no_more(tmp_path):
    def second(api):
        api.allow = listing("operator", version=2, person=STRANGER)

    assert asked_twice(tmp_path, second)[:2] == (Answer.PASS, Answer.NOT_LISTED)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ProblemAnswer("getAllowList", 503, None), Answer.NO_ANSWER),
        (ProblemAnswer("getAllowList", 404, None), Answer.NO_LIST),
    ],
)
def test_decision_3_a_known_list_decides_nothing_when_the_call_fails(tmp_path, problem, expected):
    """What was true a minute ago lets nobody in."""

    def second(api):
        api.on["get_allow_list"] = problem

    assert asked_twice(tmp_path, second)[1] is expected


def test_not_modified_without_a_list_is_no_answer(tmp_path):
    async def on_rooms(made):
        async def unmodified(_agent, _version):
            return None

        made.api.get_allow_list = unmodified
        return await Desk(made, None).up_to(Step.ALLOW_LIST, event_value())

    assert with_rooms(tmp_path, on_rooms) is Answer.NO_ANSWER


def test_a_late_not_modified_brings_no_old_list_back(tmp_path):
    """Two questions at once: the one that heard of the new list is not overruled for the next."""

    async def on_rooms(made):
        desk = Desk(made, None)
        await desk.up_to(Step.ALLOW_LIST, event_value())
        slow, usual = asyncio.Event(), made.api.get_allow_list

        async def late(_agent, _version):
            made.api.get_allow_list = usual
            await slow.wait()  # not modified, as it was when it was asked

        made.api.get_allow_list = late
        waiting = asyncio.ensure_future(desk.up_to(Step.ALLOW_LIST, event_value()))
        await made.until(lambda: made.api.get_allow_list is not late)
        made.api.allow = listing("operator", version=2, person=STRANGER)
        fresh = await desk.up_to(Step.ALLOW_LIST, event_value())
        slow.set()
        assert await waiting is Answer.PASS
        return fresh, await desk.up_to(Step.ALLOW_LIST, event_value())

    assert with_rooms(tmp_path, on_rooms) == (Answer.NOT_LISTED, Answer.NOT_LISTED)


# Trigger, mode, class -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["command", "interaction", "a kind of another version"])
@pytest.mark.parametrize("where", ["invocation", "run"])
def test_decision_3_only_messages_start_turns(tmp_path, kind, where):
    """An unknown kind counts as a command, in whichever of the two places it stands."""
    run = run_value(trigger_kind=kind) if where == "run" else run_value()
    changes = {"trigger_kind": kind} if where == "invocation" else {}
    event = event_value(payload=invocation_value(run, **changes))
    assert answer(tmp_path, Step.TRIGGER, event) is Answer.NOT_A_MESSAGE


@pytest.mark.parametrize(
    ("mode", "key_type", "expected"),
    [
        ("organization", KeyType.API_KEY, Answer.PASS),
        ("personal", KeyType.API_KEY, Answer.DIFFERS),
        ("personal", KeyType.OAUTH, Answer.PASS),
        ("organization", KeyType.OAUTH, Answer.DIFFERS),
        ("organization", KeyType.UNKNOWN, Answer.DIFFERS),
        ("personal", KeyType.UNKNOWN, Answer.DIFFERS),
    ],
)
def test_decision_4_the_mode_is_the_tokens_and_it_is_asked_of_hermes_now(tmp_path, mode, key_type, expected):
    def before(desk):
        desk.rooms.runtime.credential = ResolvedCredential("anthropic", key_type)

    event = event_value(token=run_token(claims={"billing_mode": mode}))
    assert answer(tmp_path, Step.BILLING_MODE, event, before) is expected


@pytest.mark.parametrize(
    ("granted", "toolsets", "expected"),
    [
        ("host", {"terminal"}, Answer.PASS),
        ("scoped", {"terminal"}, Answer.EXCEEDED),
        ("chat", {"todo"}, Answer.PASS),
        ("chat", None, Answer.EXCEEDED),
        ("host", None, Answer.PASS),
        ("a class of another version", {"todo"}, Answer.EXCEEDED),
    ],
)
def test_an_unknown_class_is_below_chat_on_the_tokens_side(tmp_path, granted, toolsets, expected):
    def before(desk):
        desk.rooms.runtime.toolsets = None if toolsets is None else frozenset(toolsets)

    event = event_value(token=run_token(claims={"tool_class": granted}))
    assert answer(tmp_path, Step.TOOL_CLASS, event, before) is expected


def test_hermes_is_asked_once_for_mode_and_class(tmp_path):
    async def on_rooms(made):
        await Desk(made, None).up_to(Step.TOOL_CLASS, event_value())
        return made.runtime.questions

    assert with_rooms(tmp_path, on_rooms) == 1


def test_an_event_is_known_by_its_id(tmp_path):
    async def on_rooms(made):
        await made.entry()
        desk = Desk(made, None)
        inquiry = desk.open(event_value())
        return await desk.inquirer.ask(Step.KNOWN, inquiry), inquiry.event_id

    assert with_rooms(tmp_path, on_rooms) == (Answer.KNOWN, EVENT)
