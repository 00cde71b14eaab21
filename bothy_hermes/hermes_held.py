"""Texts that Hermes has taken into a turn and holds until the model's next request.

Layer: hermes. Hermes keeps such a text with its agent, which serves the session's next turn as well,
or in a queue behind the running turn. What the turn did not take must not wait there: it would be in
somebody's next turn, although the server opens a run of its own from it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def running_agent(runner: Any, session_key: str, message_id: str | None = None) -> Any | None:
    """Return the agent at work on a message, None while Hermes still builds it or when there is none.

    Args:
        runner: The gateway's runner.
        session_key: Hermes' key of the thread.
        message_id: The message: Hermes keeps a turn's agent in sight until the next turn begins. None for
            whichever agent is in sight.
    """
    peek = getattr(runner, "_peek_session_state", None)
    if callable(peek):
        turn = getattr(peek(session_key), "turn", None)
        agent = getattr(turn, "agent", None)
        # A text that Hermes runs as a turn of its own has no message.
        at_work = getattr(getattr(turn, "ctx", None), "inbound_message_id", None)
        if message_id is not None and at_work not in (None, message_id):
            return None
    else:
        agent = getattr(runner, "_running_agents", {}).get(session_key)
    # Before the agent there is a placeholder, which can take nothing.
    return agent if callable(getattr(agent, "steer", None)) else None


def asking_agent(runner: Any, session_key: str) -> Any | None:
    """Return the agent that may be asking the model for a thread at this moment, None when there is none.

    Hermes shows a turn's agent up to 0.05 s after it was made, and later when the loop is busy; the first
    request may leave before that. Among the agents that it keeps for later turns it is from the beginning.
    """
    running = running_agent(runner, session_key)
    if running is not None:
        return running
    entry = getattr(runner, "_agent_cache", {}).get(session_key)
    kept = entry[0] if isinstance(entry, tuple) and entry else entry
    return kept if callable(getattr(kept, "steer", None)) else None


def drop(agent: Any | None, adapter: Any, session_key: str, message_ids: Collection[str]) -> None:
    """Take back what Hermes still holds.

    Args:
        agent: The agent that was handed the texts.
        adapter: The platform object, which has Hermes' queue of a thread's next messages.
        session_key: Hermes' key of the thread.
        message_ids: The messages of the texts.
    """
    drain = getattr(agent, "_drain_pending_steer", None)
    if callable(drain):
        drain()
    waiting = adapter._pending_messages  # noqa: SLF001  # the base class' own slot for the next message
    if str(getattr(waiting.get(session_key), "message_id", None)) in message_ids:
        del waiting[session_key]
    overflow = getattr(adapter.gateway_runner, "_overflow_queue", None)
    queue = overflow(session_key) if callable(overflow) else None
    if queue:
        queue[:] = [event for event in queue if str(event.message_id) not in message_ids]
