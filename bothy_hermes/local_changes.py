"""What changed, in order, for everyone who watches: the people's event stream and the gateway.

Layer: default. Only kinds and IDs are kept; whoever reads looks at the thing as it is by then, so that
a slow reader costs no memory and never shows an older state after a newer one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

ChangeKind = Literal["thread", "message", "run", "interaction"]

KEPT_CHANGES = 2_000
"""Changes that a reader may be behind before it has to start anew."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing changed. Sequence numbers grow, also over a restart of the server."""

    sequence: int
    kind: ChangeKind
    id: UUID


class ChangeLog:
    """The last changes, and who wants to hear of new ones.

    Args:
        first: The first sequence number; later starts of the server have to begin higher.
    """

    def __init__(self, first: int) -> None:
        self._next = first
        self._changes: deque[Change] = deque(maxlen=KEPT_CHANGES)
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def latest(self) -> int:
        """The sequence number of the last change, one below the next."""
        return self._next - 1

    def add(self, things: Iterable[tuple[ChangeKind, UUID]]) -> None:
        """Note changes that are durable, then tell the listeners (also when there are none)."""
        with self._lock:
            for kind, thing in things:
                self._changes.append(Change(self._next, kind, thing))
                self._next += 1
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()

    def since(self, sequence: int) -> list[Change] | None:
        """Return what came after a sequence number; None when that is not known any more (or not yet)."""
        with self._lock:
            first = self._changes[0].sequence if self._changes else self._next
            if not first - 1 <= sequence < self._next:
                return None
            return [change for change in self._changes if change.sequence > sequence]

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a function after each commit, in the thread that committed; it must not wait.

        Returns:
            What ends it.
        """
        with self._lock:
            self._listeners.append(listener)

        def forget() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return forget
