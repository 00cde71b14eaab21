"""What the Hermes rooms need of the platform object, which alone has Hermes' own at hand.

Layer: hermes. `hermes_plugin` is the platform, tests have one that does what they say; nobody else calls
into a running gateway.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol
from uuid import UUID

from .hermes_control import Command
from .hermes_sessions import HermesSessions
from .runtime import BusyMode, TurnRequest
from .turn_facts import Payee
from .wire_words import KeyType


class Platform(Protocol):
    """What the runtime needs of the platform object."""

    def turn_event(self, turn: TurnRequest) -> Any:
        """Build Hermes' event of a turn."""

    def text_event(self, turn: TurnRequest, text: str, message_id: UUID) -> Any:
        """Build Hermes' event of a text that comes while the turn runs."""

    async def hand_in(self, event: Any) -> bool | None:
        """Give Hermes an event; returns whether it was accepted, None when Hermes does not say."""

    async def command(
        self, turn: TurnRequest, command: Command, message_id: str, reference: str | None = None
    ) -> None:
        """Give Hermes a command of ours for a turn's thread."""

    def is_busy(self, turn: TurnRequest) -> bool:
        """Tell whether Hermes still guards the turn's thread."""

    def agent(self, turn: TurnRequest) -> Any | None:
        """Return the agent at work on a turn, None before it exists."""

    def session_key(self, turn: TurnRequest) -> str:
        """Return Hermes' key of the turn's thread."""

    def bound_payee(self, turn: TurnRequest) -> Payee | None:
        """Tell whom the turn's thread pays, None when it is the main model's provider."""

    def has_session(self, turn: TurnRequest, session_id: str) -> bool:
        """Tell whether a session is that of an agent or a subagent at work on a turn."""

    def key_type(self, turn: TurnRequest, session_id: str, provider: str) -> KeyType | None:
        """Tell what kind of key the agent of a session holds now, None when it is not seen."""

    def halt(self, turn: TurnRequest) -> None:
        """Interrupt the agents at work on a turn, on their own thread, before they send anything."""

    def release_prompts(self, turn: TurnRequest) -> None:
        """Have nobody answer what the turn's thread waits for any more."""

    def drop_held(self, turn: TurnRequest, agent: Any | None, message_ids: Collection[str]) -> None:
        """Take back texts of messages that Hermes still holds."""

    @property
    def sessions(self) -> HermesSessions:
        """Hermes' sessions."""

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn."""
