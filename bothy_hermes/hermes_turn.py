"""One turn at work: what Hermes says about it, turned into `TurnEvents`.

Layer: hermes. Runs on the adapter's loop only and imports nothing of Hermes. The judge decides, this
module does: it keeps previews until Hermes has finished them, pairs the ends of tools with the
sentences they were opened with, and knows when nothing more is to come.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from uuid import UUID

from . import hermes_versions
from .defaults import LOGGER_NAME
from .runtime import ToolEnd, TurnEnd, TurnEvents, TurnOutcome, TurnRequest
from .turn import (
    Asked,
    Fact,
    Notice,
    Owner,
    Replied,
    TextKind,
    ToolReturned,
    ToolSentence,
    TurnJudge,
    Verdict,
)

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
    """

    def __init__(self, request: TurnRequest, events: TurnEvents, cursor: str) -> None:
        self.request = request
        self.judge = TurnJudge(frozenset({str(request.message_id)}))
        self.started = asyncio.Event()
        self.processed = asyncio.Event()
        self.over = asyncio.Event()
        self.reachable = asyncio.Event()
        self._events: TurnEvents | None = events
        self._cursor = cursor
        self._not_stored = False
        self._previews: dict[str, _Preview] = {}
        self._stored: set[str] = set()
        self._announced: list[ToolSentence] = []
        self._open: list[tuple[str, str]] = []
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
        self.reachable.set()

    # What hooks say.

    def take(self, fact: Fact) -> None:
        """Take one hook in."""
        owner = self.judge.take(fact)
        if owner is Owner.STRANGER:
            return
        if isinstance(fact, Replied):
            self._take_reply(fact, owner)
        elif owner is Owner.CHILD:
            return
        elif isinstance(fact, Asked):
            self._take_asked()
        elif isinstance(fact, ToolReturned):
            self._take_tool(fact)
        if self.judge.over:
            self.over.set()

    def _take_asked(self) -> None:
        self.over.clear()
        self.reachable.set()
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

    async def edited(self, message_id: str, text: str, *, finalize: bool) -> bool:
        """Take an edit; returns whether the message is one of this turn's."""
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
