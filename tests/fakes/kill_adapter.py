"""An adapter in a process of its own, which kills itself at a named point.

Run as a module it is a nursery: it has loaded everything once, reads one JSON object a line from its
input, forks an adapter for each, and writes the child's process ID. An adapter's object has:

* `server_url`, `instance_id`, `token_file`, `state_dir`: where it works,
* `log`: a file for its output,
* `kill`: null, or `{"point": ..., "when": "before" | "after", "nth": ...}`.

Points are `store.<method>:<what>`, `http.<operation>`, `ack`, `steer`, `answer_prompt`, `start_turn`,
`turn` (in the middle of it) and `interrupt`. Every point is where the product meets something else: the
store's methods, the transport, the gateway's ack, Hermes. Nothing in the product knows of this.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path

from bothy_hermes import bothy_gateway, bothy_loop
from bothy_hermes.bothy_http import HttpTransport, Transport
from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.clock import system_clock
from bothy_hermes.config import load_settings
from bothy_hermes.runtime import BusyMode, Prompt, PromptKind, Usage
from bothy_hermes.store import EntryMove, OutboxCall, Store
from tests.fakes.runtime import FakeRuntime

TURNS = "turns.log"
KILLED = "killed"
CLARIFY = Prompt(PromptKind.CLARIFY, "0123456789", "k", "Which colour?", ("red", "blue"))


class Killer:
    """Kills this process at one point, the n-th time that it is reached."""

    def __init__(self, kill, state_dir):
        self._kill = kill
        self._left = kill["nth"] if kill else 0
        self._mark = Path(state_dir) / KILLED

    def at(self, point, when):
        """This point is reached."""
        kill = self._kill
        if kill is None or (point, when) != (kill["point"], kill["when"]):
            return
        self._left -= 1
        if self._left == 0:
            self._mark.write_text(f"{point} {when}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def what_of(changes):
    """What a durable step is about: its first call's operation, else the state that it moves to."""
    for change in changes:
        if isinstance(change, OutboxCall):
            return change.operation
    for change in changes:
        if isinstance(change, EntryMove):
            return str(change.state)
    return type(changes[0]).__name__ if changes else "nothing"


class KillingStore:
    """A store whose writes are points."""

    def __init__(self, store, killer, sequences=None):
        self._store, self._killer = store, killer
        self._sequences = {} if sequences is None else sequences

    def __getattr__(self, name):
        found = getattr(self._store, name)
        point = getattr(self, f"_point_{name}", None)
        if point is None:
            return found

        async def doing(*args, **kwargs):
            label = f"store.{name}:{point(*args, **kwargs)}"
            self._killer.at(label, "before")
            result = await found(*args, **kwargs)
            self._killer.at(label, "after")
            return result

        return doing

    def patient(self):
        return KillingStore(self._store.patient(), self._killer, self._sequences)

    async def calls(self, run_id=None):
        found = await self._store.calls(run_id)
        self._sequences.update({stored.sequence: stored.call.operation for stored in found})
        return found

    def _point_take_event(self, entry, calls=()):
        return f"{entry.event_type} {entry.state}"

    def _point_record(self, *changes):
        return what_of(changes)

    def _point_move_entry(self, _event_id, state, calls=()):
        return str(state)

    def _point_put_calls(self, calls):
        return what_of(calls)

    def _point_call_done(self, sequence, **_more):
        return self._sequences[sequence]

    def _point_call_failed(self, sequence, _word, **_more):
        return self._sequences[sequence]

    def _point_claim(self, *_args):
        return "card"

    def _point_forget_entry(self, _event_id):
        return "entry"


class KillingTransport(Transport):
    """A transport whose requests are points."""

    def __init__(self, inner, killer):
        self._inner, self._killer = inner, killer

    async def send(self, request, *, timeout):
        self._killer.at(f"http.{request.operation}", "before")
        response = await self._inner.send(request, timeout=timeout)
        self._killer.at(f"http.{request.operation}", "after")
        return response

    async def close(self):
        await self._inner.close()


class Hermes(FakeRuntime):
    """Does what the first word of a message asks for, and writes each turn down."""

    def __init__(self, state_dir, killer):
        super().__init__(self._turn)
        self._killer = killer
        self._log = Path(state_dir) / TURNS
        self._steered = asyncio.Queue()
        self.busy_mode = BusyMode.STEER
        self.on_steer = self._steer

    async def start_turn(self, turn, events):
        self._killer.at("start_turn", "before")
        with self._log.open("a") as log:
            log.write(f"{turn.run_id} {turn.user_text.split()[0]}\n")
        return await super().start_turn(turn, events)

    async def interrupt(self, run_id):
        self._killer.at("interrupt", "before")
        await super().interrupt(run_id)

    async def answer_prompt(self, prompt, answer):
        self._killer.at("answer_prompt", "before")
        resolved = await super().answer_prompt(prompt, answer)
        self._killer.at("answer_prompt", "after")
        return resolved

    async def _steer(self, _run_id, text, message_id):
        self._killer.at("steer", "before")
        await self._steered.put((text, message_id))
        self._killer.at("steer", "after")
        return True

    async def _turn(self, turn, events):
        session = f"session-{turn.run_id}"
        self.titles[session] = "A title of the model's"
        events.on_session(session)
        scripts = {"card": self._card, "together": self._together, "long": self._long}
        await scripts.get(turn.user_text.split()[0], self._plain)(turn, events)

    async def _plain(self, turn, events):
        await events.on_interim("I will look.")
        self._killer.at("turn", "before")
        events.on_status("is looking")
        events.on_usage(Usage("anthropic", "m", 3, 2, None, None))
        await events.on_answer(f"answer to: {turn.user_text}")

    async def _card(self, _turn, events):
        waiting = self.waiting[CLARIFY.hermes_id] = asyncio.get_running_loop().create_future()
        await events.on_card(CLARIFY)
        await events.on_answer(f"chosen: {await waiting}")

    async def _together(self, turn, events):
        text, message_id = await self._steered.get()
        events.on_text_seen(message_id)
        await events.on_answer(f"answer to: {turn.user_text} and {text}")

    async def _long(self, _turn, _events):
        await asyncio.Event().wait()


def patched(killer):
    """Put the killer between the product and what it meets."""
    usual_open, usual_ack = Store.open, bothy_gateway.Delivery.ack

    class Opener:
        @staticmethod
        async def open(*args):
            return KillingStore(await usual_open(*args), killer)

    async def ack(self, event_id):
        killer.at("ack", "before")
        await usual_ack(self, event_id)
        await asyncio.sleep(0.05)  # on its way: what the kernel has taken reaches the server
        killer.at("ack", "after")

    bothy_loop.Store = Opener
    bothy_gateway.Delivery.ack = ack


async def serve(work):
    """Be an adapter until the end."""
    killer = Killer(work["kill"], work["state_dir"])
    patched(killer)
    clock = system_clock()
    settings = load_settings(
        {
            "hermes_adapter.server_url": work["server_url"],
            "hermes_adapter.instance_id": work["instance_id"],
            "hermes_adapter.token_file": work["token_file"],
            "adapter.run_update_min_interval": 0.05,
        }
    )
    transport = KillingTransport(HttpTransport(settings.server_url, clock=clock), killer)
    hermes = Hermes(work["state_dir"], killer)
    await AdapterLoop(settings, hermes, clock, Path(work["state_dir"]), transport).run()


def be_adapter(work):
    """What a forked child does; it never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    out = os.open(work["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    logging.basicConfig(level=logging.INFO, force=True)
    try:
        asyncio.run(serve(work))
    finally:
        os._exit(1)


def nurse():
    """Fork an adapter for each line of the input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system takes the dead away
    for line in sys.stdin:
        work = json.loads(line)
        Path(work["state_dir"]).mkdir(mode=0o700, parents=True, exist_ok=True)
        child = os.fork()
        if child == 0:
            be_adapter(work)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    nurse()
