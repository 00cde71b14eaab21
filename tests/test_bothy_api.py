"""Each operation is asked as the protocol has it, and its answer is read as it is."""

import asyncio
import dataclasses
import json
from datetime import timedelta
from uuid import UUID

import pytest

from bothy_hermes import wire_operations as ops
from bothy_hermes.bothy_api import AgentToken, BothyApi
from bothy_hermes.bothy_credentials import TokenSource
from bothy_hermes.bothy_http import Response
from bothy_hermes.codec import dump, parse
from bothy_hermes.dpop import ProofSigner, verify_proof
from bothy_hermes.errors import (
    ConfigError,
    ProblemAnswer,
    RunEnded,
    TransportError,
    VersionConflict,
    WireError,
)
from bothy_hermes.secret import Secret
from bothy_hermes.wire import AllowList, FinishRun, Heartbeat
from bothy_hermes.wire_events import Hello, RunList
from bothy_hermes.wire_operations import OPERATIONS, TokenKind
from bothy_hermes.wire_words import RunState
from tests.fakes.clock import START, FakeClock
from tests.fakes.edge_kit import AGENT, AGENT_KEY, INSTANCE, SERVER_URL, private_file, settings
from tests.fakes.frozen_protocol import check_request
from tests.fakes.transport import FakeTransport, empty_answer, json_answer, problem
from tests.fakes.wire_examples import EXAMPLES

SIGNER = ProofSigner(AGENT_KEY)
ONE, TWO = (UUID(f"0192f4a0-7b1c-7000-8000-00000000000{digit}") for digit in "12")


class RunAuth(TokenSource):
    """A run's token."""

    async def token(self):
        return Secret("run-token")

    async def refused(self, token, code):
        return False


class Setting:
    """A client on a fake clock, a scripted transport, and a token file."""

    def __init__(self, directory, signer=None):
        self.fake = FakeClock()
        self.transport = FakeTransport()
        self.file = private_file(directory / "token", "agent-token")
        token = AgentToken(self.file)
        self.api = BothyApi(settings(consumer="main"), self.transport, self.fake.clock, token, signer)

    def run(self, awaitable):
        return asyncio.run(self.fake.drive(awaitable))

    def fails(self, kind, awaitable):
        with pytest.raises(kind) as caught:
            self.run(awaitable)
        return caught.value


@pytest.fixture
def setting(tmp_path):
    return Setting(tmp_path)


def example(cls):
    """An example of a wire type as a value."""
    return parse(cls, EXAMPLES[cls]())


ME = EXAMPLES[ops.GET_ME.answer]() | {"kind": "agent", "instance_id": str(INSTANCE), "dpop_jkt": None}

CASES = {
    ops.GET_ME: lambda api, body: api.get_me(),
    ops.GET_JWKS: lambda api, body: api.get_jwks(),
    ops.GET_ALLOW_LIST: lambda api, body: api.get_allow_list(ONE, 7),
    ops.PUT_HEARTBEAT: lambda api, body: api.put_heartbeat(ONE, body),
    ops.LIST_RUNS: lambda api, body: api.list_runs(ONE, [RunState.QUEUED, RunState.RUNNING]),
    ops.GET_SERVED_CHANNEL_CONFIG: lambda api, body: api.get_served_channel_config(ONE, RunAuth()),
    ops.START_RUN: lambda api, body: api.start_run(ONE, RunAuth(), body),
    ops.GET_RUN: lambda api, body: api.get_run(ONE, RunAuth()),
    ops.GET_RUN_CONTEXT: lambda api, body: api.get_run_context(ONE, RunAuth()),
    ops.RENEW_RUN_TOKEN: lambda api, body: api.renew_run_token(ONE),
    ops.UPDATE_RUN: lambda api, body: api.update_run(ONE, RunAuth(), body),
    ops.CREATE_MESSAGE: lambda api, body: api.create_message(ONE, RunAuth(), body),
    ops.UPDATE_MESSAGE: lambda api, body: api.update_message(ONE, RunAuth(), 4, body),
    ops.AWAIT_RUN_INPUT: lambda api, body: api.await_run_input(ONE, RunAuth(), body),
    ops.RESUME_RUN: lambda api, body: api.resume_run(ONE, RunAuth(), body),
    ops.CLOSE_CARD: lambda api, body: api.close_card(ONE, RunAuth(), body),
    ops.REPORT_FOLLOWUP: lambda api, body: api.report_followup(ONE, TWO, RunAuth(), body),
    ops.RESPOND_TO_INTERACTION: lambda api, body: api.respond_to_interaction(ONE, RunAuth(), body),
    ops.FINISH_RUN: lambda api, body: api.finish_run(ONE, RunAuth(), body),
    ops.REPORT_AGENT_SESSION: lambda api, body: api.report_agent_session(ONE, RunAuth(), 0, body),
    ops.SET_THREAD_TITLE: lambda api, body: api.set_thread_title(ONE, RunAuth(), 2, body),
    ops.DOWNLOAD_FILE: lambda api, body: api.download_file(ONE, RunAuth(), 100),
}
BY_NAME = {operation.name: operation for operation in CASES}


def test_every_operation_has_its_method():
    """The gateway's handshake has its own way."""
    assert set(CASES) == set(OPERATIONS) - {ops.OPEN_GATEWAY}


def body_of(operation):
    return None if operation.body is None else example(operation.body)


def answer_of(operation):
    if operation.answer is None:
        return Response(operation.status, {}, b"")
    return json_answer(operation.status, ME if operation is ops.GET_ME else EXAMPLES[operation.answer]())


def ask(setting, operation, answer=None):
    """Make the call; returns what came of it and the request."""
    setting.transport.script(operation.name, answer or answer_of(operation))
    result = setting.run(CASES[operation](setting.api, body_of(operation)))
    return result, setting.transport.requests[-1]


@pytest.mark.parametrize("name", BY_NAME)
def test_each_request_is_what_the_protocol_says(setting, name, snapshot):
    """Method, path, token, condition and body, judged by the table, the frozen document and a reviewer."""
    operation = BY_NAME[name]
    _, request = ask(setting, operation)
    path = request.target.split("?")[0]
    assert request.method == operation.method
    assert path == operation.path.format(**dict.fromkeys(
        ["agent_id", "run_id", "channel_id", "thread_id", "file_id", "interaction_id"], ONE
    ), message_id=TWO if operation is ops.REPORT_FOLLOWUP else ONE)  # fmt: skip
    assert ("If-Match" in request.headers) == operation.if_match
    assert ("If-None-Match" in request.headers) == operation.if_none_match
    check_request(name, None if request.body is None else json.loads(request.body))
    kinds = {"Bearer agent-token": TokenKind.AGENT, "Bearer run-token": TokenKind.RUN}
    if operation.tokens:
        assert kinds[request.headers["Authorization"]] in operation.tokens
    else:
        assert "Authorization" not in request.headers
    assert snapshot == {
        "line": f"{request.method} {request.target}",
        "headers": {key: value for key, value in request.headers.items() if key != "User-Agent"},
        "body": None if request.body is None else json.loads(request.body),
    }


@pytest.mark.parametrize(
    "name", [one.name for one in CASES if one.answer and one not in {ops.UPDATE_RUN, ops.RENEW_RUN_TOKEN}]
)
def test_each_answer_is_read(setting, name):
    """As the wire value that the table names."""
    operation = BY_NAME[name]
    result, _ = ask(setting, operation)
    assert isinstance(result, operation.answer)
    expected = ME if operation is ops.GET_ME else EXAMPLES[operation.answer]()
    assert dump(result) == dump(parse(operation.answer, expected))


@pytest.mark.parametrize("name", [one.name for one in CASES if one.answer])
def test_an_answer_of_another_shape_is_said_to_be_one(setting, name):
    """JSON of the server's, but not what the operation gives: asking again would not help."""
    operation = BY_NAME[name]
    setting.transport.script(name, Response(operation.status, {}, b'{"odd":1}'))
    setting.fails(WireError, CASES[operation](setting.api, body_of(operation)))


def test_a_patch_gives_the_new_version(setting):
    """And a conflict the document that stands."""
    assert ask(setting, ops.UPDATE_RUN)[0] == EXAMPLES[ops.UPDATE_RUN.answer]()["version"]
    document = {"version": 9}
    answer = json_answer(409, {"code": "version_conflict", "document": document})
    setting.transport.script("updateRun", answer)
    error = setting.fails(VersionConflict, CASES[ops.UPDATE_RUN](setting.api, body_of(ops.UPDATE_RUN)))
    assert error.extra["document"] == document


def test_a_renewed_token_is_a_secret(setting):
    """It never shows."""
    token, _ = ask(setting, ops.RENEW_RUN_TOKEN)
    assert token == Secret(EXAMPLES[ops.RENEW_RUN_TOKEN.answer]()["token"])


def test_a_message_may_have_been_made_before(setting):
    """201 for the first time, 200 for a repetition: the same message."""
    answers = [json_answer(status, EXAMPLES[ops.CREATE_MESSAGE.answer]()) for status in (201, 200)]
    first, second = (ask(setting, ops.CREATE_MESSAGE, one)[0] for one in answers)
    assert first == second


def test_a_run_that_is_over_says_so(setting):
    """By a class of its own."""
    setting.transport.script("startRun", problem(409, "run_ended"))
    setting.fails(RunEnded, CASES[ops.START_RUN](setting.api, body_of(ops.START_RUN)))


def test_a_run_can_be_read_and_renewed_with_either_token(setting):
    """Without a source it is the agent's."""
    setting.transport.script("getRun", answer_of(ops.GET_RUN))
    setting.run(setting.api.get_run(ONE))
    setting.transport.script("renewRunToken", answer_of(ops.RENEW_RUN_TOKEN))
    setting.run(setting.api.renew_run_token(ONE, RunAuth()))
    shown = [request.headers["Authorization"] for request in setting.transport.requests]
    assert shown == ["Bearer agent-token", "Bearer run-token"]


# The allow list


def test_the_allow_list_may_be_unchanged(setting):
    """304 for the known version; without one there is no condition and no 304."""
    setting.transport.script(
        "getAllowList", empty_answer(304), answer_of(ops.GET_ALLOW_LIST), empty_answer(304)
    )
    assert setting.run(setting.api.get_allow_list(ONE, 7)) is None
    assert setting.transport.requests[0].headers["If-None-Match"] == '"7"'
    assert isinstance(setting.run(setting.api.get_allow_list(ONE, None)), AllowList)
    assert "If-None-Match" not in setting.transport.requests[1].headers
    setting.fails(WireError, setting.api.get_allow_list(ONE, None))


@pytest.mark.parametrize(
    "answer", [problem(503), problem(429), problem(404), TransportError("x", "timeout", sent=True)]
)
def test_the_allow_list_is_asked_once(setting, answer):
    """No answer now means the event comes again, not that the question waits."""
    setting.transport.script("getAllowList", answer)
    setting.fails((ProblemAnswer, TransportError), setting.api.get_allow_list(ONE, None))
    assert setting.fake.slept == []


# Who am I


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"kind": "person"}, "hermes_adapter.token_file"),
        ({"instance_id": str(AGENT)}, "hermes_adapter.instance_id"),
        ({"dpop_jkt": SIGNER.jkt}, "hermes_adapter.dpop_key_file"),
    ],
)
def test_a_token_of_somebody_else_is_a_configuration_error(setting, changes, key):
    """A person's token, another instance, a key that is not configured here."""
    setting.transport.script("getMe", json_answer(200, ME | changes))
    assert setting.fails(ConfigError, setting.api.get_me()).key == key


def test_the_servers_key_must_be_ours(tmp_path):
    """With a key configured, the server must know this one."""
    setting = Setting(tmp_path, SIGNER)
    setting.transport.script("getMe", json_answer(200, ME | {"dpop_jkt": SIGNER.jkt}), json_answer(200, ME))
    assert setting.run(setting.api.get_me()).dpop_jkt == setting.api.jkt == SIGNER.jkt
    assert setting.fails(ConfigError, setting.api.get_me()).key == "hermes_adapter.dpop_key_file"


def test_the_token_file_is_read_again_when_the_token_is_refused(setting):
    """An operator replaced it while the adapter runs."""

    def replace(_):
        private_file(setting.file, "new-token")
        return problem(401, "unauthorized")

    setting.transport.script("getMe", replace, json_answer(200, ME))
    setting.run(setting.api.get_me())
    assert setting.transport.requests[-1].headers["Authorization"] == "Bearer new-token"


# Runs


def test_runs_are_listed_by_state(setting):
    """None means those that have not ended."""
    for _ in range(2):
        setting.transport.script("listRuns", answer_of(ops.LIST_RUNS))
    assert isinstance(setting.run(setting.api.list_runs(ONE)), RunList)
    setting.run(setting.api.list_runs(ONE, [RunState.QUEUED, RunState.WAITING_INPUT]))
    targets = [request.target.partition("?")[2] for request in setting.transport.requests]
    assert targets == ["consumer=main", "consumer=main&state=queued%2Cwaiting_input"]


FINISH = parse(FinishRun, EXAMPLES[FinishRun]())


def costs_sent(setting):
    return [json.loads(request.body)["costs"] for request in setting.transport.sent("finishRun")]


def test_costs_go_where_they_are_booked(setting):
    """And nowhere else, once the server has said so, until it says otherwise."""
    assert FINISH.costs
    view = answer_of(ops.FINISH_RUN)
    setting.transport.script("finishRun", problem(422, "costs_not_enabled"), view, view, view)
    setting.run(setting.api.finish_run(ONE, RunAuth(), FINISH))
    setting.run(setting.api.finish_run(ONE, RunAuth(), FINISH))
    setting.api.observe_hello(hello(costs_enabled=True))
    setting.run(setting.api.finish_run(ONE, RunAuth(), FINISH))
    sent = costs_sent(setting)
    assert [bool(costs) for costs in sent] == [True, False, False, True]
    assert sent[0] == sent[3] == dump(FINISH)["costs"]


def test_a_server_without_costs_gets_none_from_the_start(setting):
    """Its hello says so."""
    setting.api.observe_hello(hello(costs_enabled=False))
    setting.transport.script("finishRun", answer_of(ops.FINISH_RUN))
    setting.run(setting.api.finish_run(ONE, RunAuth(), FINISH))
    assert costs_sent(setting) == [None]


def test_costs_are_taken_back_once(setting):
    """A server that refuses the run without costs as well has the last word."""
    setting.transport.script("finishRun", *[problem(422, "costs_not_enabled")] * 2)
    error = setting.fails(ProblemAnswer, setting.api.finish_run(ONE, RunAuth(), FINISH))
    assert error.code == "costs_not_enabled"
    setting.transport.script("finishRun", problem(422, "validation_failed"))
    assert (
        setting.fails(ProblemAnswer, setting.api.finish_run(ONE, RunAuth(), FINISH)).code
        == "validation_failed"
    )
    assert len(setting.transport.requests) == 3


@pytest.mark.parametrize("costs", [None, ()])
def test_where_there_are_no_costs_none_are_taken_back(setting, costs):
    """The same end once more would be refused once more."""
    setting.transport.script("finishRun", problem(422, "costs_not_enabled"))
    setting.fails(
        ProblemAnswer, setting.api.finish_run(ONE, RunAuth(), dataclasses.replace(FINISH, costs=costs))
    )
    assert len(setting.transport.requests) == 1


# Files


def test_the_beginning_of_a_file(setting):
    """A range is asked for; the server may send it, or all of the file."""
    for status in (206, 200):
        setting.transport.script("downloadFile", Response(status, {}, b"abc"))
        assert setting.run(setting.api.download_file(ONE, RunAuth(), 3)) == b"abc"
    request = setting.transport.requests[-1]
    assert request.headers["Range"] == "bytes=0-2"
    assert (request.max_answer_bytes, request.cut_answer) == (3, True)


def test_a_whole_file(setting):
    """No range, and no more than the protocol serves."""
    setting.transport.script("downloadFile", Response(200, {}, b"abc"))
    assert setting.run(setting.api.download_file(ONE, RunAuth())) == b"abc"
    request = setting.transport.requests[-1]
    assert "Range" not in request.headers
    assert (request.max_answer_bytes, request.cut_answer) == (104_857_600, False)


def test_an_empty_file_and_an_empty_wish(setting):
    """No byte satisfies the range of an empty file; who wants none asks nobody."""
    setting.transport.script("downloadFile", empty_answer(416))
    assert setting.run(setting.api.download_file(ONE, RunAuth(), 3)) == b""
    assert setting.run(setting.api.download_file(ONE, RunAuth(), 0)) == b""
    assert len(setting.transport.requests) == 1


def test_a_refused_file_says_so(setting):
    """Infected or not of this thread: the flow lists it by its name."""
    setting.transport.script("downloadFile", problem(403, "file_refused"))
    error = setting.fails(ProblemAnswer, setting.api.download_file(ONE, RunAuth(), 3))
    assert (error.status, error.code) == (403, "file_refused")


# Clock and gateway


def hello(**changes):
    value = EXAMPLES[Hello]()
    return parse(Hello, value | {"settings": value["settings"] | changes})


def test_the_servers_time_comes_from_answers_and_from_hello(setting):
    """Whichever was heard last."""
    answer = json_answer(200, ME, date="Mon, 30 Nov 2026 12:01:00 GMT")
    setting.transport.script("getMe", answer)
    setting.run(setting.api.get_me())
    assert setting.api.server_now() == START + timedelta(seconds=60)
    setting.api.observe_server_time(START + timedelta(seconds=90))
    setting.fake.move(10)
    assert setting.api.server_now() == START + timedelta(seconds=100)


def test_a_handshake_is_signed_for_its_http_form(tmp_path):
    """The URL is a WebSocket's, the proof names the https form without the query."""
    setting = Setting(tmp_path, SIGNER)
    url, headers = setting.run(setting.api.gateway_request(ONE, "a b"))
    http = f"{SERVER_URL}/agents/{ONE}/gateway"
    assert url == f"{http.replace('https', 'wss')}?consumer=a+b"
    assert headers["Authorization"] == "DPoP agent-token"
    options = {"method": "GET", "token": Secret("agent-token"), "now": START, "jkt": SIGNER.jkt}
    first = verify_proof(headers["DPoP"], url=http, **options)
    _, again = setting.run(setting.api.gateway_request(ONE, "a b"))
    assert verify_proof(again["DPoP"], url=http, **options).jti != first.jti


def test_each_handshake_reads_the_token_again(setting):
    """Reconnecting is when a replaced token is noticed."""
    assert setting.run(setting.api.gateway_request(ONE, "c"))[1]["Authorization"] == "Bearer agent-token"
    private_file(setting.file, "new-token")
    assert setting.run(setting.api.gateway_request(ONE, "c"))[1]["Authorization"] == "Bearer new-token"


def test_a_nonce_of_a_handshake_serves_the_next_request(tmp_path):
    """Refused or accepted, its answer counts like any other."""
    setting = Setting(tmp_path, SIGNER)
    refusal = problem(401, "use_dpop_nonce", dpop_nonce="n1")
    error, word = setting.run(setting.api.gateway_refused(refusal))
    assert (error.operation, error.status, word) == ("openGateway", 401, "use_dpop_nonce")

    def nonce(headers):
        return verify_proof(
            headers["DPoP"], method="GET", url=f"{SERVER_URL}/agents/{ONE}/gateway", token=None, now=START
        ).nonce

    assert nonce(setting.run(setting.api.gateway_request(ONE, "c"))[1]) == "n1"
    setting.api.observe_headers({"dpop-nonce": "n2"})
    assert nonce(setting.run(setting.api.gateway_request(ONE, "c"))[1]) == "n2"


def test_a_heartbeat_is_checked_before_it_is_sent(setting):
    """A heartbeat that the server's schema refuses is a bug here, not a 422 there."""
    heartbeat = example(Heartbeat)
    object.__setattr__(heartbeat.details, "active_runs", -1)
    setting.fails(WireError, setting.api.put_heartbeat(ONE, heartbeat))
    assert setting.transport.requests == []
