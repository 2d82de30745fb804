"""Values that msgpack has no type for are read, watched and written back like any other; raw bytes that are not
exactly one value are not sent."""

import asyncio
import enum
from dataclasses import dataclass

import msgpack
import pytest
from conftest import until
from hypothesis import given
from hypothesis import strategies as st
from planted import plant
from scripted import WRITTEN
from test_rules import pair, scene

from distkv_client import BadValueError, Change, Extension, RefusedError, UpToDate, UsageError
from distkv_client.codec import DEPTH_MAX, VALUE_DEPTH_MAX, Splitter, decode, decode_message, encode, one_value
from distkv_client.convert import convert

ODD = {
    "code -2": (b"\xd4\xfe\x00", Extension(-2, b"\0")),
    "code -128, nothing in it": (b"\xc7\x00\x80", Extension(-128, b"")),
    "code -5, 300 bytes": (b"\xc8\x01\x2c\xfb" + b"x" * 300, Extension(-5, b"x" * 300)),
    "code -7, 70000 bytes": (b"\xc9\x00\x01\x11\x70\xf9" + b"x" * 70000, Extension(-7, b"x" * 70000)),
    "a timestamp of nothing": (b"\xc7\x00\xff", Extension(-1, b"")),
    "a timestamp of 2 bytes": (b"\xd5\xff\x00\x01", Extension(-1, b"\0\1")),
    "a timestamp of 13 bytes": (b"\xc7\x0d\xff" + bytes(13), Extension(-1, bytes(13))),
    "nanoseconds above 999,999,999 in 8 bytes": (b"\xd7\xff" + b"\xff" * 8, Extension(-1, b"\xff" * 8)),
    "nanoseconds above 999,999,999 in 12 bytes": (
        b"\xc7\x0c\xff\xff\xff\xff\xff" + bytes(8),
        Extension(-1, b"\xff\xff\xff\xff" + bytes(8)),
    ),
}
INSIDE = {
    "in an array": (lambda raw: b"\x92\x01" + raw, lambda value: [1, value]),
    "in a map": (lambda raw: b"\x81\xa1a" + raw, lambda value: {"a": value}),
    "as a key": (lambda raw: b"\x81" + raw + b"\x01", lambda value: {value: 1}),
    "in an array that is a key": (lambda raw: b"\x81\x91" + raw + b"\x01", lambda value: {(value,): 1}),
}
WELL_KNOWN = {
    "a timestamp of 4 bytes": (b"\xd6\xff\x00\x00\x00\x01", msgpack.Timestamp(1)),
    "a timestamp of 8 bytes": (b"\xd7\xff" + bytes(7) + b"\x01", msgpack.Timestamp(1)),
    "a timestamp of 12 bytes": (b"\xc7\x0c\xff" + bytes(4) + b"\xff" * 8, msgpack.Timestamp(-1)),
    "code 0": (b"\xd4\x00\xaa", msgpack.ExtType(0, b"\xaa")),
    "code 127": (b"\xd4\x7f\xaa", msgpack.ExtType(127, b"\xaa")),
}


def nested(raw, value, levels):
    for _ in range(levels):
        raw, value = b"\x91" + raw, [value]
    return raw, value


@pytest.mark.parametrize(("raw", "value"), ODD.values(), ids=ODD)
async def test_what_msgpack_has_no_type_for_is_read_everywhere_and_not_taken_anew(client, shared, base, raw, value):
    await plant(shared, base, raw)
    assert await client.get(base) == value and await client.get(base, Extension) == value
    assert await client.get_raw(base) == raw
    assert await client.get(base, read="any") == await client.get(base, read="freshest") == value
    assert (await client.entry(base)).value == value
    assert [entry.value for entry in await client.tree(base)] == [value]
    assert [entry.value async for entry in client.tree(base)] == [value]
    assert (await client.batch().get(base))[0].value == value
    assert (await client.request("get_value", path=base))["value"] == value
    async with client.watch(base) as watch, client.monitor(base) as monitor:
        assert (await watch.next()).value == value and await watch.next() == UpToDate()
        for refused in (client.put(base, [value]), client.put_raw(base, raw), client.send(base, value)):
            with pytest.raises(RefusedError, match="Python"):
                await refused
        assert await client.get_raw(base) == raw
        assert (await client.put(base, [1], if_value=value)).changed
        assert await watch.next() == Change(base, [1], False, *await version_and_tock(client, base))
        await client.send(base, "next")
        assert (await monitor.next()).data == "next"


async def version_and_tock(client, path):
    entry = await client.entry(path)
    return entry.version, entry.tock


@pytest.mark.parametrize(("around", "what"), INSIDE.values(), ids=INSIDE)
async def test_it_may_be_anywhere_inside(client, shared, base, around, what):
    for number, (raw, value) in enumerate(ODD.values()):
        for levels in (0, 60):
            path = base / number / levels
            raw_inside, inside = nested(around(raw), what(value), levels)
            assert decode(raw_inside) == inside and encode(inside) == raw_inside
            if len(raw) < 20:
                await plant(shared, path, raw_inside)
                assert await client.get(path) == inside
            with pytest.raises(RefusedError, match="Python"):
                await client.put(path, inside)
    assert len(await client.tree(base)) == len([raw for raw, _ in ODD.values() if len(raw) < 20]) * 2


async def test_it_takes_nothing_from_calls_beside_it(client, shared, base):
    """Their replies come in one piece, and those that the quick way does not decode are among them."""
    for number, (raw, _) in enumerate(ODD.values()):
        await plant(shared, base / number, raw)
    await client.put(base / "good", 1)
    lost = client.stats().pool.lost
    for _ in range(20):
        paths = [base / "good", *(base / number for number in range(len(ODD))), base / "good"]
        found = await asyncio.gather(*(client.get(path) for path in paths))
        assert found == [1, *(value for _, value in ODD.values()), 1]
    assert client.stats().pool.lost == lost


@pytest.mark.parametrize(("raw", "value"), WELL_KNOWN.values(), ids=WELL_KNOWN)
def test_what_msgpack_has_a_type_for_stays_that(raw, value):
    assert decode(raw) == value and type(decode(raw)) is type(value)
    # In the slow way, too.
    beside = decode(b"\x92\xd5\xff\x00\x01" + raw)[1]
    assert beside == value and type(beside) is type(value)


def test_an_extension_is_immutable_compares_and_has_a_code_and_bytes():
    one = Extension(-2, bytearray(b"a"))
    assert one == Extension(-2, b"a") and hash(one) == hash(Extension(-2, b"a")) and type(one.data) is bytes
    assert one != Extension(-3, b"a")
    with pytest.raises(AttributeError):
        one.code = 3
    for code, data in ((-129, b""), (128, b""), ("1", b""), (True, b""), (1, "a"), (1, None)):
        with pytest.raises(UsageError):
            Extension(code, data)
    # One that msgpack has a type for comes back as that.
    assert decode(encode(Extension(5, b"a"))) == msgpack.ExtType(5, b"a")


LEAVES = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.text(),
    st.binary(max_size=20),
    st.builds(Extension, st.integers(-128, -2), st.binary(max_size=20)),
    st.builds(Extension, st.just(-1), st.binary(max_size=20).filter(lambda data: len(data) not in (4, 8, 12))),
    st.builds(msgpack.Timestamp, st.integers(0, 1 << 40), st.integers(0, 999_999_998)),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(LEAVES | st.tuples(LEAVES, LEAVES), inner, max_size=5),
)


@given(VALUES)
def test_any_mixture_comes_back_as_it_was(value):
    data = encode(value)
    assert decode(data) == value
    assert one_value(data) == data


def test_a_message_is_bounded_as_before():
    odd = b"\xd5\xff\x00\x01"
    assert decode(b"\x91" * DEPTH_MAX + odd)
    for data in (b"\x91" * (DEPTH_MAX + 1) + odd, b"\x91" * 1000 + odd, odd + b"\x01", b"\x92" + odd, b""):
        with pytest.raises(Exception, match="."):
            decode(data)
    (part,) = Splitter().split(b"\x81\xa1a" + odd)
    assert decode_message(part) == {"a": Extension(-1, b"\0\1")}


NOT_ONE_VALUE = {
    "nothing": b"",
    "a text that is cut off": b"\xa5a",
    "two values": b"\x01\x02",
    "the byte that is unused": b"\xc1",
    "an array without its item": b"\x91",
    "a map without its value": b"\x81\xa1a",
    "the unused byte deep inside": b"\x91\x81\xa1a\xc1",
    "one level more than nodes take": b"\x91" * (VALUE_DEPTH_MAX + 1) + b"\x01",
    "more levels than are followed": b"\x91" * (DEPTH_MAX + 1) + b"\x01",
    "more levels than a stack holds": b"\x91" * 100_000 + b"\x01",
    "an extension of 4 GiB": b"\xc9\xff\xff\xff\xff",
    "an extension of 4 GiB, deep inside": b"\x91\x92\xc9\xff\xff\xff\xff\x01",
    "an extension that is cut off": b"\xc9\x00\x00\x00\x02\xfe\x01",
    "maps in keys": b"\x81" * (DEPTH_MAX + 1) + b"\x01" * (DEPTH_MAX + 2),
    "fields of a request": b"\x05\xa4path\xc7\x07\x03\xa6victim\xa3seq\x63\xa6nchain\x01",
}


@pytest.mark.parametrize("raw", NOT_ONE_VALUE.values(), ids=NOT_ONE_VALUE)
async def test_raw_bytes_that_are_not_one_value_are_not_sent(raw):
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await until(lambda: one.actions("list_shards") or two.actions("list_shards"))
        before = len(one.requests) + len(two.requests)
        with pytest.raises(BadValueError):
            await client.put_raw("a", raw)
        for wrong in ("text", None, 5, [1]):
            with pytest.raises(UsageError):
                await client.put_raw("a", wrong)
        assert len(one.requests) + len(two.requests) == before
        assert (await client.put_raw("a", bytearray(b"\x01"))).changed


async def test_a_request_has_one_seq_the_clients_own(client, base):
    with pytest.raises(UsageError):
        await client.request("get_value", path=base, seq=1)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x91" * VALUE_DEPTH_MAX + b"\x01",
        b"\xc4\xff" + b"\x91" * 255,
        b"\xc4\x05\xc9\xff\xff\xff\xff",
        b"\xa2\xff\xfe",
    ],
)
def test_what_is_one_value_passes(raw):
    assert one_value(raw) == raw


class Color(enum.Enum):
    RED = "red"


@dataclass
class Lamp:
    level: int = 0
    color: Color | None = None


@dataclass
class Site:
    lamps: list[Lamp]
    names: dict[str, tuple[int, str]]
    main: Lamp | None = None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"lamps": [{}, {"level": "x"}], "names": {}}, "does not fit int: it is str (at lamps[1].level)"),
        ({"lamps": [{"color": "blue"}], "names": {}}, "'blue' is not a valid Color (at lamps[0].color)"),
        ({"lamps": [], "names": {"a": [1, 2]}}, "does not fit str: it is int (at names['a'][1])"),
        ({"lamps": [], "names": {"a" * 99: 1}}, f"(at names['{'a' * 39}…])"),
        ({"lamps": [], "names": {}, "main": {"level": []}}, "does not fit int: it is list (at main.level)"),
        ({"lamps": 5, "names": {}}, "it is int (at lamps)"),
        (5, "the value does not fit Site: it is int"),
    ],
)
def test_a_value_of_which_a_part_does_not_fit_says_which(value, says):
    with pytest.raises(BadValueError) as refused:
        convert(value, Site)
    assert str(refused.value).endswith(says)
