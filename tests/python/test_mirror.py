"""The client's own object tree: a mirror that follows the server."""

import anyio
import anyio
import msgpack_raw as mp
import pytest
import raw
from conftest import clients
from distkv.obj import ClientRoot
from moat.util import NotGiven, attrdict

TREE = {(): 0, ("a",): 1, ("a", "b"): 2, ("a", "b", "c"): 3, ("a", "d"): 4, ("e", "f", "g"): 5}


async def test_a_mirror_holds_the_tree_and_follows_it(node, base):
    async with clients(node) as client:
        for path, value in TREE.items():
            await client.set(base + path, value=value)
        async with client.mirror(base, need_wait=True) as root:
            await root.wait_loaded()
            assert root.value == 0
            for path, value in TREE.items():
                assert root.follow(path, create=False, empty_ok=True).value == value
            res = await client.set(base + ["a", "new"], value="n", nchain=3)
            await root.wait_chain(res.chain)
            assert root["a"]["new"].value == "n"
            res = await client.delete(base + ["a", "b"], nchain=3)
            await root.wait_chain(res.chain)
            assert root["a"]["b"].value is NotGiven
            assert root["a"]["b"]["c"].value == 3


async def test_a_mirrors_entries_write_through(node, base):
    async with clients(node) as client:
        await client.set(base, value="top")
        async with client.mirror(base, need_wait=True) as root:
            await root.wait_loaded()
            entry = root.follow(("x",), create=True)
            res = await entry.update(17, wait=True)
            assert (await client.get(base + ["x"], nchain=3)).chain == res.chain
            assert (await client.get(base + ["x"])).value == 17
            await entry.update(18, wait=True)
            assert (await client.get(base + ["x"])).value == 18
            await entry.delete(wait=True, nchain=1)
            assert "value" not in await client.get(base + ["x"])


async def test_a_mirror_notices_changes_of_others(node, base):
    with node.raw() as other:
        async with clients(node) as client:
            async with client.mirror(base, need_wait=True) as root:
                await root.wait_loaded()
                assert isinstance(root, ClientRoot)
                for i in range(30):
                    res = other.ok("set_value", path=mp.path(*base, i), value=i)
                await root.wait_chain(attrdict(res["chain"]))
                assert len(root) == 30
                assert [root[i].value for i in range(30)] == list(range(30))


async def test_a_mirror_goes_on_however_often_the_nodes_that_write_are_started_anew(network, base):
    """Each start of a node is another maker of events, and a mirror asks for three of an entry's."""
    seen = network.add()
    async with clients(seen) as client:
        async with client.mirror(base, need_wait=True) as root:
            await root.wait_loaded()
            for i in range(6):
                writer = await anyio.to_thread.run_sync(lambda: network.add(name="w"))
                with writer.raw() as other:
                    res = other.ok("set_value", path=mp.path(*base, "x"), value=i, nchain=1)
                with anyio.fail_after(30):
                    await root.wait_chain(attrdict(res["chain"]))
                    while root["x"].value != i:
                        await anyio.sleep(0.01)
                network.nodes.remove(writer)
                await anyio.to_thread.run_sync(writer.stop)
            # What it writes by itself has a chain, too, which it walks along later.
            await root["x"].update("mine", wait=True)
            writer = await anyio.to_thread.run_sync(network.add)
            with writer.raw() as other:
                res = other.ok("set_value", path=mp.path(*base, "x"), value="last", nchain=1)
            with anyio.fail_after(30):
                await root.wait_chain(attrdict(res["chain"]))
            assert root["x"].value == "last"


@pytest.mark.parametrize("value", [b"\xa4caf\xe9", b"\x81\x80\x01", b"\xc7\x00\x05", b"\xd4\xff\x00"])
async def test_a_mirror_goes_on_where_somebody_stores_what_it_could_not_read(node, base, value):
    path = mp.encode(mp.path(*base, "a"))
    with node.raw() as other:
        async with clients(node) as client:
            async with client.mirror(base, need_wait=True) as root:
                await root.wait_loaded()
                other.ok("set_value", path=mp.path(*base, "a"), value=1)
                refusal = other.reply(other.start_bytes("set_value", path=path, value=value))
                assert refusal["code"] == "bad_request"
                res = other.ok("set_value", path=mp.path(*base, "b"), value=2)
                with anyio.fail_after(raw.PATIENCE):
                    await root.wait_chain(attrdict(res["chain"]))
                assert (root["a"].value, root["b"].value) == (1, 2)
            assert (await client.get(base + ["a"])).value == 1


async def test_the_list_of_the_client(node, base):
    async with clients(node) as client:
        for path, value in {**TREE, ("h",): 6}.items():
            await client.set(base + path, value=value)
        assert await client.list(base) == ("a", "e", "h")
        assert await client.list(base, with_data=True) == {"a": 1, "h": 6}
        assert await client.list(base + ["h"]) == ()
