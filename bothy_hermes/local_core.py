"""What every part of the server's domain works with: the records, the clock, the options, and the moves.

Layer: default. The small steps that several subjects share: a run moves, a message changes, an event is
put on its way, each with the note that people hear of it. Which steps belong to which call is said in
`local_runs`, `local_cards`, `local_messages` and `local_threads`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .clock import Clock
from .codec import dump
from .errors import WireError
from .local_options import ServerOptions
from .local_records import (
    AgentRecord,
    CardState,
    ChannelRecord,
    EventRecord,
    MessageRecord,
    Person,
    RunRecord,
    ThreadRecord,
)
from .local_rules import check_run_move, not_found
from .local_state import State
from .wire import Principal, RunView
from .wire_words import EventType, PrincipalKind, RunState


class Core:
    """Records, clock and options in one hand.

    Args:
        state: The records.
        clock: Time and IDs.
        options: May be replaced while the server runs.
    """

    def __init__(self, state: State, clock: Clock, options: ServerOptions) -> None:
        self.state = state
        self.clock = clock
        self.options = options

    def now(self) -> datetime:
        """Return the server's time."""
        return self.clock.now()

    def passed(self, since: datetime | None, seconds: float) -> bool:
        """Whether so many seconds have passed since a moment; False without one."""
        return since is not None and self.now() - since >= timedelta(seconds=seconds)

    # Things that must be there ---------------------------------------------------------------------

    def run(self, run_id: UUID) -> RunRecord:
        """Return a run, or refuse with 404."""
        record = self.state.runs.get(run_id)
        if record is None:
            raise not_found("no such run")
        return record

    def thread(self, thread_id: UUID) -> ThreadRecord:
        """Return a thread, or refuse with 404."""
        record = self.state.threads.get(thread_id)
        if record is None:
            raise not_found("no such thread")
        return record

    def message(self, message_id: UUID) -> MessageRecord:
        """Return a message, or refuse with 404."""
        record = self.state.messages.get(message_id)
        if record is None:
            raise not_found("no such message")
        return record

    def channel(self, channel_id: UUID) -> ChannelRecord:
        """Return a channel, or refuse with 404."""
        record = self.state.channels.get(channel_id)
        if record is None:
            raise not_found("no such channel")
        return record

    def person(self, person_id: UUID) -> Person:
        """Return a person, or refuse with 404."""
        record = self.state.people.get(person_id)
        if record is None:
            raise not_found("no such person")
        return record

    # Steps -----------------------------------------------------------------------------------------

    def put_run(self, record: RunRecord) -> RunRecord:
        """Write a run; people hear of it."""
        self.state.note("run", record.run.id)
        return self.state.runs.put(record.run.id, record)

    def move_run(self, record: RunRecord, state: RunState, **changes: Any) -> RunRecord:
        """Write a run in its next state.

        Args:
            record: The run as it is.
            state: The next state.
            changes: Further members of the run on the wire.

        Raises:
            IllegalMove: The table of runs lacks the move.
        """
        check_run_move(record.run.state, state)
        run = dataclasses.replace(record.run, state=state, **changes)
        return self.put_run(dataclasses.replace(record, run=run))

    def put_message(self, record: MessageRecord) -> MessageRecord:
        """Write a message and touch its thread; people hear of it."""
        message = record.message
        self.state.note("message", message.id)
        self.state.messages.put(message.id, record)
        thread = self.state.threads.need(message.thread_id)
        self.put_thread(dataclasses.replace(thread, updated_at=self.now()))
        return record

    def put_thread(self, record: ThreadRecord) -> ThreadRecord:
        """Write a thread; people hear of it."""
        self.state.note("thread", record.id)
        return self.state.threads.put(record.id, record)

    def emit(
        self,
        kind: EventType,
        *,
        run: RunRecord | None = None,
        subject_id: UUID | None = None,
        consumer: str | None = None,
    ) -> EventRecord:
        """Put an event on its way to the adapter."""
        event = EventRecord(
            id=self.clock.new_ordered_id(),
            type=kind,
            created_at=self.now(),
            run_id=None if run is None else run.run.id,
            thread_id=None if run is None else run.run.thread_id,
            subject_id=subject_id,
            consumer=consumer,
        )
        return self.state.events.put(event.id, event)

    def withdraw(self, run_id: UUID) -> None:
        """Take back every event of a run that is not settled; the end of the run is told apart."""
        for event in self.state.events.group("run", run_id):
            if event.settled_at is None and event.type != EventType.RUN_ENDED:
                self.settle(event)

    def settle(self, event: EventRecord) -> None:
        """Note that an event is not to be delivered any more."""
        self.state.events.put(event.id, dataclasses.replace(event, settled_at=self.now()))

    # Reading ---------------------------------------------------------------------------------------

    def view(self, record: RunRecord) -> RunView:
        """Return a run as it is answered."""
        return RunView(run=record.run, document=record.document, open_cards=self.open_cards(record.run.id))

    def open_cards(self, run_id: UUID) -> tuple[UUID, ...]:
        """Return the cards that await an answer, oldest first."""
        cards = self.state.cards.group("run", run_id)
        return tuple(card.message_id for card in cards if card.state is CardState.OPEN)

    def active_runs(self, thread_id: UUID) -> tuple[RunRecord, ...]:
        """Return a thread's runs that have not ended, oldest first."""
        return self.state.runs.group("active", thread_id)


def person_principal(person: Person) -> Principal:
    """Return a person as author."""
    return Principal(id=person.id, kind=PrincipalKind.PERSON, display_name=person.name)


def agent_principal(agent: AgentRecord) -> Principal:
    """Return the agent as author."""
    return Principal(id=agent.id, kind=PrincipalKind.AGENT, display_name=agent.name)


def digest(body: Any) -> str:
    """Hash a wire value so that equal bodies have equal hashes: a missing member is a null one.

    Raises:
        WireError: A text in it, which was carried as it came, is none that UTF-8 can hold.
    """
    text = json.dumps(dump(body), sort_keys=True, ensure_ascii=False)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise WireError("", "holds a lone surrogate") from None
    return hashlib.sha256(data).hexdigest()
