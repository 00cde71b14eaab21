"""Events on their way to adapters: who is connected, what is offered to whom, what is sent when (section 5).

Layer: default. The records say which events are not settled; what is in flight on which connection is
known only in memory, since it ends with the connection. Nothing is sent here: `due` says what to send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from .local_core import Core
from .local_options import (
    AGE_STEP_SECONDS,
    AGENT_OFFLINE_SECONDS,
    CONSUMER_GONE_SECONDS,
    EVENT_LIFE_SECONDS,
    KEPT_SECONDS,
    MAX_IN_FLIGHT,
    OFFLINE_SECONDS,
)
from .local_records import ConsumerRecord, EventRecord, RunRecord
from .local_rules import Violation
from .local_runs import Runs
from .wire import Heartbeat
from .wire_events import Identify
from .wire_words import EventType, RunState

UNORDERED = frozenset({EventType.RUN_ENDED, EventType.CONFIG_CHANGED})
"""Outside thread order and outside the number of events in flight."""


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


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to be sent on one link."""

    link: Link
    event: EventRecord


class Events:
    """All events, and the connections they go to.

    Args:
        core: Records, clock and options.
        runs: The runs that time ends.
    """

    def __init__(self, core: Core, runs: Runs) -> None:
        self._core = core
        self._state = core.state
        self._runs = runs
        self._links: dict[str, Link] = {}
        started = core.now()
        self._started = started
        self._aged_at = started
        self._alive: dict[str, datetime] = {}
        self._gone: dict[str, datetime] = {}

    # Connections -----------------------------------------------------------------------------------

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
            replaced = self._links.pop(link.consumer, None)
            self._links[link.consumer] = link
            self._gone.pop(link.consumer, None)
            self._alive[link.consumer] = self._core.now()
            self._see(link.consumer, link.adapter_id)
        return link, replaced

    def detach(self, link: Link) -> None:
        """Note that a connection is gone; what it had not acked is delivered again."""
        with self._state.unit():
            if self._links.get(link.consumer) is not link:
                return
            del self._links[link.consumer]
            self._gone[link.consumer] = self._core.now()
            self._see(link.consumer, link.adapter_id, link.seen_at)

    def pending(self, consumer: str) -> int:
        """Count the events of a consumer that are not settled, and those of nobody yet."""
        with self._state.lock:
            open_events = self._state.events.group("settled", value=False)
            return sum(self._owner(event) in (consumer, None) for event in open_events)

    def connected(self, consumer: str) -> bool:
        """Whether a consumer has a connection."""
        return consumer in self._links

    def fresh(self, consumer: str) -> bool:
        """Whether a consumer has a connection and has sent a heartbeat since it has it."""
        link, record = self._links.get(consumer), self._state.consumers.get(consumer)
        if link is None or record is None or record.heartbeat_at is None:
            return False
        return record.heartbeat_at >= link.since

    def costs_off(self, consumer: str | None) -> bool:
        """Whether a consumer's connection was told that no costs are booked."""
        link = self._links.get(consumer or "")
        return link is not None and link.costs_off

    def heartbeat(self, consumer: str, heartbeat: Heartbeat) -> None:
        """Take a sign of life."""
        now = self._core.now()
        with self._state.unit():
            self._alive[consumer] = now
            record = self._see(consumer, None)
            changed = dataclasses.replace(record, heartbeat_at=now, heartbeat=heartbeat)
            self._state.consumers.put(consumer, changed)

    def online(self, consumer: str) -> bool:
        """Whether a consumer is shown online."""
        return not self._core.passed(self._alive.get(consumer, self._started), OFFLINE_SECONDS)

    def adapter_seen(self, adapter_id: UUID | None) -> datetime | None:
        """Tell when an adapter was last heard of."""
        if adapter_id is None:
            return None
        seen = [one.seen_at for one in self._state.consumers.all() if one.adapter_id == adapter_id]
        seen += [link.seen_at for link in self._links.values() if link.adapter_id == adapter_id]
        return max(seen, default=None)

    def _see(self, consumer: str, adapter_id: UUID | None, seen_at: datetime | None = None) -> ConsumerRecord:
        seen_at = seen_at or self._core.now()
        known = self._state.consumers.get(consumer)
        if known is None:
            record = ConsumerRecord(name=consumer, adapter_id=adapter_id, seen_at=seen_at)
        else:
            record = dataclasses.replace(known, adapter_id=adapter_id or known.adapter_id, seen_at=seen_at)
        return self._state.consumers.put(consumer, record)

    # Acks ------------------------------------------------------------------------------------------

    def ack(self, link: Link, event_id: UUID) -> Violation | None:
        """Settle an event that was delivered; say when it was not."""
        with self._state.unit():
            link.in_flight.pop(event_id, None)
            event = self._state.events.get(event_id)
            if event is None or link.consumer not in event.sent_to:
                return Violation("gateway", "an ack of an event that was not delivered")
            if event.settled_at is None and self._owner(event) == link.consumer:
                self._core.settle(event)
                self._acked(event)
        return None

    def _acked(self, event: EventRecord) -> None:
        if event.type == EventType.INVOCATION and event.run_id is not None:
            run = self._state.runs.need(event.run_id)
            self._state.runs.put(event.run_id, dataclasses.replace(run, acked=True))
        elif event.type == EventType.INTERACTION and event.subject_id is not None:
            interaction = self._state.interactions.need(event.subject_id)
            acked = dataclasses.replace(interaction, acked_at=self._core.now())
            self._state.interactions.put(event.subject_id, acked)

    def awaits_ack(self, kind: EventType, subject_id: UUID) -> bool:
        """Whether a call about something came although its event is in flight and not acked.

        Args:
            kind: The event's type.
            subject_id: The run of an invocation, the message of a follow-up, the interaction.
        """
        with self._state.lock:
            for event in self._state.events.group("settled", value=False):
                subject = event.run_id if kind is EventType.INVOCATION else event.subject_id
                if event.type == kind and subject == subject_id:
                    return event.attempt == 0 or self._in_flight(event)
        return False

    def _in_flight(self, event: EventRecord) -> bool:
        return any(event.id in link.in_flight for link in self._links.values())

    # Delivery --------------------------------------------------------------------------------------

    def due(self) -> list[Delivery]:
        """Decide what is to be sent now, and note it as sent."""
        with self._state.unit():
            self._offer_runs()
            deliveries = [
                Delivery(link, event) for link in self._links.values() for event in self._due_on(link)
            ]
            return [self._sent(one) for one in deliveries]

    def _due_on(self, link: Link) -> list[EventRecord]:
        now = self._core.clock.monotonic()
        events = [
            event
            for event in self._state.events.group("settled", value=False)
            if self._owner(event) == link.consumer and not self._too_old(event)
        ]
        waiting = {event.id for event in events}
        link.in_flight = {
            event: until for event, until in link.in_flight.items() if until > now and event in waiting
        }
        found: list[EventRecord] = []
        blocked: set[UUID | None] = set()
        room = MAX_IN_FLIGHT - sum(
            event.type not in UNORDERED for event in events if event.id in link.in_flight
        )
        for event in events:
            if event.type in UNORDERED:
                if event.id not in link.in_flight:
                    found.append(event)
                continue
            if event.thread_id not in blocked and event.id not in link.in_flight and room > 0:
                found.append(event)
                room -= 1
            blocked.add(event.thread_id)
        return found

    def _too_old(self, event: EventRecord) -> bool:
        old = self._core.passed(event.created_at, EVENT_LIFE_SECONDS)
        if old:
            self._core.settle(event)
        return old

    def _sent(self, delivery: Delivery) -> Delivery:
        link, event = delivery.link, delivery.event
        timeout = self._core.options.ack_timeout_ms / 1000
        link.in_flight[event.id] = self._core.clock.monotonic() + timeout
        sent_to = tuple(dict.fromkeys((*event.sent_to, link.consumer)))
        event = dataclasses.replace(event, attempt=event.attempt + 1, sent_to=sent_to)
        self._state.events.put(event.id, event)
        if event.type == EventType.INVOCATION and event.run_id is not None:
            run = self._state.runs.need(event.run_id)
            changed = dataclasses.replace(run, sent=True, adapter_id=link.adapter_id)
            self._state.runs.put(event.run_id, changed)
        return Delivery(link, event)

    def _owner(self, event: EventRecord) -> str | None:
        """Tell whose event it is: an event of a run follows the run's consumer."""
        run = self._state.runs.get(event.run_id)
        return event.consumer if run is None else run.run.consumer

    # Offers ----------------------------------------------------------------------------------------

    def _offer_runs(self) -> None:
        active = self._state.runs.group("ended", value=False)
        for record in active:
            if self._offerable(record):
                link = self._link_with_room(record, active)
                if link is not None:
                    self._assign(record, link)
                    active = self._state.runs.group("ended", value=False)

    def _offerable(self, record: RunRecord) -> bool:
        if record.run.state is not RunState.QUEUED or not self._first_of_thread(record):
            return False
        if record.run.consumer is None:
            return True
        gone = not self.connected(record.run.consumer) and not record.acked
        return gone and self._core.passed(
            self._gone.get(record.run.consumer, self._started), CONSUMER_GONE_SECONDS
        )

    def _first_of_thread(self, record: RunRecord) -> bool:
        return self._core.active_runs(record.run.thread_id)[0].run.id == record.run.id

    def _link_with_room(self, record: RunRecord, active: Iterable[RunRecord]) -> Link | None:
        taken: dict[str | None, int] = {}
        for one in active:
            taken[one.run.consumer] = taken.get(one.run.consumer, 0) + 1
        for link in self._links.values():
            if link.consumer != record.run.consumer and taken.get(link.consumer, 0) < link.max_active_runs:
                return link
        return None

    def _assign(self, record: RunRecord, link: Link) -> None:
        run = dataclasses.replace(record.run, consumer=link.consumer)
        self._core.put_run(dataclasses.replace(record, run=run))

    # Time ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what time asks for: runs age, consumers go offline, old things are forgotten."""
        if not self._core.passed(self._aged_at, AGE_STEP_SECONDS):
            return
        now = self._core.now()
        with self._state.unit():
            passed = (now - self._aged_at).total_seconds()
            self._aged_at = now
            for record in self._state.runs.group("ended", value=False):
                if self._could_start(record):
                    self._runs.age(record, passed)
            self._runs.expire_old()
            self._end_offline()
            self._prune()

    def _could_start(self, record: RunRecord) -> bool:
        if record.run.state is not RunState.QUEUED:
            return False
        if record.run.consumer is not None:
            return self.connected(record.run.consumer)
        active = self._state.runs.group("ended", value=False)
        return self._first_of_thread(record) and self._link_with_room(record, active) is not None

    def _end_offline(self) -> None:
        consumers = {one.run.consumer for one in self._state.runs.group("ended", value=False)}
        for consumer in consumers - {None}:
            alive = self._alive.get(str(consumer), self._started)
            if self._core.passed(alive, AGENT_OFFLINE_SECONDS):
                self._runs.end_offline(str(consumer))

    def _prune(self) -> None:
        for event in self._state.events.group("settled", value=True):
            if self._core.passed(event.settled_at, KEPT_SECONDS):
                self._state.events.delete(event.id)
        for repeat in self._state.repeats.all():
            run = self._state.runs.get(repeat.run_id)
            if run is None or self._core.passed(run.run.finished_at, KEPT_SECONDS):
                self._state.repeats.delete(repeat.key)
