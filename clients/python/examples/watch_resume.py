"""A watch that survives a killed node: `python watch_resume.py` starts three nodes, and kills the one that sends."""

import asyncio

from distkv_client import Change, Client, Restarted, Resumed
from distkv_client.testing import Cluster


async def main() -> None:
    with Cluster(3) as cluster:
        async with Client.connect(*cluster.seeds) as client:
            while sum(node.is_live for node in client.cluster_view().nodes) < 3:
                await asyncio.sleep(0.02)
            seen = []
            async with client.watch("sensor") as watch:
                for number in range(10):
                    await client.put("sensor.level", number, copies=1)
                    if number == 4:
                        while 4 not in seen:
                            event = await watch.next()
                            if isinstance(event, Change):
                                seen.append(event.value)
                        print(f"{watch.node} sends; it is killed now")
                        cluster.by_name(watch.node or "").kill()
                while 9 not in seen:
                    event = await watch.next()
                    if isinstance(event, Change):
                        seen.append(event.value)
                    elif isinstance(event, Resumed):
                        print(f"{event.node} goes on where it was")
                    assert not isinstance(event, Restarted)
            assert seen == sorted(set(seen)), "in order, nothing twice"
            print("seen:", seen)


asyncio.run(main())
