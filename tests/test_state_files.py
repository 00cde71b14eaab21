"""status.json and the requests of a running adapter: whole, private, never done late."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from bothy_hermes import state_files
from bothy_hermes.errors import StateError
from bothy_hermes.state_files import (
    answer_request,
    private_directory,
    put_request,
    read_status,
    take_answer,
    take_requests,
    withdraw_request,
    write_status,
)
from tests.fakes.clock import START, FakeClock


@pytest.fixture
def state(tmp_path):
    private_directory(tmp_path / "state")
    return tmp_path / "state"


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_status_is_read_as_it_was_written(state):
    """What `check` reads is what the adapter wrote last."""
    write_status(state, {"connection": "ready", "runs": [1, 2]})
    write_status(state, {"connection": "lost"})
    assert read_status(state) == {"connection": "lost"}
    assert [path.name for path in state.iterdir()] == ["status.json"]


def test_a_status_is_private_whatever_the_umask(state):
    """Only the owner reads it."""
    old = os.umask(0)
    try:
        write_status(state, {})
    finally:
        os.umask(old)
    assert mode_of(state / "status.json") == 0o600


def test_a_reader_never_sees_half_a_status(state):
    """A reader beside a writer gets one of the two contents, never a mixture or nothing."""
    contents = [{"text": letter * 200_000} for letter in "ab"]
    write_status(state, contents[0])
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            for content in contents:
                write_status(state, content)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        seen = [read_status(state) for _ in range(200)]
    finally:
        stop.set()
        writer.join()
    assert all(one in contents for one in seen)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff", b'{"a":1,"a":2}'])
def test_what_is_no_status_reads_as_none(state, content):
    """A missing or broken file is no crash of the command that reads it."""
    if content is not None:
        (state / "status.json").write_bytes(content)
    assert read_status(state) is None


def test_a_left_over_of_a_killed_writer_is_no_obstacle(state):
    """A half-written file beside the place, even a link, is replaced and not followed."""
    (state / "victim").write_text("kept")
    (state / ".status.json.new").symlink_to(state / "victim")
    write_status(state, {"a": 1})
    assert read_status(state) == {"a": 1}
    assert (state / "victim").read_text() == "kept"


def test_a_disk_that_refuses_is_a_sentence(state):
    """The caller gets the file's name and the system's word for it."""
    with pytest.raises(StateError, match=r"^status.json: cannot be written \(no such file or directory\)$"):
        write_status(state / "missing", {})


def test_a_request_is_taken_once_and_answered(state):
    """The command's body reaches the adapter once, the answer reaches the command once."""
    clock = FakeClock().clock
    asked = put_request(state, clock, {"command": "cancel"})
    (taken,) = take_requests(state, START)
    assert (taken.id, taken.body) == (asked, {"command": "cancel"})
    assert take_requests(state, START) == []
    assert take_answer(state, asked) is None
    answer_request(state, asked, {"done": True})
    assert take_answer(state, asked) == {"done": True}
    assert take_answer(state, asked) is None


def test_requests_are_private(state):
    """Nobody else can ask a running adapter for anything."""
    asked = put_request(state, FakeClock().clock, {})
    assert mode_of(state / "requests") == 0o700
    assert mode_of(state / "requests" / f"{asked}.json") == 0o600


def test_requests_are_taken_in_the_order_of_their_asking(state):
    """The oldest comes first, whatever its ID."""
    fake = FakeClock()
    asked = []
    for number in range(20):
        asked.append(put_request(state, fake.clock, {"number": number}))
        fake.move(0.1)
    assert [one.id for one in take_requests(state, fake.time)] == asked


@pytest.mark.parametrize(("age", "taken"), [(0, 1), (5, 1), (5.1, 0), (3600, 0), (-5.1, 0)])
def test_a_request_that_was_given_up_is_not_done_late(state, age, taken):
    """Five seconds after the asking nobody waits any more; the file goes in either case."""
    fake = FakeClock()
    put_request(state, fake.clock, {})
    fake.move(age)
    assert len(take_requests(state, fake.time)) == taken
    assert list((state / "requests").iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"{", b"{}", b'{"asked_at": "yesterday", "body": {}}', b'{"asked_at": 5, "body": {}}']
)
def test_a_broken_request_only_goes(state, content):
    """What cannot be read is removed, and the requests beside it are served."""
    good = put_request(state, FakeClock().clock, {})
    (state / "requests" / "00000000-0000-4000-8000-000000000000.json").write_bytes(content)
    (state / "requests" / "no-id.json").write_bytes(
        json.dumps({"asked_at": "2026-11-30T12:00:00Z", "body": {}}).encode()
    )
    assert [one.id for one in take_requests(state, START)] == [good]
    assert list((state / "requests").iterdir()) == []


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "loop"])
def test_what_is_no_file_stops_no_request(state, kind):
    """It is not read, not waited for and costs no open file, and the requests beside it are served."""
    good = put_request(state, FakeClock().clock, {})
    odd = state / "requests" / "00000000-0000-4000-8000-000000000000.json"
    make = {
        "directory": odd.mkdir,
        "fifo": lambda: os.mkfifo(odd),
        "link": lambda: odd.symlink_to(state),
        "loop": lambda: odd.symlink_to(odd),
    }
    make[kind]()
    before = len(list(Path("/dev/fd").iterdir()))
    assert [one.id for one in take_requests(state, START)] == [good]
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_a_request_that_is_withdrawn_while_it_is_read_is_not_done(state, monkeypatch):
    """Whoever withdrew it was told that nothing will happen."""
    request_id = put_request(state, FakeClock().clock, {})
    read = state_files._read

    def reading(path):
        found = read(path)
        assert withdraw_request(state, request_id) is True
        return found

    monkeypatch.setattr(state_files, "_read", reading)
    assert take_requests(state, START) == []


def test_a_request_can_be_withdrawn_until_it_is_taken(state):
    """The command that gives up knows whether the adapter may be acting on it."""
    clock = FakeClock().clock
    first, second = put_request(state, clock, {}), put_request(state, clock, {})
    assert withdraw_request(state, first) is True
    assert [one.id for one in take_requests(state, START)] == [second]
    assert withdraw_request(state, second) is False


def test_an_answer_that_nobody_takes_goes_after_a_minute(state):
    """A command that was killed leaves nothing behind for good."""
    asked = put_request(state, FakeClock().clock, {})
    take_requests(state, START)
    answer_request(state, asked, {})
    path = state / "requests" / f"{asked}.answer"
    os.utime(path, (START.timestamp() - 59, START.timestamp() - 59))
    take_requests(state, START)
    assert path.exists()
    os.utime(path, (START.timestamp() - 61, START.timestamp() - 61))
    take_requests(state, START)
    assert not path.exists()


def test_without_any_request_nothing_is_made(state):
    """Looking for requests does not make their directory."""
    assert take_requests(state, START) == []
    assert not (state / "requests").exists()


def test_a_wide_directory_is_narrowed(tmp_path):
    """A directory that others could enter is closed to them."""
    (tmp_path / "state").mkdir(mode=0o755)
    private_directory(tmp_path / "state")
    assert mode_of(tmp_path / "state") == 0o700


def test_somebody_elses_directory_is_refused(tmp_path, monkeypatch):
    """A directory that cannot be closed to others is not used, with the system's word for it."""
    (tmp_path / "state").mkdir(mode=0o755)

    def not_ours(_path, _mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", not_ours)
    with pytest.raises(StateError, match=r"^state: cannot be used .*\(operation not permitted\)$"):
        private_directory(tmp_path / "state")


def test_an_oversized_file_is_not_read(state, monkeypatch):
    """A file that is larger than any of ours is none of ours."""
    monkeypatch.setattr(state_files, "MAX_FILE_BYTES", 10)
    write_status(state, {"a": "0123456789"})
    assert read_status(state) is None
