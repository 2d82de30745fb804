"""All flags in memory, kept up to date by a watch: `python feature_flags.py [SEED…]`."""

import asyncio
import sys
from types import TracebackType

from distkv_client import Change, Client, Restarted, UpToDate


class Flags:
    """Asking costs nothing; what is asked is at most as old as the network is slow."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._flags: dict[str, bool] = {}
        self._ready = asyncio.Event()

    async def __aenter__(self) -> "Flags":
        self._task = asyncio.create_task(self._follow())
        await self._ready.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    def __getitem__(self, name: str) -> bool:
        return self._flags.get(name, False)

    async def _follow(self) -> None:
        found = self._flags
        async with self._client.watch("flags", min_depth=1, max_depth=1) as watch:
            async for event in watch:
                match event:
                    case Change(path, _, deleted=True):
                        found.pop(str(path[-1]), None)
                    case Change(path, value):
                        found[str(path[-1])] = value is True
                    case Restarted():
                        # All of them follow. Until they are there, those of before count.
                        found = {}
                    case UpToDate():
                        self._flags = found
                        self._ready.set()


async def main(*seeds: str) -> None:
    async with Client.connect(*seeds) as client:
        await client.put("flags.dark_mode", True)
        async with Flags(client) as flags:
            print("dark mode:", flags["dark_mode"], "- beta:", flags["beta"])
            assert flags["dark_mode"] and not flags["beta"]
            await client.put("flags.beta", True)
            while not flags["beta"]:
                await asyncio.sleep(0.005)
            print("beta was switched on")
        await client.delete_tree("flags")


# Without seeds, those of the ticket in DISTKV_TICKET are taken, or else 127.0.0.1.
asyncio.run(main(*sys.argv[1:]))
