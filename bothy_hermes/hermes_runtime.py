"""The runtime inside a gateway: turns in, callbacks out.

Layer: hermes. Knows which turn is at work in which thread, starts and interrupts them, and gives each
callback of Hermes to the turn it belongs to; what belongs to none is dropped and counted. The
platform class does the calls that need Hermes' own object.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar
from uuid import UUID

from . import hermes_config, hermes_credential, hermes_versions
from .clock import Clock
from .defaults import LOGGER_NAME
from .hermes_turn import ActiveTurn
from .runtime import (
    BusyMode,
    Prompt,
    ResolvedCredential,
    RuntimeCapabilities,
    SessionSwitch,
    TurnEnd,
    TurnEvents,
    TurnRequest,
)
from .turn import Fact, Notice
from .wire_words import SessionMode

_log = logging.getLogger(LOGGER_NAME)

T = TypeVar("T")

START_SECONDS = 10.0
"""How long Hermes may take to begin with a message it has taken; it does so in the same second."""

END_SECONDS = 10.0
"""How long the end of an interrupted agent is waited for; measured are 1 to 2 seconds."""

BUSY_SECONDS = START_SECONDS + END_SECONDS + 5.0
"""How long a thread's last turn is waited for: until it was reached, its agent ended, and Hermes had
tidied up, which it does just after the end that it reports."""

ANSWER_SECONDS = 3.0
"""How long Hermes may think about credentials and toolsets; later is unknown."""

POLL_SECONDS = 0.02
"""How often the thread's guard is looked at while it is waited for."""


class Platform(Protocol):
    """What the runtime needs of the platform object."""

    def turn_event(self, turn: TurnRequest) -> Any:
        """Build Hermes' event of a turn."""

    async def hand_in(self, event: Any) -> bool | None:
        """Give Hermes an event; returns whether it was accepted, None when Hermes does not say."""

    def is_busy(self, event: Any) -> bool:
        """Tell whether Hermes still guards the event's thread."""

    async def stop(self, event: Any, message_id: str) -> None:
        """Interrupt the turn of an event's thread."""

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn."""


class HermesRuntime:
    """`Runtime` on the gateway that the plugin is in.

    Args:
        platform: The platform object.
        platform_key: Its name in Hermes.
        home: The home of the profile that it serves.
        clock: Time and IDs.
    """

    def __init__(self, platform: Platform, platform_key: str, home: str, clock: Clock) -> None:
        self._platform = platform
        self._platform_key = platform_key
        self._home = home
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._turns: dict[UUID, ActiveTurn] = {}
        self._waiting: set[ActiveTurn] = set()
        self._tails: set[asyncio.Task[None]] = set()
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._told: dict[str, str | None] = {}
        self._cursor = hermes_config.stream_cursor()
        self.dropped: Counter[str] = Counter()

    # What the adapter asks.

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
        return RuntimeCapabilities(
            components=False, clarify=False, approvals=False, title=False, followups=False
        )

    async def resolved_credential(self) -> ResolvedCredential:
        """Tell which kind of credential the next turn spends with."""
        found = await self._ask("credential", hermes_credential.resolve_credential)
        if found is None:
            return hermes_credential.UNKNOWN_CREDENTIAL
        self._tell("mode", found.problem)
        return found.credential

    async def loaded_toolsets(self) -> frozenset[str] | None:
        """Tell which toolsets and MCP servers the next turn can use."""
        return await self._ask("toolsets", lambda: hermes_config.load_toolsets(self._platform_key))

    async def _ask(self, what: str, question: Callable[[], T]) -> T | None:
        """Ask Hermes on a thread, in the context of `connect`; one question of a kind at a time."""
        task = self._asking.get(what)
        if task is None or task.done():
            # The task inherits the context in which it is made, and the thread that of the task.
            asking = asyncio.to_thread(self._in_profile, question)
            task = self._context.copy().run(self._loop.create_task, asking)
            self._asking[what] = task
        try:
            if not await self._within(asyncio.shield(task), ANSWER_SECONDS):
                self._tell(what, f"no answer within {ANSWER_SECONDS:.0f} s")
                return None
            answer: T = task.result()
        except Exception as error:  # noqa: BLE001  # whatever Hermes raises, the answer is unknown
            self._tell(what, f"Hermes raised {type(error).__name__}")
            return None
        self._tell(what, None)
        return answer

    def _in_profile(self, question: Callable[[], T]) -> T:
        with hermes_versions.profile_scope(self._home):
            return question()

    def _tell(self, what: str, problem: str | None) -> None:
        """Log why something is unknown, once until it changes: it is asked for at every heartbeat."""
        if problem is not None and self._told.get(what) != problem:
            _log.warning("%s: %s unknown: %s", self._platform_key, what, problem)
        self._told[what] = problem

    async def start_turn(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        """Have Hermes do one turn and wait for its end."""
        active = ActiveTurn(turn, events, self._cursor)
        event = self._platform.turn_event(turn)
        self._waiting.add(active)
        try:
            free = await self._thread_free(turn.thread_id, event)
        finally:
            self._waiting.discard(active)
        if active.judge.cancelled or not free:
            return active.end("interrupted_early" if free else "thread_busy")
        self._turns[turn.thread_id] = active
        try:
            end = await self._run(active, event)
        except asyncio.CancelledError:
            self._abandon(active, event)
            raise
        self._forget(active)
        _log.info("run %s: turn %s (%s)", turn.run_id, end.outcome, end.detail)
        return end

    async def _run(self, active: ActiveTurn, event: Any) -> TurnEnd:
        accepted = await self._platform.hand_in(event)
        if accepted is False:
            return active.end("not_accepted")
        if not await self._within(active.started.wait(), START_SECONDS):
            return active.end("not_started")
        await active.processed.wait()
        if active.judge.asked and not await self._within(active.over.wait(), END_SECONDS):
            _log.warning("run %s: the agent did not end in %.0f s", active.request.run_id, END_SECONDS)
        await active.flush()
        return active.end("no_model_request")

    async def interrupt(self, run_id: UUID) -> None:
        """Interrupt a run's turn."""
        for active in self._waiting:
            if active.request.run_id == run_id:
                active.cancel()
        for active in list(self._turns.values()):
            if active.request.run_id == run_id:
                await self._stop(active, self._platform.turn_event(active.request))

    async def steer(self, run_id: UUID, text: str, message_id: UUID) -> bool:
        """Hand nothing in yet: a text opens the next run."""
        del run_id, text, message_id
        return False

    async def answer_prompt(self, prompt: Prompt, answer: str) -> bool:
        """Nothing waits yet: prompts are refused at once."""
        del prompt, answer
        return False

    async def use_session(self, turn: TurnRequest, mode: SessionMode, reference: str | None) -> SessionSwitch:
        """Leave the thread on the session that Hermes keeps for it."""
        del turn, mode, reference
        return SessionSwitch.KEPT

    async def session_parent(self, session_id: str) -> str | None:
        """Tell no parent yet."""
        del session_id
        return None

    async def session_title(self, session_id: str) -> str | None:
        """Tell no title yet."""
        del session_id
        return None

    async def _stop(self, active: ActiveTurn, event: Any) -> None:
        """Interrupt a turn, but not before its agent exists.

        Before that Hermes cancels its own waiting only: the agent starts all the same, asks the model
        and can no longer be reached.
        """
        active.cancel()
        await self._within(active.reachable.wait(), START_SECONDS)
        if active.processed.is_set():
            return
        message_id = str(self._clock.new_id())
        active.judge.add_control(message_id)
        await self._platform.stop(event, message_id)

    def _abandon(self, active: ActiveTurn, event: Any) -> None:
        """Nobody waits for the turn any more: interrupt it, and keep its thread until it is over."""
        active.silence()
        task = self._loop.create_task(self._tail(active, event))
        self._tails.add(task)
        task.add_done_callback(self._tails.discard)

    async def _tail(self, active: ActiveTurn, event: Any) -> None:
        try:
            await self._stop(active, event)
            if active.judge.asked:
                await self._within(active.over.wait(), END_SECONDS)
        finally:
            self._forget(active)

    def _forget(self, active: ActiveTurn) -> None:
        if self._turns.get(active.request.thread_id) is active:
            del self._turns[active.request.thread_id]

    async def _thread_free(self, thread_id: UUID, event: Any) -> bool:
        """Wait until the thread's last turn is gone; a text before that would enter it or be queued."""
        start = self._clock.monotonic()
        while thread_id in self._turns or self._platform.is_busy(event):
            if self._clock.monotonic() - start > BUSY_SECONDS:
                return False
            await self._clock.sleep(POLL_SECONDS)
        return True

    async def _within(self, wait: Awaitable[Any], seconds: float) -> bool:
        """Wait that long at most; returns whether it came."""
        waiting = asyncio.ensure_future(wait)
        timer = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((waiting, timer), return_when=asyncio.FIRST_COMPLETED)
            return waiting.done()
        finally:
            waiting.cancel()
            timer.cancel()

    # What Hermes tells, on its own threads.

    def hear(self, thread_id: UUID, fact: Fact) -> None:
        """Take a fact from a hook, on whatever thread."""
        self._hop(self._take, thread_id, fact)

    def hear_status(self, thread_id: UUID | None, text: str | None) -> None:
        """Take a status sentence, on whatever thread."""
        if thread_id is not None:
            self._hop(self._take_status, thread_id, text)

    def _hop(self, call: Callable[..., None], *values: Any) -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *values)

    def _take(self, thread_id: UUID, fact: Fact) -> None:
        active = self._turns.get(thread_id)
        if active is not None:
            active.take(fact)

    def _take_status(self, thread_id: UUID, text: str | None) -> None:
        active = self._turns.get(thread_id)
        if active is not None:
            active.status(text)

    # What Hermes tells, on the loop.

    def processing_started(self, message_id: str | None) -> None:
        """Hermes began with a message."""
        active = self._by_message(message_id)
        if active is not None:
            active.started.set()

    def processing_complete(self, message_id: str | None, *, cancelled: bool) -> None:
        """Hermes is done with a message; what that means is the judge's to say."""
        active = self._by_message(message_id)
        if active is not None:
            if cancelled:
                active.cancel()
            active.finish()

    def _by_message(self, message_id: str | None) -> ActiveTurn | None:
        for active in self._turns.values():
            if str(active.request.message_id) == message_id:
                return active
        return None

    def turn_at(self, chat_id: str, metadata: Mapping[str, Any] | None) -> ActiveTurn | None:
        """Return the turn that a callback's address means, None when no turn is at work there."""
        thread = _thread_in(metadata)
        active = self._turns.get(thread) if thread is not None else None
        return active if active is not None and str(active.request.channel_id) == chat_id else None

    async def sent(
        self, chat_id: str, text: str, reply_to: str | None, metadata: Mapping[str, Any] | None
    ) -> str | None:
        """Take a text that Hermes sends; returns its message ID, None when it was dropped."""
        active = self.turn_at(chat_id, metadata)
        if active is None:
            self.drop(Notice.NO_TURN if _thread_in(metadata) else Notice.UNKNOWN_CHAT)
            return None
        marks = metadata or {}
        message_id, notice = await active.sent(
            text,
            str(self._clock.new_id()),
            notify=marks.get("notify") is True,
            reply_to=reply_to,
            edits=marks.get("expect_edits") is True,
        )
        if notice is not None:
            self.drop(notice, active.request.run_id)
        return message_id

    async def edited(
        self, chat_id: str, message_id: str, text: str, metadata: Mapping[str, Any] | None, *, finalize: bool
    ) -> bool:
        """Take an edit; returns whether it was one of a message of an active turn."""
        active = self.turn_at(chat_id, metadata)
        return active is not None and await active.edited(message_id, text, finalize=finalize)

    def drop(self, kind: Notice, run_id: UUID | None = None) -> None:
        """Count what is posted nowhere, by kind; the text goes unsaid."""
        self.dropped[kind.value] += 1
        _log.info("dropped a text of Hermes: %s (run %s)", kind.value, run_id)


def _thread_in(metadata: Mapping[str, Any] | None) -> UUID | None:
    try:
        return UUID(str((metadata or {}).get("thread_id")))
    except ValueError:
        return None
