"""Texts that come at chance moments of many turns, and the ledger of what became of each."""

import os
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bothy_hermes.wire_words import FollowupState, MessageRole
from tests.live.kit import pause
from tests.live.talk import Talk

SEED_VARIABLE = "BOTHY_MOMENTS_SEED"
"""Names the seed of a round that is to be seen again."""

THREADS = 8
"""Threads at once: as many as an adapter takes runs by default."""

TURNS = ("tool", "sleep 1", "slow 1", "parallel", "note", "stream", "repeat at once")
"""How a turn begins: with and without tools, with and without a text that grows."""

TURN_SECONDS = 60.0
"""Until a turn and the run behind it count as stuck."""

LATEST_SECONDS = 3.0
"""The latest moment after a turn's message: some turns are over by then, some have just begun."""

PLACE = re.compile(r"garden-\d+-\d+\.")

ABSORBED = "absorbed in the turn"
OWN_RUN = "a run of its own"
LOST = "lost or twice"


@dataclass
class Followup:
    """One text that came while (or just after) a turn ran, and what became of it."""

    mark: str
    opening: str
    delay: float
    place: str
    """Stands in the turn's own message, so that the model's requests tell their thread."""
    at: str = ""
    """A moment that is no chance's: `step` while a tool runs, `end` when the turn is over."""
    thread_id: object = None
    message_id: object = None
    run_id: object = None
    state: str = ""
    """What became of it: one of the three words above."""
    faults: list = field(default_factory=list)

    def __str__(self):
        return f"{self.mark} ({self.opening!r}, {self.delay:.2f} s): {self.state} {'; '.join(self.faults)}"


def plan(count, seed):
    """So many turns with a text each, at moments that the seed decides."""
    chance = random.Random(seed)
    followups = [
        Followup(
            f"mark-{number:03}-{seed}.",
            chance.choice(TURNS),
            chance.uniform(0, LATEST_SECONDS),
            f"garden-{number % THREADS}-{seed}.",
        )
        for number in range(count)
    ]
    # Both things happen in each round, however slow the machine is.
    followups[0].opening, followups[0].at = "sleep 2", "step"
    followups[1].at = "end"
    return followups


def new_seed():
    """The seed of this round: a new one each time, so that no moment stays untried."""
    return int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(10**9))


def play(world, followups):
    """Do every turn, some threads at once, each thread's turns one after the other."""
    rows = [followups[number::THREADS] for number in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda row: _play_thread(world, row), rows))


def _play_thread(world, row):
    talk = Talk(world)
    for one in row:
        one.thread_id = talk.thread_id
        one.run_id = talk.say(f"{one.opening} in {one.place}")
        if one.at == "step":
            talk.step(one.run_id)
        elif one.at == "end":
            talk.ended(one.run_id, TURN_SECONDS)
        else:
            pause(one.delay)
        one.message_id = talk.post(f"repeat {one.mark}").message.id
        talk.until(
            lambda: all(view.run.state.ended for view in talk.instance.runs(talk.thread_id)), TURN_SECONDS
        )


def judge(world, followups, requests):
    """Hold each text to what happened: shown once, answered once, and told as it was."""
    for one in followups:
        talk = Talk(world, one.thread_id)
        runs = [view.run for view in talk.instance.runs(one.thread_id)]
        own = [run for run in runs if run.trigger_message_id == one.message_id]
        absorbed = talk.instance.followup_state(one.message_id) == FollowupState.ABSORBED
        one.state = {(True, 0): ABSORBED, (False, 1): OWN_RUN}.get((absorbed, len(own)), LOST)
        answers = [
            message.run_id
            for message in talk.instance.messages(one.thread_id)
            if message.role is MessageRole.ANSWER and one.mark in message.content
        ]
        _note(one, "answered by", answers, [own[0].id if own else one.run_id])
        _note(one, "shown", shown(requests, one.mark), {one.place: 1})
        ends = {str(run.state) for run in runs}
        _note(one, "the thread's runs ended", ends, {"completed"})
        if one.state == LOST:
            one.faults.append(f"absorbed: {absorbed}, runs of its own: {len(own)}")
    return Counter(one.state for one in followups)


def shown(requests, mark):
    """By thread, how often the model was shown a text: in the fullest conversation that holds it."""
    rows = Counter()
    for body in requests:
        text = str(body["messages"])
        if body.get("tools") and mark in text:
            places = " and ".join(sorted(set(PLACE.findall(text))))
            found = sum(mark in str(row) for row in body["messages"] if row["role"] != "assistant")
            rows[places] = max(rows[places], found)
    return dict(rows)


def _note(one, what, found, right):
    if found != right:
        one.faults.append(f"{what} {found}, not {right}")


def check(world, count):
    """Play so many texts; each must have been answered exactly once. Returns how many became what."""
    seed = new_seed()
    asked_before = len(world.model.requests)
    followups = plan(count, seed)
    play(world, followups)
    states = judge(world, followups, world.model.requests[asked_before:])
    wrong = [str(one) for one in followups if one.faults]
    assert wrong == [], f"{SEED_VARIABLE}={seed}: {len(wrong)} of {count}:\n" + "\n".join(wrong)
    return states
