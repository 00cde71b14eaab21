"""Prompts of Hermes that nobody can answer: refused at once, so that no turn hangs on one.

Layer: hermes. Each prompt blocks a worker of Hermes; a refusal lets the turn go on and the model say
so. The title is what people see as a step that failed.
"""

from __future__ import annotations

from . import hermes_versions

TITLE_CHARS = 200
"""Characters of a step's title; longer prompts are cut."""


def refuse_clarify(clarify_id: str, question: str) -> str:
    """Answer a question with nothing; returns the title."""
    from tools.clarify_gateway import resolve_gateway_clarify

    resolve_gateway_clarify(clarify_id, "")
    return _title("Question nobody could be asked", question)


def refuse_approval(session_key: str, command: str, description: str | None) -> str:
    """Deny a command; returns the title.

    Exactly this command's request is denied where requests have IDs, else the oldest of the session.
    """
    waiting = hermes_versions.open_approvals(session_key)
    if waiting is None:
        hermes_versions.resolve_approval(session_key, "deny", None)
    else:
        for request_id in requests_of(waiting, command, description):
            if hermes_versions.resolve_approval(session_key, "deny", request_id):
                break
    return _title("Command not approved", command)


def requests_of(waiting: list[dict[str, object]], command: str, description: str | None) -> list[str]:
    """Return the IDs of the waiting requests that a prompt can stand for, the best match first.

    Args:
        waiting: What waits in the session, oldest first.
        command: The command that the prompt shows.
        description: Why Hermes asks.
    """
    same = [entry for entry in waiting if entry.get("command") == command]
    exact = [entry for entry in same if (entry.get("description") or None) == (description or None)]
    rest = [entry for entry in same if entry not in exact]
    return [str(entry["request_id"]) for entry in (*exact, *rest) if entry.get("request_id")]


async def refuse_confirm(session_key: str, confirm_id: str, title: str) -> str:
    """Cancel a command that wants a confirmation; returns the title. Hermes' reply goes nowhere."""
    from tools import slash_confirm

    await slash_confirm.resolve(session_key, confirm_id, "cancel")
    return _title("Not confirmed", title)


def _title(what: str, subject: str) -> str:
    line = next((text.strip() for text in subject.splitlines() if text.strip()), "")
    title = f"{what}: {line}" if line else what
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"
