"""Admission on real rooms, with keys of the test's making and a handler that only writes down."""

import asyncio

from bothy_hermes.admission import Admission
from bothy_hermes.bothy_keys import KeyRing
from bothy_hermes.wire import KeySetBody
from tests.fakes.edge_kit import AGENT, key_set
from tests.fakes.flow_kit import FakeDelivery, with_rooms


class KeySource:
    """A server that shows one key set, or nothing at all."""

    def __init__(self):
        self.keys = key_set()
        self.asked = 0
        self.error = None

    async def get_jwks(self):
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return KeySetBody(keys=tuple(self.keys))


class Handler:
    """Writes down what it is told to do."""

    def __init__(self):
        self.told = []
        self.error = None

    def names(self):
        """What it was told, in order, by name."""
        return [name for name, *_ in self.told]

    def begin(self, entry, invocation, token):
        self.told.append(("begin", entry, invocation, token))

    def send_leftovers(self, run_id, token, entry_id=None):
        self.told.append(("send_leftovers", run_id, token, entry_id))

    def send_owed(self, run_id):
        self.told.append(("send_owed", run_id))

    def take_token(self, run_id, token):
        self.told.append(("take_token", run_id, token))

    async def followup(self, event):
        self.told.append(("followup", event))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error

    async def interaction(self, entry, used, token):
        self.told.append(("interaction", entry, used, token))

    def run_ended(self, event):
        self.told.append(("run_ended", event))

    def end_run(self, run_id, outcome, reason):
        self.told.append(("end_run", run_id, str(outcome), str(reason)))


class Desk:
    """An admission and everything around it."""

    def __init__(self, made, *, jkt=None):
        self.rooms = made
        self.source = KeySource()
        self.ring = KeyRing(self.source, made.fake.clock)
        self.handler = Handler()
        self.config_changes = 0
        self.admission = Admission(
            made.services,
            self.ring,
            self.handler,
            agent_id=AGENT,
            jkt=jkt,
            config_changed=self._config_changed,
        )

    def _config_changed(self):
        self.config_changes += 1

    async def take(self, event):
        """Deliver an event; returns the delivery."""
        delivery = FakeDelivery(event)
        await self.admission.take(delivery, self.rooms.fake.elapsed)
        return delivery

    async def calls(self):
        """The stored calls, as operation and body."""
        return [(stored.call.operation, stored.call.body) for stored in await self.rooms.store.calls()]


def at_desk(tmp_path, steps, *, jkt=None, **keys):
    """Run `steps(desk)` on fresh rooms; returns what it returns."""

    async def on_rooms(made):
        return await steps(Desk(made, jkt=jkt))

    return with_rooms(tmp_path, on_rooms, **keys)
