"""A Hermes that does what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from bothy_hermes.runtime import (
    BusyMode,
    ResolvedCredential,
    RuntimeCapabilities,
    SessionSwitch,
    TurnEnd,
    TurnEvents,
    TurnOutcome,
    TurnRequest,
)
from bothy_hermes.wire_words import KeyType

Script = Callable[[TurnRequest, TurnEvents], Awaitable[TurnEnd | None]]

ALL_CAPABILITIES = RuntimeCapabilities(
    components=True, clarify=True, approvals=True, title=True, followups=True
)


async def echo(turn: TurnRequest, events: TurnEvents) -> TurnEnd | None:
    """The simplest turn: the answer is what was asked."""
    await events.on_answer(f"You said: {turn.user_text}")
    return None


class FakeRuntime:
    """Runs each turn as a script; everything it was asked is kept."""

    def __init__(self, script: Script = echo) -> None:
        self.script = script
        self.turns: list[TurnRequest] = []
        self.interrupted: list[UUID] = []
        self.credential = ResolvedCredential("anthropic", KeyType.API_KEY)
        self.toolsets: frozenset[str] | None = frozenset({"terminal", "todo"})
        self.version: str | None = "0.0.0"
        self.busy_mode: BusyMode | None = BusyMode.QUEUE
        self.capabilities = ALL_CAPABILITIES
        self.questions = 0
        self.dropped: dict[str, int] = {}
        self.on_steer: Callable[[UUID, str, UUID], Awaitable[bool]] | None = None
        self.waiting: dict[str, asyncio.Future[str]] = {}
        self.sessions_wanted: list[tuple[str, str | None]] = []
        self.switch = SessionSwitch.KEPT
        self.parents: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        self._running: dict[UUID, asyncio.Task[TurnEnd | None]] = {}

    async def resolved_credential(self) -> ResolvedCredential:
        self.questions += 1
        await asyncio.sleep(0)
        return self.credential

    async def loaded_toolsets(self) -> frozenset[str] | None:
        await asyncio.sleep(0)
        return self.toolsets

    async def start_turn(self, turn: TurnRequest, events: TurnEvents) -> TurnEnd:
        self.turns.append(turn)
        task = asyncio.ensure_future(self.script(turn, events))
        self._running[turn.run_id] = task
        try:
            return await task or TurnEnd(TurnOutcome.COMPLETED, "text_response(finish_reason=stop)")
        except asyncio.CancelledError:
            if turn.run_id in self.interrupted:
                return TurnEnd(TurnOutcome.CANCELLED, "interrupted_by_user")
            raise
        finally:
            del self._running[turn.run_id]

    async def interrupt(self, run_id: UUID) -> None:
        self.interrupted.append(run_id)
        task = self._running.get(run_id)
        if task is not None:
            task.cancel()
            await asyncio.sleep(0)

    async def steer(self, run_id: UUID, text: str, message_id: UUID) -> bool:
        if self.on_steer is None or run_id not in self._running:
            return False
        return await self.on_steer(run_id, text, message_id)

    async def answer_prompt(self, prompt, answer: str) -> bool:
        waiting = self.waiting.pop(prompt.hermes_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    async def use_session(self, turn: TurnRequest, mode, reference: str | None) -> SessionSwitch:
        self.sessions_wanted.append((str(mode), reference))
        return self.switch

    async def session_parent(self, session_id: str) -> str | None:
        return self.parents.get(session_id)

    async def session_title(self, session_id: str) -> str | None:
        return self.titles.get(session_id)
