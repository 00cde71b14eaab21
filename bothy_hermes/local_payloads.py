"""What events say: payloads made from the records as they are when the event is sent (section 6).

Layer: default. It reads and decides nothing; run tokens are minted here, one per delivery.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import UUID

from .codec import dump, dump_json
from .local_core import Core
from .local_presence import Presence
from .local_records import EventRecord, KeyRecord, RunRecord
from .local_tokens import Grant, mint_run_token
from .secret import Secret
from .wire import AgentSession
from .wire_events import (
    ConfigChangedEvent,
    Event,
    EventFrame,
    FollowupEvent,
    InteractionEvent,
    Invocation,
    ListedRun,
    RunEndedEvent,
    RunList,
)
from .wire_words import CONTENT_EXCERPT_CHARS, MAX_LISTED_RUNS, EventType, RunState, SessionMode


class Payloads:
    """Events, run lists and run tokens as the adapter gets them.

    Args:
        core: Records, clock and options.
        presence: Which adapter was seen when.
    """

    def __init__(self, core: Core, presence: Presence) -> None:
        self._core = core
        self._state = core.state
        self._presence = presence

    def frame(self, record: EventRecord) -> str:
        """Return an event's frame as it is sent now, with a token of its own."""
        subject = self._subject(record)
        token = None
        if subject is not None and record.run_id is not None:
            token = self.mint(self._core.run(record.run_id), subject)
        event = Event(
            id=record.id,
            type=record.type,
            created_at=record.created_at,
            attempt=record.attempt,
            agent_id=self._state.agent.id,
            token=token,
            payload=dump(_PAYLOADS[EventType(record.type)](self._core, record)),
        )
        return dump_json({"op": "event", **dump(EventFrame(event=dump(event)))})

    def mint(self, run: RunRecord, subject: UUID) -> Secret:
        """Make a run token for a person's event."""
        grant = Grant(
            issuer=self._state.instance.id,
            subject=subject,
            jkt=self._state.agent.dpop_jkt,
            life_seconds=self._core.options.token_life_seconds,
        )
        return mint_run_token(run.run, grant, self._active_key(), self._core.clock)

    def list_runs(self, states: Collection[RunState], consumer: str | None) -> RunList:
        """Return the agent's runs, oldest first.

        Args:
            states: Empty for those that have not ended.
            consumer: Only of this one, None for all.
        """
        runs = [
            record
            for record in self._state.runs.all()
            if (record.run.state in states if states else not record.run.state.ended)
            and consumer in (None, record.run.consumer)
        ]
        return RunList(runs=tuple(self._listed(record) for record in runs[:MAX_LISTED_RUNS]))

    def _listed(self, record: RunRecord) -> ListedRun:
        return ListedRun(
            run=record.run,
            invocation=_invocation(self._core, record),
            open_cards=self._core.open_cards(record.run.id),
            adapter_id=record.adapter_id,
            adapter_seen_at=self._presence.adapter_seen(record.adapter_id),
        )

    def _active_key(self) -> KeyRecord:
        return next(key for key in self._state.keys.all() if key.active)

    def _subject(self, record: EventRecord) -> UUID | None:
        """Tell who an event is from; None for events without a token."""
        if record.type == EventType.INVOCATION:
            return self._core.run(_need(record.run_id)).run.run_starter
        if record.type == EventType.FOLLOWUP:
            return self._core.message(_need(record.subject_id)).message.author.id
        if record.type == EventType.INTERACTION:
            return self._state.interactions.need(_need(record.subject_id)).interaction.operator_id
        return None


def _need(found: UUID | None) -> UUID:
    assert found is not None, "the event's type says that it has one"
    return found


def _invocation_of(core: Core, record: EventRecord) -> Invocation:
    return _invocation(core, core.run(_need(record.run_id)))


def _invocation(core: Core, record: RunRecord) -> Invocation:
    run = record.run
    trigger = core.message(_need(run.trigger_message_id)).message
    return Invocation(
        run=run,
        message_id=trigger.id,
        content_excerpt=trigger.content[:CONTENT_EXCERPT_CHARS],
        trigger_kind=run.trigger_kind,
        session_mode=run.session_mode,
        agent_session=_session(core, record),
        settings_version=core.state.instance.settings_version,
    )


def _session(core: Core, record: RunRecord) -> AgentSession:
    thread = core.thread(record.run.thread_id)
    reference = {
        SessionMode.NEW: None,
        SessionMode.RESUME: thread.session_ref,
        SessionMode.BIND: record.bind_ref,
    }[SessionMode(record.run.session_mode)]
    return AgentSession(external_session_ref=reference, version=thread.session_version)


def _followup(core: Core, record: EventRecord) -> FollowupEvent:
    run = core.run(_need(record.run_id)).run
    message = core.message(_need(record.subject_id)).message
    return FollowupEvent(
        run_id=run.id,
        thread_id=run.thread_id,
        message_id=message.id,
        author_id=message.author.id,
        run_state=run.state,
    )


def _interaction(core: Core, record: EventRecord) -> InteractionEvent:
    return InteractionEvent(interaction=core.state.interactions.need(_need(record.subject_id)).interaction)


def _run_ended(core: Core, record: EventRecord) -> RunEndedEvent:
    run = core.run(_need(record.run_id)).run
    return RunEndedEvent(
        run_id=run.id, thread_id=run.thread_id, state=run.state, reason=run.reason, by=record.subject_id
    )


def _config_changed(core: Core, _record: EventRecord) -> ConfigChangedEvent:
    return ConfigChangedEvent(settings_version=core.state.instance.settings_version)


_PAYLOADS: Mapping[EventType, Callable[[Core, EventRecord], Any]] = {
    EventType.INVOCATION: _invocation_of,
    EventType.FOLLOWUP: _followup,
    EventType.INTERACTION: _interaction,
    EventType.RUN_ENDED: _run_ended,
    EventType.CONFIG_CHANGED: _config_changed,
}
"""What each event type says."""
