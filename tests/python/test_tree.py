"""get_tree and enum: parts of the tree, in a fixed order, from one moment."""

import msgpack_raw as mp
import pytest
from conftest import clients
from raw import long_paths

TREE = {
    (): 0,
    ("a",): 1,
    ("a", "b"): 2,
    ("a", "b", "c"): 3,
    ("a", "d"): 4,
    ("e", "f", "g"): 5,
    ("h",): 6,
}


async def _plant(client, base):
    for path, value in TREE.items():
        await client.set(base + path, value=value)


async def _tree(client, path, **kw):
    return [(tuple(r.path), r.value) async for r in client.get_tree(path, **kw)]


async def test_the_whole_tree_parents_first(node, base):
    async with clients(node) as client:
        await _plant(client, base)
        assert await _tree(client, base) == list(TREE.items())
        assert await _tree(client, base + ["a"]) == [
            ((), 1),
            (("b",), 2),
            (("b", "c"), 3),
            (("d",), 4),
        ]


@pytest.mark.parametrize(
    "limits, values",
    [
        ({"max_depth": 0}, [0]),
        ({"max_depth": 1}, [0, 1, 6]),
        ({"max_depth": 2}, [0, 1, 2, 4, 6]),
        ({"min_depth": 1, "max_depth": 1}, [1, 6]),
        ({"min_depth": 2, "max_depth": 2}, [2, 4]),
        ({"min_depth": 3}, [3, 5]),
        ({"min_depth": 0}, [0, 1, 2, 3, 4, 5, 6]),
        ({"min_depth": 4}, []),
        ({"min_depth": 2, "max_depth": 1}, []),
        ({"max_depth": 100}, [0, 1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
async def test_depths_limit_what_is_sent(node, base, limits, values):
    async with clients(node) as client:
        await _plant(client, base)
        assert [value for _, value in await _tree(client, base, **limits)] == values


async def test_chains_come_if_asked_for(node, base):
    async with clients(node) as client:
        await _plant(client, base)
        plain = [r async for r in client.get_tree(base)]
        assert all("chain" not in r for r in plain)
        chained = [r async for r in client.get_tree(base, nchain=2)]
        for r in chained:
            one = await client.get(base + r.path, nchain=2)
            assert (r.chain, r.tock, r.value) == (one.chain, one.tock, one.value)


async def test_empty_nodes_come_if_asked_for(node, base):
    async with clients(node) as client:
        await _plant(client, base)
        await client.delete(base + ["h"])
        seen = {tuple(r.path): r.get("value", "none") async for r in client.get_tree(base, empty=True)}
        assert seen == {**TREE, ("e",): "none", ("e", "f"): "none", ("h",): "none"}


async def test_a_missing_path_and_a_deleted_one_are_empty(node, base):
    async with clients(node) as client:
        assert await _tree(client, base + ["nowhere"]) == []
        assert await client.list(base + ["nowhere"]) == ()
        assert await client.list(base + ["nowhere"], with_data=True) == {}
        await client.set(base + ["gone"], value=1)
        await client.delete(base + ["gone"])
        assert await _tree(client, base + ["gone"]) == []


def test_how_paths_are_shortened(connection, base):
    for path, value in TREE.items():
        connection.ok("set_value", path=mp.path(*base, *path), value=value)
    messages = connection.stream("get_tree", path=mp.path(*base))
    assert [(m["path"], m["depth"]) for m in messages] == [
        ((), 0),
        (("a",), 0),
        (("b",), 1),
        (("c",), 2),
        (("d",), 1),
        (("e", "f", "g"), 0),
        (("h",), 0),
    ]
    assert long_paths(messages) == list(TREE)
    assert all(m.order == ["value", "tock", "path", "depth", "seq"] for m in messages)


def test_trees_and_lists_come_in_one_fixed_order(connection, base):
    names = ["b", "a", "", "aa", "Z", "ü", 3, 1, -1, 200, 1.5, -2.5, True, False, b"a", b"\xff"]
    for name in names:
        connection.ok("set_value", path=mp.path(*base, "x", name), value=1)
    for name in reversed(names):
        connection.ok("set_value", path=mp.path(*base, "y", name), value=1)
    lists = [connection.ok("enum", path=mp.path(*base, k)).field("result") for k in "xy"]
    assert lists[0] == lists[1]
    trees = [long_paths(connection.stream("get_tree", path=mp.path(*base, k))) for k in "xy"]
    assert [repr(p[0]) for p in trees[0]] == [repr(n) for n in mp.decode(lists[0])]
    assert repr(trees[0]) == repr(trees[1])
    # by type, then by value
    kinds = [type(p[0]).__name__ for p in trees[0]]
    groups = [k for i, k in enumerate(kinds) if i == 0 or kinds[i - 1] != k]
    assert len(groups) == len(set(groups)) or "" in names  # '' may stand with the byte strings
    assert [p[0] for p in trees[0] if type(p[0]) is int] == [-1, 1, 3, 200]
    assert [p[0] for p in trees[0] if isinstance(p[0], str) and p[0]] == ["Z", "a", "aa", "b", "ü"]


async def test_a_tree_of_a_thousand(node, base):
    async with clients(node) as client:
        for i in range(5):
            for j in range(200):
                await client.set(base + [i, j], value=j)
        want = [((i, j), j) for i in range(5) for j in range(200)]
        assert await _tree(client, base) == want


def test_a_tree_is_from_one_moment(node, base):
    with node.raw(qlen=5) as reader, node.raw() as writer:
        for i in range(50):
            writer.ok("set_value", path=mp.path(*base, i), value="old")
        seq = reader.start("get_tree", path=mp.path(*base))
        assert reader.reply(seq)["state"] == "start"
        for i in range(50):
            writer.ok("set_value", path=mp.path(*base, i), value="new")
            writer.ok("set_value", path=mp.path(*base, 50 + i), value="new")
        values = []
        while True:
            msg = reader.reply(seq)
            if msg.get("state") == "end":
                break
            values.append(msg["value"])
            reader.send(seq=seq, state="ack", ack=msg["wseq"])
        assert values == ["old"] * 50


async def test_list_names_the_children(node, base):
    async with clients(node) as client:
        await _plant(client, base)
        assert await client.list(base) == ("a", "e", "h")
        assert await client.list(base, empty=False) == ("a", "h")
        assert await client.list(base, with_data=True) == {"a": 1, "h": 6}
        assert await client.list(base, with_data=True, empty=True) == {"a": 1, "e": None, "h": 6}
        assert await client.list(base + ["h"]) == ()


def test_enumerate_is_enum(connection, base):
    connection.ok("set_value", path=mp.path(*base, "a"), value=None)
    connection.ok("set_value", path=mp.path(*base, "b", "c"), value=2)
    for action in ("enum", "enumerate"):
        reply = connection.ok(action, path=mp.path(*base))
        assert reply["result"] == ("a",) and reply.order == ["result", "seq", "tock"]
        assert connection.ok(action, path=mp.path(*base), empty=True)["result"] == ("a", "b")
        reply = connection.ok(action, path=mp.path(*base), with_data=True)
        assert reply["result"] == {"a": None}
        assert connection.ok(action, path=mp.path(*base, "nowhere"))["result"] == ()


def test_a_deleted_path_can_be_listed(connection, base):
    connection.ok("set_value", path=mp.path(*base, "gone"), value=1)
    connection.ok("delete_value", path=mp.path(*base, "gone"))
    assert connection.ok("enum", path=mp.path(*base, "gone"))["result"] == ()
    assert connection.ok("enum", path=mp.path(*base))["result"] == ()
    assert connection.ok("enum", path=mp.path(*base), empty=True)["result"] == ("gone",)


def test_the_internal_tree_is_not_part_of_the_whole(fresh_node):
    with fresh_node.raw() as conn:
        conn.ok("set_value", path=mp.path("a"), value=1)
        conn.ok("set_internal", path=mp.path("hidden"), value=1)
        assert long_paths(conn.stream("get_tree", path=())) == [(), ("a",)]
        assert conn.ok("enum", path=())["result"] == ("a",)


async def test_numbers_and_flags_are_what_python_takes_them_for(node, base):
    """The original compares and tests them, so booleans, whole floats and any object will do."""
    async with clients(node) as client:
        await _plant(client, base)
        depths = {}
        for zero, one, two in ((False, True, 2), (0.0, 1.0, 2.0)):
            for depth in (zero, one, two):
                found = [tuple(r.path) async for r in client.get_tree(base, max_depth=depth, nchain=zero)]
                depths.setdefault(int(depth), set()).add(tuple(found))
            rest = [tuple(r.path) async for r in client.get_tree(base, min_depth=two, nchain=two)]
            assert rest and all(len(path) >= 2 for path in rest)
        assert all(len(found) == 1 for found in depths.values())
        for no, yes in ((0, 1), (None, "x"), ("", (0,)), ((), {"a": 1}), (0.0, 0.5)):
            want = ("a", "e", "h") if no is None else ("a", "h")  # None: the client chooses
            assert await client.list(base, with_data=no, empty=no) == want, no
            res = await client.list(base, with_data=yes, empty=yes)
            assert res == {"a": 1, "e": None, "h": 6}, yes
            assert (await client.set(base + ["h"], value=6, idem=yes)).changed is False
