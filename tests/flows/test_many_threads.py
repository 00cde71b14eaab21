"""Twenty threads at once: each has its own words, cards, steps, costs, session and title, and no other's."""

import asyncio

from bothy_hermes.runtime import Prompt, PromptKind, Usage
from bothy_hermes.wire_words import MessageKind, RunState
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime

THREADS = 20
WORDS = [f"word{number:02}x" for number in range(THREADS)]


class Turns:
    """Turns that all work at the same time, each with the word that its person sent."""

    def __init__(self):
        self.together = asyncio.Barrier(THREADS)
        self.runtime = FakeRuntime(self.script)
        self.answers = {}

    async def script(self, turn, events):
        word = turn.user_text
        session = f"session-{word}"
        self.runtime.titles[session] = f"About {word}"
        events.on_session(session)
        await self.together.wait()
        events.on_status(f"is looking for {word}")
        await events.on_interim(f"I look for {word}.")
        await self.together.wait()
        self.answers[word] = await self.ask(events, word)
        events.on_draft(f"The word is {word}")
        events.on_usage(Usage("anthropic", f"model-{word}", 1, 1, None, None))
        await self.together.wait()
        await events.on_answer(f"{word}: {self.answers[word]}")

    async def ask(self, events, word):
        waiting = self.runtime.waiting[word] = asyncio.get_running_loop().create_future()
        choices = ("once", "deny")
        shown = Prompt(
            PromptKind.APPROVAL, word, "one key for all", "danger", choices, command=f"make {word}"
        )
        await events.on_card(shown)
        return await waiting


def click_of(number):
    """What the person of a thread answers: every other one refuses."""
    return ("once", "once") if number % 2 else ("Deny", "deny")


async def click(made, thread, number):
    """Wait for the card of a thread and answer it."""

    def cards():
        return [one for one in made.instance.messages(thread) if one.kind is MessageKind.CARD]

    await made.until(lambda: cards() != [] and made.instance.run(cards()[0].run_id).open_cards != ())
    (card,) = cards()
    component = next(one for one in card.components if click_of(number)[0] in one.label)
    made.instance.use_component(made.ada, card.id, component.id)


def everything_of(made, thread, run_id):
    """All that people and the server have of a thread, as one text."""
    record = made.instance.state.runs.get(run_id)
    seen = [made.instance.messages(thread), made.instance.run(run_id), record, made.instance.thread(thread)]
    return " ".join(_written(one) for one in seen)


def _written(value):
    """A value with what its repr hides."""
    if isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        return " ".join(map(_written, value))
    slots = getattr(type(value), "__dataclass_fields__", {})
    return " ".join(_written(getattr(value, name)) for name in slots) if slots else str(value)


def test_nothing_of_a_thread_reaches_another(tmp_path):
    turns = []

    async def scenario():
        turns.append(Turns())
        keys = {"hermes_adapter.max_active_runs": THREADS}
        async with world(tmp_path, turns[0].runtime, **keys) as made:
            threads = [made.thread() for _ in WORDS]
            runs = [made.say(thread, word) for thread, word in zip(threads, WORDS, strict=True)]
            await asyncio.gather(*(click(made, thread, number) for number, thread in enumerate(threads)))
            await asyncio.gather(*map(made.ended, runs))
            for number, thread in enumerate(threads):
                check(made, number, thread, runs[number])

    asyncio.run(scenario())
    assert turns[0].answers == {word: click_of(number)[1] for number, word in enumerate(WORDS)}


def check(made, number, thread, run_id):
    word = WORDS[number]
    view = made.instance.run(run_id)
    assert view.run.state is RunState.COMPLETED
    assert made.texts(thread, run_id)[-1] == ("answer", f"{word}: {click_of(number)[1]}")
    assert [step.title for step in view.document.steps] == [f"is looking for {word}"]
    assert made.instance.thread(thread).title == f"About {word}"
    record = made.instance.state.runs.get(run_id)
    assert [cost.model for cost in record.costs] == [f"model-{word}"]
    seen = everything_of(made, thread, run_id)
    assert f"session-{word}" in seen
    assert f"make {word}" in seen
    assert [other for other in WORDS if other != word and other in seen] == []
