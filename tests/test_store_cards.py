"""Cards: found by every name, claimed once, and every step readable after a crash."""

import asyncio
from uuid import UUID

import pytest

from bothy_hermes.errors import IllegalMove
from bothy_hermes.store import CardGone, Claim, Claimed, ClaimMove, ClaimState, OpenCard
from tests.fakes.store_kit import OTHER_RUN, RUN, with_store

MESSAGE = UUID("44444444-4444-4444-8444-444444444444")
FIRST, SECOND = UUID(int=101), UUID(int=102)


def test_cards_are_found_by_every_name(tmp_path):
    """By our ID, by the server's message, by run; two of one run stay apart."""
    first = OpenCard("a", RUN, MESSAGE)
    second = OpenCard("b", RUN)
    third = OpenCard("c", OTHER_RUN)

    async def write(store):
        await store.record(OpenCard("a", RUN), second, third)
        await store.record(first)  # the server has it now

    async def read(store):
        return (
            await store.card("a"),
            await store.card_of_message(MESSAGE),
            await store.card_of_message(FIRST),
            await store.cards(RUN),
            await store.cards(),
        )

    with_store(tmp_path, write)
    assert with_store(tmp_path, read) == (first, first, None, [first, second], [first, second, third])


def test_a_card_is_claimed_once(tmp_path):
    """Of many callbacks at once one gets the card; the card beside it is free."""

    async def use(store):
        await store.record(OpenCard("a", RUN), OpenCard("b", RUN))
        many = await asyncio.gather(*(store.claim(UUID(int=n), "a", RUN) for n in range(1, 20)))
        return sorted(many), await store.claim(UUID(int=50), "b", RUN)

    claimed, other = with_store(tmp_path, use)
    assert claimed == [Claimed.NEW] + [Claimed.TAKEN] * 18
    assert other is Claimed.NEW


def test_a_closed_card_cannot_be_claimed(tmp_path):
    """A late answer finds nothing waiting, and a repeated one its own claim."""

    async def use(store):
        await store.record(OpenCard("a", RUN))
        await store.claim(FIRST, "a", RUN)
        await store.record(CardGone("a"))
        return await store.claim(SECOND, "a", RUN), await store.claim(FIRST, "a", RUN)

    assert with_store(tmp_path, use) == (Claimed.GONE, Claimed.KNOWN)


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [ClaimState.RESOLVED],
        [ClaimState.RESOLVED, ClaimState.ANSWERED],
        [ClaimState.ANSWERED],
    ],
    ids=["claimed", "resolved", "answered", "refused"],
)
def test_the_step_that_was_reached_is_readable_after_a_crash(tmp_path, steps):
    """After each step a new process reads it, and the card is nobody else's."""

    async def go(store):
        await store.record(OpenCard("a", RUN))
        await store.claim(FIRST, "a", RUN)
        for step in steps:
            await store.record(ClaimMove(FIRST, step))

    async def look(store):
        return (
            await store.claim_of(FIRST),
            await store.claim(FIRST, "a", RUN),
            await store.claim(SECOND, "a", RUN),
        )

    with_store(tmp_path, go)
    reached = Claim(FIRST, "a", RUN, steps[-1] if steps else ClaimState.CLAIMED)
    assert with_store(tmp_path, look) == (reached, Claimed.KNOWN, Claimed.TAKEN)


def test_what_hermes_took_is_never_given_again(tmp_path):
    """The table forbids a second resolution; an unknown claim does not move."""

    async def use(store):
        await store.record(OpenCard("a", RUN))
        await store.claim(FIRST, "a", RUN)
        await store.record(ClaimMove(FIRST, ClaimState.RESOLVED))
        with pytest.raises(IllegalMove, match="claim: no move from resolved to claimed"):
            await store.record(ClaimMove(FIRST, ClaimState.CLAIMED))
        with pytest.raises(IllegalMove, match="claim: no move from none to resolved"):
            await store.record(ClaimMove(SECOND, ClaimState.RESOLVED))

    with_store(tmp_path, use)
