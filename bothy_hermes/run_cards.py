"""The cards of one run: shown, answered exactly once, and never left usable for nobody.

Layer: flows. Three steps answer a card (claim it, resolve the prompt in Hermes, answer the person), and
what is on disk says after a crash which one was reached. A card whose prompt Hermes has given up is
closed; one that people cannot be shown is withdrawn, and Hermes gets the answer nobody gave. What a
card looks like and what a click means is `cards`' subject.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any
from uuid import UUID

from .bothy_credentials import TokenSource
from .cards import WITHDRAWN, Answer, CardState, answer_of, answer_of_text, build_card
from .clock import within
from .defaults import LOGGER_NAME
from .errors import StateError
from .live_box import LiveBox
from .open_cards import DELIVERY_SECONDS, OpenCards, RunCard
from .run_calls import CARD_KEY, await_call, close_call, followup_call, message_call, response_call
from .run_outbox import RunOutbox
from .run_patches import Patcher
from .run_wait import RunWait
from .runtime import Prompt, PromptEnd, PromptKind
from .services import Services
from .store import (
    CardGone,
    Change,
    Claimed,
    ClaimMove,
    ClaimState,
    EntryMove,
    EntryState,
    OpenCard,
    OutboxCall,
)
from .store_schema import FILE_NAME
from .wire import CreateMessage, InteractionResponse, Run
from .wire_events import Interaction
from .wire_operations import AWAIT_RUN_INPUT
from .wire_words import (
    CloseReason,
    FollowupState,
    InteractionStatus,
    MessageKind,
    MessageRole,
    Reason,
    ResumeCause,
)

_log = logging.getLogger(LOGGER_NAME)

SHOW_SECONDS = 10.0
"""How long a card may take to be on disk: after 15 seconds Hermes posts its prompt as a text, which nobody
could answer. A full disk is waited for elsewhere, not here."""

NOT_WAITING = "Nothing waits for this answer any more."
NOT_YOURS = "This is none of the card's choices."
TAKEN_ALREADY = "This was answered already."
NOT_BELIEVED = "This could not be verified. Please try again."
UNCERTAIN = "The agent was restarted: whether this answer reached it is not known."
REFUSED = "The answer was not used: the run may not go on."
NOT_YET = "This card is still on its way. Please try again."


class RunCards:
    """The cards of one run.

    Args:
        services: The rooms.
        run: The run.
        token: The run's token.
        outbox: Where what is owed goes.
        box: Shows that the run waits, and on what.
        patcher: Told when the box changed.
        spawn: Runs something beside the turn, for as long as the run is worked on.
        end_run: Ends the run as failed, when it may not go on.
    """

    def __init__(
        self,
        services: Services,
        run: Run,
        token: TokenSource,
        outbox: RunOutbox,
        *,
        box: LiveBox,
        patcher: Patcher,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        end_run: Callable[[Reason], None],
    ) -> None:
        self._services = services
        self._run = run
        self._outbox = outbox
        self._box = box
        self._patcher = patcher
        self._spawn = spawn
        self._wait = RunWait(services, run, token, end_run)
        self._cards = OpenCards(services.store)

    # Hermes asks ----------------------------------------------------------------------------------

    async def show(self, prompt: Prompt) -> UUID:
        """Store a card and the wait on it; returns its `client_msg_id`.

        Raises:
            StateError: The disk has not taken it in `SHOW_SECONDS`; Hermes must be told that nobody is asked.
        """
        limit = self._services.limits().max_content_bytes
        draft = build_card(prompt, max_content_bytes=limit)
        card = RunCard(str(self._services.clock.new_id()), prompt, draft.status_line, limit)
        self._cards.add(card)
        message = CreateMessage(
            client_msg_id=card.card_id,
            kind=MessageKind.CARD,
            role=MessageRole.INTERIM,
            content=draft.text,
            components=draft.components,
        )
        await self._store(
            card,
            OpenCard(card.card_id, self._run.id),
            message_call(self._run.id, message),
            await_call(self._run.id, card.card_id, draft.status_line),
        )
        self._show_wait()
        self._spawn(self._watch(card))
        return UUID(card.card_id)

    async def _store(self, card: RunCard, *changes: Change) -> None:
        putting = asyncio.ensure_future(self._outbox.put(*changes))
        stored = await within(self._services.clock, asyncio.shield(putting), SHOW_SECONDS)
        if (stored and putting.exception() is None) or not card.is_open:
            return  # it is stored, for somebody answers it already
        card.move(CardState.EXPIRED)
        self._spawn(self._take_back(card, putting))
        if stored:
            await putting  # raises
        raise StateError(FILE_NAME, f"has not taken a card in {SHOW_SECONDS:.0f} s")

    async def _take_back(self, card: RunCard, putting: asyncio.Future[None]) -> None:
        """Hermes is told that nobody is asked: a card that was stored all the same is closed."""
        putting.cancel()
        await asyncio.wait((putting,))
        if await self._services.store.card(card.card_id) is None:
            self._cards.forget(card)
            card.over.set()
            return
        self._outbox.poke()
        await self._close(card)

    def over(self, prompt: Prompt, end: PromptEnd) -> None:
        """Hermes waits no longer: nobody answered in its time, or the turn is over."""
        for card in self._cards.asking(prompt):
            card.move(CardState.EXPIRED)
            _log.info("run %s: a prompt ended unanswered (%s)", self._run.id, end)
            self._spawn(self._close(card))

    async def close_open(self) -> None:
        """The turn is over: whatever still looks open has nobody behind it.

        What is just being answered or closed is waited for: the server completes no run that waits.
        """
        for card in self._cards:
            if card.is_open:
                card.move(CardState.EXPIRED)
                await self._close(card)
            else:
                await card.over.wait()

    # The server tells -----------------------------------------------------------------------------

    async def can_wait(self, call: OutboxCall) -> bool:
        """Whether the wait on a card is still to be sent: there is none on a card that people never had."""
        stored = await self._services.store.card(str(call.body.get(CARD_KEY)))
        return stored is not None and stored.message_id is not None

    def done(self, call: OutboxCall) -> None:
        """A call of a card was taken."""
        card = self._cards.of_call(call)
        if card is None:
            return
        card.delivered = True
        if call.operation == AWAIT_RUN_INPUT.name:
            card.settled.set()
        self._spawn(self._cards.tell())

    def refused(self, call: OutboxCall, word: str) -> None:
        """A call of a card was refused: what people cannot see, nobody can answer."""
        card = self._cards.of_call(call)
        if card is None:
            return
        card.settled.set()
        self._spawn(self._cards.tell())
        if card.is_open:
            self._spawn(self._withdraw(card, f"the server refused it: {word}"))

    # People answer --------------------------------------------------------------------------------

    async def interaction(self, used: Interaction, entry_id: UUID) -> None:
        """A person used a component; answered exactly once, whatever becomes of it."""
        try:
            card = await self._cards.of_message(used.message_id)
        except TimeoutError:
            await self._respond(used.id, entry_id, failed(NOT_YET, reopen=True))
            return
        if card is None or not card.is_open:
            await self._respond(used.id, entry_id, failed(NOT_WAITING))
            return
        answer = answer_of(card.prompt, used.custom_id, used.values, max_content_bytes=card.max_content_bytes)
        if answer is None:
            await self._respond(used.id, entry_id, failed(NOT_YOURS, reopen=True))
            return
        if await self._services.store.claim(used.id, card.card_id, self._run.id) is not Claimed.NEW:
            await self._respond(used.id, entry_id, failed(TAKEN_ALREADY))
            return
        if not card.is_open:
            # While the disk took the claim, a text has answered the card, or Hermes has given it up.
            given_up = card.state in (CardState.EXPIRED, CardState.CLOSED)
            await self._respond(used.id, entry_id, failed(NOT_WAITING if given_up else TAKEN_ALREADY))
            return
        problem = await self._answer(card, answer, ResumeCause.INTERACTION)
        if problem is not None:
            await self._respond(used.id, entry_id, failed(problem), CardGone(card.card_id))
            return
        taken = InteractionResponse(status=InteractionStatus.ACKNOWLEDGED, text=answer.label)
        resolved = ClaimMove(used.id, ClaimState.RESOLVED)
        await self._respond(used.id, entry_id, taken, resolved, CardGone(card.card_id))

    def for_text(self) -> Prompt | None:
        """The prompt that a person's text would answer now, None when it would answer none."""
        card = self._cards.for_text()
        return card.prompt if card is not None else None

    def open_prompts(self) -> Sequence[Prompt]:
        """What nobody has answered yet, the oldest first; people may or may not have read it."""
        return [card.prompt for card in self._cards if card.is_open]

    async def asked(self, read: Collection[Prompt]) -> Prompt | None:
        """The prompt that a text answers, one of those that were open when the text came.

        The server may know that the run waits on it before we know that the server does: its word is
        waited for, or the text would be none to it and the question would stay.
        """
        await self._cards.settled(read)
        prompt = self.for_text()
        return prompt if prompt in read else None

    async def text(self, prompt: Prompt, message_id: UUID, text: str) -> None:
        """A person wrote instead of choosing: a question is answered, leave is not given.

        Args:
            prompt: What `asked` told.
            message_id: The text's message.
            text: The text.
        """
        card = self._cards.of_prompt(prompt)
        if card is None or not card.waits:
            return
        answer = answer_of_text(card.prompt, text)
        problem = await self._answer(card, answer, ResumeCause.FOLLOWUP, message_id)
        if problem is not None:
            return
        changes: list[Change] = [CardGone(card.card_id)]
        if prompt.kind is PromptKind.CLARIFY:
            # Where leave is refused the model hears no word of the text: it is still to be answered.
            changes.append(followup_call(self._run.id, message_id, FollowupState.ABSORBED))
        await self._outbox.put(*changes)

    # Steps ----------------------------------------------------------------------------------------

    async def _answer(
        self, card: RunCard, answer: Answer, cause: ResumeCause, followup: UUID | None = None
    ) -> str | None:
        """Resume the run and resolve the prompt; returns what to tell the person when that failed."""
        card.move(CardState.CLAIMED)
        if not await self._end_wait(card, cause, followup):
            card.move(CardState.CLOSED)
            await self._let_go(card)
            return REFUSED
        self._show_wait()
        if not await self._services.runtime.answer_prompt(card.prompt, answer.value):
            card.move(CardState.CLOSED)
            return NOT_WAITING
        card.move(CardState.ANSWERED)
        return None

    async def _let_go(self, card: RunCard) -> None:
        """Hermes gets the answer nobody gave, or it would wait for one until its own time is over.

        Not when the run ends: then the interrupt goes first, or the model would speak once more.
        """
        if not self._wait.over:
            await self._services.runtime.answer_prompt(card.prompt, WITHDRAWN[card.prompt.kind])

    async def _close(self, card: RunCard) -> None:
        """Nobody waits behind the card: end its wait, so that nobody can use it."""
        await self._end_wait(card, ResumeCause.PROMPT_EXPIRED)
        self._show_wait()
        await self._services.store.record(CardGone(card.card_id))

    async def _end_wait(self, card: RunCard, cause: ResumeCause, followup: UUID | None = None) -> bool:
        await card.settled.wait()
        try:
            return await self._wait.end(card.card_id, cause, followup)
        finally:
            card.over.set()

    def _show_wait(self) -> None:
        """The status line names the youngest card that still waits."""
        waiting = [card.status_line for card in self._cards if card.is_open]
        self._box.waiting(waiting[-1] if waiting else None)
        self._patcher.poke()

    async def _watch(self, card: RunCard) -> None:
        """Withdraw a card that does not reach its people."""
        await self._services.clock.sleep(DELIVERY_SECONDS)
        if not card.delivered and card.is_open:
            await self._withdraw(card, "it could not be delivered")

    async def _withdraw(self, card: RunCard, why: str) -> None:
        if not card.is_open:
            return  # somebody has answered it meanwhile, or Hermes has given it up
        card.move(CardState.CLOSED)
        card.settled.set()
        card.over.set()
        changes: list[Change] = [CardGone(card.card_id)]
        stored = await self._services.store.card(card.card_id)
        if stored is not None and stored.message_id is not None:
            changes.append(close_call(self._run.id, stored.message_id, CloseReason.EXPIRED))
        await self._outbox.put(*changes)
        await self._cards.tell()
        await self._services.runtime.answer_prompt(card.prompt, WITHDRAWN[card.prompt.kind])
        self._show_wait()
        self._box.note(f"A question of the agent was not shown ({why}).")
        self._patcher.poke()

    async def _respond(
        self, interaction_id: UUID, entry_id: UUID, response: InteractionResponse, *more: Change
    ) -> None:
        """Store the answer to an interaction, what it means for the card, and that its event is done."""
        done = EntryMove(entry_id, EntryState.DONE)
        await self._outbox.put(*more, response_call(self._run.id, interaction_id, response), done)


def failed(text: str, *, reopen: bool = False) -> InteractionResponse:
    """The answer to an interaction that answered nothing.

    Args:
        text: What the person reads.
        reopen: Whether the card may be used again.
    """
    return InteractionResponse(status=InteractionStatus.FAILED, text=text, reopen=reopen or None)
