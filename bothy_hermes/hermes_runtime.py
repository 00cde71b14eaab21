"""The runtime inside a gateway: turns, texts, answers and commands in, and the wait for their ends.

Layer: hermes. It keeps one turn of a thread at a time, and one of a session, and knows when an agent
can be reached. The platform object does the calls that need Hermes' own; what Hermes tells goes
through `hermes_threads`, what it is asked about money and tools through `hermes_questions`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from . import hermes_config, hermes_prompts, hermes_versions
from .clock import Clock, within
from .defaults import LOGGER_NAME
from .errors import describe
from .hermes_control import Command
from .hermes_gate import RequestGate, gate_seconds
from .hermes_platform import Platform
from .hermes_questions import ProfileQuestions
from .hermes_switch import SessionSwitcher
from .hermes_threads import ThreadTurns
from .hermes_turn import ActiveTurn
from .runtime import (
    BusyMode,
    Prompt,
    ResolvedCredential,
    RuntimeCapabilities,
    SessionSwitch,
    TurnEnd,
    TurnEvents,
    TurnOutcome,
    TurnRequest,
)
from .turn_facts import Payee
from .wire_words import KeyType, SessionMode

_log = logging.getLogger(LOGGER_NAME)

START_SECONDS = 10.0
"""How long Hermes may take to begin with a message it has taken; it does so in the same second."""

END_SECONDS = 10.0
"""How long the end of an interrupted agent is waited for; measured are 1 to 2 seconds."""

LATE_SECONDS = 3.0
"""How long an end is waited for that nobody has interrupted: Hermes tells it before it sends the answer,
and not at all where it has given up what the model wrote."""

BUSY_SECONDS = START_SECONDS + END_SECONDS + 5.0
"""How long a thread's last turn is waited for: until it was reached, its agent ended, and Hermes had
tidied up, which it does just after the end that it reports."""

REACH_SECONDS = 60.0
"""How long an interrupt waits for the agent to exist: the first one of a cold process took 25 seconds on a
loaded machine. An interrupt before that reaches nobody, and the agent asks the model all the same."""

AGENT_SECONDS = 1.0
"""How long a text waits for the agent that is to take it and its first request; Hermes looks for the
agent every 0.05 seconds, and a request goes out in the same second."""

NOT_RUN_CAUSES = (
    "dm_policy is not allowlist, a list of allowed users, max_concurrent_sessions, another plugin's veto"
)
"""What keeps Hermes from a turn; people see no more than that it is busy."""

POLL_SECONDS = 0.02
"""How often something of Hermes' is looked at that nobody announces."""


class HermesRuntime:
    """`Runtime` on the gateway that the plugin is in; made in the context of `connect`.

    Args:
        platform: The platform object.
        platform_key: Its name in Hermes.
        home: The home of the profile that it serves.
        clock: Time and IDs.
    """

    def __init__(self, platform: Platform, platform_key: str, home: str, clock: Clock) -> None:
        self._platform = platform
        self._clock = clock
        self._questions = ProfileQuestions(platform_key, home, clock)
        self.threads = ThreadTurns(clock)
        """The turns at work; takes what Hermes tells about them."""
        self._waiting: set[ActiveTurn] = set()
        self._tails: set[asyncio.Task[None]] = set()
        self._switcher = SessionSwitcher(platform, clock, self._thread_free)
        self._cursor = hermes_config.stream_cursor()

    # What the runtime is.

    @property
    def version(self) -> str | None:
        """Hermes' version."""
        return hermes_versions.hermes_version()

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn."""
        return self._platform.busy_mode

    @property
    def capabilities(self) -> RuntimeCapabilities:
        """What this runtime can show and take."""
        steers = self.busy_mode is BusyMode.STEER
        return RuntimeCapabilities(
            components=True, clarify=True, approvals=True, title=True, followups=steers
        )

    @property
    def dropped(self) -> Mapping[str, int]:
        """What Hermes said and no run has posted, by kind, since the start."""
        return self.threads.dropped

    async def resolved_credential(self) -> ResolvedCredential:
        """Tell which kind of credential the next turn spends with."""
        return await self._questions.resolved_credential()

    async def loaded_toolsets(self) -> frozenset[str] | None:
        """Tell which toolsets and MCP servers the next turn can use."""
        return await self._questions.loaded_toolsets()

    # Turns.

    async def start_turn(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        """Have Hermes do one turn and wait for its end."""
        gate = RequestGate(
            turn.run_id,
            turn.spends,
            self._questions.credential_of,
            lambda: self._platform.halt(turn),
            gate_seconds(),
        )
        active = ActiveTurn(turn, events, self._cursor, self._session_of(turn), gate)
        self._waiting.add(active)
        try:
            free = await self._free(active)
        finally:
            self._waiting.discard(active)
        if not free:
            return active.end("interrupted_early" if active.judge.cancelled else "thread_busy")
        self.threads.add(active)
        try:
            end = await self._run(active)
        except asyncio.CancelledError:
            self._abandon(active)
            raise
        self.threads.forget(active)
        _log.info("run %s: turn %s (%s)", turn.run_id, end.outcome, end.detail)
        if end.outcome is TurnOutcome.NOT_RUN:
            _log.warning("run %s: Hermes did no turn; its log says why: %s", turn.run_id, NOT_RUN_CAUSES)
        return end

    async def _run(self, active: ActiveTurn) -> TurnEnd:
        bound = self._platform.bound_payee(active.request)
        if bound is not None and not await asyncio.to_thread(active.covers, bound):
            active.money_refused()
            return active.end("other_money")
        accepted = await self._platform.hand_in(self._platform.turn_event(active.request))
        if accepted is False:
            return active.end("not_accepted")
        if not await self._within(active.started.wait(), START_SECONDS):
            return active.end("not_started")
        await active.processed.wait()
        patience = END_SECONDS if active.judge.cancelled else LATE_SECONDS
        if active.judge.asked and not await self._within(active.over.wait(), patience):
            _log.warning("run %s: the agent told no end in %.0f s", active.request.run_id, patience)
        self._drop_held(active)
        await active.flush()
        return active.end("no_model_request")

    async def _free(self, active: ActiveTurn) -> bool:
        """Wait until a turn may go in; returns whether it may, and suspends no more after that.

        Behind another thread's turn on the same session there is no limit: Hermes would let the turn
        wait for it too, for a few seconds, and then not do it.
        """
        turn = active.request
        start = self._clock.monotonic()
        while not active.judge.cancelled:
            if self._shares_session(turn):
                start = self._clock.monotonic()
            elif self._is_thread_free(turn):
                return True
            elif self._clock.monotonic() - start > BUSY_SECONDS:
                return False
            await self._clock.sleep(POLL_SECONDS)
        return False

    def _shares_session(self, turn: TurnRequest) -> bool:
        """Whether the turn of another thread is at work on the session of this one."""
        mine = self._session_of(turn)
        others = [one.request for one in self.threads if one.request.thread_id != turn.thread_id]
        return mine is not None and any(self._session_of(other) == mine for other in others)

    def _session_of(self, turn: TurnRequest) -> str | None:
        return self._platform.sessions.of_thread(self._platform.session_key(turn))

    def _is_thread_free(self, turn: TurnRequest) -> bool:
        """Whether the thread's last turn is gone; a text before that would enter it or be queued."""
        return turn.thread_id not in self.threads and not self._platform.is_busy(turn)

    async def _thread_free(self, turn: TurnRequest) -> bool:
        return await self._until(lambda: self._is_thread_free(turn), BUSY_SECONDS)

    def thread_of_subagent(self, session_id: str) -> UUID | None:
        """The thread for whose turn a session's subagent works; on whatever thread."""
        at_work = [one.request for one in self.threads]
        found = (turn for turn in at_work if self._platform.has_session(turn, session_id))
        return next((turn.thread_id for turn in found), None)

    def admit(self, thread_id: UUID, payee: Payee, session_id: str) -> bool:
        """Tell whether a model request of a session may leave, for whatever thread is about to send it.

        Where no turn is at work there is no run whose money it could be.
        """
        active = self.threads.of_thread(thread_id)
        if active is None:
            return True
        return self.threads.admit(active, replace(payee, key_type=self._key_type(active, payee, session_id)))

    def _key_type(self, active: ActiveTurn, payee: Payee, session_id: str) -> KeyType | None:
        try:
            return self._platform.key_type(active.request, session_id, payee.provider)
        except Exception as error:  # noqa: BLE001  # whatever Hermes has become, this proves nothing
            _log.error("run %s: no key can be looked at: %s", active.request.run_id, describe(error))
            return KeyType.UNKNOWN

    # Interrupts.

    async def interrupt(self, run_id: UUID) -> None:
        """Interrupt a run's turn."""
        for active in self._waiting:
            if active.request.run_id == run_id:
                active.cancel()
        active_one = self.threads.of_run(run_id)
        if active_one is not None:
            await self._stop(active_one)

    async def _stop(self, active: ActiveTurn) -> None:
        """Interrupt a turn, but not before its agent exists.

        Before that Hermes cancels its own waiting only: the agent starts all the same, asks the model
        and can no longer be reached.
        """
        active.cancel()
        await self._until(lambda: active.processed.is_set() or self._is_reachable(active), REACH_SECONDS)
        if active.processed.is_set():
            return
        message_id = str(self._clock.new_id())
        active.judge.add_control(message_id)
        await self._platform.command(active.request, Command.STOP, message_id)
        self._platform.release_prompts(active.request)

    def _is_reachable(self, active: ActiveTurn) -> bool:
        return active.judge.asked or self._platform.agent(active.request) is not None

    def release_all(self) -> None:
        """Have nobody answer anything any more: the gateway stops, and each prompt blocks a thread of it."""
        for active in self.threads:
            active.cancel()
            self._platform.release_prompts(active.request)

    def _abandon(self, active: ActiveTurn) -> None:
        """Nobody waits for the turn any more: interrupt it, and keep its thread until it is over."""
        active.silence()
        task = asyncio.create_task(self._tail(active))
        self._tails.add(task)
        task.add_done_callback(self._tails.discard)

    async def _tail(self, active: ActiveTurn) -> None:
        try:
            await self._stop(active)
            if active.judge.asked:
                await self._within(active.over.wait(), END_SECONDS)
            self._drop_held(active)
        finally:
            self.threads.forget(active)

    # Texts that come meanwhile.

    async def steer(self, run_id: UUID, text: str, message_id: UUID) -> bool:
        """Hand a person's text into a run's turn, as the text of a person and never as a command."""
        active = self.threads.of_run(run_id)
        if active is None:
            return False
        turn = active.request
        # Without an agent Hermes would queue the text behind the turn.
        await self._until(lambda: self._can_take(active) or not self._may_take(active), AGENT_SECONDS)
        if not self._can_take(active):
            return False
        active.hold(message_id, text, self._platform.agent(turn))
        await self._platform.hand_in(self._platform.text_event(turn, text, message_id))
        return True

    def _can_take(self, active: ActiveTurn) -> bool:
        """Whether a text can be handed in now."""
        judge, reached = active.judge, self._platform.agent(active.request) is not None
        return self._may_take(active) and judge.takes_text and reached

    def _may_take(self, active: ActiveTurn) -> bool:
        """Whether a text can be handed in now or in a moment."""
        stopped = active.judge.cancelled or active.processed.is_set()
        comes = active.judge.takes_text or active.judge.will_take_text
        return comes and not stopped and self.busy_mode is BusyMode.STEER

    def _drop_held(self, active: ActiveTurn) -> None:
        """Take back what the turn did not take: it would be in the thread's next one."""
        if active.held:
            messages = frozenset(str(message_id) for message_id in active.held)
            self._platform.drop_held(active.request, active.agent, messages)

    # Prompts.

    async def answer_prompt(self, prompt: Prompt, answer: str) -> bool:
        """Resolve what Hermes waits for."""
        for active in self.threads:
            active.prompts.take(prompt)
        return await hermes_prompts.resolve(prompt, answer)

    # Sessions.

    async def use_session(self, turn: TurnRequest, mode: SessionMode, reference: str | None) -> SessionSwitch:
        """Have the next turn of the request's thread run on the wanted session."""
        return await self._switcher.use(turn, mode, reference)

    def is_own_command(self, session_key: str) -> bool:
        """Whether a command of ours is at work in a session, so that nobody need confirm it."""
        return self._switcher.is_at_work(session_key)

    async def session_parent(self, session_id: str) -> str | None:
        """The session out of which a session grew (a compression)."""
        return await self._platform.sessions.parent(session_id)

    async def session_title(self, session_id: str) -> str | None:
        """The title that the model gave a session."""
        return await self._platform.sessions.title(session_id)

    def processing_complete(self, message_id: str | None, *, cancelled: bool) -> None:
        """Hermes is done with a message, a turn's or a command's.

        What it still holds of a turn is taken back in this call: just after it Hermes looks for the
        next message of the thread.
        """
        self._switcher.processing_complete(message_id)
        active = self.threads.processing_complete(message_id, cancelled=cancelled)
        if active is not None:
            self._drop_held(active)

    # Waiting.

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition that nobody announces; returns whether it came in time."""
        start = self._clock.monotonic()
        while not condition():
            if self._clock.monotonic() - start > seconds:
                return False
            await self._clock.sleep(POLL_SECONDS)
        return True

    async def _within(self, wait: Awaitable[Any], seconds: float) -> bool:
        return await within(self._clock, wait, seconds)
