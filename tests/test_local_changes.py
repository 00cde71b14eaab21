"""What changed, in order, for everyone who watches."""

import asyncio
import threading
from uuid import UUID

from bothy_hermes.local_changes import KEPT_CHANGES, ChangeLog

A, B = (UUID(int=number) for number in (1, 2))


def test_changes_are_numbered():
    log = ChangeLog(100)
    assert log.latest == 99
    log.add([("run", A), ("message", B)])
    assert log.latest == 101
    assert [(one.sequence, one.kind, one.id) for one in log.since(99)] == [
        (100, "run", A),
        (101, "message", B),
    ]
    assert [one.sequence for one in log.since(100)] == [101]
    assert log.since(101) == []


def test_a_number_that_is_not_known_starts_anew():
    """Too old, not yet given, or of an earlier start."""
    log = ChangeLog(100)
    assert log.since(98) is None
    assert log.since(100) is None
    log.add([("run", A)] * (KEPT_CHANGES + 1))
    assert log.since(99) is None
    assert len(log.since(100)) == KEPT_CHANGES


def test_listeners_hear_of_every_commit_until_they_end():
    log, heard = ChangeLog(1), []
    forget = log.listen(lambda: heard.append(log.latest))
    log.add([("run", A)])
    log.add([])
    forget()
    forget()
    log.add([("run", B)])
    assert heard == [1, 1]


def test_following_in_a_loop_hears_other_threads():
    """Changes that another thread commits come in order, the ones before as well."""

    async def scenario():
        log = ChangeLog(1)
        log.add([("run", A)])
        found = []

        async def reader():
            async for change in log.follow(0):
                found.append(change.sequence)
                if len(found) == 3:
                    return

        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        thread = threading.Thread(target=lambda: log.add([("run", B), ("run", A)]))
        thread.start()
        await asyncio.wait_for(task, 5)
        thread.join()
        return found

    assert asyncio.run(scenario()) == [1, 2, 3]


def test_following_ends_when_the_place_is_lost():
    async def scenario():
        log = ChangeLog(10)
        return [change async for change in log.follow(3)]

    assert asyncio.run(scenario()) == []
