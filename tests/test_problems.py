"""Error answers are read as far as they go, and never further."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bothy_hermes.errors import ProblemAnswer, RunEnded, VersionConflict
from bothy_hermes.problems import read_problem

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def read(status, body=b"", **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return read_problem(
        "startRun", status, names, body if isinstance(body, bytes) else json.dumps(body).encode(), NOW
    )


def test_a_whole_problem():
    """Code, status and operation are fields; the text is built from them."""
    error = read(
        409, {"type": "about:blank", "title": "t", "status": 409, "code": "run_not_startable", "detail": "d"}
    )
    assert type(error) is ProblemAnswer
    assert (error.operation, error.status, error.code) == ("startRun", 409, "run_not_startable")
    assert str(error) == "startRun: 409 run_not_startable"


@pytest.mark.parametrize("code", [None, 5, True, [], {}, "", "Run Ended", "x" * 65, "a\nb", "ä"])
def test_a_malformed_code_counts_as_missing(code):
    """Only a word of the right form is a code, nothing else reaches a log."""
    error = read(409, {"code": code})
    assert error.code is None
    assert str(error) == "startRun: 409 without a code"


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>502 Bad Gateway</html>", b"\xff\xfe", b"[1]", b"null", b'"run_ended"', b'{"code":', b"NaN",
     b'{"code":"run_ended","code":"x"}', b"[" * 100_000],
)  # fmt: skip
def test_a_body_that_is_no_problem_survives(body):
    """A proxy's page, cut JSON, a list: the status alone is the answer."""
    error = read(502, body)
    assert (type(error), error.status, error.code) == (ProblemAnswer, 502, None)


def test_the_status_of_the_answer_counts():
    """A body that claims another status is not believed."""
    assert read(503, {"status": 200, "code": "rate_limited"}).status == 503


def test_run_ended_has_a_class_of_its_own():
    """Only as a 409; the same word under another status is an ordinary problem."""
    assert type(read(409, {"code": "run_ended"})) is RunEnded
    assert type(read(422, {"code": "run_ended"})) is ProblemAnswer


def test_a_conflict_carries_its_document():
    """The document is handed on as it came."""
    error = read(409, {"code": "version_conflict", "document": {"version": 7}})
    assert type(error) is VersionConflict
    assert error.extra["document"] == {"version": 7}


@pytest.mark.parametrize("document", [None, 5, "x", []])
def test_a_conflict_without_a_document_is_an_ordinary_problem(document):
    """Nobody may be promised a document that is not there."""
    error = read(409, {"code": "version_conflict", "document": document})
    assert type(error) is ProblemAnswer
    assert "document" not in error.extra


@pytest.mark.parametrize(("version", "extra"), [(4, {"version": 4}), ("4", {}), (True, {}), (None, {})])
def test_a_current_version_is_kept_when_it_is_a_number(version, extra):
    """A stale `If-Match` is told the current version."""
    assert read(412, {"code": "precondition_failed", "version": version, "other": 1}).extra == extra


def test_retry_after_is_a_field():
    """Both forms of the header end as seconds."""
    assert read(503, retry_after="7").retry_after == 7.0
    assert read(503, retry_after="Mon, 30 Nov 2026 12:00:09 GMT").retry_after == 9.0
    assert read(503, retry_after="soon").retry_after is None


@pytest.mark.parametrize(
    ("challenge", "code"),
    [
        ('DPoP error="use_dpop_nonce"', "use_dpop_nonce"),
        ('dpop algs="ES256", error="use_dpop_nonce"', "use_dpop_nonce"),
        ('Bearer error="invalid_token", DPoP error="invalid_dpop_proof"', "invalid_dpop_proof"),
        ('Bearer error="use_dpop_nonce"', None),
        ("DPoP", None),
        ('DPoP error="', None),
        ('XDPoP error="use_dpop_nonce"', None),
    ],
)
def test_a_challenge_stands_in_for_a_missing_code(challenge, code):
    """A server in front of the server may answer without a body."""
    assert read(401, b"", www_authenticate=challenge).code == code


def test_the_body_goes_before_the_challenge():
    """The stable code is the problem's; other statuses have no challenge."""
    assert read(401, {"code": "token_expired"}, www_authenticate='DPoP error="x_y"').code == "token_expired"
    assert read(403, b"", www_authenticate='DPoP error="use_dpop_nonce"').code is None


@settings(max_examples=50)
@given(st.binary(max_size=200), st.integers(400, 599), st.text(max_size=40))
def test_no_answer_breaks_the_reader(body, status, challenge):
    """Whatever bytes come, an error comes out that repeats none of them."""
    error = read_problem("x", status, {"www-authenticate": challenge, "retry-after": challenge}, body, NOW)
    assert error.status == status
