"""The methods with which Hermes asks people: questions, leave to run a command, confirmations.

Layer: hermes. A part of the platform class. Each shows the prompt in the run whose turn asks and
answers Hermes as soon as the card is durable; a prompt without a run is refused at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.platforms.base import BasePlatformAdapter, SendResult

from . import hermes_prompts, hermes_versions
from .hermes_runtime import HermesRuntime
from .runtime import Prompt, PromptEnd, PromptKind

APPROVAL_CHOICES = ("once", "session", "always", "deny")
"""Hermes' choices for a command, in the order of its own cards."""


class AsksPeople:
    """Hermes' questions to people."""

    _bothy: HermesRuntime | None

    async def send_clarify(  # noqa: PLR0917  # Hermes' signature
        self,
        chat_id: str,
        question: str,
        choices: list[str] | None,
        clarify_id: str,
        session_key: str,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Ask a question."""
        prompt = hermes_prompts.clarify(clarify_id, session_key, question, choices)
        return await self._ask(prompt, chat_id, metadata)

    async def retire_clarify_card(self, clarify_id: str, notice: str) -> None:  # noqa: ARG002  # Hermes' signature
        """Hermes waits for an answer no longer."""
        for active in self._bothy.threads if self._bothy is not None else ():
            active.prompt_over(active.prompts.find(PromptKind.CLARIFY, clarify_id), PromptEnd.EXPIRED)

    async def _send_exec_approval_prompt(self, prompt: Any) -> Any:
        """Ask for leave to run a command; Hermes asks here only because the class has this method."""
        return await self._ask_approval(
            prompt.chat_id,
            prompt.session_key,
            (prompt.command, prompt.description),
            [choice for _, choice, *_ in prompt.actions],
            prompt.metadata,
        )

    if not hermes_versions.asks_with_prompt(BasePlatformAdapter):

        async def send_exec_approval(  # noqa: PLR0917  # Hermes' signature
            self,
            chat_id: str,
            command: str,
            session_key: str,
            description: str | None = None,
            metadata: dict[str, Any] | None = None,
            allow_permanent: bool = True,
            allow_session: bool = True,
            smart_denied: bool = False,
            **_more: Any,
        ) -> Any:
            """Ask for leave to run a command, where Hermes asks without a prompt object (0.19, 0.20)."""
            session = allow_session and not smart_denied
            offered = {"once": True, "session": session, "always": session and allow_permanent, "deny": True}
            choices = [choice for choice in APPROVAL_CHOICES if offered[choice]]
            return await self._ask_approval(chat_id, session_key, (command, description), choices, metadata)

    async def _ask_approval(
        self,
        chat_id: str,
        session_key: str,
        what: tuple[str, str | None],
        choices: list[str],
        metadata: Mapping[str, Any] | None,
    ) -> Any:
        active = self._bothy.threads.at(str(chat_id), metadata) if self._bothy is not None else None
        shown = active.prompts.approval_ids() if active is not None else frozenset()
        return await self._ask(hermes_prompts.approval(session_key, *what, choices, shown), chat_id, metadata)

    async def send_slash_confirm(  # noqa: PLR0917  # Hermes' signature
        self,
        chat_id: str,
        title: str,
        message: str,
        session_key: str,
        confirm_id: str,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Ask for a confirmation; that of a command of the adapter's own is given at once."""
        prompt = hermes_prompts.confirmation(confirm_id, session_key, title, message)
        if self._bothy is not None and self._bothy.is_own_command(session_key):
            await hermes_prompts.resolve(prompt, "once")
            return SendResult(success=True)
        return await self._ask(prompt, chat_id, metadata)

    async def _ask(self, prompt: Prompt, chat_id: str, metadata: Mapping[str, Any] | None) -> Any:
        """Show a prompt, or refuse it. Always a success: Hermes would post a failed one as a text."""
        active = self._bothy.threads.at(str(chat_id), metadata) if self._bothy is not None else None
        message = await active.ask(prompt) if active is not None and prompt.hermes_id else None
        if message is None:
            title = await hermes_prompts.refuse(prompt)
            if active is not None:
                active.prompt(title)
        return SendResult(success=True, message_id=message)
