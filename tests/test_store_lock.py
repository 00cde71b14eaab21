"""One holder of a state directory, and a dead one holds nothing."""

import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from bothy_hermes.errors import StateError, StateLocked
from bothy_hermes.store_lock import StateLock

ROOT = Path(__file__).parents[1]
HOLDER = """
import sys, time
from pathlib import Path
from bothy_hermes.store_lock import StateLock
lock = StateLock.acquire(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def another_holder(directory):
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path):
    """The sentence names the process, so that the operator can stop it; of an older one nothing is left."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").write_text("12345678901234567890")
    held = StateLock.acquire(tmp_path / "state")
    with pytest.raises(StateLocked) as caught:
        StateLock.acquire(tmp_path / "state")
    held.release()
    assert str(caught.value) == f"lock: process {os.getpid()} uses this state directory; stop it first"


def test_a_released_lock_can_be_taken_again(tmp_path):
    """Releasing twice does nothing more, and does not release the next holder's."""
    first = StateLock.acquire(tmp_path)
    first.release()
    second = StateLock.acquire(tmp_path)
    first.release()
    with pytest.raises(StateLocked):
        StateLock.acquire(tmp_path)
    second.release()


def test_a_killed_holder_holds_nothing(tmp_path):
    """The system gives the lock back with the process, and a live one keeps others out."""
    with another_holder(tmp_path) as process:
        with pytest.raises(StateLocked, match=f"process {process.pid} "):
            StateLock.acquire(tmp_path)
        process.kill()
    StateLock.acquire(tmp_path).release()


def test_a_child_does_not_keep_the_lock(tmp_path):
    """A program that was started meanwhile, even with the open file, holds nothing after the release."""
    lock = StateLock.acquire(tmp_path)
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, pass_fds=[lock._handle]) as child:
        lock.release()
        StateLock.acquire(tmp_path).release()
        child.kill()


def test_directory_and_lock_are_the_owners_alone(tmp_path):
    """The directory is made 0700 and the file 0600, whatever the umask allows."""
    old = os.umask(0)
    try:
        StateLock.acquire(tmp_path / "state").release()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / "lock").stat().st_mode) == 0o600


def test_a_full_disk_does_not_cost_the_lock(tmp_path, monkeypatch):
    """It holds without the number of its holder."""

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    held = StateLock.acquire(tmp_path)
    with pytest.raises(StateLocked, match="another process uses"):
        StateLock.acquire(tmp_path)
    held.release()


def test_a_link_in_the_locks_place_is_refused(tmp_path):
    """The lock is never somebody else's file."""
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError, match="lock: cannot be opened"):
        StateLock.acquire(tmp_path / "state")
    assert (tmp_path / "victim").read_text() == "kept"


def test_a_directory_that_cannot_be_made_is_a_sentence(tmp_path):
    """A file in the directory's place is an error of the state, not a traceback."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StateError, match="state: cannot be used as a directory"):
        StateLock.acquire(tmp_path / "state")
