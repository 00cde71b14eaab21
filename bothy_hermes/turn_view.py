"""What people see of a turn while it runs: box, messages, numbers.

Layer: flows. Takes what Hermes reports (`TurnEvents`) and turns it into changes of the live box, into
messages that are durable before Hermes hears of success, and into the numbers of the run's end.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from .defaults import LOGGER_NAME
from .live_box import LiveBox
from .message_split import split_message
from .plain_text import one_line
from .run_calls import message_call, update_call
from .run_cards import RunCards
from .run_followups import RunFollowups
from .run_outbox import RunOutbox
from .run_patches import Patcher
from .runtime import Prompt, PromptEnd, ToolEnd, TurnEnd, TurnEvents, TurnOutcome, Usage
from .services import Services
from .store import OutboxCall
from .wire import MAX_WHOLE_NUMBER, Cost, CreateMessage, Metrics, Part
from .wire_events import Invocation
from .wire_words import MessageKind, MessageRole, Reason

_ESCAPED = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")

_log = logging.getLogger(LOGGER_NAME)

EMPTY_ANSWER = "The agent ended its turn without an answer."
"""What people read when the model said nothing; a run never ends in silence."""

ESCAPED_CHARS = 100_000
"""Control characters that any message may hold: JSON writes six bytes for each, and two for a byte of any
other text at most, which makes 924 KB of the longest message; a body may have 1 MiB."""

ESCAPED_BYTES = 160_000
"""Longest message of a text with more of them: 960 KB if it holds nothing else."""

DEFAULT_CURRENCY = "USD"
"""Hermes prices models in this currency and states none with a request's usage."""


NAME_CHARS = 200
"""Characters of a provider's or a model's name in the costs: a model's is told by whoever answers."""


@dataclass(slots=True)
class _Sum:
    """Token counts and amount of one provider, model and currency; None until one is known.

    What cannot be a number of something is not known.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cache_read: int | None = None
    tokens_cache_write: int | None = None
    amount_micros: int | None = None

    def add(self, usage: Usage | _Sum) -> None:
        for name in ("tokens_in", "tokens_out", "tokens_cache_read", "tokens_cache_write", "amount_micros"):
            more = getattr(usage, name)
            if more is not None and 0 <= more <= MAX_WHOLE_NUMBER:
                setattr(self, name, (getattr(self, name) or 0) + more)


class TurnView(TurnEvents):
    """One turn as its run's people see it.

    Args:
        services: What the work needs.
        invocation: The run's invocation.
        box: The live box.
        outbox: Where messages go.
        patcher: Told when the box changed.
        followups: Told which texts the model was shown.
        cards: Shows what Hermes waits for.
        end_run: Ends the run as failed, for a reason.
    """

    def __init__(
        self,
        services: Services,
        invocation: Invocation,
        box: LiveBox,
        outbox: RunOutbox,
        patcher: Patcher,
        *,
        followups: RunFollowups,
        cards: RunCards,
        end_run: Callable[[Reason], None],
    ) -> None:
        self._services = services
        self._run_id = invocation.run.id
        self._trigger = invocation.message_id
        self._box = box
        self._outbox = outbox
        self._patcher = patcher
        self._followups = followups
        self._cards = cards
        self._end_run = end_run
        self._started_at = services.clock.monotonic()
        self._answered = False
        self._edits: dict[UUID, str] = {}
        self._split: set[UUID] = set()
        self._over = False
        self._requests = 0
        self._costs: dict[tuple[str, str, str], _Sum] = {}
        self.session_id: str | None = None
        """The Hermes session that the turn ran on, once Hermes said so."""
        self.notices: Counter[str] = Counter()
        """What Hermes posted and nobody should read, by kind."""

    # What Hermes reports --------------------------------------------------------------------------

    def on_status(self, text: str | None) -> None:
        """A step begins, or the sentence about it is cleared."""
        self._box.status(text)
        self._patcher.poke()

    def on_tool_end(self, end: ToolEnd) -> None:
        """A step ends."""
        self._box.tool_end(end)
        self._patcher.poke()

    def on_draft(self, text: str) -> None:
        """The excerpt follows the draft."""
        self._box.draft(text)
        self._patcher.poke_draft()

    async def on_interim(self, text: str) -> UUID:
        """Text before a tool call: a message of its own; a blank one says nothing."""
        if not text.strip():
            return self._services.clock.new_id()
        self._box.interim()
        self._patcher.poke()
        return await self._post(text, MessageRole.INTERIM)

    async def on_answer(self, text: str) -> UUID:
        """The answer; a blank one says nothing, and the run's end says so."""
        if not text.strip():
            return self._services.clock.new_id()
        self._answered = True
        self._box.answer()
        self._patcher.poke()
        return await self._post(text, MessageRole.ANSWER)

    def on_edit(self, message: UUID, text: str) -> None:
        """Hermes rewrote a text that was stored: the last version is sent once, at the end."""
        fits = len(text.encode("utf-8", "replace")) <= self._limit(text) and message not in self._split
        if not fits or not text.strip():
            _log.warning("run %s: a rewritten message does not fit and keeps its first text", self._run_id)
            return
        self._edits[message] = text

    def on_notice(self, kind: str) -> None:
        """Counted, never shown."""
        self.notices[kind] += 1
        _log.info("run %s: a notice of Hermes is not posted: %s", self._run_id, kind)

    def on_prompt(self, title: str) -> None:
        """Shown as a step that nobody could answer."""
        self._box.prompt(title)
        self._patcher.poke()

    async def on_card(self, prompt: Prompt) -> UUID:
        """A prompt that a person is to answer."""
        return await self._cards.show(prompt)

    def on_prompt_over(self, prompt: Prompt, end: PromptEnd) -> None:
        """A prompt that ended by itself."""
        self._cards.over(prompt, end)

    def on_text_seen(self, message_id: UUID) -> None:
        """A text of a person is absorbed."""
        self._followups.seen(message_id)

    def on_usage(self, usage: Usage) -> None:
        """Summed by provider, model and currency."""
        self._requests += 1
        provider, model = one_line(usage.provider, NAME_CHARS), one_line(usage.model, NAME_CHARS)
        key = (provider, model, usage.currency or DEFAULT_CURRENCY)
        self._costs.setdefault(key, _Sum()).add(usage)

    def on_session(self, session_id: str) -> None:
        """Remembered for the session's report."""
        self.session_id = session_id

    def on_money_refused(self) -> None:
        """The run may not spend so: it ends, whatever the turn comes to."""
        self._end_run(Reason.BILLING_MODE_MISMATCH)

    def remark(self, line: str | None) -> None:
        """Have people read a line beside the work; None says nothing."""
        if line is not None:
            self._box.note(line)
            self._patcher.poke()

    # The end --------------------------------------------------------------------------------------

    def turn_ended(self, end: TurnEnd) -> None:
        """Close what is still open in the box, and say in words why nothing came.

        Whatever a turn says from then on that Hermes has not let go of is said to nobody.
        """
        self._over = True
        if end.outcome is TurnOutcome.FAILED:
            self._box.note(f"Hermes could not finish the turn ({end.detail or 'no reason given'}).")
        self._box.end(failed=end.outcome not in (TurnOutcome.COMPLETED, TurnOutcome.EMPTY))
        self._patcher.poke()

    def closing_message(self) -> CreateMessage | None:
        """The line for a completed turn in which nothing was said; None when something was."""
        return None if self._answered else self._message(EMPTY_ANSWER, MessageRole.ANSWER, None)

    def edits(self) -> list[OutboxCall]:
        """The last versions of what Hermes rewrote after it was stored."""
        return [update_call(self._run_id, str(message), text) for message, text in self._edits.items()]

    def metrics(self) -> Metrics:
        """What the turn took; a token count nobody stated stays unknown."""
        total = _Sum()
        for part in self._costs.values():
            total.add(part)
        return Metrics(
            duration_ms=int((self._services.clock.monotonic() - self._started_at) * 1000),
            model_requests=self._requests,
            tokens_in=total.tokens_in,
            tokens_out=total.tokens_out,
            tokens_cache_read=total.tokens_cache_read,
            tokens_cache_write=total.tokens_cache_write,
        )

    def costs(self) -> tuple[Cost, ...]:
        """One row per provider, model and currency."""
        return tuple(
            Cost(
                provider=provider,
                model=model,
                currency=currency,
                tokens_in=part.tokens_in,
                tokens_out=part.tokens_out,
                tokens_cache_read=part.tokens_cache_read,
                tokens_cache_write=part.tokens_cache_write,
                amount_micros=part.amount_micros,
                estimated=part.amount_micros is not None,
            )
            for (provider, model, currency), part in self._costs.items()
        )

    # Messages -------------------------------------------------------------------------------------

    async def _post(self, text: str, role: MessageRole) -> UUID:
        """Store a text as one message or as several parts; durable when this returns."""
        if self._over:
            _log.info("run %s: a text that came after the turn's end is not posted", self._run_id)
            return self._services.clock.new_id()
        parts = split_message(text, self._limit(text))
        messages = [
            self._message(
                part,
                role,
                Part(index=index, last=index == len(parts) - 1) if len(parts) > 1 else None,
            )
            for index, part in enumerate(parts)
        ]
        taken_up = self._followups.absorbed_changes() if role is MessageRole.ANSWER else ()
        await self._outbox.put(*(message_call(self._run_id, message) for message in messages), *taken_up)
        first = UUID(messages[0].client_msg_id)
        if len(messages) > 1:
            self._split.add(first)
        return first

    def _limit(self, text: str) -> int:
        """The most bytes of a message of this text: its request must be within the body's limit as well."""
        limit = min(self._services.settings.max_message_bytes, self._services.limits().max_content_bytes)
        if len(_ESCAPED.findall(text)) <= ESCAPED_CHARS:
            return limit
        return min(limit, ESCAPED_BYTES)

    def _message(self, text: str, role: MessageRole, part: Part | None) -> CreateMessage:
        return CreateMessage(
            client_msg_id=str(self._services.clock.new_id()),
            kind=MessageKind.TEXT,
            role=role,
            content=text,
            reply_to=self._trigger if role is MessageRole.ANSWER else None,
            part=part,
        )
