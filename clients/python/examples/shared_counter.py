"""A counter with several writers, by versions as preconditions: `python shared_counter.py [SEED…]`.

Exact as long as all writers reach the same node: not over a split, nor when a node freezes for about two seconds or is
killed, so that some of them go on at another one. Then two nodes can each take a next number; one is lost, and reported
as a conflict.
"""

import asyncio
import random
import sys

from distkv_client import Client, Fate, PreconditionError

WRITERS, TURNS = 4, 25
ATTEMPTS = 40
"""Of one step; with the pauses, that is about half a minute."""


async def add_one(client: Client) -> None:
    for attempt in range(ATTEMPTS):
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
        # Somebody was there first, or the node that was asked has not heard of that version yet, as at the beginning of
        # a split. The pauses grow, up to a second. They differ, so that those who were refused together do not come
        # back together.
        await asyncio.sleep(random.uniform(0.5, 1) * min(0.01 * 2**attempt, 1))
    raise TimeoutError(f"not counted: refused {ATTEMPTS} times")


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
