"""Which cards a run has, and how the one is found that a call, a click or a text is about.

Layer: flows. A card is known here from the moment it goes to the disk. A click can come before the
server's word that it has the card, so whoever looks for one waits while any is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from .cards import CardState, move_card
from .errors import BothyError
from .run_calls import CARD_KEY
from .runtime import Prompt, PromptKind
from .store import OutboxCall, Store
from .wire_operations import CREATE_MESSAGE

DELIVERY_SECONDS = 60.0
"""How long a card may take to reach its people; Hermes' own patience is longer, a person's is not."""

FINDING_SECONDS = DELIVERY_SECONDS
"""How long a click waits for the card it was made on: it can come before our call was answered, and a call
whose answer was lost is made again. A card that takes longer is withdrawn."""


@dataclass(slots=True)
class RunCard:
    """One card while its run works.

    Attributes:
        card_id: Its `client_msg_id`.
        prompt: What Hermes asks.
        status_line: What the live box says while it waits.
        max_content_bytes: The limit with which it was built: what it offers depends on it, and the server's
            may change.
        state: Whether somebody may still answer it.
        delivered: Whether the server has it.
        settled: Set once the wait on it was taken by the server, or never will be.
        over: Set once the server no longer waits on it, as far as this process can bring that about.
    """

    card_id: str
    prompt: Prompt
    status_line: str = field(repr=False)
    max_content_bytes: int
    state: CardState = CardState.OPEN
    delivered: bool = False
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered it and Hermes still wants to know."""
        return self.state is CardState.OPEN

    @property
    def waits(self) -> bool:
        """Whether the server is known to wait on it."""
        return self.is_open and self.settled.is_set()

    @property
    def on_its_way(self) -> bool:
        """Whether the server may have it as a message that is not known here yet."""
        return not self.delivered and not self.settled.is_set()

    def move(self, state: CardState) -> None:
        """Bring it into another state; which may follow which is a table of `cards`."""
        self.state = move_card(self.state, state)


class OpenCards:
    """The cards of one run, the oldest first.

    Args:
        store: Where each card's message is found.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cards: dict[str, RunCard] = {}
        self._news = asyncio.Condition()

    def __iter__(self) -> Iterator[RunCard]:
        return iter(tuple(self._cards.values()))

    def add(self, card: RunCard) -> None:
        """Know a card from now on."""
        self._cards[card.card_id] = card

    def forget(self, card: RunCard) -> None:
        """Know a card no longer: it was never stored."""
        del self._cards[card.card_id]

    async def tell(self) -> None:
        """Something became known of a card: whoever waits for one looks again."""
        async with self._news:
            self._news.notify_all()

    def of_call(self, call: OutboxCall) -> RunCard | None:
        """The card that a call shows or waits on, None when it is about none."""
        key = "client_msg_id" if call.operation == CREATE_MESSAGE.name else CARD_KEY
        return self._cards.get(str(call.body.get(key)))

    def of_prompt(self, prompt: Prompt) -> RunCard | None:
        """The card of this very prompt."""
        return next((card for card in self if card.prompt is prompt), None)

    def asking(self, prompt: Prompt) -> Iterator[RunCard]:
        """The open cards of what Hermes knows by this prompt's kind and ID."""
        for card in self:
            same = card.prompt.kind is prompt.kind and card.prompt.hermes_id == prompt.hermes_id
            if same and card.is_open:
                yield card

    def for_text(self) -> RunCard | None:
        """The card that a person's text would answer: the only one that waits, or the oldest question."""
        waiting = [card for card in self if card.waits]
        if len(waiting) == 1:
            return waiting[0]
        return next((card for card in waiting if card.prompt.kind is PromptKind.CLARIFY), None)

    async def settled(self, prompts: Collection[Prompt]) -> None:
        """Wait until it is known of each open card of these prompts whether the server waits on it."""
        for card in self:
            if card.prompt in prompts and card.is_open:
                await card.settled.wait()

    async def of_message(self, message_id: UUID) -> RunCard | None:
        """The card that the server holds as a message; waits while one of ours is on its way.

        Raises:
            TimeoutError: One still is.
        """
        try:
            async with asyncio.timeout(FINDING_SECONDS), self._news:
                while True:
                    stored = await self._store.card_of_message(message_id)
                    if stored is not None:
                        return self._cards.get(stored.card_id)
                    if not any(card.on_its_way for card in self):
                        return None
                    await self._news.wait()
        except BothyError:
            return None
