"""The errors: one tree by what the caller does next, texts built from fields, never a value."""

import inspect
import pickle

import pytest

from bothy_hermes import errors
from bothy_hermes.errors import (
    BothyError,
    ConfigError,
    IllegalMove,
    ProblemAnswer,
    RunEnded,
    StateError,
    StateLocked,
    StateTooNew,
    TokenRefused,
    TransportError,
    VersionConflict,
    WatchLost,
    WireError,
)

TEXTS = [
    (ConfigError("hermes_adapter.token_file", "is missing"), "hermes_adapter.token_file: is missing"),
    (StateError("state.sqlite3", "is damaged"), "state.sqlite3: is damaged"),
    (WatchLost("the run has not ended"), "the run has not ended"),
    (IllegalMove("run", "queued", "completed"), "run: no move from queued to completed"),
    (WireError("run.id", "is missing"), "run.id: is missing"),
    (WireError("", "expected an object"), "value: expected an object"),
    (TokenRefused("expired"), "run token refused (expired)"),
    (TransportError("startRun", "timeout", sent=True), "startRun: timeout (the server may have acted on it)"),
    (TransportError("startRun", "connect", sent=False), "startRun: connect (nothing was sent)"),
    (ProblemAnswer("getMe", 401, "unauthorized"), "getMe: 401 unauthorized"),
    (ProblemAnswer("getMe", 502, None), "getMe: 502 without a code"),
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_an_error_says_what_its_fields_hold(error, text):
    """The text is built from the fields, for logs and for operators."""
    assert str(error) == text


def test_every_error_is_one_of_ours():
    """Whoever catches the base catches all of them."""
    found = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, Exception)]
    assert [one for one in found if not issubclass(one, BothyError)] == []


def test_every_error_stands_in_the_tree_of_the_module():
    """The picture at the top names each class under its base."""
    tree = [line for line in (errors.__doc__ or "").splitlines() if "──" in line]
    depth_of = {line.split("── ")[1].split()[0]: line.index("──") for line in tree}
    found = {one.__name__: one for one in vars(errors).values() if inspect.isclass(one)}
    assert set(depth_of) == set(found) - {"BothyError", "Mapping", "Any"}
    for name, depth in depth_of.items():
        direct = found[name].__bases__[0] is BothyError
        assert direct == (depth == min(depth_of.values())), name


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (StateLocked, StateError),
        (StateTooNew, StateError),
        (RunEnded, ProblemAnswer),
        (VersionConflict, ProblemAnswer),
        (ConfigError, ValueError),
        (WireError, ValueError),
    ],
)
def test_a_narrow_error_is_caught_as_its_kind(narrow, wide):
    """A caller that makes no difference need not know the difference."""
    assert issubclass(narrow, wide)


def test_what_came_with_a_problem_is_not_in_its_text():
    """A returned document holds what people see; it is a field only."""
    error = VersionConflict(
        "updateRun",
        409,
        "version_conflict",
        retry_after=2.5,
        extra={"document": {"status_line": "secret plan"}},
    )
    assert error.extra["document"] == {"status_line": "secret plan"}
    assert error.retry_after == 2.5
    assert "secret plan" not in f"{error} {error!r}"


def test_a_problem_without_extras_has_none():
    """Nothing shared between two problems."""
    assert ProblemAnswer("getMe", 500, None).extra == {}


@pytest.mark.parametrize("error", [error for error, _ in TEXTS if not isinstance(error, TransportError)])
def test_an_error_survives_a_process_boundary(error):
    """A subprocess or an executor can hand it over whole."""
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
