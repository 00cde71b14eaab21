"""A crash between the steps of answering a card: nothing is answered twice, and nobody reads a wrong yes."""

import asyncio

import pytest

from bothy_hermes.local_rules import Refused
from bothy_hermes.run_cards import NOT_WAITING, UNCERTAIN
from bothy_hermes.runtime import Prompt, PromptKind
from bothy_hermes.wire_words import MessageKind, RunState
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime

CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))


class Asking(FakeRuntime):
    """A Hermes that asks, and may die before or after it takes the answer."""

    def __init__(self):
        super().__init__(self._turn)
        self.heard = []
        self.reached = asyncio.Event()

    async def _turn(self, _turn, events):
        await events.on_card(CLARIFY)
        await asyncio.sleep(3600)

    async def answer_prompt(self, prompt, answer):
        self.heard.append(answer)
        self.reached.set()
        await asyncio.sleep(3600)


async def card_of(made, thread):
    """Wait until the run waits on its card."""

    def found():
        return [one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD]

    await made.until(lambda: found() != [] and made.instance.run(found()[0].run_id).open_cards != ())
    return found()[0]


async def until_claimed(made, _used):
    """Kill after the claim, while the prompt is being resolved."""
    await asyncio.wait_for(made.runtime.reached.wait(), 10)


async def until_acked(made, used):
    """Kill as soon as the click is durable, whatever was done about it."""

    def acked():
        events = made.instance.state.events.all()
        return any(one.subject_id == used.interaction.id and one.settled_at for one in events)

    await made.until(acked)


@pytest.mark.parametrize("moment", [until_claimed, until_acked])
def test_a_click_that_a_crash_cut_off_is_answered_with_words(tmp_path, moment):
    """After the restart the run has an end, the card is closed, and the person is told what is known."""

    async def steps(made):
        thread = made.thread()
        run_id = made.say(thread, "ask me")
        card = await card_of(made, thread)
        used = made.instance.use_component(made.ada, card.id, card.components[0].id)
        await moment(made, used)
        await made.kill_adapter()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "adapter_restarted")
        await made.until(lambda: made.instance.interaction(used.interaction.id).status is not None)
        record = made.instance.interaction(used.interaction.id)
        assert str(record.status) == "failed"
        assert record.text in {UNCERTAIN, NOT_WAITING}
        assert made.runtime.heard in ([], ["red"])
        assert (record.text == UNCERTAIN) or made.runtime.heard == []
        with pytest.raises(Refused):
            made.instance.use_component(made.ada, card.id, card.components[1].id)

    async def scenario():
        async with world(tmp_path, Asking()) as made:
            await steps(made)

    asyncio.run(scenario())
