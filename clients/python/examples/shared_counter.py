"""A counter with several writers, by versions as preconditions: `python shared_counter.py [SEED…]`.

Exact as long as all writers reach the same node: not over a split, nor when a node freezes for about two seconds or is
killed, so that some of them go on at another one. Then two nodes can each take a next number; one is lost, and reported
as a conflict.
"""

import asyncio
import sys

from distkv_client import Client, Fate, PreconditionError

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
        except PreconditionError as error:
            if error.fate is not Fate.NOT_DONE:
                # An earlier try of this call may have counted: to go on could count twice.
                raise
            # Somebody was there first.


async def write(seeds: tuple[str, ...]) -> None:
    async with Client.connect(*seeds) as client:
        for _ in range(TURNS):
            await add_one(client)


async def main(*seeds: str) -> None:
    async with Client.connect(*seeds) as client:
        await client.delete("counter")
        await asyncio.gather(*(write(seeds) for _ in range(WRITERS)))
        count = await client.get("counter", int)
        print(f"{WRITERS} writers counted to {count}")
        assert count == WRITERS * TURNS


# Without seeds, those of the ticket in DISTKV_TICKET are taken, or else 127.0.0.1.
asyncio.run(main(*sys.argv[1:]))
