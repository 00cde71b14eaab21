"""The embedded server's disk: durable, exclusive, and every problem with a sentence."""

import sqlite3
import stat
from pathlib import Path

import pytest

from bothy_hermes.errors import StateError, StateLocked, StateTooNew
from bothy_hermes.local_records import ChannelRecord
from bothy_hermes.local_state import RecordChange, State
from bothy_hermes.local_store import LocalStore, write_private
from tests.fakes.clock import FakeClock


def channel(number, name="general"):
    return ChannelRecord(
        id=FakeClock(seed=number).clock.new_id(), name=name, served=True, prompt=None, skills=()
    )


def change(record, *, gone=False):
    return RecordChange("channel", str(record.id), None if gone else record)


def tables():
    return State(FakeClock().clock, lambda _changes: None).tables


def loaded(directory):
    store = LocalStore(directory)
    try:
        return list(store.load(tables()))
    finally:
        store.close()


def test_records_come_back_in_the_order_of_their_first_writing(tmp_path):
    store = LocalStore(tmp_path)
    ones = [channel(number) for number in range(3)]
    store.commit([change(one) for one in ones])
    store.commit([change(channel(0, "renamed")), change(ones[1], gone=True)])
    store.close()
    assert loaded(tmp_path) == [
        ("channel", ones[0].id, channel(0, "renamed")),
        ("channel", ones[2].id, ones[2]),
    ]


def test_keys_that_look_like_ids_stay_text(tmp_path):
    """A consumer may have any name, also that of an ID."""
    from bothy_hermes.local_records import ConsumerRecord

    name = str(channel(1).id)
    record = ConsumerRecord(name=name, adapter_id=None, seen_at=FakeClock().time)
    store = LocalStore(tmp_path)
    store.commit([RecordChange("consumer", name, record)])
    store.close()
    assert loaded(tmp_path) == [("consumer", name, record)]


def test_a_commit_is_whole(tmp_path):
    """When one record cannot be written, none is."""
    store = LocalStore(tmp_path)
    store.commit([change(channel(1))])
    with pytest.raises(ValueError, match="UTF-8"):
        store.commit([change(channel(2)), change(channel(3, "\ud800"))])
    store.commit([change(channel(4))])
    store.close()
    assert [key for _, key, _ in loaded(tmp_path)] == [channel(1).id, channel(4).id]


def test_what_is_committed_is_on_the_disk(tmp_path):
    store = LocalStore(tmp_path)
    assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_the_directory_and_its_files_are_their_users_alone(tmp_path):
    directory = tmp_path / "a" / "b"
    store = LocalStore(directory)
    store.commit([change(channel(1))])
    store.put_file(channel(1).id, b"x")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert modes.pop("files") == 0o700
    assert set(modes.values()) == {0o600}
    store.close()
    assert (directory / "server.sqlite3").exists()
    assert not (directory / "server.sqlite3-wal").exists()


def test_a_directory_that_others_may_read_is_closed(tmp_path):
    tmp_path.chmod(0o755)
    LocalStore(tmp_path).close()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["notes.txt", ".profile"])
def test_a_directory_of_somebody_elses_is_left_as_it_is(tmp_path, name):
    """A server closes its directory to others: a home or a directory that many use must not become one."""
    directory = tmp_path / "home"
    directory.mkdir(mode=0o755)
    (directory / name).write_text("mine")
    with pytest.raises(
        StateError, match=r"^home: holds other files and is open to others; name a new directory"
    ):
        LocalStore(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    assert [path.name for path in directory.iterdir()] == [name]


def test_a_directory_that_is_closed_already_may_hold_other_files(tmp_path):
    """There is nothing to take from anybody."""
    (tmp_path / "server.log").write_text("")
    tmp_path.chmod(0o700)
    LocalStore(tmp_path).close()
    assert (tmp_path / "server.sqlite3").exists()


def test_a_directory_is_named_also_when_it_is_where_one_stands(tmp_path, monkeypatch):
    tmp_path.chmod(0o755)
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateError, match=rf"^{tmp_path.name}: holds other files"):
        LocalStore(Path())


def test_a_second_server_is_refused(tmp_path):
    store = LocalStore(tmp_path / "state")
    with pytest.raises(StateLocked, match=r"^state: another server uses this state directory"):
        LocalStore(tmp_path / "state")
    store.close()
    LocalStore(tmp_path / "state").close()


def test_a_newer_file_is_refused(tmp_path):
    LocalStore(tmp_path).close()
    database = sqlite3.connect(tmp_path / "server.sqlite3")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StateTooNew, match=r"^server\.sqlite3: was written by a newer version"):
        LocalStore(tmp_path)


def test_a_file_that_is_no_database(tmp_path):
    (tmp_path / "server.sqlite3").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StateError, match=r"^server\.sqlite3: cannot be used"):
        LocalStore(tmp_path)
    (tmp_path / "server.sqlite3").unlink()
    LocalStore(tmp_path).close()


def test_a_schema_that_is_damaged(tmp_path):
    """SQLite quotes the damaged bytes, which are no text any more."""
    LocalStore(tmp_path).close()
    path = tmp_path / "server.sqlite3"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE records", b"CREATE TAB\xffE records"))
    with pytest.raises(StateError, match=r"^server\.sqlite3: cannot be used"):
        LocalStore(tmp_path)


def test_a_record_that_cannot_be_read(tmp_path):
    store = LocalStore(tmp_path)
    store.commit([change(channel(1))])
    store._database.execute("UPDATE records SET record = '{}'")
    with pytest.raises(StateError, match=r"^server\.sqlite3: a record of kind channel cannot be read"):
        list(store.load(tables()))
    store._database.execute("UPDATE records SET kind = 'strange'")
    with pytest.raises(StateError, match="kind strange"):
        list(store.load(tables()))
    store._database.execute("UPDATE records SET kind = 'channel', key = x'ff00'")
    with pytest.raises(StateError, match="kind channel"):
        list(store.load(tables()))
    store.close()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_directory_that_is_none(tmp_path, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StateError, match=r"is no directory|cannot be used as state directory"):
        LocalStore(tmp_path / name)


def test_a_lock_that_cannot_be_opened(tmp_path):
    (tmp_path / "server.lock").mkdir()
    with pytest.raises(StateError, match=r"^server\.lock: cannot be opened"):
        LocalStore(tmp_path)


def test_a_file_is_complete_or_not_there(tmp_path):
    write_private(tmp_path / "a", b"one")
    write_private(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"two"
    (tmp_path / "b.new").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write_private(tmp_path / "b", b"x")
    assert not (tmp_path / "b").exists()
