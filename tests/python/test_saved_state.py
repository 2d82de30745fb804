"""Moving to the Python DistKV and back: what we export is loaded by its own server, equal entry by
entry, and what that saves is loaded by us."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path as FilePath

import msgpack
import msgpack_raw as mp
import pytest
from conftest import clients
from moat.util import P, Path

import nodes
import python_server as ps

FILES = FilePath(__file__).resolve().parents[1] / "fixtures" / "distkv-files"


def cli(*args: object, code: int = 0) -> str:
    """Runs our program; what it prints."""
    command = [nodes.binary(), *map(str, args)]
    # pylint: disable-next=subprocess-run-check
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == code, (command, done.stdout, done.stderr)
    return done.stdout


def export(node: nodes.Node, to: FilePath) -> dict:
    """Saves a running node's state for the Python DistKV; the report."""
    at = ("--connect", node.client, "--json")
    return json.loads(cli("snapshot", "save", "--to", to, "--format", "distkv", *at))


def bare(version):
    """A version without the lives behind the nodes' names. The original knows none; where a file of
    its own was loaded here, its nodes got a life that is made of the file's content."""
    value, chain, tock = version
    return value, [(node.split("~")[0], tick) for node, tick in chain], tock


def bare_entries(found):
    """All entries so."""
    return {path: bare(version) for path, version in found.items()}


async def test_a_saved_state_comes_back_from_us_as_it_was(tmp_path):
    ours = tmp_path / "ours"
    cli("snapshot", "convert", FILES / "saved-state.bin", "--format", "distkv", "--to", ours)
    theirs, back = await ps.load(FILES / "saved-state.bin"), await ps.load(ours)
    expected = await ps.entries(theirs)
    assert len(expected) == 1306
    assert expected[("h7bbb7033", "pe", ("t", 1))][0] == ("v", 13)
    found = await ps.entries(back)
    assert bare_entries(found) == expected
    # One life, whose digits are those of the file's content.
    (life,) = {node for _, chain, _ in found.values() for node, _ in chain}
    assert re.fullmatch("n1~[0-9a-f]{12}", life)
    assert ps.ticks(back) == {life: (1357, [])} and ps.ticks(theirs) == {"n1": (1357, [])}
    # A second time it is a file of ours, which names that life.
    again = tmp_path / "again"
    cli("snapshot", "convert", ours, "--format", "distkv", "--to", again)
    assert await ps.entries(await ps.load(again)) == found


async def test_a_change_log_comes_back_as_the_state_at_its_end(tmp_path):
    ours = tmp_path / "ours"
    cli("snapshot", "convert", FILES / "change-log.bin", "--format", "distkv", "--to", ours)
    expected = await ps.entries(await ps.load(FILES / "change-log.bin"))
    # The original does not take notice of deletions in a log; we do.
    deleted = expected.pop(("ha9210dd7", "lg", "a"))
    assert deleted[0] == 1
    back = await ps.load(ours)
    found = bare_entries(await ps.entries(back))
    assert found == expected
    assert list(ps.ticks(back).values()) == [(1361, [])]


@pytest.mark.parametrize("name", ["arrays-state.bin", "arrays-log.bin"])
async def test_tuples_in_paths_come_back_from_us_as_they_were(tmp_path, name):
    ours = tmp_path / "ours"
    cli("snapshot", "convert", FILES / name, "--format", "distkv", "--to", ours)
    expected = await ps.entries(await ps.load(FILES / name))
    # The original does not take notice of deletions in a log; we do.
    expected.pop(("el", ("gone", 1)), None)
    assert len(expected) >= 33 and ("el", (Path("r"), 2), "below") in expected
    assert bare_entries(await ps.entries(await ps.load(ours))) == expected


# What its library can write; what comes as bytes is sent as such.
VALUES = {
    "nil": None,
    "true": True,
    "false": False,
    "zero": 0,
    "int": -(2**63),
    "uint": 2**64 - 1,
    "big": 2**70 + 1,
    "float": 1.5,
    "huge": 1.7976931348623157e308,
    "tiny": 5e-324,
    "inf": math.inf,
    "text": "ü",
    "bytes": b"\x00\xff",
    "list": [1, [2, {"a": None}]],
    "map": {"a": 1, 2: "b", True: 3},
    "path": Path("a", 1, b"c"),
    "other": msgpack.ExtType(100, b"xyz"),
    "float32": b"\xca\x3f\x80\x00\x00",
    "wide": b"\xd3\x00\x00\x00\x00\x00\x00\x00\x05",
    "nan": b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "time": b"\xd6\xff\x5f\x00\x00\x00",
}
SENT_AS_BYTES = {"float32", "wide", "nan", "time"}
# Of 1 and True, which are one element there, only one can be in a place.
PATHS = [("p", 1), ("p", -1), ("p", False), ("p", 2.5), ("p", b"\xff"), ("p", "a.b:c d"), ("p", "")]
PATHS += [("p", ("t", 1)), ("p", ()), (("q", (b"\xff", None)), "r"), ("p", (1, 2.5, True))]


def _set_bytes(connection, path, value: bytes) -> None:
    seq = connection.start_bytes("set_value", path=mp.encode(path), value=value)
    assert "error" not in connection.reply(seq)


async def _plant(node: nodes.Node) -> None:
    async with clients(node) as client:
        for name, value in VALUES.items():
            if name not in SENT_AS_BYTES:
                await client.set(Path("v", name), value=value)
        for number, path in enumerate(PATHS):
            await client.set(Path(*path), value=number)
        await client.set(P("twice"), value=1)
        await client.set(P("gone"), value=1)
        await client.delete(P("gone"))
    with node.raw() as connection:
        for name in SENT_AS_BYTES:
            _set_bytes(connection, mp.path("v", name), VALUES[name])


def _same(a, b) -> bool:
    """Equal, with NaN as itself."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return a == b and type(a) is type(b)


async def test_a_server_goes_on_with_our_network_s_state_and_we_with_its(tmp_path, network):
    n1 = network.add("--init", "null")
    n2 = network.add()
    await _plant(n1)
    async with clients(n2) as client:
        await client.set(P("twice"), value=2)
    network.settle()
    # Another life of n2.
    network.nodes.remove(n2)
    n2.kill()
    n2 = network.add(name="n2")
    async with clients(n2) as client:
        await client.set(P("twice"), value=3)
        await client.set(P("later"), value="n2")
    network.settle()
    ours = tmp_path / "ours"
    report = export(n1, ours)
    assert (report["left_out"], report["missing"], report["lives"]) == (0, 0, 2)
    async with clients(n1) as client:
        expected = await ps.tree(client)
    assert len(expected) == report["entries"] == len(VALUES) + len(PATHS) + 3

    # Its own server starts with the file, under the name that wrote it, and serves clients.
    theirs = tmp_path / "theirs"
    async with ps.serving(ours, "n1") as client:
        found = await ps.tree(client)
        assert found.keys() == expected.keys()
        for path, version in expected.items():
            assert found[path][1:] == version[1:], path
            assert _same(found[path][0], version[0]), path
        # A change there knows what was here.
        res = await client.set(P("twice"), value=4, nchain=-1)
        assert res.chain.node == "n1" and res.chain.prev.node.startswith("n2~")
        await client.set(P("new.there"), value=5)
        await client.delete(P("later"))
        await client._request(action="save", path=str(theirs))  # pylint: disable=protected-access

    # And back: what was changed there, and nothing else; but it keeps values, not their encodings.
    diff = cli("snapshot", "diff", ours, theirs, code=1)
    assert diff.splitlines() == [
        '- later  "n2"',
        "+ new.there  5",
        "~ twice  3 -> 4",
        "~ v.float32  1.0 -> 1.0",
        "~ v.wide  5 -> 5",
    ]
    with nodes.Network() as again:
        fresh = again.add()
        cli("snapshot", "restore", theirs, "--connect", fresh.client)
        async with clients(fresh) as client:
            back = await ps.tree(client)
        assert back.keys() == (expected.keys() - {("later",)}) | {("new", "there")}
        for path in back.keys() & expected.keys() - {("twice",)}:
            assert _same(back[path][0], expected[path][0]), path
            # Who made it and when: events keep their identity on the way there and back.
            assert back[path][1:] == expected[path][1:], path
        # What was changed there has a life of its own.
        (newest, *older) = back[("twice",)][1]
        assert older == expected[("twice",)][1]
        assert re.fullmatch("n1~[0-9a-f]{12}", newest[0]) and newest[0] != n1.life()


async def test_what_it_cannot_read_is_left_out_and_the_rest_loads(tmp_path, fresh_node):
    bad = {
        "text": {"$str": "/w=="},
        "map-key": {"$map": [[{}, 1]]},
        "twice": {"$map": [[1, 1], [True, 2]]},
        "negative": {"$ext": [-2, "AA=="]},
        "time": {"$ext": [-1, "AA=="]},
        "object": {"$ext": [5, "oWE="]},
        "path": {"$ext": [3, "omE="]},
    }
    with fresh_node.raw() as connection:
        connection.ok("set_value", path=mp.path("p", 1), value=1)
        connection.ok("set_value", path=mp.path("p", True), value=2)
        connection.ok("set_value", path=mp.path("p", 1.0), value=3)
        connection.ok("set_value", path=mp.path("p", ("x", 1)), value=4)
        connection.ok("set_value", path=mp.path("p", ("x", True)), value=5)
    # Clients cannot write most of these; from elsewhere they may come.
    planted = {":n.match.a": {"type": ["int"]}, ":n.match.b": 5, ":n.type.int": {"x": 1}}
    planted.update({f"bad.{name}": value for name, value in bad.items()})
    lines = tmp_path / "lines"
    with open(lines, "w", encoding="utf-8") as out:
        for tick, (path, value) in enumerate(planted.items(), 1):
            version = {"chain": [f"other~7:{tick}"], "tock": tick}
            out.write(json.dumps({"path": path, "value": value, **version}) + "\n")
    cli("snapshot", "restore", lines, "--connect", fresh_node.client)
    with fresh_node.raw() as connection:
        connection.start("get_value", path=mp.path("bad", "text"))
        assert dict(mp.fields(connection.receive_bytes()))["value"] == b"\xa1\xff", "kept as it was"
    ours = tmp_path / "ours"
    report = export(fresh_node, ours)
    assert (report["entries"], report["left_out"]) == (5, len(bad) + 4)
    named = {entry["path"]: entry["why"] for entry in report["left_out_named"]}
    assert named["p:t"] == "in Python its path is the same as p:1"
    assert named["p:'x',True"] == "in Python its path is the same as p:'x',1"
    assert "UTF-8" in named["bad.text"]
    server = await ps.load(ours)
    found = await ps.entries(server)
    assert {path: v[0] for path, v in found.items() if path != ()} == {
        ("p", 1): 1,
        ("p", ("x", 1)): 4,
        (None, "match", "a"): {"type": ("int",)},
        (None, "type", "int"): {"x": 1},
    }
    # A server that misses changes does not start.
    assert ps.ticks(server)[fresh_node.life()][1] == []


@pytest.mark.parametrize("count", [3000])
async def test_a_big_state_loads(tmp_path, fresh_node, count):
    lines = tmp_path / "lines"
    with open(lines, "w", encoding="utf-8") as out:
        for i in range(count):
            out.write(json.dumps({"path": f"big:{i % 50}.n:{i}", "value": [i] * 20}) + "\n")
    cli("import", lines, "--connect", fresh_node.client)
    ours = tmp_path / "ours"
    assert export(fresh_node, ours)["entries"] == count + 1
    found = await ps.entries(await ps.load(ours))
    assert len(found) == count + 1
    assert found["big", 7, "n", 57][0] == (57,) * 20


async def test_a_change_log_of_ours_is_read_as_it_was_meant(tmp_path, network):
    n1 = network.add("--init", "null", "--client-files", str(tmp_path))
    n2 = network.add()
    at = ("--connect", n1.client)
    async with clients(n1) as client:
        for path in ("a", "a.b", "a.b.c", "there", "mine"):
            await client.set(P(path), value=1)
    cli("log", "start", "ours", "--format", "distkv", "--fetch", *at)
    async with clients(n1, n2) as (one, two):
        await one.set(P("a.b.c"), value=2)
        # Gone by the node that made it, and by another one; the paths around it are shortened.
        await one.delete(P("mine"))
        await one.set(P("a.b.d"), value=3)
        await one.delete(P("a.b"))
        await one.set(P("a.b.e"), value=4)
        await two.delete(P("there"))
        await two.set(P("there.again"), value=5)
        await two.set(P("a"), value=6)
        await two.delete(P("a"))
        await two.set(P("a"), value=7)
    network.settle()
    cli("log", "stop", *at)
    async with clients(n1) as client:
        expected = await ps.tree(client)
        # As clients of the original do it.
        await client._request(action="save", path="state")  # pylint: disable=protected-access
    assert len(expected) == 6
    for file in ("ours", "state"):
        server = await ps.load(tmp_path / file)
        assert await ps.entries(server) == expected, file
        assert all(missing == [] for _, missing in ps.ticks(server).values()), file
    assert cli("snapshot", "diff", tmp_path / "ours", tmp_path / "state") == ""
