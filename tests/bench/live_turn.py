"""A warm turn through Bothy over the same turn through a bare logging plugin, in one real gateway.

The model answers at once. Each turn is one of a thread that goes on, first through the one platform, then
through the other, and so on in turn. The fastest of each are compared: Hermes looks now and then whether a
turn is over, so that one through either platform takes a twentieth of a second more by chance, in some runs
seldom and in others mostly, and a median says which run it was.
"""

import json
import shutil
import socket
import threading
import time
from pathlib import Path

from bothy_hermes.demo_profile import TOOLSETS
from bothy_hermes.install_plan import Entry
from tests.bench.figures import at_most, for_information
from tests.live.kit import LiveWorld
from tests.live.talk import Talk

PLUGIN = Path(__file__).parent / "bare_plugin"
WARM_UP = 3
ROUNDS = 25


def bare_entries():
    """What the bare platform needs in the profile: the same as Bothy, where it can be the same."""
    top, shown = ("platforms", "bare"), ("display", "platforms", "bare")
    return (
        Entry(("plugins", "enabled"), ["bothy", "bare"]),
        Entry((*top, "enabled"), True),
        Entry((*top, "gateway_restart_notification"), False),
        Entry((*top, "home_channel", "platform"), "bare"),
        Entry((*top, "home_channel", "chat_id"), "none"),
        Entry((*top, "home_channel", "name"), "none"),
        Entry((*top, "extra", "dm_policy"), "allowlist"),
        Entry(("platform_toolsets", "bare"), list(TOOLSETS)),
        Entry((*shown, "tool_progress"), "off"),
        Entry((*shown, "long_running_notifications"), False),
    )


class Bare:
    """A client of the bare platform."""

    def __init__(self, home):
        port = int((home / "bare.port").read_text("utf-8"))
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._reader = self._socket.makefile("rb")
        self._count = 0

    def turn(self, text):
        """One turn; returns its seconds."""
        self._count += 1
        line = json.dumps({"id": f"m{self._count}", "thread": "t1", "text": text})
        began = time.perf_counter()
        self._socket.sendall(line.encode() + b"\n")
        said = json.loads(self._reader.readline())
        seconds = time.perf_counter() - began
        assert any(text.removeprefix("repeat ") in one for one in said), said
        return seconds

    def close(self):
        """End the connection."""
        self._reader.close()
        self._socket.close()


def bothy_turn(talk, text):
    """One turn; returns the seconds from the stored message to the completed run."""
    changed = threading.Event()
    forget = talk.instance.changes.listen(changed.set)
    try:
        run_id = talk.say(text)
        began = time.perf_counter()
        while not talk.run(run_id).run.state.ended:
            changed.wait(1.0)
            changed.clear()
        seconds = time.perf_counter() - began
    finally:
        forget()
    assert talk.texts(run_id) == [text.removeprefix("repeat ")]
    return seconds


def turns(directory):
    """Seconds of each pair of turns."""
    world = LiveWorld(directory / "live")
    try:
        world.open(more=bare_entries())
        shutil.copytree(PLUGIN, world.gateway.place.hermes_home / "plugins" / "bare")
        world.start()
        talk, bare = Talk(world), Bare(world.gateway.place.hermes_home)
        try:
            found = []
            for number in range(WARM_UP + ROUNDS):
                text = f"repeat number {number}"
                found.append((bothy_turn(talk, text), bare.turn(text)))
        finally:
            bare.close()
        assert world.server.violations == []
        return found[WARM_UP:]
    finally:
        world.close()


def measure(directory):
    """The figures."""
    bothy, bare = (min(column) for column in zip(*turns(directory), strict=True))
    return [
        at_most("warm turn through Bothy over a bare plugin", bothy / bare, 1.25, "ratio"),
        for_information("warm turn through Bothy", bothy * 1000, "ms"),
        for_information("warm turn through a bare plugin", bare * 1000, "ms"),
    ]
