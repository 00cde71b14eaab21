"""Which turn is at work in which thread, and where each callback of Hermes goes.

Layer: hermes. Gives what Hermes tells, on the loop or on its own threads, to the turn it belongs to;
what belongs to none is dropped and counted by kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from .clock import Clock
from .defaults import LOGGER_NAME
from .hermes_turn import ActiveTurn
from .turn import Notice
from .turn_facts import Fact, Payee

_log = logging.getLogger(LOGGER_NAME)

REFUSED = "Bothy takes the words of a run in its own thread, and nothing else"
"""What Hermes is told about a text that is delivered nowhere although somebody counts on it; no words
in it by which Hermes would take the chat for gone, or try once more."""


SCHEDULE_MARK = "job_id"
"""What Hermes puts into the marks of a text that a schedule delivers."""


class ThreadTurns:
    """The turns at work; made on the adapter's loop.

    Args:
        clock: Makes the IDs of previews.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._turns: dict[UUID, ActiveTurn] = {}
        self.dropped: Counter[str] = Counter()
        """What was posted nowhere, by kind."""

    # Which turns there are.

    def __iter__(self) -> Iterator[ActiveTurn]:
        """Every turn at work."""
        return iter(list(self._turns.values()))

    def __contains__(self, thread_id: UUID) -> bool:
        """Whether a turn is at work in a thread."""
        return thread_id in self._turns

    def add(self, active: ActiveTurn) -> None:
        """A turn begins."""
        active.count = self.drop
        self._turns[active.request.thread_id] = active

    def forget(self, active: ActiveTurn) -> None:
        """A turn is over."""
        if self._turns.get(active.request.thread_id) is active:
            del self._turns[active.request.thread_id]

    def of_run(self, run_id: UUID) -> ActiveTurn | None:
        """The turn of a run."""
        return next((active for active in self if active.request.run_id == run_id), None)

    def of_thread(self, thread_id: UUID) -> ActiveTurn | None:
        """The turn at work in a thread; on whatever thread."""
        return self._turns.get(thread_id)

    def of_message(self, message_id: str | None) -> ActiveTurn | None:
        """The turn that a message has begun."""
        return next((active for active in self if str(active.request.message_id) == message_id), None)

    def at(self, chat_id: str, metadata: Mapping[str, Any] | None) -> ActiveTurn | None:
        """The turn that a callback's address means, None when no turn is at work there."""
        thread = _thread_in(metadata)
        active = self._turns.get(thread) if thread is not None else None
        return active if active is not None and str(active.request.channel_id) == chat_id else None

    # What Hermes tells on its own threads.

    def hear(self, thread_id: UUID, fact: Fact) -> None:
        """Take a fact from a hook, on whatever thread."""
        self._hop(self._take, thread_id, fact)

    def hear_status(self, thread_id: UUID | None, text: str | None) -> None:
        """Take a status sentence, on whatever thread."""
        if thread_id is not None:
            self._hop(self._take_status, thread_id, text)

    def admit(self, active: ActiveTurn, payee: Payee) -> bool:
        """Tell whether a model request of a turn may leave, for whatever thread is about to send it."""
        if active.admits(payee):
            return True
        self._hop(active.money_refused)
        return False

    def held(self, thread_id: UUID) -> Mapping[UUID, str]:
        """Texts of a thread that the model was not shown yet, for whatever thread looks for them."""
        active = self._turns.get(thread_id)
        return active.held if active is not None else {}

    def _hop(self, call: Callable[..., None], *values: Any) -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *values)

    def _take(self, thread_id: UUID, fact: Fact) -> None:
        active = self._turns.get(thread_id)
        if active is not None:
            active.take(fact)

    def _take_status(self, thread_id: UUID, text: str | None) -> None:
        active = self._turns.get(thread_id)
        if active is not None:
            active.status(text)

    # What Hermes tells on the loop.

    def processing_started(self, message_id: str | None) -> None:
        """Hermes began with a message."""
        active = self.of_message(message_id)
        if active is not None:
            active.started.set()

    def processing_complete(self, message_id: str | None, *, cancelled: bool) -> ActiveTurn | None:
        """Hermes is done with a message; what that means is the judge's to say. Returns its turn."""
        active = self.of_message(message_id)
        if active is not None:
            if cancelled:
                active.cancel()
            active.finish()
        return active

    async def sent(
        self,
        chat_id: str,
        text: str,
        reply_to: str | None,
        metadata: Mapping[str, Any] | None,
        *,
        speaker: UUID | None = None,
    ) -> tuple[str | None, bool]:
        """Take a text that Hermes sends.

        Args:
            chat_id: The chat.
            text: The text.
            reply_to: The message it replies to.
            metadata: Hermes' marks.
            speaker: The thread of the turn that sends it, None outside of one of ours.

        Returns:
            The message ID for Hermes, None when the text was dropped; and whether it was refused: a text
            for another thread than the turn's own, one of a schedule, or one that nothing asked for.
        """
        await self._heard()
        target, marks = _thread_in(metadata), metadata or {}
        active = self.at(chat_id, metadata)
        if speaker is not None and speaker != target:
            self.drop(Notice.OTHER_THREAD)
            return None, True
        if SCHEDULE_MARK in marks:
            # Marked as a reply too: it would pass for a turn's word, or be counted on as delivered.
            self.drop(Notice.SCHEDULED)
            return None, True
        if active is None:
            self.drop(Notice.NO_TURN if target else Notice.UNKNOWN_CHAT)
            return None, not (marks.get("notify") or marks.get("expect_edits") or reply_to)
        message_id, notice = await active.sent(
            text,
            str(self._clock.new_id()),
            notify=marks.get("notify") is True,
            reply_to=reply_to,
            edits=marks.get("expect_edits") is True,
        )
        if notice is Notice.TURN_OVER:
            self.drop(notice, active.request.run_id)
        # Hermes' own words about a turn look like a text that somebody else sends into its thread.
        return message_id, notice is Notice.UNMARKED

    async def file(
        self, chat_id: str, name: str, metadata: Mapping[str, Any] | None, *, speaker: UUID | None
    ) -> bool:
        """Take a file that Hermes sends; returns whether it is one of an active turn, which then names it.

        Args:
            chat_id: The chat.
            name: The file's name.
            metadata: Hermes' marks.
            speaker: The thread of the turn that sends it, None outside of one of ours.
        """
        active = self.at(chat_id, metadata)
        if active is not None and active.request.thread_id != speaker:
            active = None
        self.drop(Notice.FILE, active.request.run_id if active is not None else None)
        if active is None:
            return False
        await active.file(name)
        return True

    async def edited(
        self, chat_id: str, message_id: str, text: str, metadata: Mapping[str, Any] | None, *, finalize: bool
    ) -> bool:
        """Take an edit; returns whether it was one of a message of an active turn.

        An expired card is edited without the thread: its message alone says whose it is.
        """
        await self._heard()
        active = self.at(chat_id, metadata) or next(
            (one for one in self if one.prompts.of_message(message_id) is not None), None
        )
        return active is not None and await active.edited(message_id, text, finalize=finalize)

    async def _heard(self) -> None:
        """Let what hooks have told be taken first: it waits behind whatever the loop was at just now.

        Hermes sends a text from the loop, about which its own threads have told before.
        """
        await asyncio.sleep(0)

    def drop(self, kind: Notice, run_id: UUID | None = None) -> None:
        """Count what is posted nowhere, by kind; the text goes unsaid."""
        self.dropped[kind.value] += 1
        _log.info("dropped a text of Hermes: %s (run %s)", kind.value, run_id)


def _thread_in(metadata: Mapping[str, Any] | None) -> UUID | None:
    try:
        return UUID(str((metadata or {}).get("thread_id")))
    except ValueError:
        return None
