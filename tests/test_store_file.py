"""The file itself: private, durable, ours; and a sentence for everything that can be wrong with it."""

import os
import sqlite3
import stat

import pytest

from bothy_hermes.errors import StateError, StateTooNew
from bothy_hermes.store_file import _PRAGMAS, open_database, state_error
from bothy_hermes.store_schema import MIGRATIONS

DAMAGED = "is damaged"


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def pragma(connection, name):
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.fixture
def made(tmp_path):
    """A state directory with a file at the newest version."""
    open_database(tmp_path / "state").close()
    return tmp_path / "state"


def test_directory_file_and_companions_are_the_owners_alone(tmp_path):
    """0700 and 0600, whatever the umask allows, for the log files as well."""
    old = os.umask(0)
    try:
        connection = open_database(tmp_path / "profile" / "state")
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "profile" / "state") == 0o700
    files = {path.name: mode_of(path) for path in (tmp_path / "profile" / "state").iterdir()}
    assert files == {"state.sqlite3": 0o600, "state.sqlite3-wal": 0o600, "state.sqlite3-shm": 0o600}
    connection.close()


def test_a_wide_file_is_narrowed(made):
    """Permissions that a copy or a restore widened are closed again."""
    made.chmod(0o755)
    (made / "state.sqlite3").chmod(0o644)
    open_database(made).close()
    assert (mode_of(made), mode_of(made / "state.sqlite3")) == (0o700, 0o600)


def test_the_connection_is_durable_and_forgetful(tmp_path):
    """Write-ahead log, a sync at every commit, deleted content overwritten, no implicit transaction."""
    connection = open_database(tmp_path)
    assert pragma(connection, "journal_mode") == "wal"
    assert pragma(connection, "synchronous") == 2
    assert pragma(connection, "secure_delete") == 1
    assert "secure_delete = ON" in _PRAGMAS  # the default differs between builds of SQLite
    assert pragma(connection, "temp_store") == 2
    assert pragma(connection, "user_version") == len(MIGRATIONS)
    assert connection.isolation_level is None
    connection.close()


def test_a_newer_file_is_refused(made):
    """The file of a newer version is not opened, and stays as it is."""
    connection = sqlite3.connect(made / "state.sqlite3")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (made / "state.sqlite3").read_bytes()
    with pytest.raises(StateTooNew, match=r"its schema is 99.*install that version again"):
        open_database(made)
    assert (made / "state.sqlite3").read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_of_garbage_is_a_sentence(made, content):
    """Not a traceback: what to do, and nothing is overwritten."""
    (made / "state.sqlite3").write_bytes(content)
    with pytest.raises(StateError, match=rf"^state.sqlite3: {DAMAGED}.*move it and the files beside it"):
        open_database(made)
    assert (made / "state.sqlite3").read_bytes() == content


def test_a_damaged_page_is_found_at_the_opening(made):
    """Damage behind a good header is told before anything is believed."""
    connection = open_database(made)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO token_ids VALUES (?, 'e', 't')", [(f"jti-{n:06}",) for n in range(2000)]
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with (made / "state.sqlite3").open("r+b") as file:
        file.seek(-3 * 4096, os.SEEK_END)
        file.write(b"\xaa" * 4096 * 2)
    with pytest.raises(StateError, match=DAMAGED):
        open_database(made)


def test_a_damaged_schema_is_found_at_the_opening(made):
    """SQLite quotes the damaged bytes, which are no text any more."""
    path = made / "state.sqlite3"
    data = path.read_bytes()
    assert data.count(b"CREATE TABLE inbox") == 1
    path.write_bytes(data.replace(b"CREATE TABLE inbox", b"CREATE TAB\xffE inbox"))
    with pytest.raises(StateError, match=rf"^state.sqlite3: {DAMAGED}"):
        open_database(made)


def test_a_cut_file_is_found_at_the_opening(made):
    """A file that lost its end is damaged, not empty."""
    os.truncate(made / "state.sqlite3", 4096 * 3)
    with pytest.raises(StateError, match=DAMAGED):
        open_database(made)


def test_an_empty_file_is_a_new_one(tmp_path):
    """A kill between making the file and its first table leaves nothing in the way."""
    (tmp_path / "state.sqlite3").touch()
    connection = open_database(tmp_path)
    assert pragma(connection, "user_version") == len(MIGRATIONS)
    connection.close()


def test_another_programs_database_is_refused(tmp_path):
    """Its tables are left alone."""
    connection = sqlite3.connect(tmp_path / "state.sqlite3")
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StateError, match="database of another program"):
        open_database(tmp_path)


def test_a_link_in_the_files_place_is_refused(tmp_path):
    """The state is never written through a link."""
    (tmp_path / "victim").touch()
    (tmp_path / "state.sqlite3").symlink_to(tmp_path / "victim")
    with pytest.raises(StateError, match=r"state.sqlite3: cannot be opened"):
        open_database(tmp_path)
    assert (tmp_path / "victim").stat().st_size == 0


def test_a_file_of_somebody_else_is_refused(made, monkeypatch):
    """Its permissions are its owner's to change."""

    def refuse(_handle, _mode):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(StateError, match=r"state.sqlite3: is not ours \(Operation not permitted\)"):
        open_database(made)


def test_something_else_in_the_files_place_is_refused(tmp_path):
    """A directory or a pipe is no state file."""
    os.mkfifo(tmp_path / "state.sqlite3")
    with pytest.raises(StateError, match="is no regular file"):
        open_database(tmp_path)
    (tmp_path / "other" / "state.sqlite3").mkdir(parents=True)
    with pytest.raises(StateError, match="cannot be opened"):
        open_database(tmp_path / "other")


def test_a_file_that_another_program_is_writing_is_busy(made, monkeypatch):
    """The operator is told to close the other program, after a short wait."""
    monkeypatch.setattr("bothy_hermes.store_file.BUSY_TIMEOUT_SECONDS", 0.05)
    (made / "state.sqlite3").unlink()
    other = sqlite3.connect(made / "state.sqlite3", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StateError, match="another program holds it"):
        open_database(made)
    other.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full"),
        (sqlite3.SQLITE_READONLY, "cannot be written"),
        (sqlite3.SQLITE_READONLY_DBMOVED, "cannot be written"),
        (sqlite3.SQLITE_CANTOPEN, "cannot be opened"),
        (sqlite3.SQLITE_PERM, "cannot be opened"),
        (sqlite3.SQLITE_IOERR_WRITE, "the disk reports errors"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "another program holds it"),
        (sqlite3.SQLITE_CORRUPT_INDEX, DAMAGED),
        (sqlite3.SQLITE_NOTADB, DAMAGED),
        (sqlite3.SQLITE_MISUSE, "cannot be used"),
    ],
)
def test_every_kind_of_error_has_its_sentence(code, words):
    """Extended codes count as their kind, unknown ones get a general sentence; values are never shown."""
    error = sqlite3.OperationalError("near 'what people wrote'")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_X"
    text = str(state_error(error))
    assert text.startswith(f"state.sqlite3: {words}")
    assert "people" not in text


def test_an_error_without_a_code_names_its_kind():
    """Errors of the binding itself have no code of SQLite."""
    assert (
        str(state_error(sqlite3.ProgrammingError("x"))) == "state.sqlite3: cannot be used (ProgrammingError)"
    )
