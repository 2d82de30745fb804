"""A counter with several writers, by versions as preconditions: `python shared_counter.py [SEED]`.

Exact as long as the network is not split; behind a split, one side's counts are lost, and reported as conflicts.
"""

import asyncio
import sys

from distkv_client import Client, PreconditionError

WRITERS, TURNS = 4, 25


async def add_one(client: Client) -> None:
    while True:
        entry = await client.entry("counter")
        try:
            if entry is None or entry.deleted:
                await client.put("counter", 1, if_new=True)
            else:
                await client.put("counter", entry.value + 1, if_version=entry.version)
            return
        except PreconditionError:
            # Somebody was there first.
            pass


async def write(seed: str) -> None:
    async with Client.connect(seed) as client:
        for _ in range(TURNS):
            await add_one(client)


async def main(seed: str) -> None:
    async with Client.connect(seed) as client:
        await client.delete("counter")
        await asyncio.gather(*(write(seed) for _ in range(WRITERS)))
        count = await client.get("counter", int)
        print(f"{WRITERS} writers counted to {count}")
        assert count == WRITERS * TURNS


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:27586"))
