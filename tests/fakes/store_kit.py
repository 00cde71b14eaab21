"""Values and helpers of the tests of the state file."""

import asyncio
from uuid import UUID

from bothy_hermes.store import EntryState, InboxEntry, OutboxCall, Store
from tests.fakes.clock import START, FakeClock

RUN = UUID("11111111-1111-4111-8111-111111111111")
OTHER_RUN = UUID("22222222-2222-4222-8222-222222222222")
THREAD = UUID("33333333-3333-4333-8333-333333333333")


def event_id(number):
    """The ID of the test's n-th event."""
    return UUID(int=number)


def entry(number=1, state=EntryState.ACCEPTED, *, jti=None, run_id=RUN, kind="agent.invocation"):
    """An entry of the test's n-th event."""
    return InboxEntry(event_id(number), kind, run_id, THREAD, jti, state, START)


def call(key="k1", run_id=RUN, body=None, operation="createMessage"):
    """A call for the outbox."""
    return OutboxCall(key, run_id, operation, body=body if body is not None else {"content": "x"})


def with_store(directory, use, clock=None):
    """Open a store, let `use(store)` work on it, close it, and return what `use` returned."""

    async def main():
        store = await Store.open(directory, (clock or FakeClock()).clock)
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(main())


async def keys(store, run_id=None):
    """The keys of the calls that a store holds, in order."""
    return [stored.call.key for stored in await store.calls(run_id)]
