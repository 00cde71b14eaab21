"""The platform as Hermes sees it, on stand-ins of Hermes' modules."""

import asyncio
import contextlib
import importlib
import sys
from types import SimpleNamespace
from uuid import UUID

from bothy_hermes.runtime import Spending, TurnRequest
from bothy_hermes.wire_words import BillingMode
from tests.fakes import hermes
from tests.fakes.clock import settle
from tests.fakes.turn_events import RecordedEvents

RUN, THREAD, CHANNEL, PERSON, MESSAGE = (UUID(int=number) for number in range(1, 6))
SPENDS = Spending(BillingMode.ORGANIZATION, "custom", "http://127.0.0.1:9/v1")
REQUEST = TurnRequest(
    RUN, THREAD, CHANNEL, PERSON, "Ada", MESSAGE, "/new what time is it?", "In a channel.", SPENDS
)
KEY = f"agent:main:bothy:dm:{CHANNEL}:{THREAD}"
METADATA = {"thread_id": str(THREAD)}
IDS = {"platform": "bothy", "session_id": "s", "task_id": "s", "turn_id": "t"}
PAID = {"provider": SPENDS.provider, "base_url": f"{SPENDS.base_url}/", "api_mode": "chat_completions"}


class Loop:
    """An adapter loop that does what the test says."""

    built = ()

    def __init__(self, settings, runtime, clock, state_dir, *, opened, lacking):
        self.settings, self.runtime, self.state_dir, self.opened = settings, runtime, state_dir, opened
        self.lacking = lacking
        self.running = asyncio.Event()
        self.stopping = asyncio.Event()
        self.fails = None
        self.deaf = False
        Loop.built = (*Loop.built, self)

    async def run(self):
        self.running.set()
        if self.fails is not None:
            raise self.fails
        await self.stopping.wait()

    async def stop(self):
        if self.deaf:
            await asyncio.Event().wait()
        self.stopping.set()


class Stage:
    """A platform on stand-ins of Hermes' modules."""

    def __init__(self, monkeypatch, tmp_path, *, base=None, without=()):
        self.state = hermes.installed(monkeypatch, without=without)
        if base is not None:
            self.state.modules["gateway.platforms.base"].BasePlatformAdapter = base
        for room in ("hermes_plugin", "hermes_asks", "hermes_files"):  # they look at Hermes when loaded
            monkeypatch.delitem(sys.modules, f"bothy_hermes.{room}", raising=False)
        self.module = importlib.import_module("bothy_hermes.hermes_plugin")
        monkeypatch.setattr(self.module, "AdapterLoop", Loop)
        Loop.built = ()
        token = tmp_path / "token"
        token.touch(mode=0o600)
        token.write_text("agent-token-value\n")
        self.extra = {
            "hermes_adapter.server_url": "http://127.0.0.1:9/api/v1",
            "hermes_adapter.instance_id": str(UUID(int=9)),
            "hermes_adapter.token_file": str(token),
            "dm_policy": "allowlist",
        }
        self.platform = None

    def open(self):
        """Have Hermes build the platform."""
        self.platform = self.module.ServerPlatform(SimpleNamespace(extra=self.extra), "bothy")
        self.platform.gateway_runner = hermes.Runner()
        return self.platform

    async def connected(self):
        """A platform that serves."""
        platform = self.open()
        assert await platform.connect() is True
        await settle()
        return platform


def play(scene):
    """Run a scene; nothing of it may take long."""

    async def bounded():
        async with asyncio.timeout(10):
            return await scene

    return asyncio.run(bounded())


@contextlib.asynccontextmanager
async def at_work(made):
    """A platform with a turn at work in the thread; yields it and who is told."""
    platform = await made.connected()
    told = RecordedEvents()
    task = asyncio.ensure_future(platform._bothy.start_turn(REQUEST, told))
    await settle()
    made.state.in_thread(THREAD)
    platform.hear("pre_llm_call", IDS)
    await settle()
    told.heard.clear()
    try:
        yield platform, told
    finally:
        task.cancel()
        await platform.disconnect()
