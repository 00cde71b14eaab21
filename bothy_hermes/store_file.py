"""The state file itself: who may read it, how SQLite treats it, and what its errors mean.

Layer: edges. Opens the one connection; says in sentences what an operator can do about a file that is
full, damaged, read-only or not ours. Queries and tables live in the rooms beside it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import StateError
from .state_files import private_directory
from .store_schema import FILE_NAME, MIGRATIONS, migrate

BUSY_TIMEOUT_SECONDS = 2.0
"""How long a reader from outside (an operator's shell) may hold the file up."""

_MOVE_AWAY = (
    "move it and the files beside it that begin with its name out of the directory and start again; "
    "what it still had to send is lost"
)

DAMAGED = f"is damaged; {_MOVE_AWAY}"

_SENTENCES: Mapping[int, str] = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space, what waits is tried again",
    sqlite3.SQLITE_READONLY: "cannot be written; check the owner and whether the disk is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; check the owner and the directory",
    sqlite3.SQLITE_PERM: "cannot be opened; check the owner and the directory",
    sqlite3.SQLITE_IOERR: "the disk reports errors; check it, what waits is tried again",
    sqlite3.SQLITE_BUSY: "another program holds it; close that program",
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: f"is damaged or no state file at all; {_MOVE_AWAY}",
}

_PRAGMAS = (
    "synchronous = FULL",  # what was acked survives the loss of power
    "fullfsync = ON",  # and on macOS, where a plain fsync stops at the drive's cache
    "secure_delete = ON",  # a message that was sent leaves no bytes behind
    "temp_store = MEMORY",  # nor does a rolled back step leave them in a temporary file
    "trusted_schema = OFF",
)


def state_error(error: sqlite3.Error) -> StateError:
    """Say what an error of SQLite means to the operator; never any value of a statement."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return StateError(FILE_NAME, f"cannot be used ({type(error).__name__})")
    fallback = f"cannot be used ({getattr(error, 'sqlite_errorname', code)})"
    return StateError(FILE_NAME, _SENTENCES.get(code & 0xFF, fallback))


def open_database(directory: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> sqlite3.Connection:
    """Open the state file of a directory, both made when they are missing.

    The connection is in autocommit mode and belongs to the calling thread.

    Raises:
        StateTooNew: A newer version wrote the file.
        StateError: The directory or the file cannot be used.
    """
    private_directory(directory)
    path = directory / FILE_NAME
    _private_file(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise state_error(error) from None
    try:
        _prepare(connection)
        migrate(connection, migrations)
    except sqlite3.Error as error:
        connection.close()
        raise state_error(error) from None
    except UnicodeDecodeError:  # SQLite's own sentence about a damaged schema, with the bytes of it
        connection.close()
        raise StateError(FILE_NAME, DAMAGED) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _private_file(path: Path) -> None:
    """Make the file before SQLite does: its companions inherit these permissions."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o600)
    except OSError as error:
        raise StateError(path.name, f"cannot be opened ({error.strerror})") from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StateError(path.name, "is no regular file")
        os.fchmod(handle, 0o600)
    except OSError as error:
        raise StateError(path.name, f"is not ours ({error.strerror})") from None
    finally:
        os.close(handle)


def _prepare(connection: sqlite3.Connection) -> None:
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StateError(FILE_NAME, "lies on a disk without write-ahead logging; use a local disk")
    if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
        raise StateError(FILE_NAME, DAMAGED)
