"""Nodes whose clients come by other ports than those at which the nodes listen, as in containers with mapped ports.
Each has a forwarder before its client port, and tells clients the forwarder's address."""

import asyncio
import contextlib

from conftest import LASTING, all_live, assert_nothing_left

from distkv_client import Client
from distkv_client.testing import Cluster


class Forwarder:
    """Carries connections to a node's client port."""

    def __init__(self):
        self.target = None
        self.carried = set()
        """By these addresses the node knows the clients that came this way."""
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError):
            host, port = self.target.split(":")
            # Where nobody listens any more, the client's connection is closed.
            far_reader, far_writer = await asyncio.open_connection(host, port)
            self.carried.add("{}:{}".format(*far_writer.get_extra_info("sockname")))
            with contextlib.closing(far_writer):
                ways = {asyncio.create_task(_carry(*way)) for way in ((reader, far_writer), (far_reader, writer))}
                self._tasks |= ways
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        writer.close()


async def _carry(reader, writer):
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 14):
            writer.write(piece)
            await writer.drain()


async def test_who_knows_one_node_follows_to_the_others_by_the_addresses_that_these_advertise():
    async with Forwarder() as first, Forwarder() as second:
        with Cluster(0) as cluster:
            for way in (first, second):
                way.target = cluster.add("--advertise-client", way.address).client
            async with Client.connect(first.address, config=LASTING) as client:
                await all_live(client, 2)
                told = {node.name: str(node.client) for node in client.cluster_view().nodes}
                assert told == {"n1": first.address, "n2": second.address}
                # When it is acknowledged, both nodes have it.
                await client.put("a", 1, copies=1)
                cluster[0].kill()
                assert await client.get("a") == 1
                assert (await client.put("a", 2)).node == "n2"
                guests = (await client.request("clients", idempotent=True))["result"]
                assert guests
                assert {guest["address"] for guest in guests} <= second.carried, "one came past the forwarder"
    assert_nothing_left()
