"""Migrations: numbered, each with its version in one transaction, never backwards."""

import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bothy_hermes.errors import StateError, StateTooNew
from bothy_hermes.store_schema import MIGRATIONS, migrate

STEPS = (
    ("CREATE TABLE a (x TEXT)", "INSERT INTO a VALUES ('kept')"),
    ("ALTER TABLE a ADD COLUMN y TEXT", "UPDATE a SET y = 'second'"),
    ("CREATE TABLE b (z TEXT)",),
)


def connect(path=":memory:"):
    return sqlite3.connect(path, isolation_level=None)


def version_of(connection):
    return connection.execute("PRAGMA user_version").fetchone()[0]


@pytest.fixture
def connection():
    connection = connect()
    yield connection
    connection.close()


def test_an_empty_file_becomes_the_newest_version(connection):
    """All migrations run and the version says so."""
    migrate(connection)
    assert version_of(connection) == len(MIGRATIONS)
    assert {"inbox", "outbox", "claims", "cards", "sessions"} <= {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }


def test_no_column_could_hold_a_run_token(connection):
    """Identifiers only: the one column for content is the outbox's body, and none is for a token."""
    migrate(connection)
    columns = {
        f"{table}.{column[1]}"
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for column in connection.execute(f"PRAGMA table_info({table})")
    }
    assert "outbox.body" in columns
    assert not [name for name in columns if "token" in name.split(".")[1]]


def test_migrating_again_changes_nothing(connection):
    """A file at the newest version is left alone."""
    migrate(connection, STEPS)
    before = connection.total_changes
    migrate(connection, STEPS)
    assert connection.total_changes == before


def test_an_older_file_keeps_its_rows(connection):
    """Only the missing migrations run, on the rows that are there."""
    migrate(connection, STEPS[:1])
    migrate(connection, STEPS)
    assert version_of(connection) == 3
    assert connection.execute("SELECT x, y FROM a").fetchall() == [("kept", "second")]


def test_a_card_of_the_first_version_is_kept(connection):
    """Without what nobody reads; it is found by its message as before."""
    migrate(connection, MIGRATIONS[:1])
    connection.execute(
        "INSERT INTO cards VALUES ('c', 'run', 'clarify', 'hermes', 'key', 'message', '{}', '2026-11-30')"
    )
    migrate(connection)
    row = connection.execute("SELECT * FROM cards INDEXED BY cards_message WHERE message_id = 'message'")
    assert row.fetchone() == ("c", "run", "message", "2026-11-30")


def test_a_failing_migration_leaves_the_version_before_it(connection):
    """Half a migration is none, and the ones before it stay."""
    broken = (STEPS[0], ("CREATE TABLE half (x TEXT)", "INSERT INTO missing VALUES (1)"))
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, broken)
    assert version_of(connection) == 1
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'half'").fetchall()
    assert not connection.in_transaction


def test_a_newer_file_is_refused_with_what_to_do(connection):
    """The sentence names both versions and the two ways out; the file is not touched."""
    migrate(connection, STEPS)
    with pytest.raises(StateTooNew) as caught:
        migrate(connection, STEPS[:1])
    assert str(caught.value) == (
        "state.sqlite3: was written by a newer version (its schema is 3, this one knows up to 1); install "
        "that version again, or move the file and those beside it that begin with its name out of the "
        "directory and start anew without what it remembers"
    )
    assert version_of(connection) == 3


def test_another_programs_database_is_refused(connection):
    """Tables without a version of ours are not migrated over."""
    connection.execute("CREATE TABLE theirs (x TEXT)")
    with pytest.raises(StateError, match="database of another program"):
        migrate(connection, STEPS)


KILLED_IN_THE_MIDDLE = textwrap.dedent(
    """
    import os, signal, sqlite3, sys
    from bothy_hermes.store_schema import migrate
    from tests.test_store_schema import STEPS

    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.create_function("die", 0, lambda: os.kill(os.getpid(), signal.SIGKILL))
    migrate(connection, (STEPS[0], (STEPS[1][0], "SELECT die()", STEPS[1][1]), STEPS[2]))
    """
)


def test_a_kill_inside_a_migration_is_survived(tmp_path):
    """Killed in the second of three migrations, the file is at the first and is migrated on."""
    path = tmp_path / "killed.sqlite3"
    root = Path(__file__).parents[1]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(path)], cwd=root, check=False, timeout=60
    )
    assert killed.returncode == -9
    connection = connect(path)
    assert version_of(connection) == 1
    migrate(connection, STEPS)
    assert version_of(connection) == 3
    assert connection.execute("SELECT x, y FROM a").fetchall() == [("kept", "second")]
    connection.close()
