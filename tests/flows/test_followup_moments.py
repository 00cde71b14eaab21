"""Texts at chance moments of many turns: each is shown to the model once, and told as it was."""

import asyncio
import os
import random
from collections import Counter, defaultdict

import pytest

from bothy_hermes.runtime import BusyMode
from bothy_hermes.wire_words import FollowupState
from tests.fakes.adapter_kit import world
from tests.fakes.runtime import FakeRuntime

THREADS = 10
PHASE_SECONDS = 0.03
"""The longest phase of a turn; a turn has three to seven of them."""
LATEST_SECONDS = 0.15
"""The latest moment of a text: some turns are over by then."""
PATIENT = "patient"
"""In the message of a turn that waits for its text, so that one is taken for sure."""
SEED_VARIABLE = "BOTHY_MOMENTS_SEED"


class Model:
    """A Hermes whose turns take texts with their tool batches, and a model that knows what it was shown."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.runtime = FakeRuntime(self.script)
        self.runtime.on_steer = self.steer
        self.shown = defaultdict(list)
        """Each text, and the runs in which the model was shown it."""
        self.open = {}
        """What each turn holds that is open for texts."""

    async def phase(self):
        await asyncio.sleep(self.chance.uniform(0, PHASE_SECONDS))

    async def script(self, turn, events):
        self.shown[turn.user_text].append(turn.run_id)
        await self.phase()
        patient = PATIENT in turn.user_text
        for _ in range(1 if patient else self.chance.randrange(3)):
            self.open[turn.run_id] = held = []
            await self.phase()
            while patient and self.runtime.busy_mode is BusyMode.STEER and not held:
                await self.phase()
            self.show(turn, events, held)
            await self.phase()
        # What came since the last batch stays unread: after the last reply there is none.
        await self.phase()
        self.open.pop(turn.run_id, None)
        await self.phase()
        await events.on_answer("done")

    def show(self, turn, events, held):
        while held:
            message_id, text = held.pop()
            self.shown[text].append(turn.run_id)
            events.on_text_seen(message_id)

    async def steer(self, run_id, text, message_id):
        await asyncio.sleep(0)
        if run_id not in self.open:
            return False
        self.open[run_id].append((message_id, text))
        return True


async def turns_of_thread(made, model, number, turns):
    """Some turns of one thread, one after the other; returns what was said in each."""
    thread, said = made.thread(), []
    for turn in range(turns):
        text = f"text {number}-{turn}."
        sure = number == turn == 0
        run_id = made.say(thread, f"{PATIENT if sure else 'begin'} {number}-{turn}.")
        if sure:
            await made.until(lambda run_id=run_id: run_id in model.open)
        elif (number, turn) == (1, 0):
            await made.until(lambda run_id=run_id: made.instance.run(run_id).run.state.ended)
        else:
            await asyncio.sleep(model.chance.uniform(0, LATEST_SECONDS))
        posted = made.instance.post_message(made.ada, thread, text, client_msg_id=text)
        await made.until(lambda: all(view.run.state.ended for view in made.instance.runs(thread)))
        said.append((thread, run_id, text, posted.message.id))
    return said


def fault_of(made, model, said):
    """What is wrong with a text, and what became of it."""
    thread, run_id, text, message_id = said
    own = [view.run.id for view in made.instance.runs(thread) if view.run.trigger_message_id == message_id]
    absorbed = made.instance.followup_state(message_id) == FollowupState.ABSORBED
    right = [run_id] if absorbed else own
    fine = len(right) == 1 and absorbed == (not own) and model.shown[text] == right
    state = "absorbed" if absorbed else "own run"
    return state, None if fine else f"{text} {state}: shown in {len(model.shown[text])}, own runs {len(own)}"


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("mode", "states"), [(BusyMode.STEER, {"absorbed", "own run"}), (BusyMode.QUEUE, {"own run"})]
)
def test_texts_at_chance_moments_are_each_shown_once(tmp_path, mode, states, count):
    """In the turn that took it or in a run of its own; absorbed is only what the model was shown there."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**9))

    async def scenario():
        model = Model(seed)
        model.runtime.busy_mode = mode
        keys = {"hermes_adapter.max_active_runs": THREADS}
        async with world(tmp_path, model.runtime, **keys) as made:
            rows = await asyncio.gather(
                *(turns_of_thread(made, model, one, count // THREADS) for one in range(THREADS))
            )
            return [fault_of(made, model, said) for row in rows for said in row]

    found = asyncio.run(scenario())
    wrong = [fault for _, fault in found if fault]
    assert wrong == [], f"{SEED_VARIABLE}={seed}"
    assert len(found) == count
    assert set(Counter(state for state, _ in found)) == states
