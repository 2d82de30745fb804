"""Which services are up, by recent heartbeats: `python service_presence.py [SEED…]`.

Each service writes a number that rises; who watches takes a service for gone when its number has not risen for a
while by the watcher's own clock, so no clocks are compared.
"""

import asyncio
import sys

from distkv_client import Change, Client

BEAT, PATIENCE = 0.05, 0.5


async def serve(seeds: tuple[str, ...], name: str, until: asyncio.Event) -> None:
    """A service: it beats until it is told to end."""
    async with Client.connect(*seeds) as client:
        beat = 0
        while not until.is_set():
            beat += 1
            await client.put(("services", name), beat)
            await asyncio.sleep(BEAT)


async def main(*seeds: str) -> None:
    loop = asyncio.get_running_loop()
    ends = {name: asyncio.Event() for name in ("mail", "web")}
    services = [asyncio.create_task(serve(seeds, name, end)) for name, end in ends.items()]
    heard: dict[str, float] = {}

    def up() -> set[str]:
        return {name for name, at in heard.items() if loop.time() - at < PATIENCE}

    async with Client.connect(*seeds) as client, client.watch("services", fetch=False) as watch:

        async def listen() -> None:
            async for event in watch:
                if isinstance(event, Change) and not event.deleted:
                    heard[str(event.path[-1])] = loop.time()

        listening = asyncio.create_task(listen())
        while up() != {"mail", "web"}:
            await asyncio.sleep(BEAT)
        print("up:", *sorted(up()))
        ends["mail"].set()
        while "mail" in up():
            await asyncio.sleep(BEAT)
        print("up:", *sorted(up()))
        assert up() == {"web"}
        listening.cancel()
        ends["web"].set()
        await asyncio.gather(*services)
        await client.delete_tree("services")


# Without seeds, those of the ticket in DISTKV_TICKET are taken, or else 127.0.0.1.
asyncio.run(main(*sys.argv[1:]))
