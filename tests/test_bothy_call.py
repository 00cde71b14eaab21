"""A call is repeated exactly when the protocol says so, each attempt with a proof of its own."""

import asyncio
import json
import logging
import random
from datetime import timedelta
from email.utils import format_datetime

import pytest

from bothy_hermes.bothy_call import MAX_ANSWER_BYTES, Call, Caller
from bothy_hermes.bothy_credentials import TokenSource
from bothy_hermes.bothy_http import Response
from bothy_hermes.codec import dump, dump_json
from bothy_hermes.dpop import ProofSigner, verify_proof
from bothy_hermes.errors import (
    BothyError,
    ClockRefused,
    ProblemAnswer,
    TokenRefused,
    TransportError,
    WireError,
)
from bothy_hermes.secret import Secret
from bothy_hermes.wire import CloseCard, CreateMessage
from bothy_hermes.wire_operations import CLOSE_CARD, CREATE_MESSAGE, GET_JWKS, GET_ME, OPEN_GATEWAY
from bothy_hermes.wire_words import CloseReason, MessageKind, MessageRole
from tests.fakes.clock import START, FakeClock
from tests.fakes.edge_kit import AGENT_KEY, RUN, SERVER_URL, decoded
from tests.fakes.mutants import WORD, garbled, mutant
from tests.fakes.transport import FakeTransport, empty_answer, json_answer, problem

SIGNER = ProofSigner(AGENT_KEY)
OK = json_answer(200, {"ok": True})


class Tokens(TokenSource):
    """Tokens in turn; a refusal moves to the next while there is one."""

    def __init__(self, *names):
        self.names = list(names or ("t1",))
        self.heard = []

    async def token(self):
        return Secret(self.names[0])

    async def refused(self, token, code):
        self.heard.append((token.reveal(), code))
        if len(self.names) > 1:
            self.names.pop(0)
            return True
        return False


class Setting:
    """A caller on a fake clock and a scripted transport."""

    def __init__(self, *script, signer=None, **options):
        self.fake = FakeClock(**options)
        self.transport = FakeTransport()
        self.transport.script("getMe", *script)
        self.tokens = Tokens()
        self.caller = Caller(SERVER_URL, self.transport, self.fake.clock, signer, 30.0)

    def run(self, call=None, **more):
        call = call or Call(GET_ME, self.tokens, **more)
        return asyncio.run(self.fake.drive(self.caller.call(call)))

    def fails(self, kind, **more):
        with pytest.raises(kind) as caught:
            self.run(**more)
        return caught.value

    @property
    def proofs(self):
        return [request.headers["DPoP"] for request in self.transport.requests]


def date(seconds):
    """An HTTP date that many seconds after the fake clock's start."""
    return format_datetime(START + timedelta(seconds=seconds), usegmt=True)


def lost(cause="connect", *, sent=False):
    return TransportError("getMe", cause, sent=sent)


def test_an_answer_comes_through():
    """One attempt, with the time of one attempt and the usual header fields."""
    setting = Setting(OK)
    assert setting.run() is OK
    (request,) = setting.transport.requests
    assert request.target == "/me"
    assert request.max_answer_bytes == MAX_ANSWER_BYTES
    assert setting.transport.timeouts == [30.0]
    assert request.headers == {
        "Accept": "application/json, application/problem+json",
        "User-Agent": "bothy-hermes/0.1.0",
        "Authorization": "Bearer t1",
    }


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_or_broken_server_is_waited_for(status):
    """However often, with growing waits, as long as the caller lives."""
    setting = Setting(*[problem(status)] * 40, OK)
    assert setting.run() is OK
    assert setting.fake.slept == [0.5, 1, 2, 4, 8, 16] + [30] * 34


@pytest.mark.parametrize(
    "status", [400, 402, 403, 404, 405, 408, 409, 410, 412, 413, 415, 422, 428, 501, 505]
)
def test_other_refusals_are_final(status):
    """One attempt, and the problem as it is."""
    setting = Setting(problem(status, "some_code"))
    error = setting.fails(ProblemAnswer)
    assert (error.status, error.code) == (status, "some_code")
    assert setting.fake.slept == []


@pytest.mark.parametrize("cause", ["connect", "tls", "timeout", "reset", "malformed", "redirect"])
def test_a_lost_answer_is_waited_for(cause):
    """Whether it was sent or not: every changing operation is safe to repeat."""
    setting = Setting(lost(cause, sent=True), lost(cause), OK)
    assert setting.run() is OK
    assert setting.fake.slept == [0.5, 1.0]


@pytest.mark.parametrize("cause", ["too_large", "closed"])
def test_what_another_attempt_would_only_repeat_is_final(cause):
    """An answer that is too large, and our own end."""
    setting = Setting(lost(cause, sent=True))
    assert setting.fails(TransportError).cause == cause
    assert setting.fake.slept == []


def test_a_stale_connection_is_replaced_without_waiting_once():
    """The next connection is new; should it die as well, that is an ordinary loss."""
    setting = Setting(lost("stale", sent=True), OK)
    setting.run()
    assert setting.fake.slept == []
    setting = Setting(lost("stale"), lost("stale"), lost("stale"), OK)
    setting.run()
    assert setting.fake.slept == [0.5]


def test_an_impatient_call_is_made_once():
    """The event behind an allow list question is delivered again instead."""
    assert Setting(problem(503)).fails(ProblemAnswer, patient=False).status == 503
    assert Setting(lost()).fails(TransportError, patient=False).cause == "connect"


def test_an_impatient_call_still_mends_what_is_mended_at_once():
    """A stale connection or a new nonce is no answer to the question."""
    setting = Setting(lost("stale"), problem(401, "use_dpop_nonce", dpop_nonce="n1"), OK, signer=SIGNER)
    assert setting.run(patient=False) is OK
    assert setting.fake.slept == []


@pytest.mark.parametrize(
    ("value", "wait"), [("7", 7.5), (date(20), 20.5), ("soon", 0.5), ("-1", 0.5), (date(-5), 0.5)]
)
def test_retry_after_is_honoured_in_both_forms(value, wait):
    """The jitter lies on top; what nobody can read counts as not there."""
    setting = Setting(problem(429, "rate_limited", retry_after=value), OK)
    setting.run()
    assert setting.fake.slept == [wait]


def test_retry_after_counts_from_the_servers_time():
    """A date is the server's, and so is the moment from which it counts."""
    setting = Setting(problem(503, retry_after=date(110), date=date(100)), OK)
    setting.run()
    assert setting.fake.slept == [10.5]


def test_each_attempt_has_a_fresh_proof_made_after_the_wait():
    """New ID, new time, the request's own method and URL, the token's hash."""
    setting = Setting(problem(503, retry_after="50"), lost(), OK, signer=SIGNER)
    setting.run()
    moments = [START, START + timedelta(seconds=50.5), START + timedelta(seconds=51.5)]
    checked = [
        verify_proof(
            proof, method="GET", url=f"{SERVER_URL}/me", token=Secret("t1"), now=moment, jkt=SIGNER.jkt
        )
        for proof, moment in zip(setting.proofs, moments, strict=True)
    ]
    assert len({proof.jti for proof in checked}) == 3
    assert [proof.issued_at for proof in checked] == [moment.replace(microsecond=0) for moment in moments]
    assert {request.headers["Authorization"] for request in setting.transport.requests} == {"DPoP t1"}


def nonces(setting):
    return [decoded(proof.split(".")[1]).get("nonce") for proof in setting.proofs]


def test_a_nonce_is_taken_and_tried_once_at_once():
    """Not a failure: no wait, one more attempt with the nonce."""
    setting = Setting(problem(401, "use_dpop_nonce", dpop_nonce="n1"), OK, signer=SIGNER)
    assert setting.run() is OK
    assert nonces(setting) == [None, "n1"]
    assert setting.fake.slept == []


def test_a_second_nonce_refusal_is_final():
    """A server that is never content is not asked for ever."""
    setting = Setting(*[problem(401, "use_dpop_nonce", dpop_nonce="n")] * 2, signer=SIGNER)
    assert setting.fails(ProblemAnswer).code == "use_dpop_nonce"


def test_a_nonce_refusal_without_a_nonce_is_final():
    """There is nothing to try again with; neither is there without a key."""
    assert Setting(problem(401, "use_dpop_nonce"), signer=SIGNER).fails(ProblemAnswer).status == 401
    assert Setting(problem(401, "use_dpop_nonce", dpop_nonce="n")).fails(ProblemAnswer).status == 401


def test_a_challenge_alone_asks_for_the_nonce_as_well():
    """A server in front of the server has no problem body."""
    challenge = 'DPoP error="use_dpop_nonce", error_description="use the nonce"'
    refusal = empty_answer(401, www_authenticate=challenge, dpop_nonce="n1")
    setting = Setting(refusal, OK, signer=SIGNER)
    assert setting.run() is OK
    assert nonces(setting) == [None, "n1"]


def test_the_nonce_of_any_answer_replaces_the_last():
    """Of good answers and of errors; what is no nonce is not taken."""
    answers = [
        json_answer(200, {}, dpop_nonce="n1"),
        problem(503, dpop_nonce="n2"),
        json_answer(200, {}, dpop_nonce='bad"nonce'),
        json_answer(200, {}, dpop_nonce=""),
        OK,
    ]
    setting = Setting(*answers, signer=SIGNER)

    async def story():
        for _ in range(4):
            await setting.caller.call(Call(GET_ME, setting.tokens))

    asyncio.run(setting.fake.drive(story()))
    assert nonces(setting) == [None, "n1", "n2", "n2", "n2"]


@pytest.mark.parametrize("seconds", [100, 31, -31, -100])
def test_a_refused_proof_is_tried_again_when_the_clock_was_the_reason(seconds):
    """The answer's date moved the clock by over 30 s, either way: one more attempt with the right time."""
    setting = Setting(problem(401, "invalid_dpop_proof", date=date(seconds)), OK, signer=SIGNER)
    assert setting.run() is OK
    times = [decoded(proof.split(".")[1])["iat"] for proof in setting.proofs]
    assert times[1] - times[0] == seconds
    assert setting.fake.slept == []


@pytest.mark.parametrize("seconds", [0, 30, -30])
def test_a_refused_proof_is_final_when_the_clock_was_right(seconds):
    """Another proof would be refused as well."""
    setting = Setting(problem(401, "invalid_dpop_proof", date=date(seconds)), signer=SIGNER)
    assert setting.fails(ProblemAnswer).code == "invalid_dpop_proof"


def test_a_refused_proof_is_tried_again_once():
    """Also when the clock jumps a second time."""
    refusals = [problem(401, "invalid_dpop_proof", date=date(seconds)) for seconds in (100, 200)]
    assert Setting(*refusals, signer=SIGNER).fails(ProblemAnswer).status == 401


@pytest.mark.parametrize("code", ["token_expired", "unauthorized"])
def test_another_token_is_tried_once(code):
    """The source decides whether it has one."""
    setting = Setting(problem(401, code), OK)
    setting.tokens = Tokens("old", "new")
    assert setting.run() is OK
    assert [one.headers["Authorization"] for one in setting.transport.requests] == [
        "Bearer old",
        "Bearer new",
    ]
    assert setting.tokens.heard == [("old", code)]
    assert setting.fake.slept == []


def test_without_another_token_the_refusal_is_final():
    """Nothing changed, nothing is tried."""
    setting = Setting(problem(401, "unauthorized"))
    assert setting.fails(ProblemAnswer).code == "unauthorized"
    assert len(setting.transport.requests) == 1


def test_each_refusal_counts_once_in_a_row():
    """Nonce, clock and token may come one after the other, but none of them twice."""
    setting = Setting(
        problem(401, "use_dpop_nonce", dpop_nonce="n1"),
        problem(401, "invalid_dpop_proof", date=date(90)),
        problem(401, "token_expired"),
        problem(401, "unauthorized"),
        problem(401, "token_expired"),
        signer=SIGNER,
    )
    setting.tokens = Tokens("a", "b", "c", "d")
    assert setting.fails(ProblemAnswer).code == "token_expired"
    assert setting.transport.used_up


def test_after_a_wait_each_refusal_counts_anew():
    """A call that lives for hours meets more than one expired token."""
    setting = Setting(
        problem(401, "token_expired"), problem(503), problem(401, "token_expired"), problem(503), OK
    )
    setting.tokens = Tokens("a", "b", "c")
    assert setting.run() is OK


@pytest.mark.parametrize("code", ["use_dpop_nonce", "token_expired", "unauthorized", "forbidden", None])
def test_only_a_401_is_mended(code):
    """The same words under another status mean what the status means."""
    setting = Setting(problem(403, code, dpop_nonce="n"), signer=SIGNER)
    setting.tokens = Tokens("a", "b")
    assert setting.fails(ProblemAnswer).status == 403
    assert setting.tokens.heard == []


def test_a_server_from_another_time_is_not_believed():
    """An impatient call fails, and a patient one waits until one of the clocks is set."""
    setting = Setting(json_answer(200, {}, date=date(7200)), signer=SIGNER)
    setting.transport.always("getJwks", json_answer(200, {"keys": []}, date=date(7200)))
    setting.run()
    error = setting.fails(ClockRefused, patient=False)
    assert error.skew == 7200
    setting.transport.always("getJwks", lost())
    assert setting.fails(ClockRefused, patient=False).skew == 7200
    assert len(setting.transport.sent("getMe")) == 1


def test_a_clock_that_was_set_ends_the_refusal():
    """The server's time is asked where no proof is needed, before each attempt."""
    setting = Setting(json_answer(200, {}, date=date(7200)), OK, signer=SIGNER)
    setting.run()

    def set_clock(_):
        if len(setting.transport.sent("getJwks")) == 3:
            setting.fake.step_wall(7200)
        return json_answer(200, {"keys": []}, date=date(7200))

    setting.transport.always("getJwks", set_clock)
    assert setting.run() is OK
    assert setting.fake.slept == [0.5, 1.0]
    assert all("DPoP" not in request.headers for request in setting.transport.sent("getJwks"))


def test_without_a_key_no_clock_is_needed():
    """A bearer token has no time of its own."""
    setting = Setting(json_answer(200, {}, date=date(7200)), OK)
    setting.run()
    assert setting.run() is OK


def test_an_operation_without_a_token_sends_none():
    """The key set is fetched before anything can be proved."""
    setting = Setting(signer=SIGNER)
    setting.transport.script("getJwks", OK)
    setting.run(Call(GET_JWKS, None))
    assert not {"Authorization", "DPoP"} & set(setting.transport.requests[0].headers)


def test_a_body_travels_as_json():
    """UTF-8, compact, with its media type; optional members that say nothing are null."""
    setting = Setting()
    setting.transport.script("closeCard", OK)
    ids = {"message_id": RUN}
    setting.run(Call(CLOSE_CARD, setting.tokens, ids, CloseCard(reason=CloseReason.EXPIRED)))
    (request,) = setting.transport.requests
    assert (request.method, request.target) == ("POST", f"/messages/{RUN}/close")
    assert request.body == b'{"reason":"expired"}'
    assert request.headers["Content-Type"] == "application/json"


def message(content):
    return CreateMessage(client_msg_id="m", kind=MessageKind.TEXT, role=MessageRole.ANSWER, content=content)


@pytest.mark.parametrize(("bytes_beyond", "sent"), [(0, 1), (1, 0)])
def test_a_body_of_a_mebibyte_is_the_largest(bytes_beyond, sent):
    """Characters that JSON escapes count by their escapes: each of these takes six bytes."""
    escaped = "\x01" * 170_000
    rest = 2**20 - len(dump_json(dump(message(escaped)))) + bytes_beyond
    setting = Setting()
    setting.transport.script("createMessage", json_answer(201, {}))
    call = Call(CREATE_MESSAGE, setting.tokens, {"run_id": RUN}, message(escaped + "x" * rest))
    if sent:
        setting.run(call)
    else:
        setting.fails(WireError, call=call)
    assert len(setting.transport.requests) == sent


@pytest.mark.parametrize(
    "body", [message("x" * 262_145), message("ü" * 131_073), message("\ud800"), message("x" * 2_000_000)]
)
def test_what_the_server_would_refuse_is_never_sent(body):
    """Content over the limit in bytes, text that is no Unicode."""
    setting = Setting()
    with pytest.raises(WireError):
        setting.run(Call(CREATE_MESSAGE, setting.tokens, {"run_id": RUN}, body))
    assert setting.transport.requests == []


def test_the_largest_content_fits_into_a_body():
    """Of quotes and line breaks, which take two bytes each; control characters take six."""
    setting = Setting()
    setting.transport.script("createMessage", OK)
    accept = frozenset({200})
    setting.run(Call(CREATE_MESSAGE, setting.tokens, {"run_id": RUN}, message('"' * 262_144), accept=accept))
    assert len(setting.transport.requests[0].body) > 524_288


def test_a_status_that_the_operation_does_not_have_is_no_answer():
    """202 is no 200, and 304 answers only who asked for it."""
    for status in (202, 204, 304):
        assert Setting(empty_answer(status)).fails(WireError).path == "status"


LENGTH = {"content-length": "9"}
NOT_WHOLE = {
    "a page": Response(200, {"content-type": "text/html", **LENGTH}, b"<html>\n</html>"),
    "nothing": Response(200, LENGTH, b""),
    "half": Response(200, LENGTH, b'{"id": "x'),
    "half that looks whole": Response(200, {}, b'{"a": {"b": 1}'),
    "a list": Response(200, LENGTH, b"[1]"),
}


@pytest.mark.parametrize("response", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_what_only_looks_like_an_answer_is_waited_for(response):
    """The server may have acted or not: as with a lost answer, the call is made again."""
    setting = Setting(response, OK)
    assert setting.run() is OK
    assert setting.fake.slept == [0.5]


def test_an_impatient_call_says_that_it_was_no_answer():
    error = Setting(NOT_WHOLE["a page"]).fails(TransportError, patient=False)
    assert (error.cause, error.sent) == ("malformed", True)


def test_an_answer_is_an_answer_whatever_it_is_announced_as():
    """The body decides: proxies rename types."""
    typed = Response(200, {"content-type": "text/plain", **LENGTH}, b' {"a": 1}\n')
    assert Setting(typed).run() is typed


def test_a_token_that_cannot_stand_in_a_field_is_not_sent():
    """A line break in it would be a header field of somebody else's."""
    for token in ("a\r\nX: y", "", "a b", "tök"):
        setting = Setting(OK)
        setting.tokens = Tokens(token)
        assert setting.fails(TokenRefused).reason == "malformed"
        assert setting.transport.requests == []


def test_a_cancelled_wait_makes_no_further_attempt():
    """The run is over, and so are its calls."""
    setting = Setting(problem(503), OK)

    async def story():
        task = asyncio.create_task(setting.caller.call(Call(GET_ME, setting.tokens)))
        await setting.fake.advance(0.4)
        task.cancel()
        await setting.fake.advance(60)
        assert task.cancelled()

    asyncio.run(story())
    assert len(setting.transport.requests) == 1


def test_a_foreign_error_is_not_retried():
    """What is neither a network error nor a problem is a bug or a test's own refusal."""
    assert Setting(KeyError("x")).fails(KeyError)


def test_an_outage_is_two_lines_in_the_log(caplog):
    """One when it begins, one when it is over; what lies between is for who debugs."""
    setting = Setting(*[problem(503, "hunter2_code")] * 20, OK, signer=SIGNER)
    setting.tokens = Tokens("hunter2")
    with caplog.at_level(logging.INFO, "bothy_hermes"):
        setting.run()
    assert caplog.messages == [
        "getMe: 503 hunter2_code; getMe is tried again in 0.5 s",
        "getMe was answered after 20 more attempts",
    ]
    with caplog.at_level(logging.DEBUG, "bothy_hermes"):
        Setting(*[problem(503)] * 3, OK).run()
    assert "Bearer" not in caplog.text
    assert "t1" not in caplog.text


def test_query_values_are_escaped():
    """A value cannot become another parameter."""
    call = Call(OPEN_GATEWAY, None, {"agent_id": RUN}, query={"consumer": "a&b=c d"})
    assert call.target == f"/agents/{RUN}/gateway?consumer=a%26b%3Dc+d"


def test_a_call_shows_no_body():
    """Its repr is safe for logs."""
    assert "hunter2" not in repr(Call(CREATE_MESSAGE, None, {"run_id": RUN}, message("hunter2")))


# Whatever a server answers ------------------------------------------------------------------------

STATUSES = [
    200,
    200,
    203,
    204,
    206,
    304,
    400,
    401,
    401,
    401,
    403,
    404,
    409,
    412,
    418,
    422,
    429,
    500,
    503,
    599,
]
WORDS = [
    "unauthorized",
    "token_expired",
    "use_dpop_nonce",
    "invalid_dpop_proof",
    "run_ended",
    "wat",
    5,
    None,
    [],
]
FIELDS = {
    "date": ["nonsense", date(100), date(-100), date(86_400), "Fri, 31 Dec 9999 23:59:59 GMT", ""],
    "dpop-nonce": ["n1", "n2", "", "a b", WORD, "x" * 5000],
    "retry-after": ["0", "-1", "nonsense", "9" * 10, "9" * 30, date(50), "1.5"],
    "www-authenticate": ['DPoP error="use_dpop_nonce"', 'Bearer error="x"', "DPoP " * 100],
    "content-length": ["5", "-1", WORD],
    "set-cookie": [WORD],
}
CAUSES = ["connect", "timeout", "reset", "stale", "malformed", "tls", "redirect"]


def anything(draw):
    """An answer with each thing odd now and then, or none."""
    if draw.random() < 0.15:
        return lost(draw.choice(CAUSES), sent=True)
    body = {"code": draw.choice(WORDS), "detail": WORD, "document": draw.choice([None, {}, [WORD]])}
    data = json.dumps(mutant(draw, body)).encode()
    fields = {name: draw.choice(values) for name, values in FIELDS.items() if draw.random() < 0.3}
    return Response(draw.choice(STATUSES), fields, garbled(draw, data) if draw.random() < 0.2 else data)


@pytest.mark.parametrize("signer", [None, SIGNER], ids=["bearer", "dpop"])
def test_no_answers_make_a_call_spin_or_speak(caplog, signer):
    """It ends with an answer or an error of ours, and each wait is followed by a few attempts at most."""
    with caplog.at_level(logging.DEBUG):
        for seed in range(60):
            draw = random.Random(seed)
            setting = Setting(*(anything(draw) for _ in range(40)), OK, OK, OK, signer=signer)
            setting.transport.always(
                "getJwks", lambda _, fake=setting.fake: json_answer(200, {}, date=date(fake.elapsed))
            )
            setting.tokens = Tokens("t1", "t2", "t3")
            said = ""
            try:
                setting.run()
            except BothyError as error:
                said = f"{error} {error!r}"
            assert WORD not in said, seed
            attempts, waits = len(setting.transport.sent("getMe")), len(setting.fake.slept)
            assert attempts <= 5 * (waits + 1), seed
            assert all(0 <= wait <= 930 for wait in setting.fake.slept), seed
    assert WORD not in caplog.text
