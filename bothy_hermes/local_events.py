"""Events on their way to adapters: what is offered to whom, what is sent when, what time ends (section 5).

Layer: default. The records say which events are not settled; what is in flight on which connection is
known only in memory, since it ends with the connection. Nothing is sent here: `due` says what to send.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from .local_core import Core
from .local_options import (
    AGE_STEP_SECONDS,
    AGENT_OFFLINE_SECONDS,
    CONSUMER_GONE_SECONDS,
    EVENT_LIFE_SECONDS,
    KEPT_SECONDS,
    MAX_IN_FLIGHT,
)
from .local_presence import Link, Presence
from .local_records import EventRecord, RunRecord
from .local_rules import Violation
from .local_runs import Runs
from .wire_words import EventType, RunState

UNORDERED = frozenset({EventType.RUN_ENDED, EventType.CONFIG_CHANGED})
"""Outside thread order and outside the number of events in flight."""


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
        presence: Who is connected.
    """

    def __init__(self, core: Core, runs: Runs, presence: Presence) -> None:
        self._core = core
        self._state = core.state
        self._runs = runs
        self._presence = presence
        self._aged_at = core.clock.monotonic()

    def pending(self, consumer: str) -> int:
        """Count the events of a consumer that are not settled, and those of nobody yet."""
        with self._state.lock:
            open_events = self._state.events.group("settled", value=False)
            return sum(self._owner(event) in (consumer, None) for event in open_events)

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
        return any(event.id in link.in_flight for link in self._presence.links.values())

    # Delivery --------------------------------------------------------------------------------------

    def due(self) -> list[Delivery]:
        """Decide what is to be sent now, and note it as sent."""
        with self._state.unit():
            self._offer_runs()
            waiting: dict[str | None, list[EventRecord]] = {}
            for event in self._state.events.group("settled", value=False):
                if not self._too_old(event):
                    waiting.setdefault(self._owner(event), []).append(event)
            deliveries = [
                Delivery(link, event)
                for link in self._presence.links.values()
                for event in self._due_on(link, waiting.get(link.consumer, []))
            ]
            return [self._sent(one) for one in deliveries]

    def _due_on(self, link: Link, events: Sequence[EventRecord]) -> list[EventRecord]:
        """Choose what goes out on a link: everything out of order, and the first event of each thread."""
        self._drop_overdue(link, events)
        found: list[EventRecord] = []
        blocked: set[UUID | None] = set()
        ordered = [event for event in events if event.type not in UNORDERED]
        room = MAX_IN_FLIGHT - sum(event.id in link.in_flight for event in ordered)
        for event in events:
            flying = event.id in link.in_flight
            if event.type in UNORDERED:
                found += [] if flying else [event]
                continue
            if not flying and room > 0 and event.thread_id not in blocked:
                found.append(event)
                room -= 1
            blocked.add(event.thread_id)
        return found

    def _drop_overdue(self, link: Link, events: Sequence[EventRecord]) -> None:
        """Forget what is in flight for too long, and what is settled or another consumer's by now."""
        now = self._core.clock.monotonic()
        waiting = {event.id for event in events}
        link.in_flight = {
            event: until for event, until in link.in_flight.items() if until > now and event in waiting
        }

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
        consumer = record.run.consumer
        if record.run.state is not RunState.QUEUED:
            return False
        if consumer is not None and (record.acked or self._presence.connected(consumer)):
            return False
        if consumer is not None and self._presence.gone_for(consumer) < CONSUMER_GONE_SECONDS:
            return False
        return self._first_of_thread(record)

    def _first_of_thread(self, record: RunRecord) -> bool:
        return self._core.active_runs(record.run.thread_id)[0].run.id == record.run.id

    def _link_with_room(self, record: RunRecord, active: Iterable[RunRecord]) -> Link | None:
        taken: dict[str | None, int] = {}
        for one in active:
            taken[one.run.consumer] = taken.get(one.run.consumer, 0) + 1
        for link in self._presence.links.values():
            if link.consumer != record.run.consumer and taken.get(link.consumer, 0) < link.max_active_runs:
                return link
        return None

    def _assign(self, record: RunRecord, link: Link) -> None:
        run = dataclasses.replace(record.run, consumer=link.consumer)
        self._core.put_run(dataclasses.replace(record, run=run))

    # Time ------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what time asks for: runs age, consumers go offline, old things are forgotten."""
        now = self._core.clock.monotonic()
        passed = now - self._aged_at
        if passed < AGE_STEP_SECONDS:
            return
        with self._state.unit():
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
            return self._presence.connected(record.run.consumer)
        active = self._state.runs.group("ended", value=False)
        return self._first_of_thread(record) and self._link_with_room(record, active) is not None

    def _end_offline(self) -> None:
        consumers = {one.run.consumer for one in self._state.runs.group("ended", value=False)}
        for consumer in consumers - {None}:
            if self._presence.silent_for(str(consumer)) >= AGENT_OFFLINE_SECONDS:
                self._runs.end_offline(str(consumer))

    def _prune(self) -> None:
        for event in self._state.events.group("settled", value=True):
            if self._core.passed(event.settled_at, KEPT_SECONDS):
                self._state.events.delete(event.id)
        for repeat in self._state.repeats.all():
            run = self._state.runs.get(repeat.run_id)
            if run is None or self._core.passed(run.run.finished_at, KEPT_SECONDS):
                self._state.repeats.delete(repeat.key)
