"""The commands that the adapter itself gives Hermes.

Layer: hermes. Each is an event of the control sender, internal, so that neither a list of allowed
users nor a person's text can stand in its way; Hermes' reply to it is known by its message ID and
never shown.
"""

from __future__ import annotations

from typing import Any

from . import hermes_versions


def stop_event(source: Any, message_id: str) -> Any:
    """Build the command that interrupts the turn of a thread.

    Args:
        source: The thread's source, with the control sender as its user.
        message_id: The ID by which the reply is known.
    """
    return hermes_versions.control_event(text="/stop", source=source, message_id=message_id)


def release_clarifies(session_key: str) -> int:
    """Answer every open question of a session with nothing; returns how many there were.

    An interrupted turn stays blocked on an open question, its worker and its lease with it, until the
    question is answered. The interrupt goes first: the other way round the model speaks once more.
    """
    from tools import clarify_gateway

    released = 0
    while (
        entry := clarify_gateway.get_pending_for_session(session_key, include_choice_prompts=True)
    ) is not None:
        if not clarify_gateway.resolve_gateway_clarify(entry.clarify_id, ""):
            break
        released += 1
    return released
