"""The writer: one thread, one connection, and one commit for everything that waits.

Layer: edges. Group commit without a timer: while one batch is being synced to disk the next one collects
itself in the queue. Whoever waits hears of success only after the commit. Knows no table: a job is a
function of the connection, run inside the batch's transaction and run again alone when the batch fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

from .defaults import LOGGER_NAME
from .errors import StateError
from .store_file import state_error
from .store_schema import FILE_NAME

T = TypeVar("T")

Job = Callable[[sqlite3.Connection], T]

MAX_BATCH = 256
"""Jobs of one commit; beyond this the wait for the whole batch outgrows the sync that it saves."""

_LOGGER = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class _Item:
    job: Job[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class _Outcome:
    item: _Item
    result: Any = None
    error: Exception | None = None


@final
class Writer:
    """Runs jobs on the one connection.

    Args:
        connect: Opens the connection, in the writer's thread.
        tidy: Called after each batch, outside any transaction; may fail, then it is called again
            after the next.
        guard: Raises `StateError` when the file is no longer this program's to write. Called when
            `check` asks, and from its first refusal on before each batch, until it raises no more.

    Attributes:
        commits: How many transactions changed something, for measures.
    """

    def __init__(
        self, connect: Callable[[], sqlite3.Connection], tidy: Job[None], guard: Job[Any] | None = None
    ) -> None:
        self.commits = 0
        self._connect = connect
        self._tidy = tidy
        self._guard = guard or _nothing
        self._refused = False
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._closed = False
        self._untidy = False
        self._gate = threading.Lock()
        # A daemon: a process that ends without `close` loses nothing that was acknowledged.
        self._thread = threading.Thread(target=self._main, name="bothy-state", daemon=True)

    @property
    def closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closed

    async def start(self) -> None:
        """Open the file.

        Raises:
            StateError: It cannot be opened; the writer is closed then.
        """
        opened = self._enqueue(_nothing)
        self._thread.start()
        try:
            await opened
        except BaseException:
            self._shut()
            raise

    async def run(self, job: Job[T]) -> T:
        """Run a job and wait for its commit.

        Cancelling the wait does not undo the job: once asked for, it is done or fails as a whole.

        Raises:
            StateError: The file did not take it, or the writer is closed.
            Exception: What the job raised; nothing of it was written then.
        """
        result: T = await self._enqueue(job)
        return result

    async def check(self) -> None:
        """Look whether the file is still this program's to write; if not, nothing is written any more.

        Raises:
            StateError: It is not, or it cannot be read.
        """
        await self.run(self._look)

    async def close(self) -> None:
        """Finish what was asked for, empty the log file and close; a second time only waits."""
        self._shut()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _enqueue(self, job: Job[Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        item = _Item(job, loop, loop.create_future())
        with self._gate:
            if self._closed:
                raise StateError(FILE_NAME, "is closed")
            self._queue.put(item)
        return item.future

    def _shut(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)

    # The writer's thread from here on.

    def _main(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:  # noqa: BLE001  # whatever it is, the one who waits must hear it
            self._refuse(error)
            return
        try:
            while self._work(connection):
                pass
        finally:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()

    def _refuse(self, error: Exception) -> None:
        self._shut()
        while (item := self._queue.get()) is not None:
            _deliver([_Outcome(item, error=error)])

    def _work(self, connection: sqlite3.Connection) -> bool:
        """Do one batch; False when it was the last."""
        items, more = self._collect()
        if items:
            refusal = self._refusal(connection)
            if refusal is None:
                _deliver(self._batch(connection, items))
                self._tidy_up(connection)
            else:
                _deliver([_Outcome(item, error=refusal) for item in items])
        return more

    def _look(self, connection: sqlite3.Connection) -> None:
        self._refused = True  # unless the guard finds nothing
        self._guard(connection)
        self._refused = False

    def _refusal(self, connection: sqlite3.Connection) -> StateError | None:
        """Why nothing is written, looked at anew; None when it is."""
        if not self._refused:
            return None
        try:
            self._look(connection)
        except StateError as error:
            return error
        except sqlite3.Error as error:
            return state_error(error)
        return None

    def _tidy_up(self, connection: sqlite3.Connection) -> None:
        try:
            self._tidy(connection)
            self._untidy = False
        except sqlite3.Error as error:
            if not self._untidy:  # said once, not with every batch of a full disk
                _LOGGER.warning("%s", state_error(error))
            self._untidy = True

    def _collect(self) -> tuple[list[_Item], bool]:
        found: list[_Item] = []
        item = self._queue.get()
        while item is not None:
            found.append(item)
            if len(found) == MAX_BATCH:
                return found, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return found, True
        return found, False

    def _batch(self, connection: sqlite3.Connection, items: Sequence[_Item]) -> list[_Outcome]:
        try:
            return self._transaction(connection, items)
        except sqlite3.Error as error:
            if len(items) == 1:
                return [_Outcome(items[0], error=state_error(error))]
        return [outcome for item in items for outcome in self._batch(connection, [item])]

    def _transaction(self, connection: sqlite3.Connection, items: Sequence[_Item]) -> list[_Outcome]:
        connection.execute("BEGIN")  # not IMMEDIATE: nobody else writes, and a read-only disk can be read
        try:
            done = [_attempt(connection, item) for item in items]
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK")
            raise
        self.commits += any(changed for _, changed in done)
        return [outcome for outcome, _ in done]


def _attempt(connection: sqlite3.Connection, item: _Item) -> tuple[_Outcome, bool]:
    """Run one job in its own savepoint: what it raises fails it alone; a failing disk fails all."""
    before = connection.total_changes
    connection.execute("SAVEPOINT job")
    try:
        outcome = _Outcome(item, item.job(connection))
    except sqlite3.Error as error:
        if not isinstance(error, sqlite3.IntegrityError):
            raise
        outcome = _Outcome(item, error=state_error(error))
    except Exception as error:  # noqa: BLE001  # it belongs to the one who waits
        outcome = _Outcome(item, error=error)
    if outcome.error is not None:
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")
    return outcome, outcome.error is None and connection.total_changes != before


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.item.loop, []).append(outcome)
    for loop, found in by_loop.items():
        with contextlib.suppress(RuntimeError):  # a loop that was closed: nobody waits there any more
            loop.call_soon_threadsafe(_resolve, found)


def _resolve(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        future = outcome.item.future
        if future.done():  # its waiter was cancelled
            continue
        if outcome.error is None:
            future.set_result(outcome.result)
        else:
            future.set_exception(outcome.error)


def _nothing(_connection: sqlite3.Connection) -> None:
    return None
