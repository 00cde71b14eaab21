"""The embedded server's disk: one SQLite file, one lock, and the bytes of files beside them.

Layer: default. A commit returns when its records are on the disk (write-ahead log, synchronous FULL),
so that what was answered survives a kill at any point. One connection, used under the state's lock.
It refuses a directory that another process holds, a file of a newer version, and anything it cannot
read or write, each with a sentence that names the thing.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from .codec import dump, dump_json, load_json, parse
from .errors import StateError, StateLocked, StateTooNew
from .local_state import Key, RecordChange, Table

STATE_FILE = "server.sqlite3"
LOCK_FILE = "server.lock"
FILES_DIRECTORY = "files"

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE records (
        position INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        record TEXT NOT NULL,
        UNIQUE (kind, key)
    )
    """,
)
"""One statement per version of the file; each runs in a transaction with its version number."""

_GET_ALL = "SELECT kind, key, record FROM records ORDER BY position"
_PUT = (
    "INSERT INTO records (kind, key, record) VALUES (?, ?, ?) "
    "ON CONFLICT (kind, key) DO UPDATE SET record = excluded.record"
)


class LocalStore:
    """The open state directory of one server.

    Args:
        directory: Made with mode 0700 when it is missing. One that others can read is closed to them when it
            is empty or a server's; a person's own directory must not be by a slip of the finger.

    Raises:
        StateLocked: Another process has it open.
        StateTooNew: A newer version wrote the file.
        StateError: It cannot be used for another reason.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._make_directory()
        self._lock = self._take_lock()
        try:
            self._database = self._open()
        except BaseException:
            self._lock.close()
            raise

    def load(self, tables: Mapping[str, Table[Any]]) -> Iterator[tuple[str, Key, Any]]:
        """Yield every record as (table, key, record), in the order of their first writing.

        Raises:
            StateError: A record cannot be read.
        """
        with self._errors():
            rows = self._database.execute(_GET_ALL).fetchall()
        for kind, key, text in rows:
            try:
                table = tables[kind]
                yield kind, table.read_key(key), parse(table.kind, load_json(text))
            except (ValueError, KeyError, TypeError):
                raise StateError(STATE_FILE, f"a record of kind {kind} cannot be read") from None

    def commit(self, changes: Sequence[RecordChange]) -> None:
        """Write changed records in one transaction; they are on the disk when this returns.

        Raises:
            StateError: They could not be written; the file is as it was.
        """
        with self._errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                for change in changes:
                    self._write(change)
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def put_file(self, file_id: UUID, data: bytes) -> None:
        """Write the bytes of a file; they are on the disk when this returns."""
        folder = self.directory / FILES_DIRECTORY
        with self._errors():
            folder.mkdir(mode=0o700, exist_ok=True)
            write_private(folder / str(file_id), data)

    def file_path(self, file_id: UUID) -> Path:
        """Return where the bytes of a file lie."""
        return self.directory / FILES_DIRECTORY / str(file_id)

    def close(self) -> None:
        """Close the file with everything in it, and let the directory go."""
        with suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._database.close()
        self._lock.close()

    def _write(self, change: RecordChange) -> None:
        if change.record is None:
            self._database.execute(
                "DELETE FROM records WHERE kind = ? AND key = ?", (change.table, change.key)
            )
        else:
            self._database.execute(_PUT, (change.table, change.key, dump_json(dump(change.record))))

    @property
    def _name(self) -> str:
        return self.directory.absolute().name

    def _make_directory(self) -> None:
        name = self._name
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(self.directory.stat().st_mode) & 0o077:
                self._close_to_others(name)
        except FileExistsError:
            raise StateError(name, "is no directory; name another one") from None
        except OSError as error:
            raise StateError(name, f"cannot be used as state directory ({error.strerror})") from None

    def _close_to_others(self, name: str) -> None:
        there = {path.name for path in self.directory.iterdir()}
        if there and not there & {LOCK_FILE, STATE_FILE}:
            raise StateError(name, "holds other files and is open to others; name a new directory")
        self.directory.chmod(0o700)

    def _take_lock(self) -> IO[bytes]:
        path = self.directory / LOCK_FILE
        try:
            lock = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        except OSError as error:
            raise StateError(LOCK_FILE, f"cannot be opened ({error.strerror})") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise StateLocked(
                self._name,
                "another server uses this state directory; stop it or name another directory",
            ) from None
        return lock

    def _open(self) -> sqlite3.Connection:
        path = self.directory / STATE_FILE
        with self._errors():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = FULL")
                _migrate(database)
            except BaseException:
                database.close()
                raise
        return database

    def _errors(self) -> _StateErrors:
        return _StateErrors()


class _StateErrors:
    """Turns what SQLite and the disk raise into a sentence that names the file."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, sqlite3.DatabaseError):
            raise StateError(STATE_FILE, f"cannot be used ({error})") from None
        if isinstance(error, OSError):
            raise StateError(STATE_FILE, f"cannot be used ({error.strerror})") from None
        if isinstance(
            error, UnicodeDecodeError
        ):  # SQLite's own sentence about a damaged file, with its bytes
            raise StateError(STATE_FILE, "cannot be used (it is damaged)") from None


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its user can read; it is complete and durable, or not there.

    Raises:
        OSError: The disk refused it.
    """
    fresh = path.with_name(path.name + ".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _migrate(database: sqlite3.Connection) -> None:
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StateTooNew(
            STATE_FILE, "was written by a newer version; update the package or name another directory"
        )
    for number, statement in enumerate(MIGRATIONS[version:], version + 1):
        database.execute("BEGIN IMMEDIATE")
        database.execute(statement)
        database.execute(f"PRAGMA user_version = {number}")
        database.execute("COMMIT")
