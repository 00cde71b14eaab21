"""Group commit: success is told after the commit, failure stays with its own job, nothing is half-done."""

import asyncio
import sqlite3
import threading

import pytest

from bothy_hermes import store_writer
from bothy_hermes.errors import StateError
from bothy_hermes.store_writer import Writer


def connect():
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (x TEXT UNIQUE)")
    return connection


def insert(value):
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", (value,)).rowcount


def rows(connection):
    return [value for (value,) in connection.execute("SELECT x FROM t ORDER BY x")]


def nothing(_connection):
    return None


class Hold:
    """A job that keeps the writer's thread busy until it is released, so that a batch collects itself."""

    def __init__(self):
        self.reached = threading.Event()
        self.release = threading.Event()

    def __call__(self, _connection):
        self.reached.set()
        assert self.release.wait(10)


def with_writer(use, tidy=nothing, open_=connect, guard=None):
    async def main():
        writer = Writer(open_, tidy, guard)
        await writer.start()
        try:
            return await use(writer)
        finally:
            await writer.close()

    return asyncio.run(main())


async def held(writer):
    """Busy the writer; returns the hold and its task."""
    hold = Hold()
    task = asyncio.create_task(writer.run(hold))
    await asyncio.to_thread(hold.reached.wait, 10)
    return hold, task


def test_a_job_returns_what_it_returned():
    """The result comes back to the loop."""
    assert with_writer(lambda writer: writer.run(insert("a"))) == 1


def test_what_waits_is_one_commit():
    """Everything that collected while the writer was busy is committed at once."""

    async def use(writer):
        hold, task = await held(writer)
        waiting = [asyncio.create_task(writer.run(insert(str(number)))) for number in range(100)]
        await asyncio.sleep(0)
        hold.release.set()
        await asyncio.gather(task, *waiting)
        return writer.commits, len(await writer.run(rows))

    assert with_writer(use) == (1, 100)


def test_a_batch_has_a_limit(monkeypatch):
    """More than a batch is several commits, in order, and none is lost."""
    monkeypatch.setattr(store_writer, "MAX_BATCH", 10)

    async def use(writer):
        hold, task = await held(writer)
        waiting = [asyncio.create_task(writer.run(insert(f"{number:03}"))) for number in range(25)]
        await asyncio.sleep(0)
        hold.release.set()
        await asyncio.gather(task, *waiting)
        return writer.commits, await writer.run(rows)

    assert with_writer(use) == (3, [f"{number:03}" for number in range(25)])


def test_a_read_is_no_commit():
    """The counter of commits tells what changed the file, nothing else."""

    async def use(writer):
        await writer.run(rows)
        await writer.run(insert("a"))
        with pytest.raises(StateError):
            await writer.run(insert("a"))
        alone = writer.commits
        hold, task = await held(writer)
        mixed = [asyncio.create_task(writer.run(job)) for job in (rows, insert("b"), rows)]
        await asyncio.sleep(0)
        hold.release.set()
        await asyncio.gather(task, *mixed)
        return alone, writer.commits

    assert with_writer(use) == (1, 2)


def failing(error):
    def job(connection):
        insert("half")(connection)
        raise error

    return job


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (failing(ValueError("mine")), ValueError),
        (insert("taken"), StateError),
        (lambda connection: connection.execute("SELECT * FROM missing"), StateError),
        (lambda connection: connection.execute("ROLLBACK"), StateError),
    ],
    ids=["exception", "constraint", "statement", "rollback"],
)
def test_a_failing_job_fails_alone(job, expected):
    """Its batch neighbours are committed, each once, and nothing of it stays."""

    async def use(writer):
        await writer.run(insert("taken"))
        hold, task = await held(writer)
        waiting = [asyncio.create_task(writer.run(one)) for one in (insert("a"), job, insert("b"))]
        await asyncio.sleep(0)
        hold.release.set()
        await task
        return await asyncio.gather(*waiting, return_exceptions=True), await writer.run(rows)

    (first, second, third), found = with_writer(use)
    assert (first, third) == (1, 1)
    assert isinstance(second, expected)
    assert found == ["a", "b", "taken"]


class FailingCommit:
    """A connection whose next commits fail, as a full disk makes them."""

    def __init__(self, connection):
        self._connection = connection
        self.failures = 0

    def execute(self, statement, *values):
        if statement == "COMMIT" and self.failures:
            self.failures -= 1
            raise sqlite3.OperationalError("disk")
        return self._connection.execute(statement, *values)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def test_a_failing_commit_is_tried_alone_for_each_job():
    """When the batch as a whole is refused, each job gets its own chance and its own answer."""
    made = []

    def open_():
        made.append(FailingCommit(connect()))
        return made[0]

    async def use(writer):
        hold, task = await held(writer)
        waiting = [asyncio.create_task(writer.run(insert(value))) for value in "abc"]
        await asyncio.sleep(0)
        made[0].failures = 3  # the hold's, the batch's, and one job's alone
        hold.release.set()
        await asyncio.gather(task, return_exceptions=True)
        return await asyncio.gather(*waiting, return_exceptions=True), await writer.run(rows)

    results, found = with_writer(use, open_=open_)
    assert [isinstance(result, StateError) for result in results] == [True, False, False]
    assert found == ["b", "c"]


def test_success_is_told_after_the_commit():
    """A waiter never hears of a job whose commit failed."""
    made = []

    def open_():
        made.append(FailingCommit(connect()))
        return made[0]

    async def use(writer):
        made[0].failures = 1
        with pytest.raises(StateError):
            await writer.run(insert("a"))
        return await writer.run(rows), await writer.run(insert("a"))

    assert with_writer(use, open_=open_) == ([], 1)


def test_a_cancelled_wait_does_not_undo_the_job():
    """Whoever stops waiting before the commit finds the job done as a whole."""

    async def use(writer):
        hold, task = await held(writer)
        waiting = asyncio.create_task(writer.run(insert("a")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        hold.release.set()
        await task
        return await writer.run(rows)

    assert with_writer(use) == ["a"]


def test_a_failing_job_that_nobody_waits_for_is_silent():
    """The error of a cancelled wait is not thrown at the loop."""

    async def use(writer):
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        hold, task = await held(writer)
        waiting = asyncio.create_task(writer.run(failing(ValueError())))
        await asyncio.sleep(0)
        waiting.cancel()
        hold.release.set()
        await asyncio.gather(task, waiting, return_exceptions=True)
        await writer.run(rows)
        return complaints

    assert with_writer(use) == []


def test_a_closed_loop_does_not_stop_the_writer():
    """Jobs of a loop that is gone are committed; another loop goes on with the same writer."""
    writer = Writer(connect, nothing)
    hold = Hold()

    async def leave():
        await writer.start()
        waiting = [asyncio.create_task(writer.run(job)) for job in (hold, insert("a"))]
        await asyncio.to_thread(hold.reached.wait, 10)
        assert len(waiting) == 2

    asyncio.run(leave())
    hold.release.set()

    async def go_on():
        found = await writer.run(rows)
        await writer.close()
        return found

    assert asyncio.run(go_on()) == ["a"]


def test_closing_finishes_what_was_asked_for():
    """Everything queued before the close is committed and told."""

    async def use(writer):
        hold, task = await held(writer)
        waiting = [asyncio.create_task(writer.run(insert(str(number)))) for number in range(10)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        hold.release.set()
        await asyncio.gather(closing, task)
        return await asyncio.gather(*waiting)

    assert with_writer(use) == [1] * 10


def test_a_closed_writer_takes_nothing():
    """A call after the close is an error, not a wait for ever; closing again is none."""

    async def use(writer):
        await writer.close()
        await writer.close()
        with pytest.raises(StateError, match="is closed"):
            await writer.run(rows)

    with_writer(use)


def test_a_cancelled_close_goes_on_closing():
    """The second close waits for the same end."""

    async def use(writer):
        hold, task = await held(writer)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        closing.cancel()
        hold.release.set()
        await task
        await writer.close()
        assert not writer._thread.is_alive()

    with_writer(use)


def test_an_opening_that_fails_is_told_and_closes():
    """The waiter gets the error of the opening, and the thread ends."""

    def refuse():
        raise StateError("state.sqlite3", "is damaged")

    async def main():
        writer = Writer(refuse, nothing)
        with pytest.raises(StateError, match="is damaged"):
            await writer.start()
        with pytest.raises(StateError):
            await writer.run(rows)
        await writer.close()
        assert not writer._thread.is_alive()

    asyncio.run(main())


def test_a_cancelled_opening_leaves_nothing_open():
    """The connection that came too late is closed."""
    release, made = threading.Event(), []

    def slow():
        assert release.wait(10)
        made.append(sqlite3.connect(":memory:", check_same_thread=False))
        return made[0]

    async def main():
        writer = Writer(slow, nothing)
        opening = asyncio.create_task(writer.start())
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        release.set()
        await writer.close()

    asyncio.run(main())
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        made[0].execute("SELECT 1")


def test_tidying_that_fails_is_said_once_and_tried_again(caplog):
    """A full disk neither stops the writer nor fills the log; the next failure after success is said."""
    plan = [True, True, False, True]
    calls = []

    def tidy(_connection):
        calls.append(None)
        if plan and plan.pop(0):
            raise sqlite3.OperationalError("disk")

    async def use(writer):
        for number in range(4):
            await writer.run(insert(str(number)))
        return await writer.run(rows)

    assert with_writer(use, tidy) == ["0", "1", "2", "3"]
    assert len(calls) >= 5
    assert len(caplog.records) == 2


# Whose file it is ---------------------------------------------------------------------------------


def test_a_file_that_is_somebody_elses_by_now_is_left_alone_until_it_is_ours_again():
    """Looked at when asked, and from then on before each batch; nothing of what was refused is written."""
    looks, foreign = [], []

    def guard(_connection):
        looks.append(None)
        if foreign:
            raise StateError("t", "is another's")

    async def use(writer):
        await writer.run(insert("a"))
        assert looks == []
        foreign.append(None)
        await writer.run(insert("b"))
        with pytest.raises(StateError, match="is another's"):
            await writer.check()
        for job in (insert("c"), rows):
            with pytest.raises(StateError, match="is another's"):
                await writer.run(job)
        foreign.clear()
        await writer.run(insert("d"))
        assert len(looks) == 4
        await writer.run(insert("e"))
        assert len(looks) == 4
        return await writer.run(rows)

    assert with_writer(use, guard=guard) == ["a", "b", "d", "e"]


def test_a_file_that_cannot_be_looked_at_is_left_alone():
    """Whose it is is not known then."""

    def guard(_connection):
        raise sqlite3.OperationalError("secret")

    async def use(writer):
        with pytest.raises(StateError) as caught:
            await writer.check()
        with pytest.raises(StateError):
            await writer.run(insert("a"))
        assert "secret" not in str(caught.value)

    with_writer(use, guard=guard)
