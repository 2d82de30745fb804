"""delete_value and delete_tree."""

import time

import msgpack_raw as mp
import pytest
import raw
from conftest import clients
from distkv.exceptions import ServerError
from raw import long_paths

TREE = [("dt",), ("dt", "a"), ("dt", "a", "b"), ("dt", "c")]


def _plant(connection, base):
    for path in TREE:
        connection.ok("set_value", path=mp.path(*base, *path), value="/".join(path))


async def test_delete_takes_the_value_and_leaves_what_is_below(node, base):
    async with clients(node) as client:
        await client.set(base, value=1)
        await client.set(base + ["sub"], value=2)
        res = await client.delete(base, nchain=3)
        assert (res.changed, res.prev) == (True, 1) and res.chain.prev is None
        got = await client.get(base)
        assert "value" not in got and got.tock == res.tock
        assert (await client.get(base + ["sub"])).value == 2


async def test_deleting_what_is_not_there_changes_nothing(node, base):
    async with clients(node) as client:
        assert (await client.delete(base + ["never", "was"])).changed is False
        await client.set(base, value=1)
        assert (await client.delete(base)).changed is True
        res = await client.delete(base)
        assert res.changed is False and "prev" not in res


async def test_a_deleted_entry_can_be_set_again(node, base):
    async with clients(node) as client:
        await client.set(base, value=1)
        await client.delete(base)
        res = await client.set(base, value=2)
        assert res.changed and "prev" not in res
        assert (await client.get(base)).value == 2


async def test_delete_tree_counts(node, base):
    async with clients(node) as client:
        for path in TREE:
            await client.set(base + path, value=1)
        await client.set(base + ["other"], value=1)
        assert (await client.delete_tree(base + ["dt"])).changed == 4
        assert [r async for r in client.get_tree(base + ["dt"])] == []
        assert (await client.get(base + ["other"])).value == 1


async def test_delete_tree_streams(node, base):
    async with clients(node) as client:
        for path in TREE:
            await client.set(base + path, value="v")
        seen = []
        async for r in await client.delete_tree(base + ["dt"], nchain=2):
            seen.append(r)
        assert [r.old_value for r in seen] == ["v"] * 4
        assert [r.tick for r in seen] == sorted({r.tick for r in seen})
        assert {r.node for r in seen} == {node.life()}
        # the connection still works, and the client's delete(recursive=True) is the same action
        assert (await client.set(base + ["dt", "x"], value=1)).changed
        assert (await client.delete(base + ["dt"], recursive=True)).changed == 1


def test_the_stream_of_a_delete_tree(connection, base):
    _plant(connection, base)
    seq = connection.start("delete_tree", path=mp.path(*base, "dt"), nchain=2)
    start = connection.reply(seq)
    assert start["state"] == "start" and start.order == ["seq", "state", "tock"]
    messages = connection.rest(seq)
    assert long_paths(messages) == [p[1:] for p in TREE]
    assert [m["depth"] for m in messages] == [0, 0, 1, 0]
    order = ["node", "tick", "prev", "path", "old_value", "tock", "seq", "depth"]
    assert all(m.order == order for m in messages)
    assert [m["old_value"] for m in messages] == ["/".join(p) for p in TREE]
    tocks = [m["tock"] for m in messages]
    assert tocks == sorted(set(tocks))
    for path, msg in zip(TREE, messages):
        got = connection.ok("get_value", path=mp.path(*base, *path), nchain=1)
        assert got["tock"] == msg["tock"] and got["chain"]["tick"] == msg["tick"]


def test_what_is_deleted_is_kept_for_tests_however_long_they_take(network, fresh_node):
    """A node that is alone makes an event and purges what is deleted; one that tests count on does not."""
    with network.add("--init", "null").raw() as purging, fresh_node.raw() as keeping:
        for connection in (purging, keeping):
            connection.ok("set_value", path=mp.path("a"), value=1)
            connection.ok("delete_value", path=mp.path("a"))
        deadline = time.monotonic() + raw.PATIENCE
        while purging.ok("get_value", path=mp.path("a"), nchain=1)["chain"] is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert keeping.ok("get_value", path=mp.path("a"), nchain=1)["chain"]["tick"] == 3
        for connection, ticks in ((purging, 4), (keeping, 3)):
            assert connection.ok("get_state", nodes=True)["nodes"] == {connection.life(): ticks}


def test_delete_tree_obeys_flow_control(node, base):
    with node.raw(qlen=5) as conn:
        for i in range(20):
            conn.ok("set_value", path=mp.path(*base, i), value=i)
        seq = conn.start("delete_tree", path=mp.path(*base), nchain=1)
        for wseq in range(1, 23):
            msg = conn.reply(seq)
            assert msg["wseq"] == wseq
            conn.send(seq=seq, state="ack", ack=wseq)
        assert msg["state"] == "end"


def test_delete_tree_counts_values_only(connection, base):
    _plant(connection, base)
    connection.ok("set_value", path=mp.path(*base, "x", "y", "z"), value=None)
    assert connection.ok("delete_tree", path=mp.path(*base))["changed"] == 5
    assert connection.ok("delete_tree", path=mp.path(*base))["changed"] == 0
    assert connection.ok("delete_tree", path=mp.path(*base, "nowhere"))["changed"] == 0


@pytest.mark.parametrize("root", [(), mp.path()], ids=["array", "extension"])
def test_the_root_is_not_deleted(connection, base, root):
    connection.ok("set_value", path=mp.path(*base), value=1)
    msg = connection.error("delete_tree", path=root)
    assert "root" in msg["error"]
    connection.error("delete_tree", path=root, nchain=1)
    assert connection.ok("get_value", path=mp.path(*base))["value"] == 1


async def test_the_client_sees_the_refusal_of_the_root(node):
    async with clients(node) as client:
        with pytest.raises(ServerError, match="root"):
            await client.delete_tree(())


async def test_the_client_reads_that_nothing_was_deleted(node, base):
    """`Client.delete` takes exactly one message; `Client.delete_tree` iterates."""
    async with clients(node) as client:
        await client.set(base + ["gone"], value=1)
        await client.delete(base + ["gone"])
        for nothing in (base + ["nowhere"], base + ["gone"]):
            assert (await client.delete(nothing, nchain=False)).changed is False
            assert (await client.delete(nothing, recursive=True, nchain=False)).changed == 0
            res = await client.delete(nothing, recursive=True, nchain=3)
            assert (res.node, res.tick, res.prev, tuple(res.path)) == (None, None, None, ())
            (res,) = [r async for r in await client.delete_tree(nothing, nchain=2)]
            assert res.node is None and "old_value" not in res


async def test_entries_of_a_mirror_can_be_deleted_whether_they_are_there_or_not(node, base):
    async with clients(node) as client:
        await client.set(base + ["there"], value=1)
        await client.set(base + ["tree", "below"], value=2)
        async with client.mirror(base, need_wait=True) as root:
            await root.wait_loaded()
            there, tree = root.follow(("there",)), root.follow(("tree",))
            nowhere = root.follow(("nowhere",), create=True)
            assert (await nowhere.delete()).changed is False
            assert (await nowhere.delete(nchain=3)).chain is None
            assert (await nowhere.delete(recursive=True)).changed == 0
            assert (await nowhere.delete(recursive=True, nchain=3)).node is None
            assert (await there.delete(nchain=3, wait=True)).changed is True
            # What is deleted already has the chain of its deletion, which the mirror has seen.
            assert (await there.delete(nchain=3, wait=True, chain=False)).changed is False
            assert (await tree.delete(recursive=True)).changed == 1
            assert (await tree.delete(recursive=True, nchain=3)).node is None
