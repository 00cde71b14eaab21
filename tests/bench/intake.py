"""Durable intake against the bare group commit of the same store.

Both stand on state files whose every commit waits for the disk. An event begins as the text of its frame,
with a real token, and is taken when the text of its ack is handed to the connection; network, server and
Hermes are left out: keys, allow list, mode and tools are told at once. The bare store takes the same
entries with the same number of commits, each time right after it, and the two are compared round by round.
One thread's events come one after another, each with a commit of its own; as many threads' events at once
as may be in flight share commits.
"""

import asyncio
import gc
import time
from datetime import UTC, datetime
from uuid import UUID

from bothy_hermes.bothy_gateway import Delivery
from bothy_hermes.clock import system_clock
from bothy_hermes.codec import dump_json
from bothy_hermes.store import EntryState, InboxEntry, Store
from bothy_hermes.wire_events import SERVER_FRAMES, parse_frame
from tests.bench.figures import at_least, for_information, median
from tests.fakes.admission_kit import Desk
from tests.fakes.edge_kit import run_token
from tests.fakes.flow_kit import event_value, invocation_value, open_rooms
from tests.fakes.runtime import FakeRuntime

EVENTS = 400
ROUNDS = 7
AT_ONCE = 64


def ids(prefix, count):
    return [UUID(f"0192f4a0-7b1c-7000-8000-{prefix:04x}{index:08x}") for index in range(count)]


def events(number):
    """Invocations of as many runs, each with a token of its own; other ones for each number."""
    found = []
    pairs = zip(ids(2 * number + 1, EVENTS), ids(2 * number + 2, EVENTS), strict=True)
    for event_id, run_id in pairs:
        token = run_token(claims={"run_id": str(run_id), "jti": f"t{event_id}"})
        payload = invocation_value(run={"id": str(run_id)})
        found.append(event_value(payload=payload, token=token, id=str(event_id)))
    return found


class Hermes(FakeRuntime):
    """A Hermes that knows at once what it is asked."""

    async def resolved_credential(self):
        return self.credential

    async def loaded_toolsets(self):
        return self.toolsets


def at_once(rooms):
    """Let the server's allow list come without a round of the event loop."""
    allowed = rooms.api.allow

    async def get_allow_list(_agent_id, known_version):
        return None if known_version == allowed.version else allowed

    rooms.api.get_allow_list = get_allow_list


class Link:
    """A connection that counts the acks it is to send."""

    def __init__(self):
        self.sent = 0

    async def send(self, _text):
        self.sent += 1


def receiver(desk):
    """What happens to the text of a frame: read, and judged in a task of its own, until it is acked."""
    link = Link()

    async def receive(text):
        frame = parse_frame(text, SERVER_FRAMES)
        delivery = Delivery(frame.event, link)
        before = link.sent
        await asyncio.create_task(desk.admission.take(delivery, desk.rooms.fake.elapsed))
        assert link.sent > before, "an event was not acked"

    return receive


def forget(desk):
    """Let go of what the fakes have written down: collecting it is no work of the adapter's."""
    desk.handler.told.clear()
    gc.collect()


async def in_flight(work, items, how_many):
    """Do something with each item, so many at a time; returns the seconds it took."""
    waiting = iter(items)

    async def worker():
        for item in waiting:
            await work(item)

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(how_many)))
    return time.perf_counter() - began


async def intake(directory, how_many):
    """Seconds of each round, of the intake and of the bare store."""
    taken, bare = [], []
    async with open_rooms(directory / "intake", Hermes(), durable=True) as rooms:
        at_once(rooms)
        desk = Desk(rooms)
        await desk.ring.fetch()
        receive = receiver(desk)
        store = await Store.open(directory / "bare", system_clock())
        try:
            for number in range(ROUNDS):
                found = events(number)
                frames = [dump_json({"op": "event", "event": event}) for event in found]
                forget(desk)
                before = rooms.store.commits
                seconds = await in_flight(receive, frames, how_many)
                commits = rooms.store.commits - before
                taken.append(seconds)
                bare.append(await bare_commits(store, found, commits))
        finally:
            await store.close()
    return taken, bare


async def bare_commits(store, found, commits):
    """Have the bare store take the same entries in the same number of commits."""
    entries = [
        InboxEntry(
            UUID(event["id"]),
            event["type"],
            UUID(event["payload"]["run"]["id"]),
            UUID(event["payload"]["run"]["thread_id"]),
            f"t{event['id']}",
            EntryState.ACCEPTED,
            datetime.now(UTC),
        )
        for event in found
    ]
    shares = [entries[place::commits] for place in range(commits)]
    began = time.perf_counter()
    for share in shares:
        await asyncio.gather(*(store.take_event(entry) for entry in share))
    return time.perf_counter() - began


def share(taken, bare):
    """What the intake reaches of the bare store, in the middle of the rounds."""
    return median(one / other for one, other in zip(bare, taken, strict=True))


def measure(directory):
    """The figures."""
    taken, bare = asyncio.run(intake(directory / "one", 1))
    many, shared = asyncio.run(intake(directory / "many", AT_ONCE))
    return [
        at_least("durable intake over the bare group commit", share(taken, bare), 0.5),
        for_information("events taken in, one after another", EVENTS / median(taken), "events/s"),
        for_information("the same, 64 at once", EVENTS / median(many), "events/s"),
        for_information("64 at once over the bare group commit", share(many, shared), "ratio"),
    ]
