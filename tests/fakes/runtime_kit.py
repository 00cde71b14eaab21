"""The runtime inside a gateway, on a platform that does what a test says."""

import asyncio
from types import SimpleNamespace
from uuid import UUID

from bothy_hermes.hermes_control import Command
from bothy_hermes.hermes_runtime import (
    HermesRuntime,
)
from bothy_hermes.hermes_sessions import HermesSessions
from bothy_hermes.runtime import (
    BusyMode,
    TurnRequest,
)
from bothy_hermes.turn_facts import Asked, Ended, Ids, Replied
from tests.fakes import hermes
from tests.fakes.clock import FakeClock, settle
from tests.fakes.turn_events import RecordedEvents

MAIN = Ids("s", "s", "t")
ENDED = Ended(MAIN, True, False, False, "text_response(finish_reason=stop)")
STOPPED = Ended(MAIN, False, False, True, "interrupted_by_user")


def request(number=1):
    """A turn of a thread of its own."""
    ids = [UUID(int=number * 10 + offset) for offset in range(5)]
    return TurnRequest(ids[0], ids[1], ids[2], ids[3], "Ada", ids[4], "What time is it?", "In a channel.")


class Gateway:
    """A platform whose Hermes says what the test has it say."""

    def __init__(self, monkeypatch):
        self.state = hermes.installed(monkeypatch)
        self.fake = FakeClock()
        self.handed = []
        self.texts = []
        self.commands = []
        self.stopped = []
        self.released = []
        self.halted = []
        self.bound = {}
        self.subagents = {}
        self.dropped = []
        self.accepts = True
        self.busy = False
        self.busy_mode = BusyMode.STEER
        self.agents = {}
        self.on_hand_in = None
        self.on_stop = None
        self.on_command = None
        self.runner = hermes.Runner()
        self.sessions = HermesSessions(self.runner, "bothy")
        self.runtime = HermesRuntime(self, "bothy", hermes.HOME, self.fake.clock)

    def turn_event(self, turn):
        return SimpleNamespace(message_id=str(turn.message_id), turn=turn)

    def text_event(self, turn, text, message_id):
        return SimpleNamespace(message_id=str(message_id), turn=turn, text=text)

    async def hand_in(self, event):
        (self.texts if hasattr(event, "text") else self.handed).append(event)
        if self.on_hand_in is not None:
            await self.on_hand_in(event)
        return self.accepts

    def is_busy(self, _turn):
        return self.busy

    def session_key(self, turn):
        return f"key-{turn.thread_id}"

    def agent(self, turn):
        return self.agents.get(turn.run_id)

    def bound_payee(self, turn):
        return self.bound.get(turn.run_id)

    def has_session(self, turn, session_id):
        return session_id in self.subagents.get(turn.run_id, ())

    def key_type(self, _turn, _session_id, _provider):
        return None

    def halt(self, turn):
        self.halted.append(turn.run_id)

    def release_prompts(self, turn):
        self.released.append(turn.run_id)

    def drop_held(self, turn, agent, message_ids):
        self.dropped.append((turn.run_id, agent, message_ids))

    async def command(self, turn, command, message_id, reference=None):
        if command is Command.STOP:
            self.stopped.append((turn.run_id, message_id))
            if self.on_stop is not None:
                await self.on_stop(turn)
            return
        self.commands.append((command, reference))
        if self.on_command is not None:
            await self.on_command(turn, command, reference)
        self.runtime.processing_complete(message_id, cancelled=False)

    def say(self, turn, *facts):
        """Have hooks come, as from Hermes' threads."""
        for fact in facts:
            self.runtime.threads.hear(turn.thread_id, fact)

    async def send(self, turn, text, *, chat_id=None, thread_id=None, reply_to=None, speaker=None, **marks):
        metadata = {"thread_id": str(thread_id or turn.thread_id), **marks}
        return await self.runtime.threads.sent(
            str(chat_id or turn.channel_id), text, reply_to, metadata, speaker=speaker
        )

    def done(self, turn, *, cancelled=False):
        self.runtime.processing_complete(str(turn.message_id), cancelled=cancelled)

    async def answer(self, turn, text="Five."):
        """A whole plain turn."""
        self.runtime.threads.processing_started(str(turn.message_id))
        self.say(turn, Asked(MAIN), Replied(MAIN, 0, text), ENDED)
        await settle()
        await self.send(turn, text, reply_to=str(turn.message_id), notify=True)
        self.done(turn)


def scenes(monkeypatch):
    """Runs scenes, each with a gateway of its own."""

    def run(scene):
        async def opened():
            return await scene(Gateway(monkeypatch))

        return asyncio.run(opened())

    return run


def start(gateway, turn, events=None):
    """Begin a turn; returns its task and who is told."""
    told = events or RecordedEvents()
    return asyncio.ensure_future(gateway.runtime.start_turn(turn, told)), told
