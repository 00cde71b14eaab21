"""One agent token, one process, one profile."""

import pytest

from bothy_hermes.errors import StateLocked
from bothy_hermes.hermes_lock import TokenLock
from bothy_hermes.secret import Secret
from tests.fakes import hermes

TOKEN = Secret("agent-token-value")


def lock(home="/one", token=TOKEN):
    """The lock of a profile."""
    return TokenLock(token, "bothy", home)


def test_a_second_process_is_refused(monkeypatch):
    """The error names the process, and never the token."""
    state = hermes.installed(monkeypatch)
    lock().acquire()
    state.pid = 200
    with pytest.raises(StateLocked, match="process 100") as refused:
        lock().acquire()
    assert "agent-token-value" not in str(refused.value)


def test_a_second_profile_of_the_same_process_is_refused(monkeypatch):
    """Hermes' own record cannot tell them apart; the first profile keeps the lock."""
    state = hermes.installed(monkeypatch)
    lock("/one").acquire()
    with pytest.raises(StateLocked, match="another profile"):
        lock("/two").acquire()
    assert [record["metadata"]["home"] for record in state.locks.values()] == ["/one"]


def test_the_same_profile_takes_it_again(monkeypatch):
    """A reconnect without a clean end is no second adapter."""
    hermes.installed(monkeypatch)
    lock().acquire()
    lock().acquire()


def test_a_released_lock_is_free(monkeypatch):
    """For another process as well."""
    state = hermes.installed(monkeypatch)
    first = lock()
    first.acquire()
    first.release()
    state.pid = 200
    lock("/two").acquire()


def test_two_tokens_are_two_locks(monkeypatch):
    """Each profile has its own agent."""
    hermes.installed(monkeypatch)
    lock("/one").acquire()
    lock("/two", Secret("another-token")).acquire()


def test_a_record_of_somebody_else_is_no_reason_to_fail(monkeypatch):
    """A lock file that an older version wrote holds less."""
    state = hermes.installed(monkeypatch)
    state.locks["bothy-agent-token", TOKEN.reveal()] = {"pid": state.pid, "metadata": None}
    lock().acquire()
