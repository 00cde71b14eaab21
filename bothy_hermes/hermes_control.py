"""The commands that the adapter itself gives Hermes.

Layer: hermes. Each is an event of the control sender, internal, so that neither a list of allowed
users nor a person's text can stand in its way; Hermes' reply to it is known by its message ID and
never shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from . import hermes_versions


class Command(StrEnum):
    """The commands of Hermes that the adapter uses."""

    STOP = "/stop"
    """Interrupts the turn of a thread."""
    NEW = "/new"
    """Gives a thread a session without history."""
    RESUME = "/resume"
    """Gives a thread a session that exists."""


def control_event(command: Command, source: Any, message_id: str, reference: str | None = None) -> Any:
    """Build a command's event.

    Args:
        command: The command.
        source: The thread's source, with the control sender as its user.
        message_id: The ID by which the reply is known.
        reference: The session that the thread is to have; of any platform thread, hence `--all`.
    """
    text = f"{command} {reference} --all" if reference is not None else str(command)
    return hermes_versions.control_event(text=text, source=source, message_id=message_id)


def halt(agent: Any) -> None:
    """Interrupt an agent and its subagents so that the request it is about to make is not sent.

    For a hook of that request. The first thing that Hermes does about a streamed request is to look
    whether the agent was interrupted; about one that is not streamed it looks while it is under way. So
    the agents forget that their model's server does not stream.
    """
    for one in _with_subagents(agent):
        one._disable_streaming = False  # noqa: SLF001  # Hermes' own mark; it has no method for it
    # From 0.21 on an explicit stop has a method of its own, which nothing that Hermes masks can outlast.
    stop = getattr(agent, "hard_interrupt", None) or agent.interrupt
    stop()


def agent_of_session(agent: Any, session_id: str) -> Any | None:
    """Return the agent that is at work in a session: one itself or a subagent of it; None without one."""
    found = (one for one in _with_subagents(agent) if getattr(one, "session_id", None) == session_id)
    return next(found, None)


def _with_subagents(agent: Any) -> Iterator[Any]:
    yield agent
    for one in list(getattr(agent, "_active_children", ())):
        yield from _with_subagents(one)


def release_prompts(session_key: str) -> int:
    """Have nobody answer what a session waits for any more; returns how many prompts there were.

    An interrupted turn stays blocked on an open question, its worker and its lease with it, until the
    question is answered. The interrupt goes first: the other way round the model speaks once more.
    """
    from tools import clarify_gateway

    return int(clarify_gateway.clear_session(session_key)) + hermes_versions.withdraw_approvals(session_key)
