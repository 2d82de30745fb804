"""Several nodes and real clients: what is set at one is there at the others."""

import time

import anyio
import msgpack_raw as mp
import pytest
import raw
from conftest import clients


@pytest.fixture
def three(keeping_network):
    """Three nodes of one network."""
    return [keeping_network.add("--init", "null"), keeping_network.add(), keeping_network.add()]


async def test_a_value_set_anywhere_is_read_everywhere(keeping_network, three):
    async with clients(*three) as each:
        for i, client in enumerate(each):
            await client.set(("from", i), value=i)
        keeping_network.settle()
        for client in each:
            tree = [(tuple(r.path), r.value) async for r in client.get_tree(("from",))]
            assert tree == [((0,), 0), ((1,), 1), ((2,), 2)]


async def test_chains_grow_over_nodes(three):
    """As in wire/90: set on one, watch on the other, set there on top of it, and back."""
    # Nothing may block this thread once changes come: the library ends a connection on which one waits for a second.
    n1, n2 = three[0].life(), three[1].life()
    async with clients(*three) as (one, two, _):
        path = ("r0", "a")
        async with two.watch(("r0",)) as at_two, one.watch(("r0",)) as at_one:
            first = await one.set(path, value="v", nchain=3)
            assert first.chain.node == n1
            msg = await at_two.recv()
            assert (msg.value, msg.tock) == ("v", first.tock)
            assert (await two.get(path, nchain=3)).chain == first.chain
            second = await two.set(path, value="w", chain=first.chain, nchain=3)
            assert second.chain == {"node": n2, "tick": 1, "prev": first.chain}
            assert second.tock > first.tock
            assert (await at_one.recv()).value == "v"
            assert (await at_one.recv()).value == "w"
            third = await one.set(path, value="z", nchain=3)
            assert third.prev == "w"
            # n1's older event has left the chain
            want = {"node": n2, "tick": 1, "prev": None}
            assert third.chain == {"node": n1, "tick": first.chain.tick + 1, "prev": want}
            cut = await one.get(path, nchain=1)
            assert cut.chain == {"node": n1, "tick": third.chain.tick}


async def test_deletions_travel(keeping_network, three):
    async with clients(*three) as each:
        one, two, three_ = each
        async with two.watch(("r1",)) as at_two, three_.watch(("r1",)) as at_three:
            res = await one.set(("r1",), value=1, nchain=1)
            assert (await at_three.recv()).value == 1
            gone = await three_.delete(("r1",), chain=res.chain)
            assert gone.changed
            for watch in (at_two, at_three):
                msg = await watch.recv()
                while "value" in msg:
                    msg = await watch.recv()
                assert msg.tock == gone.tock
        keeping_network.settle()
        for client in each:
            got = await client.get(("r1",))
            assert "value" not in got and got.tock == gone.tock


async def test_writes_to_one_path_everywhere_at_once_converge(keeping_network, three):
    async with clients(*three) as each:
        async with anyio.create_task_group() as tg:

            async def writer(client, name):
                for i in range(20):
                    for turn in range(3):
                        await client.set(("r2", i), value=(name, turn))

            for name, client in zip("abc", each):
                tg.start_soon(writer, client, name)
        keeping_network.settle()
        trees = []
        for client in each:
            trees.append([dict(r) async for r in client.get_tree(("r2",), nchain=-1)])
            for r in trees[-1]:
                r.pop("seq"), r.pop("wseq", None)  # pylint: disable=expression-not-assigned
        assert len(trees[0]) == 20
        assert trees[0] == trees[1] == trees[2]


async def test_a_node_that_joins_has_everything_before_it_answers(keeping_network):
    one = keeping_network.add("--init", "null")
    async with clients(one) as client:
        for i in range(300):
            await client.set(("all", i), value=i)
        await client.delete(("all", 7))
    two = keeping_network.add()
    async with clients(two) as client:
        values = [r.value async for r in client.get_tree(("all",))]
        assert values == [i for i in range(300) if i != 7]


async def test_copies_wait_for_the_others(three):
    async with clients(*three) as (one, two, three_):
        for i in range(20):
            await one._request(  # pylint: disable=protected-access
                "set_value", path=("copies",), value=i, copies=2, nchain=0
            )
            assert (await two.get(("copies",))).value == i
            assert (await three_.get(("copies",))).value == i


def test_known_ticks_agree_after_many_writes(keeping_network, three):
    connections = [node.raw() for node in three]
    seqs = []
    for i in range(900):
        conn = connections[i % 3]
        seqs.append((conn, conn.start("set_value", path=mp.path("many", i % 50), value=i)))
    for conn, seq in seqs:
        assert conn.reply(seq)["changed"] in (True, False)
    keeping_network.settle()
    lives = [node.life() for node in three]
    for conn in connections:
        state = conn.ok("get_state", nodes=True, missing=True, remote_missing=True)
        assert state["nodes"] == dict(zip(lives, (301, 300, 300)))
        assert state["missing"] == {}
        conn.sock.close()


def test_a_lost_node_is_replaced_and_fetches_all(keeping_network, three):
    one, two, _ = three
    with one.raw() as conn:
        for i in range(100):
            conn.ok("set_value", path=mp.path("x", i), value=i)
        keeping_network.settle()
        two.kill()
        keeping_network.nodes.remove(two)
        for i in range(100, 200):
            conn.ok("set_value", path=mp.path("x", i), value=i)
        again = keeping_network.add(name="n4")
        with again.raw() as fresh:
            deadline = time.monotonic() + raw.PATIENCE
            while len(fresh.stream("get_tree", path=mp.path("x"))) < 200:
                assert time.monotonic() < deadline
