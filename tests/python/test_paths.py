"""Paths: every type of element, both forms, what is refused."""

import json
import subprocess

import msgpack
import msgpack_raw as mp
import pytest
from conftest import clients
from moat.util import P, Path

import nodes

ELEMENTS = ["a", "", "a b", "a.b", "a:b", "ü", "0", "1", ":", ".", "x" * 100]
ELEMENTS += [0, 1, -1, 127, 128, -128, 2**40, -(2**63), 2**64 - 1]
ELEMENTS += [True, False, 1.5, -0.5, 1.0, b"bytes", b"\x00\xff"]
ELEMENTS += [("t", 1), ("t",), (), (None, True, 1.5, b"\xff"), ((1, 2), ("x", ("y",))), ("a.b", ":")]
ELEMENTS += [tuple(range(100))]


def _key(element):
    return (type(element).__name__, element)


async def test_every_type_of_element_leads_to_an_entry_of_its_own(node, base):
    async with clients(node) as client:
        for i, element in enumerate(ELEMENTS):
            res = await client.set(base + [element], value=i)
            assert res.changed and "prev" not in res, element
        for i, element in enumerate(ELEMENTS):
            assert (await client.get(base + [element])).value == i
        names = await client.list(base)
        assert {_key(n) for n in names} == {_key(e) for e in ELEMENTS}
        tree = {_key(r.path[-1]): r.value async for r in client.get_tree(base)}
        assert tree == {_key(e): i for i, e in enumerate(ELEMENTS)}


def test_true_and_one_and_one_point_zero_are_three(connection, base):
    for value in (True, 1, 1.0):
        connection.ok("set_value", path=mp.path(*base, value), value=repr(value))
    for value in (True, 1, 1.0):
        assert connection.ok("get_value", path=mp.path(*base, value))["value"] == repr(value)


def test_the_empty_string_and_the_empty_bytes_are_one(connection, base):
    connection.ok("set_value", path=mp.path(*base, ""), value=1)
    assert connection.ok("get_value", path=mp.path(*base, b""))["value"] == 1
    assert connection.ok("set_value", path=mp.path(*base, b""), value=2)["prev"] == 1
    assert len(connection.ok("enum", path=mp.path(*base))["result"]) == 1


def test_an_integer_is_the_same_in_any_width(connection, base):
    connection.ok("set_value", path=mp.path(*base, 5), value="five")
    for form in ("05", "cc05", "cd0005", "ce00000005", "cf0000000000000005", "d005", "d10005"):
        inner = b"".join(mp.encode(e) for e in base) + bytes.fromhex(form)
        path = msgpack.ExtType(mp.PATH_EXT, inner)
        assert connection.ok("get_value", path=path)["value"] == "five", form
    # and is told in its shortest
    inner = b"".join(mp.encode(e) for e in base) + bytes.fromhex("cd0006")
    connection.ok("set_value", path=msgpack.ExtType(mp.PATH_EXT, inner), value="six")
    reply = connection.ok("enum", path=mp.path(*base))
    assert reply.field("result") == bytes.fromhex("920506")


def test_both_forms_of_a_path_are_the_same_path(connection, base):
    connection.ok("set_value", path=tuple(base) + ("x",), value=1)
    assert connection.ok("get_value", path=mp.path(*base, "x"))["value"] == 1
    connection.ok("set_value", path=mp.path(*base, "x"), value=2)
    assert connection.ok("get_value", path=tuple(base) + ("x",))["value"] == 2


def test_the_root_is_an_entry(connection):
    for root in ((), mp.path()):
        reply = connection.ok("get_value", path=root, nchain=1)
        assert reply["chain"]["node"] == connection.life()


def test_replies_hold_a_path_object_only_if_nothing_was_cut_off(fresh_node):
    with fresh_node.raw() as conn:
        conn.ok("set_value", path=mp.path("a", "b"), value=1)
        conn.ok("set_value", path=mp.path("a", "c"), value=2)
        messages = conn.stream("get_tree", path=())
        assert [m.field("path") for m in messages] == [
            mp.encode(mp.path()),
            mp.encode(mp.path("a", "b")),
            mp.encode(("c",)),
        ]
        messages = conn.stream("get_tree", path=mp.path("a"))
        assert [m.field("path") for m in messages] == [mp.encode(("b",)), mp.encode(("c",))]


async def test_a_path_within_a_path_is_the_tuple_of_its_elements(node, base):
    async with clients(node) as client:
        await client.set(base + [Path("p", "q")], value=1)
        res = await client.set(base + [("p", "q")], value=2)
        assert res.prev == 1
        assert (await client.get(base + [Path("p", "q")])).value == 2
        await client.set(base + [(Path("r"), 3)], value=3)
        assert (await client.get(base + [(("r",), 3)])).value == 3
        assert list(await client.list(base)) == [("p", "q"), (("r",), 3)]


async def test_arrays_are_listed_watched_and_deleted_as_other_elements(node, base):
    async with clients(node) as client:
        await client.set(base + [("t", 1), "below", ("u",)], value=1)
        seen = []
        async with client.watch(base, fetch=True) as watch:
            async for r in watch:
                if r.get("state") == "uptodate":
                    await client.set(base + [("t", 1), "below", ("v",)], value=2)
                elif "path" in r:
                    seen.append((tuple(r.path), r.get("value")))
                    if len(seen) == 2:
                        break
        below = (*base, ("t", 1), "below")
        assert seen == [((*below, ("u",)), 1), ((*below, ("v",)), 2)]
        assert list(await client.list(base + [("t", 1), "below"])) == [("u",), ("v",)]
        listed = await client._request(  # pylint: disable=protected-access
            action="enum", path=base + [("t", 1), "below"], with_data=True
        )
        assert listed.result == {("u",): 1, ("v",): 2}
        await client.delete(base + [("t", 1), "below", ("u",)])
        left = [tuple(r.path) async for r in client.get_tree(base)]
        assert left == [(("t", 1), "below", ("v",))]


async def test_the_text_of_arrays_is_what_the_library_reads(node, base):
    for number, element in enumerate(e for e in ELEMENTS if isinstance(e, tuple)):
        async with clients(node) as client:
            await client.set(base + [element], value=number)
    command = [nodes.binary(), "tree", str(base), "--json", "--connect", node.client]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    texts = [json.loads(line)["path"] for line in done.stdout.splitlines()]
    found = {tuple(P(text))[len(base) :] for text in texts}
    assert found == {(e,) for e in ELEMENTS if isinstance(e, tuple)}


@pytest.mark.parametrize("form", ["array", "extension"])
def test_arrays_nest_so_deep_and_no_deeper(connection, base, form):
    def path(levels):
        element = ()
        for _ in range(levels - 1):
            element = (element,)
        return (*base, element) if form == "array" else mp.path(*base, element)

    connection.ok("set_value", path=path(16), value=1)
    assert connection.ok("get_value", path=path(16))["value"] == 1
    error = connection.error("set_value", path=path(17), value=1)
    assert "nests arrays deeper than 16 levels" in error["error"]
    assert error["code"] == "bad_request"


@pytest.mark.parametrize(
    "bad",
    [
        ("x", {"a": 1}),
        ("x", ("t", {"a": 1})),
        ("x", None),
        ("x", None, "y"),
        (None, None, "y"),
        (("t", msgpack.ExtType(5, b"x")),),
        (("t", float("nan")),),
    ],
    ids=[
        "map",
        "array with a map",
        "nil at the end",
        "nil in the middle",
        "two nils",
        "array with an object",
        "array with NaN",
    ],
)
@pytest.mark.parametrize("form", ["array", "extension"])
def test_an_element_of_another_type_is_refused(connection, base, bad, form):
    path = bad if bad[0] is None else tuple(base) + bad
    path = path if form == "array" else mp.path(*path)
    connection.error("set_value", path=path, value=1)
    connection.error("get_value", path=path)
    connection.error("get_tree", path=path)
    connection.error("watch", path=path)
    connection.ok("set_value", path=mp.path(*base), value=1)


@pytest.mark.parametrize(
    "bad", [5, 1.5, True, None, {"a": 1}, b"x", msgpack.ExtType(4, b"x")], ids=repr
)
def test_a_path_of_another_type_is_refused(connection, bad):
    connection.error("get_value", path=bad)
    connection.error("set_value", path=bad, value=1)
    connection.error("enum", path=bad)


@pytest.mark.parametrize("inside", ["c1", "a3", "a5616263", "91"])
def test_a_path_object_with_garbage_inside_is_refused(connection, inside):
    path = msgpack.ExtType(mp.PATH_EXT, bytes.fromhex(inside))
    connection.error("get_value", path=path)
    connection.error("set_value", path=path, value=1)
    connection.ok("get_tock")
