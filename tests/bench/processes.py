"""The embedded server as a process of its own, somebody who writes to it, and how much memory it holds."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.clock import system_clock
from bothy_hermes.config import load_settings
from tests.fakes.adapter_kit import adapter_keys
from tests.fakes.people import PersonClient

ROOT = Path(__file__).parents[2]

SECONDS = 120.0
"""Until a measure gives up."""


@contextlib.contextmanager
def server_process(state):
    """Start the command `local-server`; gives its process ID and what fakes ask of a server."""
    command = [sys.executable, "-m", "bothy_hermes", "local-server", "--json", "--state", str(state)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = json.loads(process.stdout.readline())
        agent = said["agent"]
        access = SimpleNamespace(id=agent["id"], token_file=Path(agent["token_file"]))
        yield (
            process.pid,
            SimpleNamespace(
                api_url=said["api_url"],
                page_url=said["page_url"],
                instance_id=said["instance_id"],
                agent=access,
                people=said["people"],
            ),
        )
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def resident_bytes(pid):
    """The resident memory of a process, as `ps` counts it."""
    asked = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(asked.stdout) * 1024


class Office:
    """An adapter of this process at a server of another, and a person who writes."""

    def __init__(self, server, runtime, directory):
        keys = adapter_keys(server.api_url, server.instance_id, server.agent.token_file)
        self.runtime = runtime
        self.loop = AdapterLoop(load_settings(keys), runtime, system_clock(), directory)
        self.running = asyncio.ensure_future(self.loop.run())
        self.person = PersonClient(server, server.people[0]["token"])

    async def close(self):
        """Stop the adapter."""
        await self.loop.stop()
        await self.running

    async def idle(self):
        """Wait until the adapter works on nothing."""
        await self.until(lambda: self.loop._handler is not None and self.loop._handler.active_runs == 0)

    async def ask(self, call):
        """Make a person's call without holding the adapter up."""
        return await asyncio.to_thread(call)

    async def say(self, text):
        """Write in a new thread; returns the thread."""
        thread = await self.ask(self.person.thread)
        await self.ask(lambda: self.person.post(thread, text))
        return thread

    async def until(self, condition):
        """Wait for something of this process."""
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110  # the other side is another process
                await asyncio.sleep(0.02)

    async def open_card(self, thread):
        """Wait for a thread's open card and return it."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.ask(lambda: self.person.get(f"/threads/{thread}"))
                cards = [one for one in found["messages"] if one["kind"] == "card"]
                if cards and found["runs"][0]["open_cards"]:
                    return cards[0]
                await asyncio.sleep(0.05)

    async def answer(self, thread):
        """Answer a thread's card."""
        card = await self.open_card(thread)
        await self.ask(lambda: self.person.use(card, card["components"][0]))
