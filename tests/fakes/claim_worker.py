"""A process that takes events until it is killed, and writes down each one after it was acknowledged.

Arguments: the state directory, the file of acknowledgements, how many events there are. The file is
written with one system call a line, so that a kill leaves it as far as it was, without a pipe between.
"""

import asyncio
import os
import sys
from pathlib import Path

from bothy_hermes.clock import system_clock
from bothy_hermes.store import EntryState, Store
from tests.fakes.store_kit import call, entry

WAITERS = 64


async def main(directory, acks, count):
    acked = {int(line) for line in acks.read_text().split()} if acks.exists() else set()
    out = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    store = await Store.open(directory, system_clock())
    numbers = iter([number for number in range(1, count + 1) if number not in acked])

    async def waiter():
        for number in numbers:
            taking = entry(number, EntryState.ACCEPTED, jti=f"jti-{number}")
            await store.take_event(taking, [call(f"k{number}")])
            os.write(out, f"{number}\n".encode())

    await asyncio.gather(*(waiter() for _ in range(WAITERS)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
