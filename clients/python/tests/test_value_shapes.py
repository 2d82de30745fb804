"""Values whose shape is a matter of its own: nested as deeply as may be, or maps that a dict cannot hold."""

from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, TypedDict, TypeVar

import pytest
from conftest import until
from hypothesis import given
from hypothesis import strategies as st
from planted import plant
from scripted import WRITTEN
from test_rules import pair, scene

from distkv_client import BadValueError, Change, Pairs, RefusedError, UpToDate, UsageError
from distkv_client.codec import VALUE_DEPTH_MAX, decode, encode
from distkv_client.convert import convert
from distkv_client.nesting import nests_deeper

T = TypeVar("T")


def nested(levels, around=lambda inner: [inner]):
    value = 1
    for _ in range(levels):
        value = around(value)
    return value


AROUND = {
    "arrays": lambda inner: [inner],
    "maps": lambda inner: {"a": inner},
    "both, among others": lambda inner: {"before": [[[]]] * 30, "a": (b"\x91" * 9, inner, {}), "behind": [{}] * 9},
    "keys": lambda inner: {inner if isinstance(inner, int) else tuple(inner.items()): 2},
}
"""What is put around a value, again and again."""


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
async def test_the_most_levels_are_taken_by_nodes_and_one_more_is_not_sent(client, base, around):
    levels = 0
    while not nests_deeper(encode(nested(levels + 1, around)), VALUE_DEPTH_MAX):
        levels += 1
    value = nested(levels, around)
    await client.put(base, value, if_new=True)
    await client.put(base, value, if_value=value)
    assert decode(await client.get_raw(base)) == await client.get(base)
    with pytest.raises(BadValueError, match="nested too deeply"):
        await client.put(base, nested(levels + 1, around))


async def test_what_is_nested_too_deeply_is_told_before_anything_is_sent():
    deep = nested(VALUE_DEPTH_MAX + 1)
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two) as client:
        await until(lambda: one.actions("list_shards") or two.actions("list_shards"))
        before = len(one.requests) + len(two.requests)
        for call in (
            lambda: client.put("a", deep),
            lambda: client.put("a", 1, if_value=deep),
            lambda: client.delete("a", if_value=deep),
            lambda: client.put_raw("a", encode(deep)),
            lambda: client.send("a", deep),
        ):
            with pytest.raises(BadValueError, match="nested too deeply"):
                await call()
        with pytest.raises(BadValueError, match="nested too deeply"):
            client.batch().put("a", deep)
        assert len(one.requests) + len(two.requests) == before


def levels_of(value):
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    return 1 + max(map(levels_of, value), default=0) if isinstance(value, (list, tuple)) else 0


LEAVES = st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=70) | st.just(b"\x91" * 40)
KEYS = LEAVES | st.tuples(LEAVES, st.tuples(LEAVES))
SHAPES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20)


@given(SHAPES.filter(lambda value: levels_of(value) < 60), st.integers(0, 8))
def test_levels_are_counted(value, most):
    try:
        data = encode(value)
    except BadValueError:
        return  # A great negative number.
    assert nests_deeper(data, most) == (levels_of(value) > most)


LOSES = {
    "true and 1": (b"\x82\xc3\xa1a\x01\xa1b", ((True, "a"), (1, "b"))),
    "true and 1.0": (b"\x82\xc3\xa1a\xcb\x3f\xf0" + bytes(6) + b"\xa1b", ((True, "a"), (1.0, "b"))),
    "the zeros": (
        b"\x84\xc2\x01\x00\x02\xcb" + bytes(8) + b"\x03\xcb\x80" + bytes(7) + b"\x04",
        ((False, 1), (0, 2), (0.0, 3), (-0.0, 4)),
    ),
    "a text twice": (b"\x83\xa1a\x01\xa1b\x02\xa1a\x03", (("a", 1), ("b", 2), ("a", 3))),
    "bytes twice": (b"\x82\xc4\x01a\x01\xc4\x01a\x02", ((b"a", 1), (b"a", 2))),
    "an integer twice": (b"\x82\x05\x01\x05\x02", ((5, 1), (5, 2))),
    "beside others": (b"\x83\xa1x\x91\x01\xc3\x02\x01\x03", (("x", [1]), (True, 2), (1, 3))),
    "within arrays": (b"\x82\x91\xc3\x02\x91\x01\x03", (((True,), 2), ((1,), 3))),
}


@pytest.mark.parametrize(("raw", "pairs"), LOSES.values(), ids=LOSES)
async def test_a_map_whose_keys_are_one_in_python_loses_none(client, base, raw, pairs):
    async with client.watch(base) as watch:
        assert await watch.next() == UpToDate()
        await client.put_raw(base, raw)
        for value in (
            await client.get(base),
            (await client.entry(base)).value,
            (await client.tree(base))[0].value,
            (await client.batch().get(base))[0].value,
            (await watch.next()).value,
        ):
            assert value == Pairs(pairs) and repr(value) == repr(Pairs(pairs)), "1 and True are equal"
        await client.put(base, [value], if_value=value)
        assert await client.get_raw(base) == b"\x91" + raw
        assert isinstance(await watch.next(), Change)
        await client.put(base, {"a": value, "b": {5: 1}})
        assert repr((await client.get(base))["a"]) == repr(value)
        await client.put(base, value)
        assert await client.get_raw(base) == raw
        with pytest.raises(BadValueError, match="Pairs"):
            await client.get(base, dict)


async def test_other_maps_are_dicts_whatever_their_keys_are(client, base):
    value = {None: 0, 1: 1, 2.5: 2, False: 3, b"a": 4, "a": 5, (1, (True,)): {6: {7: 8}}, -1: []}
    await client.put(base, value)
    found = await client.get(base)
    assert found == value and repr(found) == repr(value) and type(found[(1, (True,))]) is dict


async def test_a_map_that_is_a_key_is_read_and_not_taken(client, shared, base):
    raw = b"\x81\x82\xa1a\x91\x01\x02\x03\x04"
    await plant(shared, base, raw)
    found = await client.get(base)
    assert found == {Pairs((("a", (1,)), (2, 3))): 4} and encode(found) == raw
    with pytest.raises(RefusedError, match="key of a map"):
        await client.put(base, found)
    assert await client.get_raw(base) == raw


def test_pairs_are_pairs():
    assert Pairs([[1, 2]]) == Pairs(((1, 2),)) and hash(Pairs([(1, 2)])) == hash(Pairs(((1, 2),)))
    for wrong in (5, [1], [(1, 2, 3)], None):
        with pytest.raises(UsageError):
            Pairs(wrong)


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Typed(TypedDict):
    x: int


@dataclass
class Box(Generic[T]):
    x: T


def test_a_named_tuple_is_read_as_it_was_written():
    assert convert(decode(encode(Point(1, 2.5))), Point) == Point(1, 2.5)
    assert convert([1], Point) == Point(1)
    with pytest.raises(BadValueError, match=r"at x"):
        convert(["1"], Point)
    with pytest.raises(BadValueError, match="3 items"):
        convert([1, 2, 3], Point)


@pytest.mark.parametrize("wanted", [Typed, Box[int]])
def test_what_values_cannot_be_read_as_is_said_with_what_to_take_instead(wanted):
    with pytest.raises(BadValueError, match="read it as a dict, a dataclass"):
        convert({"x": 1}, wanted)


@pytest.mark.parametrize(
    ("value", "instead"), [(datetime(2026, 1, 1), "msgpack.Timestamp"), ({1}, "store a list"), ([{1}], "store a list")]
)
def test_what_cannot_be_stored_is_said_with_what_to_store_instead(value, instead):
    with pytest.raises(BadValueError, match=instead):
        encode(value)
