"""chain, prev and idem: changes that happen only if."""

import msgpack_raw as mp
import pytest
from conftest import clients
from distkv.exceptions import ServerError


async def test_chain_none_means_new(node, base):
    async with clients(node) as client:
        first = await client.set(base, value=1, chain=None, nchain=2)
        assert first.changed and "prev" not in first
        with pytest.raises(ServerError, match="already exists"):
            await client.set(base, value=2, chain=None)
        assert (await client.get(base)).value == 1


async def test_a_chain_must_be_the_newest(node, base):
    async with clients(node) as client:
        first = await client.set(base, value=1, chain=None, nchain=2)
        second = await client.set(base, value=2, chain=first.chain, nchain=2)
        assert second.changed and second.chain.tick > first.chain.tick
        with pytest.raises(ServerError, match="Chain is"):
            await client.set(base, value=3, chain=first.chain)
        assert (await client.get(base)).value == 2
        with pytest.raises(ServerError, match="Entry is new"):
            await client.set(base + ["new"], value=3, chain=first.chain)
        # Node and tick are enough.
        short = {"node": second.chain.node, "tick": second.chain.tick}
        await client.set(base, value=4, chain=short)
        assert (await client.get(base)).value == 4


async def test_a_chain_that_was_told_works_before_and_after_the_node_restarts(keeping_network):
    """What a client gives back names the event that it was told, and no other one, for ever."""
    one, three = keeping_network.add("--init", "null"), keeping_network.add(name="n3")
    path = ("kk",)
    async with clients(one, three) as (at_one, at_three):
        first = await at_three.set(path, value=1, nchain=-1)
        keeping_network.settle()
        second = await at_one.set(path, value=2, chain=first.chain, nchain=-1)
        assert second.chain.prev == first.chain
        keeping_network.settle()
        third = await at_three.set(path, value=3, chain=second.chain, nchain=-1)
        keeping_network.settle()
    before = three.life()
    assert (first.chain.node, third.chain.node) == (before, before)
    three.kill()
    keeping_network.nodes.remove(three)
    three = keeping_network.add(name="n3")
    assert three.life() != before
    keeping_network.settle()
    async with clients(one, three) as (at_one, at_three):
        for client in (at_one, at_three):
            assert (await client.get(path, nchain=-1)).chain == third.chain
        # The new life's first event has the tick of the old one's first.
        await at_three.set(("tick",), value=0)
        fourth = await at_three.set(path, value=4, chain=third.chain, nchain=-1)
        assert (fourth.chain.node, fourth.chain.tick) == (three.life(), third.chain.tick)
        keeping_network.settle()
        for client in (at_one, at_three):
            for stale in (first.chain, third.chain):
                with pytest.raises(ServerError, match="Chain is"):
                    await client.set(path, value="lost", chain=stale)
            with pytest.raises(ServerError, match="n3~LIFE"):
                await client.set(path, value="lost", chain={**fourth.chain, "node": "n3"})
            assert (await client.get(path)).value == 4
        # Both stand in the chain, with the same tick.
        request = at_one._request  # pylint: disable=protected-access
        for chain in (third.chain, fourth.chain):
            by_event = {"node": chain.node, "tick": chain.tick}
            assert (await request(action="get_value", iter=False, **by_event)).value == 4
        assert (await at_one.set(path, value=5, chain=fourth.chain)).changed


async def test_a_dead_entry_is_new(node, base):
    async with clients(node) as client:
        res = await client.set(base, value=1, chain=None, nchain=2)
        res = await client.delete(base, chain=res.chain, nchain=2)
        dead = await client.get(base, nchain=2)
        assert "value" not in dead and dead.chain == res.chain
        with pytest.raises(ServerError, match="Entry is new"):
            await client.set(base, value=2, chain=res.chain)
        assert (await client.set(base, value=2, chain=None)).changed


async def test_prev_must_be_the_old_value(node, base):
    async with clients(node) as client:
        with pytest.raises(ServerError, match="Data is"):
            await client.set(base, value="a", prev="x")
        await client.set(base, value="a")
        with pytest.raises(ServerError, match="Data is"):
            await client.set(base, value="b", prev="x")
        res = await client.set(base, value="b", prev="a")
        assert res.changed and "prev" not in res
        with pytest.raises(ServerError, match="Data is"):
            await client.delete(base, prev="a")
        assert (await client.delete(base, prev="b")).changed


async def test_prev_none_means_the_value_nil(node, base):
    async with clients(node) as client:
        with pytest.raises(ServerError, match="Data is"):
            await client.set(base, value=1, prev=None)
        await client.set(base, value=None)
        assert (await client.set(base, value=1, prev=None)).changed


def test_the_words_of_the_errors(connection, base):
    path = mp.path(*base, "k")
    text = f"{base}.k"
    connection.ok("set_value", path=path, value="a")
    chain = connection.ok("set_value", path=path, value="a")["chain"]
    error = connection.error("set_value", path=path, value=1, chain=None)["error"]
    assert f"Entry already exists at {text}" in error
    wrong = {"node": chain["node"], "tick": 1}
    error = connection.error("set_value", path=path, value=1, chain=wrong)["error"]
    assert f"Chain is {chain['node']}:{chain['tick']} not {chain['node']}:1 for {text}" in error
    error = connection.error("set_value", path=path, value=1, prev="x")["error"]
    assert "Data is" in error
    error = connection.error("set_value", path=mp.path(*base, "l"), value=1, chain=chain)["error"]
    assert f"Entry is new at {base}.l" in error


def test_each_kind_of_refusal_has_a_code_of_its_own(connection, base):
    path = mp.path(*base)
    chain = connection.ok("set_value", path=path, value="a")["chain"]
    old = {"node": chain["node"], "tick": 1}
    bare = {"node": "n1", "tick": chain["tick"]}

    def code(action, **params):
        return connection.error(action, **params)["code"]

    assert code("set_value", path=path, value=1, chain=None) == "already_exists"
    assert code("set_value", path=mp.path(*base, 1), value=1, chain=chain) == "is_new"
    assert code("set_value", path=path, value=1, chain=old) == "chain_mismatch"
    assert code("set_value", path=path, value=1, chain={**old, "node": "n1~7"}) == "chain_mismatch"
    assert code("set_value", path=path, value=1, chain=bare) == "bad_request"
    assert code("set_value", path=path, value=1, prev="x") == "data_mismatch"
    assert code("set_value", path=path) == "bad_request"
    assert code("get_value") == "bad_request"
    assert code("no_such_action") == "unknown_action"
    assert code("enum_node", node="nobody~1") == "not_found"
    assert code("get_value", node=chain["node"], tick=10**6) == "not_found"
    assert code("delete_tree", path=()) == "is_root"
    assert code("kill_node", node="n1") == "in_use"


def test_a_refused_change_leaves_no_event(connection, base):
    path = mp.path(*base)
    chain = connection.ok("set_value", path=path, value=1)["chain"]
    before = chain["tick"]
    connection.error("set_value", path=path, value=2, chain=None)
    connection.error("set_value", path=path, value=2, prev=5)
    connection.error("delete_value", path=path, chain={"node": chain["node"], "tick": 1})
    # A bare name is no life of a node, and what to write is said.
    msg = connection.error("delete_value", path=path, chain={**chain, "node": "n1"})
    assert msg["code"] == "bad_request" and "n1~LIFE" in msg["error"]
    connection.error("set_value", path=path)
    assert connection.ok("set_value", path=path, value=1)["chain"]["tick"] == before + 1


def test_the_chain_is_asked_before_anything_is_changed_also_when_prev_fits(connection, base):
    path = mp.path(*base)
    connection.ok("set_value", path=path, value=1)
    old = {"node": connection.life(), "tick": 1}
    msg = connection.error("set_value", path=path, value=2, prev=1, chain=old)
    assert "Chain is" in msg["error"]
    assert connection.ok("get_value", path=path)["value"] == 1


async def test_idem_makes_no_event_for_the_same_value(node, base):
    async with clients(node) as client:
        first = await client.set(base, value=(1, 2), nchain=1)
        again = await client.set(base, value=(1, 2), nchain=1, idem=True)
        assert (again.changed, again.chain, again.tock) == (False, first.chain, first.tock)
        other = await client.set(base, value=(1, 3), nchain=1, idem=True)
        assert (other.changed, other.prev) == (True, (1, 2))
        plain = await client.set(base, value=(1, 3), nchain=1)
        assert (plain.changed, plain.prev) == (False, (1, 3))
        assert plain.chain.tick > other.chain.tick


def test_idem_tells_apart_what_differs_in_type(connection, base):
    path = mp.path(*base)
    tick = connection.ok("set_value", path=path, value=1)["chain"]["tick"]
    reply = connection.ok("set_value", path=path, value=1, idem=True)
    assert reply.order == ["tock", "changed", "chain", "seq"]
    assert reply["chain"]["tick"] == tick
    for value in (1.0, True, "1", b"1"):
        reply = connection.ok("set_value", path=path, value=value, idem=True)
        assert reply["chain"]["tick"] > tick, value
        tick = reply["chain"]["tick"]


def test_idem_on_nothing_sets(connection, base):
    assert connection.ok("set_value", path=mp.path(*base), value=None, idem=True)["changed"]


def test_set_needs_a_value_and_delete_must_have_none(connection, base):
    path = mp.path(*base)
    assert "delete_value" in connection.error("set_value", path=path)["error"]
    connection.ok("set_value", path=path, value=1)
    connection.error("delete_value", path=path, value=1)
    assert connection.ok("get_value", path=path)["value"] == 1
