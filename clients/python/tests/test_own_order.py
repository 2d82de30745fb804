"""What a client writes comes after all that it knows: two nodes that know nothing of each other, as when one has stood
still before it could tell the other."""

from contextlib import asynccontextmanager

from conftest import all_live, until

from distkv_client import Client, Config, Path, RetryPolicy, TopologyConfig
from distkv_client.clock import TOCK_END, Clock
from distkv_client.testing import Cluster, Node

CONFIG = Config(retry=RetryPolicy(try_deadline=3.0, total_deadline=40.0), topology=TopologyConfig(only_seeds=True))


@asynccontextmanager
async def strangers():
    """A node whose clock is ahead and one whose clock is behind, a client that takes them for one network, and a path
    for which each is preferred."""
    with Cluster(1) as one, Node("run", "--peer-wait", "0s", "--network", one.network, name="n2") as behind:
        ahead = one[0]
        async with Client.connect(ahead.client, behind.client, config=CONFIG) as client:
            await all_live(client, 2)
            paths = {client.preferred(path): path for path in (Path(f"p{number}") for number in range(100))}
            yield client, ahead, behind, paths["n1"], paths["n2"]


async def change(node, path, tock):
    """Somebody else changes an entry at a node, whose clock then shows this."""
    async with Client.connect(node.client) as other:
        reply = await other.request("set_value", path=path, value=tock, above=tock - 1)
        assert reply["tock"] == tock


async def test_what_is_written_elsewhere_is_newer_than_what_was_written_before():
    async with strangers() as (client, ahead, _, path, _):
        await change(ahead, path, 1000)
        older = await client.put(path, 59)
        assert older.node == "n1"
        ahead.freeze()
        newer = await client.put(path, 60)
        ahead.thaw()
        assert (newer.node, newer.version.tock) == ("n2", older.version.tock + 1)
        assert newer.version > older.version


async def test_what_is_deleted_elsewhere_stays_deleted():
    async with strangers() as (client, ahead, _, path, _):
        await change(ahead, path, 1000)
        older = await client.put(path, 59)
        ahead.freeze()
        # There, nothing is known of the path.
        newer = await client.delete(path)
        again = await client.delete(path)
        ahead.thaw()
        assert (newer.node, newer.changed) == ("n2", False)
        assert newer.version > older.version
        assert again.version is None or again.version == newer.version


async def test_a_tree_and_an_override_come_after_what_was_read():
    async with strangers() as (client, ahead, behind, path, other), client.watch(path) as watch:
        writes = (
            lambda: client.put(other, 1),
            lambda: client.delete_tree(other),
            lambda: client.prefer_shard(other.shard, "n2"),
            lambda: client.prefer_shard(other.shard, None),
            lambda: client.request("set_value", path=other, value=1),
        )
        for tock, write in zip(range(1000, 6000, 1000), writes, strict=True):
            await change(ahead, path, tock)
            if tock % 2000:
                assert await client.get(path) == tock
            else:
                # What comes in a stream is heard, too.
                await until(lambda tock=tock: told(watch, tock))
            await write()
            async with Client.connect(behind.client, config=CONFIG) as asking:
                assert (await asking.request("get_tock", idempotent=True))["tock"] > tock


async def told(watch, value):
    return getattr(await anext(watch), "value", None) == value


def test_the_greatest_counts_and_nothing_that_is_no_tock():
    clock = Clock()
    for tock in (5, 3, -1, None, True, 7.5, "9", TOCK_END):
        clock.hear({"tock": tock})
    clock.hear({})
    assert clock.latest == 5
