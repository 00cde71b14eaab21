"""Who is there: connections, heartbeats, and when an adapter was last heard of (sections 5, 7 and 12).

Layer: default. Connections live in memory only; when an adapter was last seen is kept. Silence is counted
by the clock that never jumps: a machine that slept does not take everybody for dead. A server that has
just started gives every consumer the time since its start, because nobody could reach it before.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from .local_core import Core
from .local_options import OFFLINE_SECONDS
from .local_records import AdapterSeen, ConsumerRecord
from .wire import Heartbeat
from .wire_events import Identify

FORMER_LIFE = timedelta(minutes=10)
"""How long it is kept when an adapter was last seen whose name another one has taken: an adapter counts as
gone much earlier."""


@dataclass(slots=True)
class Link:
    """One identified connection of a consumer.

    Attributes:
        consumer: Its name.
        adapter_id: The adapter's own ID.
        max_active_runs: Runs that may be offered to it and not ended.
        costs_off: Whether its `hello` said that no costs are booked.
        since: When it identified itself.
        seen_at: When anything last came from it.
        in_flight: Events sent and not acked, with the moment (monotonic) at which they are sent again.
    """

    consumer: str
    adapter_id: UUID
    max_active_runs: int
    costs_off: bool
    since: datetime
    seen_at: datetime
    in_flight: dict[UUID, float] = field(default_factory=dict)


class Presence:
    """All consumers.

    Args:
        core: Records and clock.

    Attributes:
        links: The identified connections by consumer, in the order in which they became ready.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state
        self._started = core.clock.monotonic()
        self._alive: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self.links: dict[str, Link] = {}

    def silent_for(self, consumer: str) -> float:
        """Tell how many seconds ago a consumer last gave a sign of life."""
        return self._core.clock.monotonic() - self._alive.get(consumer, self._started)

    def gone_for(self, consumer: str) -> float:
        """Tell how many seconds ago the last connection of a consumer ended."""
        return self._core.clock.monotonic() - self._gone.get(consumer, self._started)

    def attach(self, identify: Identify, *, costs_off: bool) -> tuple[Link, Link | None]:
        """Take a connection that has identified itself.

        Returns:
            The new link, and the link of the same consumer that it replaces.
        """
        link = Link(
            consumer=identify.consumer,
            adapter_id=identify.adapter_id,
            max_active_runs=identify.max_active_runs,
            costs_off=costs_off,
            since=self._core.now(),
            seen_at=self._core.now(),
        )
        with self._state.unit():
            replaced = self.links.pop(link.consumer, None)
            if replaced is not None:
                self._see(replaced.consumer, replaced.adapter_id, replaced.seen_at)
            self.links[link.consumer] = link
            self._gone.pop(link.consumer, None)
            self._alive[link.consumer] = self._core.clock.monotonic()
            self._see(link.consumer, link.adapter_id)
        return link, replaced

    def detach(self, link: Link) -> None:
        """Note that a connection is gone; what it had not acked is delivered again."""
        with self._state.unit():
            if self.links.get(link.consumer) is not link:
                return
            del self.links[link.consumer]
            self._gone[link.consumer] = self._core.clock.monotonic()
            self._see(link.consumer, link.adapter_id, link.seen_at)

    def connected(self, consumer: str) -> bool:
        """Whether a consumer has a connection."""
        return consumer in self.links

    def fresh(self, consumer: str) -> bool:
        """Whether a consumer has a connection and has sent a heartbeat since it has it."""
        link, record = self.links.get(consumer), self._state.consumers.get(consumer)
        if link is None or record is None or record.heartbeat_at is None:
            return False
        return record.heartbeat_at >= link.since

    def costs_off(self, consumer: str | None) -> bool:
        """Whether a consumer's connection was told that no costs are booked."""
        link = self.links.get(consumer or "")
        return link is not None and link.costs_off

    def heartbeat(self, consumer: str, heartbeat: Heartbeat) -> None:
        """Take a sign of life."""
        now = self._core.now()
        with self._state.unit():
            self._alive[consumer] = self._core.clock.monotonic()
            record = self._see(consumer, None)
            changed = dataclasses.replace(record, heartbeat_at=now, heartbeat=heartbeat)
            self._state.consumers.put(consumer, changed)

    def online(self, consumer: str) -> bool:
        """Whether a consumer is shown online."""
        return self.silent_for(consumer) < OFFLINE_SECONDS

    def adapter_seen(self, adapter_id: UUID | None) -> datetime | None:
        """Tell when an adapter was last heard of."""
        if adapter_id is None:
            return None
        seen = [link.seen_at for link in self.links.values() if link.adapter_id == adapter_id]
        for record in self._state.consumers.all():
            heard = (_last(record), *record.former)
            seen += [one.seen_at for one in heard if one.adapter_id == adapter_id]
        return max(seen, default=None)

    def _see(self, consumer: str, adapter_id: UUID | None, seen_at: datetime | None = None) -> ConsumerRecord:
        seen_at = seen_at or self._core.now()
        known = self._state.consumers.get(consumer)
        if known is None:
            record = ConsumerRecord(name=consumer, adapter_id=adapter_id, seen_at=seen_at)
        else:
            adapter_id = adapter_id or known.adapter_id
            former = self._former(known, adapter_id)
            record = dataclasses.replace(known, adapter_id=adapter_id, seen_at=seen_at, former=former)
        return self._state.consumers.put(consumer, record)

    def _former(self, known: ConsumerRecord, adapter_id: UUID | None) -> tuple[AdapterSeen, ...]:
        """The adapters that had the name before this one: their runs are theirs until they are gone."""
        return tuple(
            one
            for one in (*known.former, _last(known))
            if one.adapter_id not in (None, adapter_id) and self._core.now() - one.seen_at < FORMER_LIFE
        )


def _last(record: ConsumerRecord) -> AdapterSeen:
    return AdapterSeen(adapter_id=record.adapter_id, seen_at=record.seen_at)
