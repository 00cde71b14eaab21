"""One run from its acceptance to its end.

Layer: flows. `RunWork` reads the context, starts the run with evidence, has Hermes do the turn, shows
what happens and ends the run. What it owes the server goes through the run's outbox, what people
watch through its patches. How the turn's own reports become box and messages is `turn_view`'s subject.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from .defaults import LOGGER_NAME
from .errors import BothyError, ProblemAnswer, RunEnded, SessionRefused, describe
from .live_box import LiveBox
from .proof import Proof
from .run_beside import Beside
from .run_calls import finish_call, message_call, response_call
from .run_cards import NOT_WAITING, RunCards, failed
from .run_context import Prepared
from .run_followups import RunFollowups
from .run_outbox import OutboxEvents, RunOutbox
from .run_patches import Patcher
from .run_sessions import REFUSED_SENTENCE, RunSession
from .run_stages import START_REFUSALS, TURN_ENDS, End, RunOver, Stage, check_stage
from .run_tokens import RunToken
from .run_turn import RunTurn
from .runtime import BusyMode, Prompt, PromptKind, Spending, TurnEnd, TurnOutcome
from .secret import Secret
from .services import Services
from .store import Change, EntryMove, EntryState, InboxEntry, OutboxCall
from .turn_view import TurnView
from .wire import FinishRun, Metrics, RunView
from .wire_events import FollowupEvent, Interaction, Invocation
from .wire_operations import AWAIT_RUN_INPUT
from .wire_words import Outcome, ProblemCode, Reason, RunState, SessionMode

T = TypeVar("T")

_log = logging.getLogger(LOGGER_NAME)

REPORT_SECONDS = 15.0
"""How long the end of a run waits for what Hermes says of its session; nobody could cancel that wait."""

FRESH_SECONDS = 1.0
"""How old the evidence of a start may be: when its context takes longer, it is asked for again."""


@dataclass(frozen=True, slots=True)
class _Live:
    """What exists once a run is started."""

    view: TurnView
    patcher: Patcher
    session: RunSession
    followups: RunFollowups
    cards: RunCards


class RunWork(OutboxEvents):
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
        self.entry_id = entry.event_id
        self.invocation = invocation
        self.run_id = invocation.run.id
        self.thread_id = invocation.run.thread_id
        self.token = RunToken(services.api, self.run_id, token)
        self._stage = Stage.ACCEPTED
        self._decided: End | None = None
        self._deciding = asyncio.Event()
        self._texts = asyncio.Lock()
        self._live: _Live | None = None
        self._turn = RunTurn(services.runtime, self.run_id)
        self._beside: Beside | None = None
        self._outbox = RunOutbox(
            services.api,
            services.store,
            self.run_id,
            self.token,
            clock=services.clock,
            entry_id=entry.event_id,
            events=self,
        )

    @property
    def stage(self) -> Stage:
        """How far the work is."""
        return self._stage

    @property
    def dropped(self) -> Mapping[str, int]:
        """What Hermes said in the run's turn and was not posted, by kind."""
        return {} if self._live is None else self._live.view.notices

    @property
    def lingering(self) -> asyncio.Task[TurnEnd] | None:
        """The turn that Hermes has not let go of although the run is over, None without one."""
        return self._turn.lingering

    async def work(self) -> None:
        """Do all of it; returns when the server has taken the run's end."""
        async with asyncio.TaskGroup() as group:
            beside = self._beside = Beside(self.run_id, group)
            sending = group.create_task(self._outbox.run(), name=f"bothy-outbox-{self.run_id}")
            await self._store_end(await self._until_end(beside), beside)
            await sending
            beside.cancel()
        self._move(Stage.OVER)

    def end_early(self, outcome: Outcome, reason: Reason | None) -> None:
        """Something other than the turn ends the run: the first to say so decides how.

        Interrupts the turn when one runs, and gives up what is being done before it; the rest of the work
        follows from there.
        """
        if self._decided is not None or self._stage in (Stage.ENDING, Stage.OVER):
            return
        self._decided = End(outcome, reason)
        self._deciding.set()
        if self._stage is Stage.TURN and self._beside is not None:
            self._beside.start(self._turn.interrupt())

    def _fail_early(self, reason: Reason) -> None:
        self.end_early(Outcome.FAILED, reason)

    def poke(self) -> None:
        """A call of the run was stored by somebody else."""
        self._outbox.poke()

    async def followup(self, event: FollowupEvent) -> None:
        """A person wrote while the run works: into the turn where it is certain to be taken.

        One text after the other, in the order in which people wrote them.
        """
        read: Sequence[Prompt] = ()
        if self._live is not None and event.run_state is RunState.WAITING_INPUT:
            # What was written before the run waited, or before a card was there, is no answer to it.
            read = self._live.cards.open_prompts()
        async with self._texts:
            await self._take_text(event.message_id, read)

    async def _take_text(self, message_id: UUID, read: Sequence[Prompt]) -> None:
        live = self._live
        if live is None or self._stage is not Stage.TURN:
            return  # the server opens the next run from it
        steers = self._services.runtime.busy_mode is BusyMode.STEER
        if not steers and not read:
            return
        text = await live.followups.text_of(message_id)
        if text is None:
            return
        asked = await live.cards.asked(read)
        if steers and (asked is None or asked.kind is not PromptKind.CLARIFY):
            await live.followups.hand_in(message_id, text)
        if asked is not None:
            await live.cards.text(asked, message_id, text)

    async def interaction(self, used: Interaction, entry_id: UUID) -> None:
        """A person used a card of the run."""
        if self._live is not None:
            await self._live.cards.interaction(used, entry_id)
        else:
            response = response_call(self.run_id, used.id, failed(NOT_WAITING))
            await self._outbox.put(response, EntryMove(entry_id, EntryState.DONE))

    async def before(self, call: OutboxCall) -> None:
        """Bring the box up to date before a wait or the end."""
        if self._live is None:
            return
        if call.operation == AWAIT_RUN_INPUT.name and not await self._live.cards.can_wait(call):
            return
        await self._live.patcher.flush_for_call()

    def done(self, call: OutboxCall) -> None:
        """The server has taken a call."""
        if self._live is None:
            return
        if call.operation == AWAIT_RUN_INPUT.name:
            self._live.patcher.awaited(call.body.get("status_line"))
        self._live.patcher.call_made()
        self._live.cards.done(call)

    def refused(self, call: OutboxCall, word: str) -> None:
        """The server has refused a call for good."""
        if self._live is not None:
            self._live.patcher.call_made()
            self._live.cards.refused(call, word)

    async def _until_end(self, beside: Beside) -> End:
        try:
            prepared, proof = await self._unless_decided(self._prepare())
            started, spends = await self._unless_decided(self._start(proof))
            prepared = replace(prepared, turn=replace(prepared.turn, spends=spends))
            return await self._do_turn(prepared, started, beside)
        except RunOver as ended:
            return ended.end
        except RunEnded:
            return self._decided or await self._ended_elsewhere()
        except Exception as error:  # noqa: BLE001  # whatever broke, the run's people must see an end
            _log.error("run %s: %s", self.run_id, describe(error))
            if self._live is not None:
                self._live.view.turn_ended(TurnEnd(TurnOutcome.FAILED, type(error).__name__))
                self._live.view.remark(REFUSED_SENTENCE if isinstance(error, SessionRefused) else None)
            return End(Outcome.FAILED, Reason.ADAPTER_ERROR)

    async def _prepare(self) -> tuple[Prepared, Proof]:
        """Read the context; meanwhile note that the run is to start, and ask what its turn would spend."""
        self._move(Stage.PREPARING)
        if self.invocation.session_mode not in list(SessionMode):
            raise RunOver(End(Outcome.FAILED, Reason.ADAPTER_ERROR))
        services = self._services
        began = services.clock.monotonic()
        proving = services.prover.asked()
        noting = asyncio.ensure_future(self._note_start())
        try:
            prepared = await services.context.read(self.invocation, self.token)
            await noting
        finally:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)
        proof = await asyncio.shield(proving)
        if services.clock.monotonic() - began > FRESH_SECONDS:
            proof = await services.prover.now()
        return prepared, proof

    async def _note_start(self) -> None:
        if self._entry.state is EntryState.ACCEPTED:
            await self._services.store.move_entry(self._entry.event_id, EntryState.STARTING)

    async def _start(self, proof: Proof) -> tuple[RunView, Spending | None]:
        """Start the run; returns with it what the evidence says that its turn spends."""
        self._stop_if_decided()
        self._move(Stage.STARTING)
        run = self.invocation.run
        reason = proof.refusal(run.billing_mode, run.tool_class)
        if reason is not None:
            raise RunOver(End(Outcome.FAILED, reason))
        evidence = proof.start(run.billing_mode)
        try:
            started = await self._services.api.start_run(self.run_id, self.token, evidence)
        except ProblemAnswer as problem:
            raise self._start_refused(problem) from problem
        return started, proof.actual.spending

    def _start_refused(self, problem: ProblemAnswer) -> Exception:
        reason = START_REFUSALS.get(problem.code)
        if reason is not None:
            return RunOver(End(Outcome.FAILED, reason))
        if problem.code == ProblemCode.RUN_NOT_STARTABLE:
            return RunEnded(problem.operation, problem.status, problem.code)
        return problem

    async def _do_turn(self, prepared: Prepared, started: RunView, beside: Beside) -> End:
        live = self._go_live(prepared, started, beside)
        beside.start(live.patcher.run())
        live.view.remark(await self._unless_decided(live.session.prepare(prepared.turn)))
        self._stop_if_decided()
        self._move(Stage.TURN)
        ended = await self._turn.do(prepared.turn, live.view)
        live.view.turn_ended(ended)
        return self._decided or self._end_of(ended)

    def _go_live(self, prepared: Prepared, started: RunView, beside: Beside) -> _Live:
        services = self._services
        box = LiveBox(services.clock.now, lambda: str(services.clock.new_id()))
        patcher = Patcher(
            services.api,
            self.run_id,
            self.token,
            box,
            started.document,
            interval=self._patch_interval,
            clock=services.clock,
        )
        followups = RunFollowups(services, self.run_id, self.token, self._outbox)
        session = RunSession(
            services.runtime, services.store, services.clock, self.invocation, prepared.thread
        )
        cards = RunCards(
            services,
            self.invocation.run,
            self.token,
            self._outbox,
            box=box,
            patcher=patcher,
            spawn=beside.start,
            end_run=self._fail_early,
        )
        view = TurnView(
            services,
            self.invocation,
            box,
            self._outbox,
            patcher,
            followups=followups,
            cards=cards,
            end_run=self._fail_early,
        )
        self._live = _Live(view, patcher, session, followups, cards)
        return self._live

    def _end_of(self, ended: TurnEnd) -> End:
        outcome, reason = TURN_ENDS[ended.outcome]
        _log.info("run %s: the turn ended: %s (%s)", self.run_id, ended.outcome, ended.detail or "-")
        return End(outcome, reason)

    async def _store_end(self, end: End, beside: Beside) -> None:
        self._move(Stage.ENDING)
        if self._live is not None:
            if end.outcome is Outcome.COMPLETED:
                # Before the end is stored: a process that finds it is to find no card open.
                await self._live.cards.close_open()
            # The box is as it stays: it is written while the end is put together.
            beside.start(self._live.patcher.flush())
        changes = [] if self._live is None else await self._closing_changes(self._live, end)
        view = None if self._live is None else self._live.view
        if end.outcome is Outcome.COMPLETED and self._outbox.has_lost:
            end = End(Outcome.FAILED, Reason.ADAPTER_ERROR)  # what was said did not reach its people
        finish = FinishRun(
            outcome=end.outcome,
            reason=end.reason,
            metrics=view.metrics() if view is not None else Metrics(),
            costs=view.costs() if view is not None else None,
        )
        changes.append(finish_call(self.run_id, finish))
        await self._services.store.move_entry(self._entry.event_id, EntryState.FINISHING, changes)
        self._outbox.poke()

    async def _closing_changes(self, live: _Live, end: End) -> list[Change]:
        """What the run owes before its end: a last word, reports, the title."""
        completed = end.outcome is Outcome.COMPLETED
        last_word = live.view.closing_message() if completed else None
        changes: list[Change] = [message_call(self.run_id, last_word)] if last_word is not None else []
        changes += live.view.edits()
        changes += live.followups.closing_changes()
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                changes += await live.session.closing_changes(live.view.session_id, completed=completed)
        except Exception as error:  # noqa: BLE001  # a report that cannot be made must not cost the end
            _log.error("run %s: its session is not reported: %s", self.run_id, describe(error))
        return changes

    async def _ended_elsewhere(self) -> End:
        """The server ended the run before the event that says so came: end it the same way."""
        try:
            state = (await self._services.api.get_run(self.run_id, self.token)).run.state
        except BothyError as error:
            _log.error("run %s: it ended, nobody says how: %s", self.run_id, error)
            state = RunState.FAILED
        if state is RunState.FAILED or not state.ended:
            return End(Outcome.FAILED, Reason.ADAPTER_ERROR)
        return End(Outcome(state.value), None)

    def _patch_interval(self) -> float:
        server = self._services.limits().run_update_min_interval_ms / 1000
        return max(server, self._services.settings.run_update_min_interval)

    async def _unless_decided(self, step: Coroutine[Any, Any, T]) -> T:
        """Do a step that comes before the turn; an end that comes meanwhile does not wait for it."""
        doing = asyncio.ensure_future(step)
        deciding = asyncio.ensure_future(self._deciding.wait())
        try:
            await asyncio.wait((doing, deciding), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                self._stop_if_decided()
            return doing.result()
        finally:
            doing.cancel()
            deciding.cancel()
            await asyncio.gather(doing, deciding, return_exceptions=True)

    def _stop_if_decided(self) -> None:
        if self._decided is not None:
            raise RunOver(self._decided)

    def _move(self, stage: Stage) -> None:
        self._stage = check_stage(self._stage, stage)
