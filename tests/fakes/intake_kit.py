"""What tests of the intake share: what became of an event, what became of its run, and what disturbs both."""

import asyncio
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import ec

from bothy_hermes import bothy_gateway
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.wire_words import RunState
from tests.fakes.adapter_kit import world

OPTIONS = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=30_000, ack_timeout_ms=400)
INVOCATION, FOLLOWUP, INTERACTION = "agent.invocation", "agent.followup", "interaction.created"
OTHER = str(uuid4())
FOREIGN_KEY = ec.generate_private_key(ec.SECP256R1())
QUIET_SECONDS = 0.2
"""How long a test watches that nothing more happens."""

BAD_TOKENS = {
    "signature": {"key": FOREIGN_KEY},
    "type": {"header": {"typ": "JWT"}},
    "issuer": {"iss": OTHER},
    "audience": {"aud": OTHER},
    "expired": {"exp": 1_700_000_000},
    "not yet": {"nbf": 4_000_000_000},
    "no ID": {"jti": None},
    "run": {"run_id": OTHER},
    "thread": {"thread_id": OTHER},
    "channel": {"channel_id": OTHER},
    "person": {"sub": OTHER},
    "kind": {"run_kind": "guest"},
    "bound": {"cnf": {"jkt": "k" * 43}},
    "unknown key": {"header": {"kid": "made up"}},
}
"""Tokens with one thing wrong: what `resign` is to change."""


def flow(tmp_path, steps, runtime=None, *, options=OPTIONS, **more):
    """Run `steps(world)` in a world of its own."""

    async def scenario():
        async with world(tmp_path, runtime, options=options, **more) as made:
            return await steps(made)

    return asyncio.run(scenario())


def events_of(made, run_id, kind=INVOCATION):
    """The server's events of a run, of one type."""
    return [one for one in made.instance.state.events.all() if one.run_id == run_id and one.type == kind]


def is_settled(made, run_id, kind=INVOCATION):
    """Whether the server has the ack of each event of a type that a run has."""
    found = events_of(made, run_id, kind)
    return bool(found) and all(one.settled_at is not None for one in found)


async def entry_of(made, event_id):
    """What the adapter remembers of an event."""
    return await made.loop._admission._services.store.entry(event_id)


async def settled(made, run_id, kind=INVOCATION):
    """Wait until an event is settled, and watch that nothing comes after it."""
    await made.until(lambda: is_settled(made, run_id, kind))
    await asyncio.sleep(QUIET_SECONDS)


def untouched(made, run_id):
    """The run was not started, not ended, and nothing was done for it."""
    view = made.instance.run(run_id)
    assert (view.run.state, view.run.reason) == (RunState.QUEUED, None)
    assert made.runtime.turns == []


async def never_started(made, run_id, reason):
    """The run was ended with a reason, without a start and without a turn."""
    view = await made.ended(run_id)
    assert (view.run.state, view.run.reason) == (RunState.FAILED, reason)
    assert view.run.started_at is None
    assert made.runtime.turns == []
    await settled(made, run_id)


async def left_then_done(made, run_id, heal):
    """The event was left without a trace; after `heal()` its redelivery is done, once."""
    (event,) = events_of(made, run_id)
    await made.until(lambda: events_of(made, run_id)[0].attempt >= 1)
    await asyncio.sleep(QUIET_SECONDS)
    assert not is_settled(made, run_id)
    assert await entry_of(made, event.id) is None
    untouched(made, run_id)
    heal()
    view = await made.ended(run_id)
    assert view.run.state is RunState.COMPLETED
    assert len(made.runtime.turns) == 1
    assert events_of(made, run_id)[0].attempt >= 2
    await settled(made, run_id)


def disturb(made, operation, fault):
    """Disturb an operation; returns what ends it."""
    made.server.fault = lambda name, _request: fault if name == operation else None
    return lambda: setattr(made.server, "fault", None)


def lose_acks(monkeypatch, count):
    """Lose so many acks on their way to the server."""
    usual, lost = bothy_gateway.Delivery.ack, []

    async def ack(self, event_id):
        if len(lost) < count:
            lost.append(event_id)
            return
        await usual(self, event_id)

    monkeypatch.setattr(bothy_gateway.Delivery, "ack", ack)
    return lost


async def notices_settled(made):
    await made.until(
        lambda: all(one.settled_at for one in made.instance.state.events.all() if one.run_id is None)
    )
