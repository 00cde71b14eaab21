"""One turn at work: what Hermes says about it, turned into `TurnEvents`.

Layer: hermes. Runs on the adapter's loop only and imports nothing of Hermes. The judge decides, this
module does: it keeps previews until Hermes has finished them, pairs the ends of tools with the
sentences they were opened with, and knows when nothing more is to come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from . import hermes_versions
from .defaults import LOGGER_NAME
from .errors import describe
from .hermes_gate import RequestGate
from .hermes_prompts import TurnPrompts
from .runtime import Prompt, PromptEnd, ToolEnd, TurnEnd, TurnEvents, TurnOutcome, TurnRequest
from .turn import Notice, Owner, TextKind, TurnJudge, Verdict
from .turn_facts import ApprovalOver, Asked, Fact, Payee, Replied, Requested, ToolReturned, ToolSentence

_log = logging.getLogger(LOGGER_NAME)


@dataclass(slots=True)
class _Preview:
    """A message that Hermes goes on editing; `message` is ours once the text was final."""

    text: str
    message: UUID | None = None
    dropped: bool = False


class ActiveTurn:
    """The turn of one run, from the message that Hermes took to the last word about it.

    Args:
        request: What was asked of Hermes.
        events: Who is told.
        cursor: What Hermes puts behind an unfinished text.
        session_id: The session that the thread has before the turn, None when the turn makes one.
        gate: Judges the turn's model requests; without one none may leave.
    """

    def __init__(
        self,
        request: TurnRequest,
        events: TurnEvents,
        cursor: str,
        session_id: str | None = None,
        gate: RequestGate | None = None,
    ) -> None:
        self.request = request
        self.judge = TurnJudge(frozenset({str(request.message_id)}), session_id)
        self.started = asyncio.Event()
        self.processed = asyncio.Event()
        self.over = asyncio.Event()
        self.prompts = TurnPrompts()
        self.agent: Any = None
        self.count: Callable[[Notice, UUID | None], None] = lambda _kind, _run: None
        """Told the kind of what is posted nowhere; set by who keeps the count."""
        self._events: TurnEvents | None = events
        self._cursor = cursor
        self._gate = gate
        self._not_stored = False
        self._previews: dict[str, _Preview] = {}
        self._stored: set[str] = set()
        self._announced: list[ToolSentence] = []
        self._open: list[tuple[str, str]] = []
        self._held: Mapping[UUID, str] = {}
        self._session: str | None = None

    @property
    def told(self) -> bool:
        """Whether anybody is still told about the turn."""
        return self._events is not None

    def silence(self) -> None:
        """Tell nobody any more: the run is over, the turn in Hermes perhaps not yet."""
        self._events = None

    def cancel(self) -> None:
        """Remember that the turn was interrupted."""
        self.judge.cancelled = True

    def finish(self) -> None:
        """Hermes is done with the message."""
        self.processed.set()

    # Whom model requests pay.

    def covers(self, payee: Payee) -> bool:
        """Tell whether the turn may pay somebody; may block."""
        return self._gate is not None and self._gate.covers(payee)

    def admits(self, payee: Payee) -> bool:
        """Tell whether a model request may leave; on the thread that is about to send it."""
        return self._gate is not None and self._gate.admits(payee)

    def money_refused(self) -> None:
        """A model request was stopped: the turn is interrupted, and the run is told why."""
        self.cancel()
        if self._events is not None:
            self._events.on_money_refused()

    # What hooks say.

    def take(self, fact: Fact) -> None:
        """Take one hook in."""
        owner = self.judge.take(fact)
        if owner is Owner.STRANGER:
            return
        if isinstance(fact, Asked | Requested):
            self._take_seen(fact.seen)
        if isinstance(fact, Replied):
            self._take_reply(fact, owner)
        elif owner is Owner.MAIN:
            self._take_own(fact)

    def _take_own(self, fact: Fact) -> None:
        if isinstance(fact, Asked):
            self.over.clear()
        elif isinstance(fact, ToolReturned):
            self._take_tool(fact)
        elif isinstance(fact, ApprovalOver):
            self._take_approval_over(fact)
        self._tell_session()
        if self.judge.over:
            self.over.set()

    def _tell_session(self) -> None:
        session = self.judge.session_id
        if session is not None and session != self._session and self._events is not None:
            self._session = session
            self._events.on_session(session)

    def _take_reply(self, reply: Replied, owner: Owner) -> None:
        if owner is Owner.MAIN:
            self._announced = list(reply.tools)
        if reply.usage is not None and self._events is not None:
            self._events.on_usage(reply.usage)

    def _take_tool(self, fact: ToolReturned) -> None:
        title = self._close(fact.call) or fact.call.tool or None
        if self._events is not None:
            self._events.on_tool_end(ToolEnd(title, fact.failed))

    def _close(self, call: ToolSentence) -> str | None:
        """Return the sentence that the step of this call was opened with."""
        for index, (raw, shown) in enumerate(self._open):
            if raw in call.sentences:
                del self._open[index]
                return shown
        return None

    # Texts that people wrote meanwhile.

    @property
    def held(self) -> Mapping[UUID, str]:
        """Texts that were handed in and that the model was not shown yet, by their messages."""
        return self._held

    def hold(self, message_id: UUID, text: str, agent: Any) -> None:
        """A text is about to be handed in; from now on it is looked for in what the model is shown.

        Args:
            message_id: The text's message.
            text: The text.
            agent: Hermes' agent that takes it, the only one that can be made to give it back.
        """
        self.judge.add_message(str(message_id))
        self.agent = agent
        # Hooks read it on their own threads: a new mapping each time, never a changed one.
        self._held = {**self._held, message_id: text}

    def _take_seen(self, seen: tuple[UUID, ...]) -> None:
        for message_id in seen:
            if message_id in self._held and self._events is not None:
                self._held = {key: text for key, text in self._held.items() if key != message_id}
                self._events.on_text_seen(message_id)

    # What Hermes asks people.

    async def ask(self, prompt: Prompt) -> str | None:
        """Show a prompt; returns the card's message ID, None when nobody can be asked."""
        if self._events is None or self.judge.cancelled:
            return None
        self.prompts.add(prompt)
        try:
            message = str(await self._events.on_card(prompt))
        except Exception as error:  # noqa: BLE001  # a failure told to Hermes would post the prompt as a text
            _log.error("run %s: a card could not be stored (%s)", self.request.run_id, describe(error))
            self.prompts.take(prompt)
            return None
        self.prompts.shown(prompt, message)
        return message

    def prompt_over(self, prompt: Prompt | None, end: PromptEnd) -> None:
        """Hermes waits no longer for a prompt; nothing when it was answered or is none of ours."""
        if prompt is not None and self.prompts.take(prompt) and self._events is not None:
            self._events.on_prompt_over(prompt, PromptEnd.CANCELLED if self.judge.cancelled else end)

    def _take_approval_over(self, fact: ApprovalOver) -> None:
        for prompt in self.prompts.approvals_gone():
            self.prompt_over(prompt, PromptEnd.EXPIRED if fact.timed_out else PromptEnd.CANCELLED)

    # What callbacks say.

    def status(self, raw: str | None) -> None:
        """Hermes set or cleared the sentence about a tool at work."""
        if raw is None:
            shown = None
        else:
            shown = hermes_versions.readable_sentence(raw, self._announced_tool(raw))
            self._open.append((raw, shown))
        if self._events is not None:
            self._events.on_status(shown)

    def _announced_tool(self, raw: str) -> str | None:
        for index, call in enumerate(self._announced):
            if raw in call.sentences:
                del self._announced[index]
                return call.tool
        return None

    def draft(self, text: str) -> None:
        """Hermes showed the text of the current segment so far."""
        if self._events is not None:
            # A segment after a tool starts with empty lines, which belong to no message.
            self._events.on_draft(self._without_cursor(text).lstrip("\n"))

    def prompt(self, title: str) -> None:
        """Hermes asked for something; it was refused."""
        if self._events is not None:
            self._events.on_prompt(title)

    def notice(self, kind: Notice) -> None:
        """Something was dropped."""
        if self._events is not None:
            self._events.on_notice(kind.value)
            self.count(kind, self.request.run_id)

    async def sent(
        self, text: str, new_id: str, *, notify: bool, reply_to: str | None, edits: bool
    ) -> tuple[str | None, Notice | None]:
        """Take a text that Hermes sends into the thread.

        Args:
            text: The text.
            new_id: The ID a preview gets until it is a message.
            notify: Hermes' mark of a reply.
            reply_to: The message it replies to.
            edits: Hermes will go on editing it.

        Returns:
            The message ID for Hermes, and the kind when it was dropped.
        """
        if self._events is None:
            return None, Notice.TURN_OVER
        verdict = self.judge.judge_text(text, notify=notify, reply_to=reply_to, expect_edits=edits)
        if verdict.kind is TextKind.PREVIEW:
            self._previews[new_id] = _Preview(text)
            self.draft(text)
            return new_id, None
        message = await self._store(verdict, self._without_cursor(text))
        return (str(message) if message else None), verdict.notice

    async def file(self, name: str) -> None:
        """Hermes sends a file of the answer: a line names it."""
        if self._events is not None and self.judge.take_file():
            await self._store(Verdict(TextKind.ANSWER), f"not sent: {name}")

    async def edited(self, message_id: str, text: str, *, finalize: bool) -> bool:
        """Take an edit; returns whether the message is one of this turn's.

        A card is edited for one reason: nobody answered it in Hermes' time.
        """
        card = self.prompts.of_message(message_id)
        if card is not None:
            self.prompt_over(card, PromptEnd.EXPIRED)
            return True
        preview = self._previews.get(message_id)
        if preview is None:
            return self._edit_stored(message_id, text, finalize=finalize)
        preview.text = text
        if finalize:
            await self._finish(preview)
        elif preview.message is None and not preview.dropped:
            self.draft(text)
        return True

    def _edit_stored(self, message_id: str, text: str, *, finalize: bool) -> bool:
        if message_id not in self._stored:
            return False
        if self._events is not None and finalize:
            self._events.on_edit(UUID(message_id), self._without_cursor(text))
        return True

    async def flush(self) -> None:
        """Store previews that Hermes left unfinished although the model had finished."""
        for preview in self._previews.values():
            if preview.message is None and not preview.dropped:
                await self._finish(preview)

    async def _finish(self, preview: _Preview) -> None:
        text = self._without_cursor(preview.text)
        if preview.message is not None:
            if self._events is not None:
                self._events.on_edit(preview.message, text)
            return
        verdict = self.judge.judge_whole(text)
        preview.message = await self._store(verdict, text)
        preview.dropped = preview.message is None

    async def _store(self, verdict: Verdict, text: str) -> UUID | None:
        if self._events is None:
            return None
        if verdict.notice is not None:
            self.notice(verdict.notice)
            return None
        try:
            # Before 0.21 Hermes sends texts as the model wrote them, with empty lines around.
            text = text.strip("\n").rstrip()
            if verdict.kind is TextKind.INTERIM:
                message = await self._events.on_interim(text)
            else:
                message = await self._events.on_answer(text)
        except Exception as error:  # noqa: BLE001  # a failure told to Hermes would double the message
            self._not_stored = True
            _log.error(  # a traceback could show the text
                "run %s: a text could not be stored (%s)", self.request.run_id, type(error).__name__
            )
            return None
        self._stored.add(str(message))
        return message

    def _without_cursor(self, text: str) -> str:
        return text.removesuffix(self._cursor) if self._cursor else text

    def end(self, not_taken: str) -> TurnEnd:
        """Say how the turn ended."""
        end = self.judge.end(not_taken)
        if self._not_stored and end.outcome is TurnOutcome.COMPLETED:
            return TurnEnd(TurnOutcome.FAILED, "not_stored")
        return end
