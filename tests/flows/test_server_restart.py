"""The server goes away in the middle of a run and comes back, in good order or not: the run ends right."""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bothy_hermes.clock import system_clock
from bothy_hermes.config import load_settings
from bothy_hermes.local_port import LocalServer
from tests.fakes.adapter_kit import World, adapter_keys, world
from tests.fakes.fault_kit import NOTES, OPTIONS, TOLD, Everything, Story, hurried, left_over
from tests.fakes.people import PersonClient

ROOT = Path(__file__).parents[2]
AWAY_SECONDS = 0.3
"""How long the server is away: the adapter meets it with calls and with a handshake."""


class RestartedWorld(World):
    """A world whose server can be stopped and started again."""

    async def restart(self, away=AWAY_SECONDS, *, meanwhile=lambda: None):
        """Stop the server, wait, and start it on the same directory and port."""
        before = self.server
        await asyncio.to_thread(before.stop)
        meanwhile()
        await asyncio.sleep(away)
        self.server = await asyncio.to_thread(
            LocalServer.start,
            before.instance.store.directory,
            port=urlsplit(before.origin).port,
            clock=system_clock(),
            options=OPTIONS,
        )
        self.server.violations.extend(before.violations)


@contextlib.asynccontextmanager
async def restarted_world(tmp_path, turn):
    async with world(tmp_path, turn.runtime, options=OPTIONS, kind=RestartedWorld, start=False) as made:
        made.clock = hurried()
        await made.start_adapter()
        yield made


MOMENTS = ("message", "card", "click", "text", "end")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_goes_on_over_a_restart_of_the_server(tmp_path, moment):
    """Right after the message, while the card waits, after the click, before the text, at the turn's end."""
    turn = Everything()

    async def scenario():
        async with restarted_world(tmp_path, turn) as made:
            story = Story(made, turn)
            story.begin()
            if moment == "message":
                await made.restart()
            await story.asked()
            if moment == "card":
                await made.restart()
            if moment == "click":
                turn.hold()
                clicking = asyncio.create_task(story.answer())
                await made.until(lambda: story.click is not None)
                await made.restart(meanwhile=turn.go_on)
                await clicking
            else:
                await story.answer()
            if moment == "text":
                await made.restart()
            if moment == "end":
                turn.hold()
                writing = asyncio.create_task(story.write())
                await made.until(lambda: turn.texts != [])
                await made.restart(meanwhile=turn.go_on)
                await writing
            else:
                await story.write()
            told = story.told()
        assert left_over(tmp_path / "adapter") == (0, 0, 0)
        return told

    assert asyncio.run(scenario()) == TOLD


def test_a_server_that_restarts_again_and_again_only_slows_a_run_down(tmp_path):
    turn = Everything()

    async def scenario():
        async with restarted_world(tmp_path, turn) as made:
            story = Story(made, turn)

            async def shake():
                for _ in range(3):
                    await made.restart(0.02)
                    await asyncio.sleep(0.05)

            story.begin()
            await asyncio.gather(story.asked(), shake())
            await asyncio.gather(story.answer(), shake())
            await asyncio.gather(story.write(), shake())
            return story.told()

    assert asyncio.run(scenario()) == TOLD


# Killed ------------------------------------------------------------------------------------------------


@dataclass
class ServerProcess:
    """The command `local-server` as a process of its own."""

    state: Path
    port: int = 0
    said: dict = field(default_factory=dict)
    process: subprocess.Popen | None = None

    def start(self):
        """Start it and read how to get in."""
        log = (self.state.parent / "server.log").open("ab")
        command = [sys.executable, "-m", "bothy_hermes", "local-server", "--json"]
        self.process = subprocess.Popen(
            [*command, "--state", str(self.state), "--port", str(self.port)],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
            stdout=subprocess.PIPE,
            stderr=log,
        )
        log.close()
        self.said = json.loads(self.process.stdout.readline())
        self.port = urlsplit(self.said["api_url"]).port

    def kill(self):
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def page_url(self):
        return self.said["page_url"]

    @property
    def log(self):
        return (self.state.parent / "server.log").read_text("utf-8")


class KilledStory:
    """The same story, read and told over HTTP."""

    def __init__(self, server, turn):
        self.server = server
        self.turn = turn
        self.person = PersonClient(server, server.said["people"][0]["token"])

    async def begin(self):
        self.thread = await self.ask(self.person.thread)
        path, text = f"/admin/threads/{self.thread}/files?name=notes.txt", {"Content-Type": "text/plain"}
        _, file = await self.ask(lambda: self.person.ask("POST", path, NOTES.encode(), text))
        files = [file["id"]]
        posted = await self.ask(lambda: self.person.post(self.thread, "which colour?", attachments=files))
        self.run_id = posted["run_id"]

    async def asked(self):
        await self.until(lambda: self.run["state"] == "waiting_input")
        self.card = next(one for one in self.seen["messages"] if one["kind"] == "card")

    async def click(self):
        button = next(one for one in self.card["components"] if "blue" in one["label"])
        status, _ = await self.ask(lambda: self.person.use(self.card, button))
        assert status == 201

    async def answered(self):
        await self.until(lambda: self.seen["interactions"] and self.seen["interactions"][0]["status"])

    async def write(self):
        await self.ask(lambda: self.person.post(self.thread, "also this"))

    async def ended(self):
        await self.until(lambda: self.run["state"] in {"completed", "failed", "cancelled"})

    @property
    def run(self):
        return self.seen["runs"][0]["run"]

    async def ask(self, call):
        return await asyncio.to_thread(call)

    async def until(self, condition):
        """Look until something is so; a server that is away shows nothing."""
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    self.seen = await self.ask(lambda: self.person.get(f"/threads/{self.thread}"))
                    if condition():
                        return
                await asyncio.sleep(0.02)

    def told(self):
        said = [one for one in self.seen["messages"] if one["role"]]
        view, click = self.seen["runs"][0], self.seen["interactions"][0]
        followups = [one["followup"] for one in self.seen["messages"] if one["content"] == "also this"]
        return {
            "state": view["run"]["state"],
            "reason": view["run"]["reason"],
            "texts": [one["content"] for one in said if one["kind"] == "text"],
            "cards": [one["role"] for one in said if one["kind"] == "card"],
            "steps": [(step["title"], step["state"]) for step in view["document"]["steps"]],
            "status line": view["document"]["status_line"],
            "click": (click["status"], click["text"]),
            "followup": followups[0],
            "title": self.seen["thread"]["title"],
            "runs": len(self.seen["runs"]),
            "files": [NOTES in turn.system_part for turn in self.turn.runtime.turns],
            "answers": self.turn.answers,
            "taken": [text for _, text in self.turn.texts],
        }


@contextlib.asynccontextmanager
async def killable(tmp_path, turn):
    """A server process and an adapter of this process; at the end nobody may have left the protocol."""
    server = ServerProcess(tmp_path / "server")
    await asyncio.to_thread(server.start)
    made = World(None, turn.runtime, tmp_path / "adapter", clock=hurried())
    agent = server.said["agent"]
    keys = adapter_keys(server.said["api_url"], server.said["instance_id"], agent["token_file"])
    made.loop = made.new_loop(load_settings(keys))
    made.task = asyncio.ensure_future(made.loop.run())
    try:
        yield server
        await made.stop_adapter()
        assert made.judge.found == []
        assert "violation" not in server.log
    finally:
        if made.task is not None:
            made.task.cancel()
            await asyncio.gather(made.task, return_exceptions=True)
        await asyncio.to_thread(server.kill)


async def kill_and_start(server, meanwhile=lambda: None):
    await asyncio.to_thread(server.kill)
    meanwhile()
    await asyncio.sleep(AWAY_SECONDS)
    await asyncio.to_thread(server.start)


KILLED_TOLD = {name: value for name, value in TOLD.items() if name != "session"}


@pytest.mark.parametrize(
    "moment",
    [pytest.param(one, marks=() if one in {"click", "end"} else pytest.mark.slow) for one in MOMENTS],
)
def test_a_run_goes_on_over_the_death_of_the_server(tmp_path, moment):
    """What was answered was on its disk; what was not is asked again."""
    turn = Everything()

    async def scenario():
        async with killable(tmp_path, turn) as server:
            story = KilledStory(server, turn)
            await story.begin()
            if moment == "message":
                await kill_and_start(server)
            await story.asked()
            if moment == "card":
                await kill_and_start(server)
            turn.hold()
            await story.click()
            if moment == "click":
                await kill_and_start(server, turn.go_on)
            turn.go_on()
            await story.answered()
            if moment == "text":
                await kill_and_start(server)
            turn.hold()
            await story.write()
            async with asyncio.timeout(20):
                await turn.taken.wait()
            if moment == "end":
                await kill_and_start(server, turn.go_on)
            turn.go_on()
            await story.ended()
        assert left_over(tmp_path / "adapter") == (0, 0, 0)
        return story.told()

    assert asyncio.run(scenario()) == KILLED_TOLD


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_server_that_dies_at_any_moment_loses_and_doubles_nothing(tmp_path, seed):
    turn = Everything()
    chance = random.Random(seed)

    async def scenario():
        async with killable(tmp_path, turn) as server:
            story = KilledStory(server, turn)

            async def die():
                await asyncio.sleep(chance.uniform(0, 0.15))
                await kill_and_start(server)

            await story.begin()
            await die()
            await story.asked()
            await story.click()
            await die()
            await story.answered()
            await story.write()
            await die()
            await story.ended()
            await die()
            await story.ended()
        return story.told()

    assert asyncio.run(scenario()) == KILLED_TOLD
