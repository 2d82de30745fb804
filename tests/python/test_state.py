"""What a node tells about itself: get_state, reading by event, enum_node, kill_node, the
internal tree."""

import time

import msgpack_raw as mp
import pytest
import raw
from conftest import clients
from distkv.exceptions import ServerError
from moat.util import Path

PARTS = ["nodes", "known", "present", "deleted", "missing", "remote_missing", "node_drop"]


def test_get_state_without_arguments_names_the_node(connection):
    assert connection.ok("get_state").order == ["node", "tock", "seq"]


def test_get_state_in_all_its_parts(network):
    # One in which no node has been killed: that is a part, too.
    with network.add("--init", "null").raw() as conn:
        n1 = conn.life()
        reply = conn.ok("get_state", **{part: True for part in PARTS})
        assert reply.order == [*PARTS, "node", "tock", "seq"]
        assert reply["nodes"] == {n1: 1}
        assert reply["known"] == {}
        assert reply["present"] == {n1: (1,)}
        assert reply["deleted"] == reply["missing"] == reply["remote_missing"] == {}
        assert reply["node_drop"] == ()
        for part in PARTS:
            assert conn.ok("get_state", **{part: True}).order == [part, "node", "tock", "seq"]
            assert conn.ok("get_state", **{part: False}).order == ["node", "tock", "seq"]


def test_ticks_move_from_present_to_known_and_to_deleted(fresh_node):
    with fresh_node.raw() as conn:
        n1 = conn.life()
        for i in range(6):  # ticks 2 to 7
            conn.ok("set_value", path=mp.path("p", i), value=i)
        state = conn.ok("get_state", known=True, present=True)
        assert (state["known"], state["present"]) == ({}, {n1: ((1, 8),)})
        conn.ok("set_value", path=mp.path("p", 2), value="again")  # 4 -> 8
        state = conn.ok("get_state", known=True, present=True)
        assert state["known"] == {n1: (4,)}
        assert state["present"] == {n1: ((1, 4), (5, 9))}
        conn.ok("delete_value", path=mp.path("p", 3))  # 5 -> 9
        state = conn.ok("get_state", superseded=True, present=True, deleted=True)
        assert state.order == ["known", "present", "deleted", "node", "tock", "seq"]
        assert state["known"] == {n1: ((4, 6),)}
        assert state["present"] == {n1: ((1, 4), (6, 10))}
        assert state["deleted"] == {n1: (9,)}
        conn.ok("set_value", path=mp.path("p", 3), value="back")  # 9 -> 10
        state = conn.ok("get_state", known=True, present=True)
        assert state["known"] == {n1: ((4, 6), 9)}
        assert state["present"] == {n1: ((1, 4), (6, 9), 10)}


def test_a_node_that_never_wrote_has_no_tick(keeping_network):
    one, two = keeping_network.add("--init", "null"), keeping_network.add()
    n1, n2 = one.life(), two.life()
    with one.raw() as conn:
        deadline = time.monotonic() + raw.PATIENCE
        while n2 not in conn.ok("get_state", nodes=True)["nodes"]:
            assert time.monotonic() < deadline
        assert conn.ok("get_state", nodes=True)["nodes"] == {n1: 1, n2: None}
    with two.raw() as conn:
        assert conn.hello["tick"] == 0
        conn.ok("set_value", path=mp.path("a"), value=1)
    keeping_network.settle()
    with one.raw() as conn:
        assert conn.ok("get_state", nodes=True)["nodes"] == {n1: 1, n2: 1}


def test_an_entry_is_found_by_its_event(connection, base):
    path, n1 = mp.path(*base), connection.life()
    first = connection.ok("set_value", path=path, value="one")
    reply = connection.ok("get_value", node=n1, tick=first["chain"]["tick"])
    assert reply.order == ["value", "tock", "path", "seq"]
    assert (reply["value"], reply["tock"]) == ("one", first["tock"])
    assert reply.field("path") == mp.encode(path)
    second = connection.ok("set_value", path=path, value="two")
    connection.error("get_value", node=n1, tick=first["chain"]["tick"])
    reply = connection.ok("get_value", node=n1, tick=second["chain"]["tick"], nchain=1)
    assert reply.order == ["value", "chain", "tock", "path", "seq"]
    assert (reply["value"], reply["chain"]) == ("two", second["chain"])
    third = connection.ok("delete_value", path=path)
    reply = connection.ok("get_value", node=n1, tick=third["chain"]["tick"])
    assert reply.order == ["tock", "path", "seq"]
    connection.error("get_value", node=n1, tick=third["chain"]["tick"] + 1000)
    assert connection.error("get_value", node="n1~1", tick=1)["code"] == "not_found"
    # A bare name would be another life after the node's next restart.
    msg = connection.error("get_value", node="n1", tick=third["chain"]["tick"])
    assert msg["code"] == "bad_request" and "n1~LIFE" in msg["error"]


def test_enum_node_lists_the_ticks_in_chains(keeping_network):
    one, two = keeping_network.add("--init", "null"), keeping_network.add()
    with one.raw() as a, two.raw() as b:
        n1, n2 = a.life(), b.life()
        for i in range(5):
            a.ok("set_value", path=mp.path(i), value=i)  # n1: 2 to 6
        keeping_network.settle()
        reply = a.ok("enum_node", node=n1)
        assert reply["result"] == (1, 2, 3, 4, 5, 6)
        assert reply.order == ["result", "seq", "tock"]
        assert a.ok("enum_node", node=n1, max=2)["result"] == (1, 2)
        b.ok("set_value", path=mp.path(2), value="b")
        keeping_network.settle()
        for conn in (a, b):
            assert conn.ok("enum_node", node=n1)["result"] == (1, 2, 3, 4, 5, 6)
            assert conn.ok("enum_node", node=n1, current=True)["result"] == (1, 2, 3, 5, 6)
            assert conn.ok("enum_node", node=n2)["result"] == (1,)
            conn.error("enum_node", node="no-such-node~1")
            assert conn.error("enum_node", node="n1")["code"] == "bad_request"


def test_a_node_that_still_owns_an_entry_is_not_killed(connection, base):
    connection.ok("set_value", path=mp.path(*base), value=1)
    msg = connection.error("kill_node", node="n1")
    assert "n1" in msg["error"]
    connection.error("kill_node", node="no-such-node")
    connection.error("kill_node")


def test_a_node_that_owns_nothing_is_killed_everywhere(keeping_network):
    one = keeping_network.add("--init", "null")
    two, three = keeping_network.add(), keeping_network.add()
    with two.raw() as conn:
        conn.ok("set_value", path=mp.path("x"), value="from two")
    keeping_network.settle()
    n1, n2 = one.life(), two.life()
    two.stop()
    keeping_network.nodes.remove(two)
    with one.raw() as a, three.raw() as c:
        a.error("kill_node", node="n2")
        a.ok("set_value", path=mp.path("x"), value="from one")
        keeping_network.settle()
        assert a.ok("get_value", path=mp.path("x"), nchain=-1)["chain"]["prev"]["node"] == n2
        deadline = time.monotonic() + raw.PATIENCE
        # By its name, or as `get_state` names it. That it is gone may be seen a little later.
        while "error" in (killed := a.request("kill_node", node=n2)):
            assert "is up" in killed["error"] and time.monotonic() < deadline, killed
        assert killed.order == ["seq", "tock"]
        for conn in (a, c):
            while n2 in conn.ok("get_state", nodes=True)["nodes"]:
                assert time.monotonic() < deadline
            chain = conn.ok("get_value", path=mp.path("x"), nchain=-1)["chain"]
            assert (chain["node"], chain["prev"]) == (n1, None)
            conn.error("enum_node", node=n2)
            assert conn.ok("get_value", path=mp.path("x"))["value"] == "from one"


def test_internal_data_lies_below_nil(connection, base):
    path = tuple(base) + ("k",)
    reply = connection.ok("set_internal", path=path, value={"a": 1})
    assert reply.order == ["changed", "chain", "tock", "seq"]
    assert connection.ok("get_internal", path=path)["value"] == {"a": 1}
    assert connection.ok("get_internal", path=mp.path(*path))["value"] == {"a": 1}
    assert connection.ok("enum_internal", path=tuple(base))["result"] == ("k",)
    (entry,) = connection.stream("get_tree_internal", path=tuple(base))
    assert (entry["value"], entry["path"], entry["depth"]) == ({"a": 1}, ("k",), 0)
    assert connection.ok("get_value", path=(None, *path))["value"] == {"a": 1}
    assert connection.ok("get_value", path=mp.path(None, *path))["value"] == {"a": 1}
    assert "value" not in connection.ok("get_value", path=path)
    reply = connection.ok("delete_internal", path=path)
    assert (reply["changed"], reply["prev"]) == (True, {"a": 1})
    assert "value" not in connection.ok("get_internal", path=path)
    nowhere = tuple(base) + ("nowhere",)
    assert connection.ok("enum_internal", path=nowhere)["result"] == ()
    assert connection.stream("get_tree_internal", path=nowhere, nchain=False) == []


async def test_the_client_reads_its_configuration_from_the_tree(node, base):
    """Every client watches `.distkv.config`; what is set there changes its own settings."""
    async with clients(node) as client:
        changed = client.config._changed  # pylint: disable=protected-access
        key = f"key_{base[0]}"
        await client.set(Path(".distkv", "config", key), value={"x": 5})
        await changed.wait()
        assert client.config._current[key]["x"] == 5  # pylint: disable=protected-access


async def test_errors_of_internal_reads_reach_the_client(node):
    async with clients(node) as client:
        with pytest.raises(ServerError):
            await client._request(  # pylint: disable=protected-access
                action="get_value", node="no-such-node", tick=1
            )
