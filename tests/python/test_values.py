"""Values: every MessagePack type, kept byte for byte; but what the original cannot read is refused."""

import msgpack
import msgpack_raw as mp
import pytest
from conftest import clients
from moat.util import Path, stream_unpacker

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
    "map with odd keys": "85c00192010202c70103c003c4010304d6ff0000000005",
    "map16": "de0001a16101",
    "map32": "df00000001a16101",
    "nested": "81a16192c0819392c3c2c0a0c400",
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
    "timestamp, 8 bytes": "d7ffee6b27fc00000000",
    "timestamp, 12 bytes": "c70cff3b9ac9ffffffffffffffffff",
    "path": "d603a16101c0",
    "empty path": "c70003",
    "path, a map inside": "c70303a16180",
    "bignum": "c70902010000000000000000",
    "proxy": "c70304616263",
    "proxy, not utf-8": "d504fffe",
    "other, not utf-8": "d52afffe",
}
# What ends a client of the original that meets it, and what is said of it.
REFUSED = {
    "str": ("a2fffe", "not UTF-8"),
    "latin-1": ("a4636166e9", "not UTF-8"),
    "half of a pair": ("a3eda080", "not UTF-8"),
    "str in a value": ("81a16192c0a1ff", "not UTF-8"),
    "str as a key": ("81a1ff01", "not UTF-8"),
    "str in a path": ("d503a1ff", "not UTF-8"),
    "map as a key": ("818001", "map in the key"),
    "map in an array as a key": ("8192c0918001", "map in the key"),
    "map in a path as a key": ("81c70303a1618001", "map in the key"),
    "timestamp, empty": ("c700ff", "a time (extension -1)"),
    "timestamp, 3 bytes": ("c703ff010203", "a time (extension -1)"),
    "timestamp, 10^9 ns in 8 bytes": ("d7ffee6b280000000000", "a time (extension -1)"),
    "timestamp, 10^9 ns in 12 bytes": ("c70cff3b9aca000000000000000000", "a time (extension -1)"),
    "timestamp as a key": ("81d4ff0001", "a time (extension -1)"),
    "path, no MessagePack": ("c70203c1c1", "a path (extension 3)"),
    "object, empty": ("c70005", "an object"),
    "object, broken": ("d40501", "an object"),
    "object, of a class that nobody has": ("c70505a3616263c0", "an object"),
    "negative": ("d4fe00", "negative type"),
}
# The original reads another path than was sent.
CUT_OFF = {"path, cut off": ("d503a261", "a path (extension 3)")}


@pytest.mark.parametrize("name", [*RAW_VALUES, *REFUSED])
def test_the_original_reads_what_is_taken_and_nothing_that_is_refused(name):
    value = bytes.fromhex(RAW_VALUES.get(name) or REFUSED[name][0])
    decoder = stream_unpacker()
    decoder.feed(b"\x92" + value + b"\x07")
    try:
        found = list(decoder)
    except Exception:  # pylint: disable=broad-exception-caught
        found = []
    assert (len(found) == 1 and found[0][1] == 7) is (name in RAW_VALUES), found


@pytest.mark.parametrize("name", [*REFUSED, *CUT_OFF])
def test_what_the_original_cannot_read_is_refused_and_changes_nothing(connection, base, name):
    hexadecimal, what = {**REFUSED, **CUT_OFF}[name]
    value = bytes.fromhex(hexadecimal)
    path = mp.encode(mp.path(*base))
    system = mp.encode((None, "odd", *base))
    before = connection.ok("set_value", path=mp.path(*base), value=1)
    writes = [
        connection.start_bytes("set_value", path=path, value=value),
        connection.start_bytes("set_internal", path=system, value=value),
        connection.start_bytes("update", path=path, value=value, tock=mp.encode(before["tock"] + 9)),
        connection.start_bytes("msg_send", topic=mp.encode(tuple(base)), data=value),
    ]
    for seq in writes:
        error = connection.reply(seq)
        assert error["code"] == "bad_request" and what in error["error"], error
    op = b"\x83" + mp.encode("action") + mp.encode("set_value") + mp.encode("path") + path
    op += mp.encode("value")
    good = mp.encode(mp.path(*base, "good"))
    ops = b"\x92" + op + value + op.replace(path, good) + b"\x02"
    refused, made = connection.reply(connection.start_bytes("batch", ops=ops))["results"]
    assert refused["code"] == "bad_request" and what in refused["error"] and made["changed"]
    found = connection.ok("get_value", path=mp.path(*base), nchain=1)
    assert found["value"] == 1
    assert (found["tock"], found["chain"]) == (before["tock"], before["chain"])
    assert "value" not in connection.ok("get_value", path=(None, "odd", *base))


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
