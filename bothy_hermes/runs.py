"""One run from its acceptance to its end.

Layer: flows. `RunWork` reads the context, starts the run with evidence, has Hermes do the turn, shows
what happens and ends the run. What it owes the server goes through the run's outbox, what people
watch through its patches. How the turn's own reports become box and messages is `turn_view`'s subject.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .defaults import LOGGER_NAME
from .errors import IllegalMove, ProblemAnswer, RunEnded, describe
from .live_box import LiveBox
from .run_outbox import RunOutbox, finish_call, message_call
from .run_patches import Patcher
from .run_tokens import RunToken
from .runtime import TurnEnd, TurnOutcome, TurnRequest
from .secret import Secret
from .services import Services
from .store import EntryState, InboxEntry
from .turn_view import TurnView
from .wire import FinishRun, Metrics, RunView
from .wire_events import Invocation
from .wire_words import Outcome, ProblemCode, Reason, RunState, SessionMode

_log = logging.getLogger(LOGGER_NAME)


class Stage(StrEnum):
    """How far the work on a run is."""

    ACCEPTED = "accepted"
    PREPARING = "preparing"
    STARTING = "starting"
    TURN = "turn"
    ENDING = "ending"
    OVER = "over"


STAGE_MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.ACCEPTED: frozenset({Stage.PREPARING, Stage.ENDING}),
    Stage.PREPARING: frozenset({Stage.STARTING, Stage.ENDING}),
    Stage.STARTING: frozenset({Stage.TURN, Stage.ENDING}),
    Stage.TURN: frozenset({Stage.ENDING}),
    Stage.ENDING: frozenset({Stage.OVER}),
    Stage.OVER: frozenset(),
}
"""Every legal move of the work on a run."""

TURN_ENDS: Mapping[TurnOutcome, tuple[Outcome, Reason | None]] = {
    TurnOutcome.COMPLETED: (Outcome.COMPLETED, None),
    TurnOutcome.EMPTY: (Outcome.COMPLETED, None),
    TurnOutcome.FAILED: (Outcome.FAILED, Reason.RUNTIME_ERROR),
    TurnOutcome.CANCELLED: (Outcome.FAILED, Reason.INTERRUPTED),
    TurnOutcome.NOT_RUN: (Outcome.FAILED, Reason.RUNTIME_BUSY),
}
"""How a run ends after a turn that nobody else ended."""

START_REFUSALS = {
    ProblemCode.BILLING_MODE_MISMATCH: Reason.BILLING_MODE_MISMATCH,
    ProblemCode.TOOL_CLASS_EXCEEDED: Reason.TOOL_CLASS_EXCEEDED,
}
"""Answers of startRun that leave the run queued: the adapter ends it with that reason."""


@dataclass(frozen=True, slots=True)
class End:
    """How a run is to end, when something other than its turn decided that."""

    outcome: Outcome
    reason: Reason | None


class RunWork:
    """The work on one accepted invocation.

    Args:
        services: What it needs.
        entry: The inbox entry of the invocation.
        invocation: The invocation.
        token: The token that came with it; None when it is taken up after a restart.
    """

    def __init__(
        self, services: Services, entry: InboxEntry, invocation: Invocation, token: Secret | None
    ) -> None:
        self._services = services
        self._entry = entry
        self.invocation = invocation
        self.run_id = invocation.run.id
        self.thread_id = invocation.run.thread_id
        self.token = RunToken(services.api, self.run_id, token)
        self._stage = Stage.ACCEPTED
        self._decided: End | None = None
        self._view: TurnView | None = None
        self._patcher: Patcher | None = None
        self._outbox = RunOutbox(
            services.api,
            services.store,
            self.run_id,
            self.token,
            entry_id=entry.event_id,
            before_finish=self._before_finish,
        )

    @property
    def stage(self) -> Stage:
        """How far the work is."""
        return self._stage

    async def work(self) -> None:
        """Do all of it; returns when the server has taken the run's end."""
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(self._outbox.run(), name=f"bothy-outbox-{self.run_id}")
            end, view = await self._until_end(group)
            await self._store_end(end, view)
            await sending
            if self._patcher is not None:
                self._patcher.stop()
        self._move(Stage.OVER)

    async def end_early(self, outcome: Outcome, reason: Reason | None) -> None:
        """Something other than the turn ends the run: the first to say so decides how.

        Interrupts the turn when one runs; the rest of the work follows from there.
        """
        if self._decided is not None or self._stage in (Stage.ENDING, Stage.OVER):
            return
        self._decided = End(outcome, reason)
        if self._stage is Stage.TURN:
            await self._services.runtime.interrupt(self.run_id)

    async def _until_end(self, group: asyncio.TaskGroup) -> tuple[End, TurnView | None]:
        try:
            turn = await self._prepare()
            started = await self._start()
            return await self._turn(turn, started, group)
        except _Ended as ended:
            return ended.end, self._view
        except RunEnded:
            return await self._ended_elsewhere(), self._view
        except Exception as error:  # noqa: BLE001  # whatever broke, the run's people must see an end
            _log.error("run %s: %s", self.run_id, describe(error))
            return End(Outcome.FAILED, Reason.ADAPTER_ERROR), self._view

    async def _prepare(self) -> TurnRequest:
        self._move(Stage.PREPARING)
        if self.invocation.session_mode not in list(SessionMode):
            raise _Ended(End(Outcome.FAILED, Reason.ADAPTER_ERROR))
        return await self._services.context.read(self.invocation, self.token)

    async def _start(self) -> RunView:
        self._stop_if_decided()
        self._move(Stage.STARTING)
        if self._entry.state is EntryState.ACCEPTED:
            await self._services.store.move_entry(self._entry.event_id, EntryState.STARTING)
        proof = await self._services.prover.now()
        run = self.invocation.run
        if not proof.spends(run.billing_mode):
            raise _Ended(End(Outcome.FAILED, Reason.BILLING_MODE_MISMATCH))
        if not proof.stays_within(run.tool_class):
            raise _Ended(End(Outcome.FAILED, Reason.TOOL_CLASS_EXCEEDED))
        try:
            return await self._services.api.start_run(self.run_id, self.token, proof.start(run.billing_mode))
        except ProblemAnswer as problem:
            raise self._start_refused(problem) from problem

    def _start_refused(self, problem: ProblemAnswer) -> Exception:
        if problem.code in START_REFUSALS:
            return _Ended(End(Outcome.FAILED, START_REFUSALS[ProblemCode(problem.code)]))
        if problem.code == ProblemCode.RUN_NOT_STARTABLE:
            return RunEnded(problem.operation, problem.status, problem.code)
        return problem

    async def _turn(
        self, turn: TurnRequest, started: RunView, group: asyncio.TaskGroup
    ) -> tuple[End, TurnView | None]:
        self._stop_if_decided()
        services = self._services
        box = LiveBox(services.clock.now, lambda: str(services.clock.new_id()))
        self._patcher = Patcher(
            services.api,
            self.run_id,
            self.token,
            box,
            started.document,
            interval=self._patch_interval,
            clock=services.clock,
        )
        group.create_task(self._patcher.run(), name=f"bothy-patches-{self.run_id}")
        self._view = TurnView(services, self.invocation, box, self._outbox, self._patcher)
        self._move(Stage.TURN)
        ended = await self._ask_hermes(turn, self._view)
        self._view.turn_ended(ended)
        return self._decided or self._end_of(ended), self._view

    async def _ask_hermes(self, turn: TurnRequest, view: TurnView) -> TurnEnd:
        try:
            return await self._services.runtime.start_turn(turn, view)
        except Exception as error:  # noqa: BLE001  # whatever broke in Hermes, the turn has an end
            _log.error("run %s: the runtime broke: %s", self.run_id, describe(error))
            return TurnEnd(TurnOutcome.FAILED, type(error).__name__)

    def _end_of(self, ended: TurnEnd) -> End:
        outcome, reason = TURN_ENDS[ended.outcome]
        _log.info("run %s: the turn ended: %s (%s)", self.run_id, ended.outcome, ended.detail or "-")
        return End(outcome, reason)

    async def _store_end(self, end: End, view: TurnView | None) -> None:
        self._move(Stage.ENDING)
        closing = view.closing_message() if view is not None and end.outcome is Outcome.COMPLETED else None
        calls = [message_call(self.run_id, closing)] if closing is not None else []
        finish = FinishRun(
            outcome=end.outcome,
            reason=end.reason,
            metrics=view.metrics() if view is not None else Metrics(),
            costs=view.costs() if view is not None else None,
        )
        calls.append(finish_call(self.run_id, finish))
        await self._services.store.move_entry(self._entry.event_id, EntryState.FINISHING, calls)
        self._outbox.poke()

    async def _ended_elsewhere(self) -> End:
        """The server ended the run before the event that says so came: end it the same way."""
        if self._decided is not None:
            return self._decided
        state = (await self._services.api.get_run(self.run_id, self.token)).run.state
        if state is RunState.FAILED or not state.ended:
            return End(Outcome.FAILED, Reason.ADAPTER_ERROR)
        return End(Outcome(state.value), None)

    async def _before_finish(self) -> None:
        if self._patcher is not None:
            await self._patcher.flush()

    def _patch_interval(self) -> float:
        server = self._services.limits().run_update_min_interval_ms / 1000
        return max(server, self._services.settings.run_update_min_interval)

    def _stop_if_decided(self) -> None:
        if self._decided is not None:
            raise _Ended(self._decided)

    def _move(self, stage: Stage) -> None:
        if stage not in STAGE_MOVES[self._stage]:
            raise IllegalMove("run work", self._stage, stage)
        self._stage = stage


class _Ended(Exception):  # carries a decision through the steps, not an error
    """The run ends here, for a reason that is already known."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end
