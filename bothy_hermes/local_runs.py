"""Runs: how they begin, start, show themselves and end (section 7).

Layer: default. Every end of a run goes through one place, which closes its cards, withdraws its events
and turns what it left unabsorbed into the next runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from uuid import UUID

from .codec import dump, parse
from .errors import WireError
from .json_patch import PatchError, apply_patch
from .local_cards import Cards
from .local_context import enter_session
from .local_core import Core
from .local_options import (
    AFTER_END_SECONDS,
    QUEUED_HARD_AGE_SECONDS,
    QUEUED_MAX_AGE_SECONDS,
)
from .local_records import FollowupMark, MessageRecord, RunRecord, ThreadRecord
from .local_rules import (
    Refused,
    check_document,
    check_evidence,
    check_finish,
    conflict,
    invalid,
    next_groups,
    run_ended,
    session_mode,
)
from .wire import FinishRun, Run, RunDocument, StartRun, UpdateRun
from .wire_words import (
    EventType,
    Outcome,
    ProblemCode,
    RunKind,
    RunState,
    ServerReason,
    SessionMode,
    TriggerKind,
)


class Runs:
    """All runs.

    Args:
        core: Records, clock and options.
        cards: The cards that a run's end closes.
    """

    def __init__(self, core: Core, cards: Cards) -> None:
        self._core = core
        self._state = core.state
        self._cards = cards

    # Beginning -------------------------------------------------------------------------------------

    def open_run(
        self, thread: ThreadRecord, group: Sequence[MessageRecord], trigger_kind: str = TriggerKind.MESSAGE
    ) -> RunRecord:
        """Make the run of one person's consecutive messages; the last of them is its trigger."""
        trigger = group[-1].message
        first = not self._state.runs.group("thread", thread.id)
        channel = self._state.channels.need(thread.channel_id)
        mode = session_mode((one.asked_mode for one in group), first=first)
        run = Run(
            id=self._core.clock.new_ordered_id(),
            thread_id=thread.id,
            channel_id=thread.channel_id,
            agent_id=self._state.agent.id,
            run_starter=trigger.author.id,
            kind=RunKind.OPERATOR if channel.served else RunKind.GUEST,
            trigger_kind=trigger_kind,
            trigger_message_id=trigger.id,
            state=RunState.QUEUED,
            reason=None,
            session_mode=mode,
            tool_class=self._core.options.tool_class,
            billing_mode=self._core.options.billing_mode,
            consumer=None,
            created_at=self._core.now(),
            started_at=None,
            finished_at=None,
        )
        binds = [one.bind_ref for one in group if one.bind_ref is not None]
        record = RunRecord(
            run=run,
            document=RunDocument(version=1, status_line=None, steps=()),
            bind_ref=binds[-1] if binds and mode is SessionMode.BIND else None,
        )
        self._core.put_run(record)
        for one in group:
            self._assign(one, run.id)
        self._core.emit(EventType.INVOCATION, run=record)
        return record

    def _assign(self, record: MessageRecord, run_id: UUID) -> None:
        message = dataclasses.replace(record.message, run_id=run_id)
        self._core.put_message(dataclasses.replace(record, message=message, followup=None, followup_of=None))

    # The adapter's calls ---------------------------------------------------------------------------

    def start(self, record: RunRecord, body: StartRun) -> RunRecord:
        """Start a queued run on the evidence that the adapter gives."""
        if record.run.state is not RunState.QUEUED:
            raise conflict(ProblemCode.RUN_NOT_STARTABLE, "the run is not queued")
        others = self._core.active_runs(record.run.thread_id)
        if any(other.run.state is not RunState.QUEUED for other in others):
            raise conflict(ProblemCode.RUN_NOT_STARTABLE, "another run of the thread is started")
        check_evidence(record, body.billing_mode, body.tool_class)
        record = self._core.move_run(record, RunState.RUNNING, started_at=self._core.now())
        return enter_session(self._core, record)

    def update(self, record: RunRecord, body: UpdateRun) -> RunRecord:
        """Patch the document people watch."""
        if record.run.state is RunState.QUEUED:
            raise conflict(ProblemCode.RUN_NOT_RUNNING, "the run was not started", violation=True)
        version = record.document.version
        if body.base_version != version:
            raise conflict(
                ProblemCode.VERSION_CONFLICT, "the document has another version", document=record.document
            )
        try:
            document = parse(RunDocument, apply_patch(dump(record.document), body.patch))
        except (PatchError, WireError) as error:
            raise invalid(f"the patch does not apply ({error})") from None
        check_document(document, version)
        document = dataclasses.replace(document, version=version + 1)
        return self._core.put_run(dataclasses.replace(record, document=document))

    def finish(self, record: RunRecord, body: FinishRun, *, costs_known_off: bool) -> RunRecord:
        """End a run as the adapter says, or take its report on one that the server ended.

        Args:
            record: The run.
            body: The call.
            costs_known_off: Whether the adapter was told that no costs are booked.
        """
        check_finish(body, any_reason=record.ended_by_server)
        if body.costs and not self._core.options.costs_enabled:
            refused = invalid("no costs are booked", ProblemCode.COSTS_NOT_ENABLED)
            refused.violation = costs_known_off
            raise refused
        if record.run.state.ended:
            return self._take_report(record, body)
        if record.run.state is RunState.QUEUED and body.outcome is Outcome.COMPLETED:
            raise conflict(ProblemCode.RUN_NOT_RUNNING, "the run was not started", violation=True)
        if body.outcome is Outcome.COMPLETED and self._core.open_cards(record.run.id):
            raise conflict(ProblemCode.CARD_OPEN, "the run waits on a card", violation=True)
        record = self._end(record, RunState(body.outcome), body.reason)
        return self._core.put_run(
            dataclasses.replace(record, reported=True, metrics=body.metrics, costs=body.costs)
        )

    def _take_report(self, record: RunRecord, body: FinishRun) -> RunRecord:
        if not record.ended_by_server or record.run.state is not RunState(body.outcome):
            raise run_ended()
        if not self.serves_after_end(record):
            raise run_ended()
        if record.reported:
            return record
        return self._core.put_run(
            dataclasses.replace(record, reported=True, metrics=body.metrics, costs=body.costs)
        )

    def serves_after_end(self, record: RunRecord) -> bool:
        """Whether the adapter may still report on a run that has ended."""
        recent = not self._core.passed(record.run.finished_at, AFTER_END_SECONDS)
        return record.ended_by_server and recent

    def takes_late_messages(self, record: RunRecord) -> bool:
        """Whether the texts that an adapter without a connection still had are taken."""
        offline = record.run.reason == ServerReason.AGENT_OFFLINE
        return offline and self.serves_after_end(record)

    # The end ---------------------------------------------------------------------------------------

    def end_by_server(
        self, record: RunRecord, state: RunState, reason: str, by: UUID | None = None
    ) -> RunRecord:
        """End a run without the adapter's asking; it is told so when it knows of the run."""
        record = dataclasses.replace(record, ended_by_server=True)
        return self._end(record, state, reason, by)

    def _end(
        self, record: RunRecord, state: RunState, reason: str | None, by: UUID | None = None
    ) -> RunRecord:
        self._cards.close_all(record.run.id)
        self._core.withdraw(record.run.id)
        record = self._core.move_run(record, state, reason=reason, finished_at=self._core.now())
        if record.ended_by_server and record.sent:
            self._core.emit(EventType.RUN_ENDED, run=record, subject_id=by)
        self._open_next(record)
        return record

    def _open_next(self, record: RunRecord) -> None:
        left = [
            one
            for one in self._state.messages.group("followup", record.run.id)
            if one.followup is not FollowupMark.ABSORBED
        ]
        thread = self._state.threads.need(record.run.thread_id)
        for group in next_groups(left):
            self.open_run(thread, group)

    # Time ------------------------------------------------------------------------------------------

    def age(self, record: RunRecord, seconds: float) -> RunRecord:
        """Add to the time that a queued run could have been started, and end it when that is too much."""
        waited = record.waited_ms + int(seconds * 1000)
        record = self._state.runs.put(record.run.id, dataclasses.replace(record, waited_ms=waited))
        if waited >= QUEUED_MAX_AGE_SECONDS * 1000:
            return self.end_by_server(record, RunState.FAILED, ServerReason.EXPIRED)
        return record

    def expire_old(self) -> None:
        """End the queued runs that are too old in any case."""
        for record in self._state.runs.group("ended", value=False):
            queued = record.run.state is RunState.QUEUED
            if queued and self._core.passed(record.run.created_at, QUEUED_HARD_AGE_SECONDS):
                self.end_by_server(record, RunState.FAILED, ServerReason.EXPIRED)

    def end_offline(self, consumer: str) -> None:
        """End the started runs of a consumer that is offline for too long."""
        for record in self._state.runs.group("ended", value=False):
            started = record.run.state is not RunState.QUEUED
            if started and record.run.consumer == consumer:
                self.end_by_server(record, RunState.FAILED, ServerReason.AGENT_OFFLINE)


class PatchPace:
    """Whether the adapter keeps the interval between patches, run by run, in memory.

    One early patch is taken: a wait, a resume or the end of the run may follow it, and then it was right.
    When another patch comes instead, the early one was a violation, and a patch that is early as well is
    refused. Half an interval is granted for what a busy machine shifts.

    Args:
        core: The clock and the interval.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._due: dict[UUID, float] = {}
        self._last: dict[UUID, float] = {}
        self._early: set[UUID] = set()

    def check(self, run_id: UUID) -> None:
        """Judge a patch before it is applied.

        Raises:
            Refused: 429 `rate_limited`.
        """
        broken = run_id in self._early
        early = self._wait(run_id) > self._interval / 2
        if broken and early:
            raise Refused(429, ProblemCode.RATE_LIMITED, "patches came before the interval", violation=True)

    def patched(self, run_id: UUID) -> str | None:
        """Note a patch that was applied; say so when the one before it came too early."""
        broken = run_id in self._early
        self._early.discard(run_id)
        if self._wait(run_id) > self._interval / 2:
            self._early.add(run_id)
        now = self._core.clock.monotonic()
        self._due[run_id] = max(now, self._due.get(run_id, now)) + self._interval
        self._last[run_id] = now
        return "a patch came before the interval" if broken else None

    @property
    def _interval(self) -> float:
        return self._core.options.run_update_min_interval_ms / 1000

    def _wait(self, run_id: UUID) -> float:
        now = self._core.clock.monotonic()
        return self._due.get(run_id, now) - now

    def flushed(self, run_id: UUID) -> None:
        """Note a call before which pending patches may be sent at once."""
        self._early.discard(run_id)
        if run_id in self._last:
            self._due[run_id] = self._last[run_id] + self._interval

    def conflicted(self, run_id: UUID) -> None:
        """Note a conflict: the patch after it does not wait."""
        self._due.pop(run_id, None)

    def forget(self, run_id: UUID) -> None:
        """Note the end of a run."""
        self._early.discard(run_id)
        self._due.pop(run_id, None)
        self._last.pop(run_id, None)
