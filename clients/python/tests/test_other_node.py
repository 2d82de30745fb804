"""An address at which another node answers than the one that a view has there."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from conftest import assert_nothing_left, until
from scripted import WRITTEN, ScriptedNode, error, start
from test_no_access import answers
from test_rules import CONFIG, POLICY, preferred_path, scene

from distkv_client import Client, NoMajorityError, Path, UnavailableError, UpToDate
from distkv_client.errors import OtherNodeError
from distkv_client.topology import ASK_ANEW_AFTER

BRIEF = replace(CONFIG, retry=replace(POLICY, total_deadline=3.0))
"""Where nothing can be done, so that all the time is used."""


def held(value, tock):
    """A node's answers where it holds this value, of that time."""
    chain = {"node": f"x~{tock}", "tick": tock, "prev": None}
    return lambda request: {"value": value, "tock": tock, "chain": chain}


@asynccontextmanager
async def misled(*scripts, config=CONFIG):
    """Nodes `s1`, `s2` …, which all say that the first one is where the last one is, and a client."""
    nodes = [ScriptedNode(f"s{n + 1}", script) for n, script in enumerate(scripts)]
    seeds = await start(*nodes)
    for node in nodes:
        node.shown["s1"] = nodes[-1].address
    try:
        async with Client.connect(*seeds[1:], config=config) as client:
            yield client, nodes
    finally:
        for node in nodes:
            await node.stop()
    assert_nothing_left()


async def test_another_node_is_not_counted_in_a_majority():
    async with misled(held("new", 2), held("new", 2), held("old", 1), config=BRIEF) as (client, nodes):
        assert await client.get("p", read="freshest") == "new", "two of three answer"
        await nodes[1].stop()
        with pytest.raises(NoMajorityError) as caught:
            await client.get("p", read="freshest")
        assert (caught.value.answered, caught.value.needed, caught.value.nodes) == (1, 2, 3)


async def test_a_node_that_leaves_in_the_middle_of_a_read_is_no_part_of_its_majority():
    """`s1` answers and leaves, then `s2` answers: both of those that are left must."""
    answering: set[str] = set()

    def script(name):
        return lambda request: held("new", 2)(request) if name in answering else error("not_ready")

    one, two, three = (
        ScriptedNode("s1", held("old", 1)),
        ScriptedNode("s2", script("s2")),
        ScriptedNode("s3", script("s3")),
    )
    async with scene(two, one, three, config=CONFIG) as client:
        reading = asyncio.ensure_future(client.get("p", read="freshest"))
        await until(lambda: one.actions("get_value") and two.actions("get_value"))
        two.states["s1"] = "left"
        two.tell_views()
        await until(lambda: any(node.state == "left" for node in client.cluster_view().nodes))
        answering.add("s2")
        asked = len(two.actions("get_value"))
        await until(lambda: len(two.actions("get_value")) > asked)
        asked = len(three.actions("get_value"))
        await until(lambda: reading.done() or len(three.actions("get_value")) > asked + 2)
        assert not reading.done()
        answering.add("s3")
        assert await reading == "new"


async def test_conflicts_are_those_of_the_nodes_that_answer():
    async with misled(answers, answers, answers) as (client, nodes):
        found = await client.conflicts()
        assert found.nodes == ["s2", "s3"]
        assert found.missing == {"s1": f"at {nodes[2].address} another node answers, s3"}
        assert [len(node.actions("conflicts")) for node in nodes] == [0, 1, 1], "none is asked twice"


async def test_calls_and_streams_go_on_at_another_node():
    async with misled(answers, answers, answers) as (client, nodes):
        order = client._topology.routing.router.order
        path = next(path for path in (Path(f"p{n}") for n in range(1000)) if list(order(path.shard)) == [0, 2, 1])
        written = await client.put(path, 1)
        assert (written.node, written.attempts) == ("s3", 2), "that node is where it is said to be, too"
        assert [await client.get(path) for _ in range(3)] == [1, 1, 1]
        assert (await client.put(path, 1)).attempts == 1, "it is known that the first one is not there"
        async with client.watch(path) as watch:
            assert await watch.next() == UpToDate()
            assert watch.node == "s3"
        assert nodes[0].accepted == 0
        assert client.stats().router.nodes["s1"].failures == 1


async def test_a_call_that_is_made_again_at_its_node_goes_to_that_node():
    told = [error("unknown_fate"), WRITTEN]
    async with misled(answers, answers, lambda request: told.pop(0) if len(told) > 1 else told[0]) as (client, _):
        written = await client.put(preferred_path(client, "s3"), 1, copies=1)
        assert (written.node, written.attempts) == ("s3", 2)


async def test_what_is_wrong_is_told_where_nobody_else_answers():
    async with misled(answers, answers, config=BRIEF) as (client, nodes):
        nodes[1].script = lambda request: error("not_ready")
        path = preferred_path(client, "s1")
        before = nodes[1].accepted
        with pytest.raises(OtherNodeError, match=f"at {nodes[1].address} another node answers, s2"):
            await client._pool.get(client._topology.routing.by_name["s1"].address, float("inf"), "s1")
        with pytest.raises(UnavailableError):
            await client.get(path)
        assert nodes[1].accepted == before, "the connection is kept for the node that it is"


async def test_a_view_that_is_wrong_is_asked_for_anew_at_another_node():
    nodes = [ScriptedNode(f"s{n + 1}", answers) for n in range(3)]
    async with scene(*nodes, config=CONFIG) as right:
        nodes[2].shown["s1"] = nodes[2].address
        async with Client.connect(nodes[2].address, config=CONFIG) as client:

            def where():
                return client._topology.routing.by_name["s1"].address

            assert str(where()) == nodes[2].address
            path = preferred_path(client, "s1")
            assert right.preferred(path) == "s1"
            assert (await client.put(path, 1)).node != "s1"
            await until(lambda: str(where()) == nodes[0].address)
            assert (await client.put(path, 1)).node == "s1"
            # Not again and again, where the view stays wrong.
            for node in nodes:
                node.shown["s1"] = nodes[2].address
                node.tell_views()
            await until(lambda: str(where()) == nodes[2].address)
            asked = [len(node.actions("watch_cluster")) for node in nodes]
            for _ in range(20):
                await client.conflicts()
            assert sum(len(node.actions("watch_cluster")) for node in nodes) == sum(asked)


async def test_a_wrong_view_is_asked_for_anew_now_and_then(jump):
    async with misled(answers, answers, answers) as (client, nodes):

        def asked():
            return sum(len(node.actions("watch_cluster")) for node in nodes)

        for count in (2, 3, 4):
            for _ in range(3):
                await client.conflicts()
            await until(lambda count=count: asked() >= count)
            await client.conflicts()
            assert asked() == count
            jump(ASK_ANEW_AFTER)


async def test_a_node_that_is_not_live_is_no_reason_to_ask_anew():
    async with misled(held(1, 1), held(1, 1), held(1, 1)) as (client, nodes):
        for node in nodes:
            node.states["s1"] = "down"
            node.tell_views()
        await until(lambda: not client._topology.routing.by_name["s1"].is_live)
        for _ in range(3):
            assert await client.get("p", read="freshest") == 1
        assert sum(len(node.actions("watch_cluster")) for node in nodes) == 1


async def test_a_node_with_a_new_name_is_found_where_it_was():
    one = ScriptedNode("old", answers)
    async with scene(one) as client:
        assert (await client.put("p", 1)).node == "old"
        await one.stop()
        one.name = "new"
        await one.start()
        written = await client.put("p", 1)
        assert written.node == "new"
        assert [node.name for node in client.cluster_view().nodes] == ["new"]


async def test_seeds_have_no_name_to_answer_to():
    nodes = [ScriptedNode(f"s{n + 1}", answers) for n in range(2)]
    only_seeds = replace(CONFIG, topology=replace(CONFIG.topology, only_seeds=True, old_nodes_delay=100.0))
    async with scene(*nodes, config=only_seeds) as client:
        await client.put("p", 1)
        known = [node.name for node in client.cluster_view().nodes]
        for node in nodes:
            node.name += " of now"
            node.drop()
        await until(lambda: not any(client._pool.ready(target.address) for target in client._topology.routing.targets))
        written = await client.put("p", 1)
        assert written.node.endswith(" of now") and written.attempts == 1
        assert [node.name for node in client.cluster_view().nodes] == known
