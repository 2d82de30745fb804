"""Values: every MessagePack type, kept byte for byte."""

import msgpack
import msgpack_raw as mp
import pytest
from conftest import clients
from moat.util import Path

# What goes over the wire, as bytes: non-shortest integers and lengths, and extensions that
# nobody knows, included, for a value is what the client sent.
RAW_VALUES = {
    "nil": "c0",
    "false": "c2",
    "true": "c3",
    "zero": "00",
    "positive fixint": "7f",
    "negative fixint": "e0",
    "uint8": "ccff",
    "uint8 too long": "cc05",
    "uint16": "cdffff",
    "uint16 too long": "cd0005",
    "uint32": "ceffffffff",
    "uint64": "cfffffffffffffffff",
    "uint64 too long": "cf0000000000000001",
    "int8": "d080",
    "int16": "d18000",
    "int32": "d280000000",
    "int64": "d38000000000000000",
    "int64 positive": "d30000000000000001",
    "float32": "ca3fc00000",
    "float64": "cb3ff8000000000000",
    "float nan": "cb7ff8000000000001",
    "float -0": "cb8000000000000000",
    "empty string": "a0",
    "fixstr": "a3616263",
    "str8": "d903616263",
    "str16": "da0003616263",
    "str32": "db00000003616263",
    "str not utf-8": "a2fffe",
    "empty bin": "c400",
    "bin8": "c40200ff",
    "bin16": "c5000200ff",
    "bin32": "c60000000200ff",
    "empty array": "90",
    "array": "93010203",
    "array16": "dc0001c0",
    "array32": "dd00000001c0",
    "empty map": "80",
    "map": "82a16101a16202",
    "map order": "82a16202a16101",
    "map, key twice": "82a16101a16102",
    "map with odd keys": "83c0019201020281010203",
    "map16": "de0001a16101",
    "map32": "df00000001a16101",
    "nested": "81a16192c0819381c3c2c0a0c400",
    "fixext1": "d40701",
    "fixext2": "d5070102",
    "fixext4": "d60701020304",
    "fixext8": "d7070102030405060708",
    "fixext16": "d8070102030405060708090a0b0c0d0e0f10",
    "ext8": "c7037f010203",
    "ext8 empty": "c70042",
    "ext16": "c8000342010203",
    "ext32": "c90000000342010203",
    "timestamp": "d6ff00000000",
    "path": "d603a16101c0",
    "empty path": "c70003",
    "path, unreadable inside": "d403c1",
    "bignum": "c70902010000000000000000",
    "proxy": "c70304616263",
    "object": "c70505a3616263c0",
}


@pytest.mark.parametrize("name", RAW_VALUES)
def test_a_value_comes_back_byte_for_byte(connection, base, name):
    value = bytes.fromhex(RAW_VALUES[name])
    path = mp.encode(mp.path(*base))
    connection.send_bytes(
        b"\x84\xa6action\xa9set_value\xa3seq\x01\xa4path" + path + b"\xa5value" + value
    )
    assert connection.receive().get("changed") is True
    # Not decoded from here on: some of the values could not be.
    connection.start("get_value", path=mp.path(*base))
    assert dict(mp.fields(connection.receive_bytes()))["value"] == value
    connection.start("get_tree", path=mp.path(*base))
    messages = [dict(mp.fields(connection.receive_bytes())) for _ in range(3)]
    assert [m.get("value") for m in messages] == [None, value, None]
    connection.start("enum", path=(), with_data=True)
    result = dict(mp.fields(connection.receive_bytes()))["result"]
    assert mp.encode(base[0]) + value in result


def test_big_values_survive(connection, base):
    value = bytes(range(256)) * 2000
    connection.ok("set_value", path=mp.path(*base), value=value)
    assert connection.ok("get_value", path=mp.path(*base))["value"] == value


VALUES = [
    None,
    True,
    False,
    0,
    -1,
    127,
    128,
    -33,
    2**32,
    2**63,
    2**64 - 1,
    -(2**63),
    2**64,
    2**200,
    0.0,
    1.5,
    -1e300,
    float("inf"),
    "",
    "äöü€😀",
    "y" * 300,
    "z" * 70000,
    b"",
    b"\x00\xff",
    b"q" * 300,
    (),
    (1, 2, 3),
    ("a", (b"b", None)),
    {},
    {"a": {"b": {"c": (1, {"d": 2})}}},
    {1: "t", -5: "neg", None: "none"},
    {(1, 2): "tuple key"},
    Path("a", 1, None),
    Path(),
    {"p": Path("x", "y")},
    msgpack.ExtType(42, b"who knows"),
]


async def test_the_clients_values_come_back_equal(node, base):
    async with clients(node) as client:
        for i, value in enumerate(VALUES):
            await client.set(base + [i], value=value)
        for i, value in enumerate(VALUES):
            got = (await client.get(base + [i])).value
            assert got == value and isinstance(got, type(value)), (got, value)
        tree = {r.path[-1]: r.value async for r in client.get_tree(base)}
        assert tree == dict(enumerate(VALUES))


async def test_nil_is_a_value_and_nothing_is_none(node, base):
    async with clients(node) as client:
        assert "value" not in await client.get(base)
        await client.set(base, value=None)
        assert (await client.get(base)).value is None
        res = await client.delete(base)
        assert (res.changed, res.prev) == (True, None)
        assert "value" not in await client.get(base)


def test_absence_is_told_with_and_without_chain(connection, base):
    msg = connection.ok("get_value", path=mp.path(*base))
    assert msg.order == ["seq", "tock"]
    msg = connection.ok("get_value", path=mp.path(*base), nchain=2)
    assert msg.order == ["chain", "seq", "tock"] and msg["chain"] is None


def test_what_a_set_answers(connection, base):
    path = mp.path(*base)
    msg = connection.ok("set_value", path=path, value=1)
    assert msg.order == ["changed", "chain", "tock", "seq"]
    assert (msg["changed"], msg["chain"]["prev"]) == (True, None)
    assert msg["chain"]["node"] == connection.life()
    msg = connection.ok("set_value", path=path, value=2, nchain=0)
    assert msg.order == ["changed", "prev", "tock", "seq"] and msg["prev"] == 1
    msg = connection.ok("set_value", path=path, value=2, nchain=3)
    assert msg.order == ["changed", "prev", "chain", "tock", "seq"]
    assert (msg["changed"], msg["prev"]) == (False, 2)
    # The same value is a new event all the same.
    msg2 = connection.ok("get_value", path=path, nchain=1)
    assert (msg2["chain"], msg2["tock"]) == (msg["chain"], msg["tock"])


def test_an_entry_keeps_its_tock_when_it_is_read(connection, base):
    tock = connection.ok("set_value", path=mp.path(*base), value=1)["tock"]
    connection.ok("set_value", path=mp.path(*base, "other"), value=1)
    for _ in range(3):
        assert connection.ok("get_value", path=mp.path(*base))["tock"] == tock
