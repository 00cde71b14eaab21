"""Prompts of Hermes: what it waits for as values of ours, and its own resolvers.

Layer: hermes. A prompt is resolved by Hermes' own ID of it and by nothing else. What nobody can be
asked is refused at once, because each prompt blocks a worker of Hermes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from . import hermes_versions
from .runtime import Prompt, PromptKind

TITLE_CHARS = 200
"""Characters of a step's title; longer prompts are cut."""

REFUSALS: Mapping[PromptKind, tuple[str, str]] = {
    PromptKind.CLARIFY: ("", "Question nobody could be asked"),
    PromptKind.APPROVAL: ("deny", "Command not approved"),
    PromptKind.CONFIRMATION: ("cancel", "Not confirmed"),
}
"""What Hermes is told when nobody can be asked, and what people read about it."""

CONFIRMATION_CHOICES = ("once", "always", "cancel")
"""Hermes' choices for a command that destroys something."""


class TurnPrompts:
    """The prompts of one turn that Hermes waits on."""

    def __init__(self) -> None:
        self._open: dict[tuple[PromptKind, str], Prompt] = {}
        self._messages: dict[str, Prompt] = {}

    def __iter__(self) -> Iterator[Prompt]:
        """Every open prompt, the oldest first."""
        return iter(list(self._open.values()))

    def add(self, prompt: Prompt) -> None:
        """Hermes waits for a prompt."""
        self._open[prompt.kind, prompt.hermes_id] = prompt

    def shown(self, prompt: Prompt, message: str) -> None:
        """A prompt is shown as a message."""
        self._messages[message] = prompt

    def take(self, prompt: Prompt) -> bool:
        """Hermes waits no longer, or is about to be answered; returns whether it was still open."""
        return self._open.pop((prompt.kind, prompt.hermes_id), None) is not None

    def of_message(self, message: str) -> Prompt | None:
        """The prompt that a message shows."""
        return self._messages.get(message)

    def find(self, kind: PromptKind, hermes_id: str) -> Prompt | None:
        """The open prompt with an ID."""
        return self._open.get((kind, hermes_id))

    def approval_ids(self) -> frozenset[str]:
        """Hermes' IDs of the approvals that are shown."""
        return frozenset(hermes_id for kind, hermes_id in self._open if kind is PromptKind.APPROVAL)

    def approvals_gone(self) -> list[Prompt]:
        """The approvals that Hermes holds no longer."""
        return [prompt for prompt in self if prompt.kind is PromptKind.APPROVAL and not _still_waits(prompt)]


def _still_waits(prompt: Prompt) -> bool:
    waiting = hermes_versions.open_approvals(prompt.session_key) or ()
    return any(entry.get("request_id") == prompt.hermes_id for entry in waiting)


# What Hermes asks ---------------------------------------------------------------------------------


def clarify(clarify_id: str, session_key: str, question: str, choices: Sequence[str] | None) -> Prompt:
    """A question, with Hermes' own words for each answer."""
    return Prompt(
        PromptKind.CLARIFY,
        hermes_id=clarify_id,
        session_key=session_key,
        question=question,
        choices=tuple(str(choice) for choice in choices or ()),
    )


def approval(
    session_key: str, command: str, description: str | None, choices: Sequence[str], shown: Collection[str]
) -> Prompt:
    """Leave to run a command, by the ID of the request that Hermes shows with it.

    Args:
        session_key: Where Hermes keeps the request waiting.
        command: The command as the prompt shows it.
        description: Why Hermes asks.
        choices: Hermes' words of what it offers.
        shown: The requests that have a card already. Two prompts can be under way before either call
            is made, so neither the oldest nor the youngest request is the one that is meant.

    Returns:
        The prompt; its ID is empty when no request fits, and no answer reaches one then.
    """
    fitting = requests_of(hermes_versions.open_approvals(session_key) or [], command, description)
    return Prompt(
        PromptKind.APPROVAL,
        hermes_id=next((one for one in fitting if one not in shown), ""),
        session_key=session_key,
        question=description or "",
        choices=tuple(choices),
        command=command,
    )


def requests_of(waiting: list[dict[str, Any]], command: str, description: str | None) -> list[str]:
    """Return the IDs of the waiting requests that a prompt can stand for, the best match first.

    Args:
        waiting: What waits in the session, oldest first.
        command: The command that the prompt shows: secrets are taken out of it once more.
        description: Why Hermes asks.
    """
    same = [entry for entry in waiting if command in _shown_commands(entry)]
    same.sort(key=lambda entry: (entry.get("description") or None) != (description or None))
    return [str(entry["request_id"]) for entry in same if entry.get("request_id")]


def _shown_commands(entry: Mapping[str, Any]) -> tuple[str, str]:
    command = str(entry.get("command") or "")
    return command, hermes_versions.shown_command(command)


def confirmation(confirm_id: str, session_key: str, title: str, message: str) -> Prompt:
    """A yes to a command of Hermes that destroys something."""
    return Prompt(
        PromptKind.CONFIRMATION,
        hermes_id=confirm_id,
        session_key=session_key,
        question=message,
        choices=CONFIRMATION_CHOICES,
        title=title,
    )


# What Hermes is answered --------------------------------------------------------------------------


async def resolve(prompt: Prompt, answer: str) -> bool:
    """Answer a prompt; returns whether this call did, False when nothing waits under its ID.

    Args:
        prompt: The prompt.
        answer: A clarify's answer in full, or Hermes' word of a choice.
    """
    if prompt.kind is PromptKind.CLARIFY:
        return _resolve_clarify(prompt.hermes_id, answer)
    if prompt.kind is PromptKind.APPROVAL:
        known = bool(prompt.hermes_id)
        return known and hermes_versions.resolve_approval(prompt.session_key, answer, prompt.hermes_id)
    return await _resolve_confirmation(prompt, answer)


def _resolve_clarify(clarify_id: str, answer: str) -> bool:
    from tools import clarify_gateway

    entry = clarify_gateway._entries.get(clarify_id)  # noqa: SLF001  # Hermes' own adapters look there too
    if answer and getattr(entry, "multi_select", False):
        # Several answers are a list; one that holds a comma would be taken for two.
        answer = json.dumps([answer], ensure_ascii=False)
    return bool(clarify_gateway.resolve_gateway_clarify(clarify_id, answer))


async def _resolve_confirmation(prompt: Prompt, choice: str) -> bool:
    from tools import slash_confirm

    pending = slash_confirm.get_pending(prompt.session_key)
    if pending is None or str(pending.get("confirm_id")) != prompt.hermes_id:
        return False
    # The reply is Hermes' own word about its command: nobody reads it.
    await slash_confirm.resolve(prompt.session_key, prompt.hermes_id, choice)
    return True


async def refuse(prompt: Prompt) -> str:
    """Answer what nobody can be asked; returns the title of a step that failed."""
    answer, what = REFUSALS[prompt.kind]
    await resolve(prompt, answer)
    subject = prompt.command if prompt.kind is PromptKind.APPROVAL else prompt.title or prompt.question
    return _title(what, subject or "")


def _title(what: str, subject: str) -> str:
    line = next((text.strip() for text in subject.splitlines() if text.strip()), "")
    title = f"{what}: {line}" if line else what
    return title if len(title) <= TITLE_CHARS else f"{title[: TITLE_CHARS - 1]}…"
