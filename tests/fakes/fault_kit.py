"""A world whose adapter reaches its server through a fault proxy, and a run that uses the whole protocol.

The adapter's long waits are shortened, its short ones are not; what is counted in real time on both sides
(an attempt, an ack) is set short enough for a test.
"""

import asyncio
import contextlib
import dataclasses
import sqlite3
from urllib.parse import urlsplit

from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.clock import Clock, system_clock
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.runtime import BusyMode, Prompt, PromptKind, ToolEnd, Usage
from bothy_hermes.wire_words import MessageKind, RunState
from tests.fakes.adapter_kit import World, world
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.judged import Judge
from tests.fakes.runtime import FakeRuntime

ATTEMPT_SECONDS = 0.3
"""Longest time of one attempt of the adapter."""

WHOLE_SECONDS = 0.05
"""Waits up to this are real: the interval between two patches is."""

SHARE = 0.005
"""What is left of longer ones: the longest wait of a client becomes a sixth of a second."""

OPTIONS = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=200_000, ack_timeout_ms=600)

SESSION = "20261130_120000_abcdef01"
QUESTION = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))
NOTES = "The file says plum."


def hurried(slept=None):
    """The machine's clock for somebody who will not wait long.

    Args:
        slept: A list that takes what was asked for, in seconds.
    """
    clock = system_clock()

    async def sleep(seconds):
        if slept is not None:
            slept.append(seconds)
        await asyncio.sleep(seconds if seconds <= WHOLE_SECONDS else seconds * SHARE)

    return Clock(clock.now, clock.monotonic, sleep, clock.uniform, clock.random_bytes)


class FaultyWorld(World):
    """A world with a proxy in its middle, which judges what both sides say."""

    proxy: FaultProxy
    slept: list
    attempt: float

    def new_loop(self, settings):
        """An adapter that talks to the proxy."""
        hasty = dataclasses.replace(settings, request_timeout_seconds=self.attempt)
        return AdapterLoop(hasty, self.runtime, self.clock, self.state_dir)


@contextlib.asynccontextmanager
async def faulty_world(
    tmp_path, runtime=None, *, start=True, options=OPTIONS, attempt=ATTEMPT_SECONDS, **keys
):
    """A faulty world for a test; at its end every fault was met."""
    judge = Judge()
    with FaultProxy(judge) as proxy:
        options = dataclasses.replace(options, public_url=proxy.url)
        async with world(tmp_path, runtime, options=options, start=False, kind=FaultyWorld, **keys) as made:
            made.proxy, made.judge, made.slept = proxy, judge, []
            made.attempt = attempt
            made.clock = hurried(made.slept)
            proxy.aim(urlsplit(made.server.origin).port)
            if start:
                await made.start_adapter()
            yield made
            assert proxy.unused == []


class Everything:
    """A turn that reports what can be reported, asks a question and takes a text that comes meanwhile."""

    def __init__(self):
        self.runtime = FakeRuntime(self.script)
        self.runtime.busy_mode = BusyMode.STEER
        self.runtime.on_steer = self.steer
        self.runtime.titles[SESSION] = "On colours"
        self.answers = []
        self.texts = []
        self.taken = asyncio.Event()
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()

    def hold(self):
        """Have the turn wait where a person's act would let it go on."""
        self._may_go_on.clear()

    def go_on(self):
        """Let it go on."""
        self._may_go_on.set()

    async def script(self, _turn, events):
        """The turn."""
        events.on_session(SESSION)
        await events.on_interim("I will look.")
        events.on_status("is running ls")
        events.on_tool_end(ToolEnd("is running ls", failed=False))
        waiting = asyncio.get_running_loop().create_future()
        self.runtime.waiting[QUESTION.hermes_id] = waiting
        await events.on_card(QUESTION)
        self.answers.append(await waiting)
        await self._may_go_on.wait()
        await self.taken.wait()
        await self._may_go_on.wait()
        for message_id, _ in self.texts:
            events.on_text_seen(message_id)
        events.on_usage(Usage("anthropic", "m", 10, 5, 3, None))
        said = ", ".join(text for _, text in self.texts)
        await events.on_answer(f"{self.answers[-1]} and {said}")

    async def steer(self, _run_id, text, message_id):
        """A text enters the turn."""
        self.texts.append((message_id, text))
        self.taken.set()
        return True


class Story:
    """What a person does in a run of `Everything`, and what has to come of it."""

    def __init__(self, made, turn):
        self.made = made
        self.turn = turn
        self.thread = made.thread()
        self.run_id = None
        self.card = None
        self.click = None
        self.more = None

    def begin(self):
        """The person attaches a file and writes."""
        instance, ada = self.made.instance, self.made.ada
        found = instance.add_file(ada, self.thread, "notes.txt", "text/plain", NOTES.encode())
        self.run_id = self.made.say(self.thread, "which colour?", file_ids=(found.id,))

    async def asked(self):
        """The run waits for an answer."""
        await self.made.in_state(self.run_id, RunState.WAITING_INPUT)

    async def answer(self):
        """The person answers the card and reads that it was taken."""
        made = self.made
        await self.asked()
        self.card = next(one for one in made.instance.messages(self.thread) if one.kind is MessageKind.CARD)
        button = next(one for one in self.card.components if "blue" in one.label)
        self.click = made.instance.use_component(made.ada, self.card.id, button.id).interaction
        await made.until(lambda: made.instance.interaction(self.click.id).status is not None)

    async def write(self):
        """The person writes once more while the turn runs."""
        made = self.made
        posted = made.instance.post_message(
            made.ada, self.thread, "also this", client_msg_id=f"more {self.thread}"
        )
        assert posted.followup_of == self.run_id
        self.more = posted.message.id
        await made.ended(self.run_id)

    async def all(self):
        """Everything, to the run's end."""
        self.begin()
        await self.answer()
        await self.write()

    def told(self):
        """What people see at the end, as plain values."""
        instance = self.made.instance
        view, thread = instance.run(self.run_id), instance.thread(self.thread)
        texts = self.made.texts(self.thread, self.run_id)
        click = instance.interaction(self.click.id)
        return {
            "state": str(view.run.state),
            "reason": view.run.reason,
            "texts": [text for role, text in texts if text != self.card.content],
            "cards": [role for role, text in texts if text == self.card.content],
            "steps": [(step.title, str(step.state)) for step in view.document.steps],
            "status line": view.document.status_line,
            "click": (str(click.status), click.text),
            "followup": instance.followup_state(self.more),
            "session": (thread.session_ref, thread.session_version),
            "title": thread.title,
            "runs": len(instance.runs(self.thread)),
            "files": [NOTES in turn.system_part for turn in self.turn.runtime.turns],
            "answers": self.turn.answers,
            "taken": [text for _, text in self.turn.texts],
        }


TOLD = {
    "state": "completed",
    "reason": None,
    "texts": ["I will look.", "blue and also this"],
    "cards": ["interim"],
    "steps": [("is running ls", "completed")],
    "status line": None,
    "click": ("acknowledged", "blue"),
    "followup": "absorbed",
    "session": (SESSION, 1),
    "title": "On colours",
    "runs": 1,
    "files": [True],
    "answers": ["blue"],
    "taken": ["also this"],
}
"""What people see of an undisturbed run."""


def left_over(state_dir):
    """What an adapter's state file still holds to do, as (open entries, calls, cards)."""
    with contextlib.closing(sqlite3.connect(state_dir / "state.sqlite3")) as database:
        ask = database.execute
        return (
            ask("SELECT count(*) FROM inbox WHERE state NOT IN ('settled', 'done')").fetchone()[0],
            ask("SELECT count(*) FROM outbox").fetchone()[0],
            ask("SELECT count(*) FROM cards").fetchone()[0],
        )
