"""The agents of Hermes at work on our turns: who they are, whom they pay, and how they are stopped.

Layer: hermes. A part of the platform object, which has the gateway's runner at hand. Called on any
thread: what is looked at here Hermes changes on its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from . import hermes_control, hermes_credential, hermes_held, hermes_route
from .runtime import TurnRequest
from .turn_facts import Payee
from .wire_words import KeyType


class AgentsAtWork(ABC):
    """Mix-in of the platform object.

    Attributes:
        gateway_runner: Hermes' runner, which knows its agents.
    """

    gateway_runner: Any

    @abstractmethod
    def session_key(self, turn: TurnRequest) -> str:
        """Return Hermes' key of the turn's thread."""

    @abstractmethod
    def turn_source(self, turn: TurnRequest) -> Any:
        """Return Hermes' source of the turn's message."""

    def agent(self, turn: TurnRequest) -> Any | None:
        """Return the agent at work on a turn, None before it exists."""
        return hermes_held.running_agent(self.gateway_runner, self.session_key(turn), str(turn.message_id))

    def bound_payee(self, turn: TurnRequest) -> Payee | None:
        """Tell whom the turn's thread pays, None when it is the main model's provider."""
        return hermes_route.bound_payee(self.gateway_runner, self.session_key(turn), self.turn_source(turn))

    def has_session(self, turn: TurnRequest, session_id: str) -> bool:
        """Tell whether a session is that of an agent or a subagent at work on a turn."""
        return self._agent_of_session(turn, session_id) is not None

    def key_type(self, turn: TurnRequest, session_id: str, provider: str) -> KeyType | None:
        """Tell what kind of key the agent of a session holds now, None when it is not seen."""
        agent = self._agent_of_session(turn, session_id)
        return hermes_credential.kind_in_use(provider, getattr(agent, "api_key", None))

    def _agent_of_session(self, turn: TurnRequest, session_id: str) -> Any | None:
        agent = self._agent_in_sight(turn)
        return None if agent is None else hermes_control.agent_of_session(agent, session_id)

    def _agent_in_sight(self, turn: TurnRequest) -> Any | None:
        return hermes_held.asking_agent(self.gateway_runner, self.session_key(turn))

    def halt(self, turn: TurnRequest) -> None:
        """Interrupt the agents at work on a turn, on their own thread, before they send anything."""
        agent = self._agent_in_sight(turn)
        if agent is None:
            raise LookupError("no agent is in sight")
        hermes_control.halt(agent)
