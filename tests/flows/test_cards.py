"""Hermes asks, people answer: each card exactly once, on the embedded server with a fake Hermes."""

import asyncio

import pytest

from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_rules import Refused
from bothy_hermes.runtime import BusyMode, Prompt, PromptEnd, PromptKind, ResolvedCredential
from bothy_hermes.services import FIRST_LIMITS
from bothy_hermes.wire_words import CloseReason, KeyType, MessageKind, RunState
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime, echo

CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))
OPEN_QUESTION = Prompt(PromptKind.CLARIFY, "9876543210", "k", "Which name?")
APPROVAL = Prompt(
    PromptKind.APPROVAL,
    "req-1",
    "k",
    "dangerous command",
    ("once", "session", "always", "deny"),
    command="rm -rf build",
)


def flow(tmp_path, steps, script, **options):
    async def scenario():
        async with world(tmp_path, FakeRuntime(script), **options) as made:
            return await steps(made)

    return asyncio.run(scenario())


def asking(*prompts):
    """A turn that shows prompts and answers with what was answered, in the prompts' order."""

    async def script(_turn, events):
        runtime = script.runtime
        for prompt in prompts:
            runtime.waiting[prompt.hermes_id] = asyncio.get_running_loop().create_future()
        waits = [runtime.waiting[prompt.hermes_id] for prompt in prompts]
        for prompt in prompts:
            await events.on_card(prompt)
        answers = [await wait for wait in waits]
        await events.on_answer(" and ".join(answers))

    return script


async def cards_of(made, thread, count=1):
    """Wait until the run waits on so many cards; returns their messages."""

    def found():
        return [one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD]

    await made.until(lambda: len(found()) == count)
    run_id = found()[0].run_id
    await made.until(lambda: len(made.instance.run(run_id).open_cards) == count)
    return found()


def press(made, message, label, person=None):
    """A person presses the button with this label."""
    component = next(one for one in message.components if label in one.label)
    return made.instance.use_component(person or made.ada, message.id, component.id)


async def response(made, interaction):
    """Wait for the adapter's answer to an interaction."""
    await made.until(lambda: made.instance.interaction(interaction.interaction.id).status is not None)
    record = made.instance.interaction(interaction.interaction.id)
    return str(record.status), record.text


def start(made, script, text="ask me"):
    script.runtime = made.runtime
    thread = made.thread()
    return thread, made.say(thread, text)


def test_decision_9_a_click_answers_its_card_and_the_run_goes_on(tmp_path):
    script = asking(CLARIFY)

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        assert made.instance.run(run_id).run.state is RunState.WAITING_INPUT
        assert "1. red" in card.content
        answered = await response(made, press(made, card, "blue"))
        assert answered == ("acknowledged", "blue")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert ("answer", "blue") in made.texts(thread, run_id)

    flow(tmp_path, steps, script)


def test_decision_9_two_open_cards_are_answered_each_by_itself(tmp_path):
    """The click on the second card never reaches the prompt of the first."""
    first = Prompt(PromptKind.APPROVAL, "a", "k", "danger", ("once", "deny"), command="make a")
    second = Prompt(PromptKind.APPROVAL, "b", "k", "danger", ("once", "deny"), command="make b")
    script = asking(first, second)

    async def steps(made):
        thread, run_id = start(made, script)
        cards = await cards_of(made, thread, 2)
        of_a = next(card for card in cards if "make a" in card.content)
        of_b = next(card for card in cards if "make b" in card.content)
        assert (await response(made, press(made, of_b, "Deny")))[0] == "acknowledged"
        assert made.instance.run(run_id).run.state is RunState.WAITING_INPUT
        assert (await response(made, press(made, of_a, "once")))[0] == "acknowledged"
        await made.ended(run_id)
        assert ("answer", "once and deny") in made.texts(thread, run_id)

    flow(tmp_path, steps, script)


def test_decision_9_an_expired_prompt_closes_its_card_and_a_late_click_says_so(tmp_path):
    release = asyncio.Event()

    async def script(_turn, events):
        await events.on_card(APPROVAL)
        await release.wait()
        events.on_prompt_over(APPROVAL, PromptEnd.EXPIRED)
        await asyncio.sleep(0.3)
        await events.on_answer("went on without it")

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        release.set()
        await made.until(lambda: made.instance.message(card.id).closed is CloseReason.EXPIRED)
        await made.until(lambda: made.instance.run(run_id).run.state is RunState.RUNNING)
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED

    flow(tmp_path, steps, script)


def test_a_prompt_that_died_unseen_answers_the_click_with_words(tmp_path):
    """Hermes had nothing waiting any more when the click came: nobody reads `done`."""
    release = asyncio.Event()

    async def script(_turn, events):
        await events.on_card(CLARIFY)
        await release.wait()
        await events.on_answer("done")

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        status, text = await response(made, press(made, card, "red"))
        assert status == "failed"
        assert "waits" in text
        release.set()
        assert (await made.ended(run_id)).run.state is RunState.COMPLETED

    flow(tmp_path, steps, script)


def test_a_turn_that_ends_with_an_open_card_closes_it(tmp_path):
    async def script(_turn, events):
        await events.on_card(CLARIFY)
        await asyncio.sleep(0.3)
        await events.on_answer("never mind")

    async def steps(made):
        thread, run_id = start(made, script)
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert view.open_cards == ()
        cards = [one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD]
        assert [card.closed for card in cards] == [CloseReason.EXPIRED]

    flow(tmp_path, steps, script)


@pytest.mark.parametrize("mode", [BusyMode.QUEUE, BusyMode.STEER])
def test_a_text_answers_the_open_question(tmp_path, mode):
    script = asking(OPEN_QUESTION)

    async def steps(made):
        made.runtime.busy_mode = mode
        thread, run_id = start(made, script)
        await cards_of(made, thread)
        made.say(thread, "Ishmael")
        view = await made.ended(run_id)
        assert view.run.state is RunState.COMPLETED
        assert ("answer", "Ishmael") in made.texts(thread, run_id)
        assert len(made.instance.runs(thread)) == 1, "an absorbed text opens no run"

    flow(tmp_path, steps, script)


def test_decision_8_a_text_is_no_approval(tmp_path):
    script = asking(APPROVAL)

    async def steps(made):
        thread, run_id = start(made, script)
        await cards_of(made, thread)
        made.say(thread, "yes, always allow it")
        await made.ended(run_id)
        assert ("answer", "deny") in made.texts(thread, run_id)

    flow(tmp_path, steps, script)


def test_decision_8_a_text_that_only_refuses_leave_is_still_to_be_answered(tmp_path):
    """The model hears that the command was denied and no word of why: the text opens the next run."""
    asks = asking(APPROVAL)

    async def script(turn, events):
        await (asks if turn.user_text == "ask me" else echo)(turn, events)

    async def steps(made):
        asks.runtime = made.runtime
        thread, run_id = start(made, script)
        await cards_of(made, thread)
        made.say(thread, "no, clean the cache only")
        await made.ended(run_id)
        assert ("answer", "deny") in made.texts(thread, run_id)
        await made.until(lambda: len(made.instance.runs(thread)) == 2)
        (second,) = {view.run.id for view in made.instance.runs(thread)} - {run_id}
        await made.ended(second)
        assert made.texts(thread, second) == [("answer", "You said: no, clean the cache only")]

    flow(tmp_path, steps, script)


def test_decision_9_a_changed_mode_stops_the_run_at_the_click(tmp_path):
    """Money is proven again before the turn goes on; the click is not used."""
    script = asking(CLARIFY)

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        made.runtime.credential = ResolvedCredential("anthropic", KeyType.OAUTH)
        status, _ = await response(made, press(made, card, "red"))
        view = await made.ended(run_id)
        assert status == "failed"
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "billing_mode_mismatch")
        assert made.runtime.waiting["0123456789"].cancelled(), "nothing was answered"

    flow(tmp_path, steps, script)


def test_a_cancel_with_an_open_card_ends_the_run_and_the_card(tmp_path):
    script = asking(CLARIFY)

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        made.instance.cancel_run(made.ada, run_id)
        view = await made.ended(run_id)
        assert view.run.state is RunState.CANCELLED
        assert made.instance.message(card.id).closed is CloseReason.CANCELLED
        made.runtime.script = echo
        after = await made.ended(made.say(thread, "and now?"))
        assert after.run.state is RunState.COMPLETED

    flow(tmp_path, steps, script)


def test_a_restart_with_an_open_card_leaves_nothing_usable(tmp_path):
    script = asking(CLARIFY)

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        await made.kill_adapter()
        await made.start_adapter()
        view = await made.ended(run_id)
        assert (view.run.state, view.run.reason) == (RunState.FAILED, "adapter_restarted")
        assert made.instance.message(card.id).closed is not None
        with pytest.raises(Refused):
            press(made, card, "red")

    flow(tmp_path, steps, script)


def test_a_card_that_the_server_refuses_is_withdrawn_at_once(tmp_path):
    """Hermes gets the answer that nobody gave, and the run says so."""
    broken = Prompt(PromptKind.APPROVAL, "x", "k", "danger", ("once", "deny"), command="c" * 3000)
    script = asking(broken)

    async def steps(made):
        assert isinstance(made.loop, AdapterLoop)
        # The adapter believes in larger messages than this server takes.
        made.loop._terms._limits = FIRST_LIMITS
        thread, run_id = start(made, script)
        view = await made.ended(run_id)
        assert ("answer", "deny") in made.texts(thread, run_id)
        assert view.run.state is RunState.COMPLETED
        made.server.violations.clear()  # the refused card is what this test provokes

    flow(
        tmp_path, steps, script, options=ServerOptions(max_content_bytes=2000, run_update_min_interval_ms=50)
    )


def test_decision_9_two_clicks_answer_once(tmp_path):
    script = asking(CLARIFY)

    async def steps(made):
        thread, run_id = start(made, script)
        (card,) = await cards_of(made, thread)
        first = press(made, card, "red")
        with pytest.raises(Refused):
            press(made, card, "blue")
        assert (await response(made, first))[0] == "acknowledged"
        await made.ended(run_id)
        assert ("answer", "red") in made.texts(thread, run_id)

    flow(tmp_path, steps, script)
