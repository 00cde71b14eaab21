"""The tables of the state file, as numbered migrations.

Layer: edges. A migration is never changed once it was released: a new one is added at the end. Each runs
in one transaction together with its number, so that a file is always at exactly one version.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from .errors import StateError, StateTooNew

FILE_NAME = "state.sqlite3"
"""The state file's name in its directory."""

MIGRATIONS: Sequence[Sequence[str]] = (
    (
        # The adapter's own ID and whatever else exists once.
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
        """CREATE TABLE inbox (
            position INTEGER PRIMARY KEY,
            event_id TEXT NOT NULL UNIQUE,
            event_type TEXT NOT NULL,
            run_id TEXT,
            thread_id TEXT,
            subject_id TEXT,
            jti TEXT,
            state TEXT NOT NULL,
            created_at TEXT NOT NULL,
            changed_at TEXT NOT NULL
        )""",
        "CREATE INDEX inbox_run ON inbox (run_id)",
        "CREATE INDEX inbox_state ON inbox (state, changed_at)",
        # Apart from the inbox: a forgotten event's token stays bound to it.
        """CREATE TABLE token_ids (
            jti TEXT PRIMARY KEY,
            event_id TEXT NOT NULL,
            created_at TEXT NOT NULL
        ) WITHOUT ROWID""",
        # AUTOINCREMENT: a sequence is never used twice, so a late answer cannot remove another call.
        """CREATE TABLE outbox (
            sequence INTEGER PRIMARY KEY AUTOINCREMENT,
            key TEXT NOT NULL UNIQUE,
            run_id TEXT NOT NULL,
            operation TEXT NOT NULL,
            target_id TEXT,
            if_match INTEGER,
            body TEXT NOT NULL
        )""",
        "CREATE INDEX outbox_run ON outbox (run_id, sequence)",
        """CREATE TABLE cards (
            card_id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL,
            kind TEXT NOT NULL,
            hermes_id TEXT,
            session_key TEXT,
            message_id TEXT,
            components TEXT NOT NULL,
            changed_at TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX cards_message ON cards (message_id)",
        """CREATE TABLE claims (
            callback_id TEXT PRIMARY KEY,
            card_id TEXT NOT NULL,
            run_id TEXT NOT NULL,
            state TEXT NOT NULL,
            changed_at TEXT NOT NULL
        ) WITHOUT ROWID""",
        "CREATE INDEX claims_card ON claims (card_id)",
        """CREATE TABLE sessions (
            thread_id TEXT PRIMARY KEY,
            session_id TEXT NOT NULL,
            parent_id TEXT,
            changed_at TEXT NOT NULL
        ) WITHOUT ROWID""",
    ),
    (
        # A card needs no more: a restart ends its run, so that no prompt of Hermes is answered from here.
        # By a new table, because older SQLite libraries drop no columns.
        """CREATE TABLE cards_2 (
            card_id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL,
            message_id TEXT,
            changed_at TEXT NOT NULL
        ) WITHOUT ROWID""",
        "INSERT INTO cards_2 SELECT card_id, run_id, message_id, changed_at FROM cards",
        "DROP TABLE cards",
        "ALTER TABLE cards_2 RENAME TO cards",
        "CREATE INDEX cards_message ON cards (message_id)",
    ),
)
"""The statements of each version, the first one making version 1 of an empty file."""


def migrate(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring a file to the last version.

    Args:
        connection: In autocommit mode.
        migrations: What to apply.

    Raises:
        StateTooNew: A newer version of the program wrote the file.
        StateError: The file holds tables of another program.
        sqlite3.Error: The file cannot be written; it stays at the last version that was reached.
    """
    version = known_version(connection, migrations)
    if version == 0 and connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0]:
        raise StateError(FILE_NAME, "is a database of another program; name another state directory")
    for number in range(version, len(migrations)):
        _apply(connection, migrations[number], number + 1)


def known_version(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> int:
    """Return the version that a file is at.

    Raises:
        StateTooNew: A newer version of the program wrote the file.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(migrations):
        raise StateTooNew(
            FILE_NAME,
            f"was written by a newer version (its schema is {version}, this one knows up to "
            f"{len(migrations)}); install that version again, or move the file and those beside it that "
            "begin with its name out of the directory and start anew without what it remembers",
        )
    return version


def _apply(connection: sqlite3.Connection, statements: Sequence[str], version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version:d}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
