"""Bringing a thread onto the session that its next turn is to run on.

Layer: hermes. Gives Hermes the commands of a chat (`/new`, `/resume`), waits until it is done with
them, and looks in the session store for what they did: their answers are texts. A session that cannot
be given is no reason to go on with another one's history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from .clock import Clock, within
from .errors import SessionRefused
from .hermes_control import Command
from .hermes_sessions import HermesSessions
from .runtime import SessionSwitch, TurnRequest
from .wire_words import SessionMode

COMMAND_SECONDS = 10.0
"""How long a command about a thread's session may take; measured are 0.1 to 0.5 seconds."""


class Commands(Protocol):
    """What the switch needs of the platform object."""

    async def command(
        self, turn: TurnRequest, command: Command, message_id: str, reference: str | None = None
    ) -> None:
        """Give Hermes a command of ours for a turn's thread."""

    def session_key(self, turn: TurnRequest) -> str:
        """Return Hermes' key of the turn's thread."""

    @property
    def sessions(self) -> HermesSessions:
        """Hermes' sessions."""


class SessionSwitcher:
    """Switches sessions of threads in which no turn is at work.

    Args:
        platform: Takes the commands.
        clock: Time and IDs.
        thread_free: Waits until a thread's last turn or command is gone; tells whether that came in time.
    """

    def __init__(
        self, platform: Commands, clock: Clock, thread_free: Callable[[TurnRequest], Awaitable[bool]]
    ) -> None:
        self._platform = platform
        self._clock = clock
        self._thread_free = thread_free
        self._done: dict[str, asyncio.Event] = {}
        self._at_work: set[str] = set()

    async def use(self, turn: TurnRequest, mode: SessionMode, reference: str | None) -> SessionSwitch:
        """Have the next turn of the request's thread run on the wanted session.

        Raises:
            SessionRefused: Hermes left the thread on a session that it must not go on with.
        """
        current = self._current(turn)
        if mode is SessionMode.NEW:
            return await self._begin(turn, current)
        if reference is None or await self._platform.sessions.goes_on_with(current, reference):
            return SessionSwitch.KEPT
        bound = await self._bind(turn, reference)
        if bound.in_vain:
            await self._begin(turn, self._current(turn))
        return bound

    async def _begin(self, turn: TurnRequest, current: str | None) -> SessionSwitch:
        """Give a thread a session without history; one that has none gets it with its next turn."""
        if current is None:
            return SessionSwitch.KEPT
        await self._command(turn, Command.NEW)
        if self._current(turn) == current:
            raise SessionRefused(Command.NEW)
        return SessionSwitch.NEW

    async def _bind(self, turn: TurnRequest, reference: str) -> SessionSwitch:
        """Give a thread a session that exists, or the one in which that goes on."""
        fault = await self._platform.sessions.fault_of(reference)
        if fault is not None:
            return fault
        await self._command(turn, Command.RESUME, reference)
        taken = await self._platform.sessions.goes_on_with(self._current(turn), reference)
        return SessionSwitch.BOUND if taken else SessionSwitch.NOT_TAKEN

    def _current(self, turn: TurnRequest) -> str | None:
        return self._platform.sessions.of_thread(self._platform.session_key(turn))

    async def _command(self, turn: TurnRequest, command: Command, reference: str | None = None) -> None:
        """Give a command and wait until Hermes is done with it; what it did is the store's to say."""
        if not await self._thread_free(turn):
            return
        message_id, key = str(self._clock.new_id()), self._platform.session_key(turn)
        done = self._done[message_id] = asyncio.Event()
        self._at_work.add(key)
        try:
            await self._platform.command(turn, command, message_id, reference)
            await within(self._clock, done.wait(), COMMAND_SECONDS)
            await self._thread_free(turn)
        finally:
            self._at_work.discard(key)
            del self._done[message_id]

    def processing_complete(self, message_id: str | None) -> None:
        """Hermes is done with a message, perhaps a command's."""
        done = self._done.get(message_id or "")
        if done is not None:
            done.set()

    def is_at_work(self, session_key: str) -> bool:
        """Whether a command of ours is at work in a session, so that nobody need confirm it."""
        return session_key in self._at_work
