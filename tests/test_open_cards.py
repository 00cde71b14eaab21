"""Which cards a run has, and how the one is found that something is about."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from bothy_hermes import open_cards
from bothy_hermes.cards import CardState
from bothy_hermes.errors import StateError
from bothy_hermes.open_cards import OpenCards, RunCard
from bothy_hermes.run_calls import await_call, message_call
from bothy_hermes.runtime import Prompt, PromptKind
from bothy_hermes.wire import CreateMessage
from bothy_hermes.wire_words import MessageKind, MessageRole

RUN, MESSAGE = UUID(int=1), UUID(int=2)
CARD = "0192f4a0-7b1c-7000-8000-0000000000cc"


class Disk:
    """Knows cards by their messages; may break."""

    def __init__(self):
        self.cards = {}
        self.error = None

    async def card_of_message(self, message_id):
        if self.error is not None:
            raise self.error
        return self.cards.get(message_id)


def prompt(kind=PromptKind.CLARIFY, hermes_id="c1"):
    return Prompt(kind, hermes_id, "k", "Which?", ("a", "b"), command="ls")


def card(card_id=CARD, asked=None, *, waits=False, state=CardState.OPEN):
    made = RunCard(card_id, asked or prompt(), "Waiting", 262_144, state, delivered=waits)
    if waits:
        made.settled.set()
    return made


def cards_of(*made, disk=None):
    cards = OpenCards(disk or Disk())
    for one in made:
        cards.add(one)
    return cards


def test_a_card_is_known_until_it_is_forgotten():
    first, second = card("1"), card("2")
    cards = cards_of(first, second)
    assert list(cards) == [first, second]
    cards.forget(first)
    assert list(cards) == [second]


def test_both_calls_of_a_card_lead_to_it():
    mine = card()
    cards = cards_of(card("other"), mine)
    shown = CreateMessage(client_msg_id=CARD, kind=MessageKind.CARD, role=MessageRole.INTERIM, content="?")
    said = CreateMessage(
        client_msg_id="something else", kind=MessageKind.TEXT, role=MessageRole.ANSWER, content="a word"
    )
    assert cards.of_call(message_call(RUN, shown)) is mine
    assert cards.of_call(await_call(RUN, CARD, "Waiting")) is mine
    assert cards.of_call(message_call(RUN, said)) is None


def test_a_prompt_is_known_by_itself_and_to_hermes_by_kind_and_id():
    """Hermes may use an ID again; which prompt a text answers must not be mistaken."""
    again = card("2", prompt())
    answered = card("3", prompt(), state=CardState.ANSWERED)
    cards = cards_of(
        card("1", prompt(PromptKind.APPROVAL)), again, answered, card("4", prompt(hermes_id="c2"))
    )
    assert cards.of_prompt(again.prompt) is again
    assert cards.of_prompt(prompt()) is None
    assert list(cards.asking(prompt())) == [again]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ([], None),
        ([PromptKind.APPROVAL], 0),
        ([PromptKind.APPROVAL, PromptKind.APPROVAL], None),
        ([PromptKind.APPROVAL, PromptKind.CLARIFY], 1),
        ([PromptKind.CLARIFY, PromptKind.CLARIFY, PromptKind.APPROVAL], 0),
    ],
)
def test_a_text_means_the_only_card_or_the_oldest_question(kinds, chosen):
    made = [card(str(number), prompt(kind), waits=True) for number, kind in enumerate(kinds)]
    unsettled = card("not yet", prompt())
    over = card("over", prompt(), waits=True, state=CardState.ANSWERED)
    cards = cards_of(unsettled, over, *made)
    assert cards.for_text() is (None if chosen is None else made[chosen])


def test_only_the_open_cards_of_a_text_are_waited_for():
    async def story():
        asked, other = card("1", prompt()), card("2", prompt(hermes_id="c2"))
        over = card("3", prompt(hermes_id="c3"), state=CardState.EXPIRED)
        cards = cards_of(asked, other, over)
        await cards.settled([over.prompt])
        waiting = asyncio.ensure_future(cards.settled([asked.prompt]))
        await asyncio.sleep(0)
        assert not waiting.done()
        asked.settled.set()
        await waiting

    asyncio.run(story())


def test_a_click_waits_for_a_card_that_is_on_its_way():
    async def story():
        disk, mine = Disk(), card()
        cards = cards_of(mine, disk=disk)
        finding = asyncio.ensure_future(cards.of_message(MESSAGE))
        await asyncio.sleep(0.01)
        assert not finding.done()
        disk.cards[MESSAGE] = SimpleNamespace(card_id=CARD)
        mine.delivered = True
        await cards.tell()
        assert await finding is mine

    asyncio.run(story())


@pytest.mark.parametrize("seen", ["delivered", "settled"])
def test_a_message_that_is_no_card_of_the_run_is_waited_for_while_one_is_on_its_way_only(seen):
    async def story():
        mine = card()
        mine.delivered = seen == "delivered"
        if seen == "settled":
            mine.settled.set()
        assert await cards_of(mine).of_message(MESSAGE) is None

    asyncio.run(story())


def test_a_card_that_stays_on_its_way_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(open_cards, "FINDING_SECONDS", 0.02)

    async def story():
        with pytest.raises(TimeoutError):
            await cards_of(card()).of_message(MESSAGE)

    asyncio.run(story())


def test_a_disk_that_cannot_be_read_knows_no_card():
    async def story():
        disk = Disk()
        disk.error = StateError("state.sqlite3", "cannot be read")
        assert await cards_of(card(), disk=disk).of_message(MESSAGE) is None

    asyncio.run(story())
