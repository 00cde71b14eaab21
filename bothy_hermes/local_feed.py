"""Readers of the people's event stream: what happens, written as server-sent events.

Layer: default. The changes of the instance are the one bounded queue behind all readers: a reader keeps
nothing but its place in it, and what changed several times while it was busy is told once, as the
thing is by then. A reader that falls so far behind that its place is forgotten is ended; one that comes
with a place that nobody can continue from is told to start anew (`reset`). A comment goes out when
nothing else does, so that both sides see a dead connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from .codec import dump, dump_json
from .local_changes import Change, ChangeLog
from .local_people_wire import AgentView, Position

KEEPALIVE_SECONDS = 15.0
"""How long a stream may be silent: a third of what the page takes for a dead connection."""

READER_LIMIT = 64
"""Readers at once: every open tab is one, and each costs a connection."""

KEEPALIVE = b": still here\n\n"


class Feed:
    """All readers of one server.

    Args:
        changes: The instance's changes.
        describe: Turns a change into the event's name and value, None for nothing to tell.
        agent: Tells how the agent is now; a difference is an event of its own.
        keepalive_seconds: See `KEEPALIVE_SECONDS`.

    Attributes:
        readers: How many there are at the moment.
    """

    def __init__(
        self,
        changes: ChangeLog,
        describe: Callable[[Change], tuple[str, Any] | None],
        agent: Callable[[], AgentView],
        *,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._changes = changes
        self._describe = describe
        self._agent = agent
        self._keepalive = keepalive_seconds
        self.readers = 0

    async def read(self, since: int) -> AsyncIterator[bytes]:
        """Yield the chunks of one reader's stream until it falls behind or is closed.

        Args:
            since: The last position that the reader knows.
        """
        news = _News()
        forget = self._changes.listen(news.tell)
        self.readers += 1
        try:
            async for chunk in self._chunks(since, news):
                yield chunk
        finally:
            self.readers -= 1
            forget()

    async def _chunks(self, place: int, news: _News) -> AsyncIterator[bytes]:
        changes = self._changes.since(place)
        if changes is None:
            place, changes = self._changes.latest, []
            yield _event(place, "reset", Position(position=place))
        agent = self._agent()
        yield _event(place, "agent", agent)
        while changes is not None:
            for change in _newest(changes):
                place = change.sequence
                yield self._write(change)
            before, agent = agent, self._agent()
            if agent != before:
                yield _event(place, "agent", agent)
            if not await news.wait(self._keepalive):
                yield KEEPALIVE
            changes = self._changes.since(place)

    def _write(self, change: Change) -> bytes:
        found = self._describe(change)
        return KEEPALIVE if found is None else _event(change.sequence, *found)


class _News:
    """Whether something was committed since the last look; told from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()

    def tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and the reader with it
            self._loop.call_soon_threadsafe(self._told.set)

    async def wait(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._told.wait(), seconds)
        told = self._told.is_set()
        self._told.clear()
        return told


def _newest(changes: Iterable[Change]) -> list[Change]:
    """The last change of each thing, in order."""
    found = {(change.kind, change.id): change for change in changes}
    return sorted(found.values(), key=lambda change: change.sequence)


def _event(position: int, name: str, value: Any) -> bytes:
    return f"id: {position}\nevent: {name}\ndata: {dump_json(dump(value))}\n\n".encode()
