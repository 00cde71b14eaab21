"""What changed, in order, for everyone who watches."""

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


def test_a_listener_is_told_in_the_thread_that_committed():
    """Whoever listens from a loop is woken across threads, and then asks what is new."""
    log, heard = ChangeLog(1), []
    log.listen(lambda: heard.append(threading.current_thread()))
    thread = threading.Thread(target=lambda: log.add([("run", B), ("run", A)]))
    thread.start()
    thread.join()
    assert heard == [thread]
    assert [change.sequence for change in log.since(0)] == [1, 2]
