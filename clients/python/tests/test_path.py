"""Paths against the vectors that the Rust code is tested with, and random ones against themselves."""

import json
import math
import os
from pathlib import Path as File

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distkv_client import Path, UsageError
from distkv_client.path import PATH_BYTES_MAX
from distkv_client.shard import hash_key, jump_hash

FOLDER = File(os.environ.get("DISTKV_VECTORS", File(__file__).parents[2] / "conformance/vectors"))
VECTORS = json.loads((FOLDER / "path_text.json").read_text())
HASHES = json.loads((FOLDER / "hashes.json").read_text())


def element(told):
    kind, *rest = told
    if kind == "nil":
        return None
    value = rest[0]
    return {
        "str": lambda: value,
        "bool": lambda: value,
        "int": lambda: int(value),
        "float": lambda: float(value),
        "bin": lambda: bytes.fromhex(value),
        "array": lambda: tuple(element(item) for item in value),
    }[kind]()


def path_of(row):
    return Path(*(element(told) for told in row["elements"]))


def test_texts_are_written_and_read_as_in_the_vectors():
    for row in VECTORS["both"]:
        assert Path.parse(row["text"]) == path_of(row), row
        assert str(path_of(row)) == row["text"]
    for row in VECTORS["read"]:
        assert Path.parse(row["text"]) == path_of(row), row
        assert str(path_of(row)) == row["printed"], row
    for row in VECTORS["written_otherwise"]:
        assert Path.parse(row["text"]) == path_of(row), row
        assert str(path_of(row)) == row["text"], row


def test_what_is_no_path_is_refused():
    for text in VECTORS["refused"]:
        with pytest.raises(UsageError):
            Path.parse(text)
            pytest.fail(text)


@pytest.mark.parametrize("item", [False, None, "\0", b"\0", (), -32, "\U000e0001"], ids=repr)
def test_the_text_of_a_path_as_long_as_may_be_is_read_back(item):
    each = len(bytes(Path((item,)))) - 1
    array = (item,) * ((PATH_BYTES_MAX - 4) // each)
    for path in (Path(array), Path((array,))):
        assert PATH_BYTES_MAX - each - 4 < len(bytes(path)) <= PATH_BYTES_MAX
        assert Path.parse(str(path)) == path


ARRAYS = {
    ":1,": (1,),
    ":1,2,": (1, 2),
    ":( 1 ,( 2, ),() )": (1, (2,), ()),
    ":()": (),
    ":(((1,),),)": (((1,),),),
    ":1:.5,-2,inf,1e3": (1.5, -2, math.inf, 1000.0),
    ":None,True,False": (None, True, False),
    r""":'a"\'',"b'\"",b'\xff\t'""": ("a\"'", "b'\"", b"\xff\t"),
    r":'\x41\u00e9\U0001F600\\',''": ("Aé😀\\", ""),
    ":'\n\t#',1": ("\n\t#", 1),
}
NO_ARRAYS = [
    *(":1,\t2", ":1,\n2", ":\t(1,)", ":1,#x", ":(1,)#", ":1or(2,)", ":1,*a", ":1,:.:.:."),
    *(":((1,))", ":(())", ":(1)", ":'a'", ":,", ":(,)", ":1,,2", ":(1,", ":1,)", ":(1,),(2"),
    *(":1,:.5", ":1,-+1", ":1,--1", ":1,1_0", ":1,0x10", ":1,1j", ":1,007", ":1,true", ":1,nan", ":1,a"),
    *(":1,'a''b'", ":1,'a' 'b'", ":1,u'a'", ":1,r'a'", ":1,'''a'''", ":1,'a", ":1,b'é'"),
    *(r":1,'\q'", r":1,'\x4'", r":1,'\ud800'", r":1,'\U00110000'", r":1,b'\u00e9'"),
]


@pytest.mark.filterwarnings("error")
def test_arrays_are_what_all_clients_take_for_one():
    for text, elements in ARRAYS.items():
        assert Path.parse(text) == Path(elements), text
    for text in NO_ARRAYS:
        with pytest.raises(UsageError):
            Path.parse(text)
            pytest.fail(text)
    deepest = "(" * 16 + "1" + ",)" * 16
    assert str(Path.parse(":" + deepest)) == ":" + deepest
    for deeper in (f"({deepest},)", f"({deepest})", "(" * 5000, "(" * 5000 + ")" * 5000):
        with pytest.raises(UsageError):
            Path.parse(":" + deeper)


def test_an_extension_is_no_element():
    # It is a tuple, and would be another path.
    with pytest.raises(UsageError, match="extension"):
        Path("a", msgpack.ExtType(5, b"x"))


def test_what_differs_from_the_original_differs_as_recorded():
    for row in VECTORS["differs"] + VECTORS["own"]:
        if row["ours"] is None:
            with pytest.raises(UsageError):
                Path.parse(row["text"])
                pytest.fail(row["text"])
        else:
            assert str(Path.parse(row["text"])) == row["ours"], row


def test_keys_hash_and_shard_as_elsewhere():
    assert len(HASHES["keys"]) == 25
    for row in HASHES["keys"]:
        number = hash_key(row["key"].encode())
        assert str(number) == row["xxh64"]
        assert jump_hash(number, 1024) == row["shard_1024"] == Path(row["key"], "below").shard
        assert jump_hash(number, 256) == row["shard_256"]
    for row in HASHES["jump"]:
        assert jump_hash(int(row["hash"]), 100) == row["buckets_100"]
        assert jump_hash(int(row["hash"]), 1024) == row["buckets_1024"]


def test_other_elements_shard_by_their_bytes():
    def of(key):
        return jump_hash(hash_key(key), 1024)

    assert Path(5).shard == of(b"\x05")
    assert Path(300, True).shard == of(b"\xcd\x01\x2c")
    assert Path(None, "a").shard == of(b"\xc0")
    assert Path(b"a", "b").shard == of(b"\xc4\x01a")
    assert Path(1.5).shard == of(b"\xcb\x3f\xf8\0\0\0\0\0\0")
    assert Path().shard == Path("").shard == of(b"")


def test_true_1_and_1_0_are_three_paths():
    paths = [Path("a", True), Path("a", 1), Path("a", 1.0)]
    assert len(set(paths)) == 3
    assert [str(path) for path in paths] == ["a:t", "a:1", "a:1:.0"]


@pytest.mark.parametrize(
    "elements",
    [("a", None), (float("nan"),), (1 << 64,), ({},), ("x" * 4096,), tuple(range(65)), ("\ud800",)],
)
def test_what_no_node_takes_is_refused(elements):
    with pytest.raises(UsageError):
        Path(*elements)


def test_arrays_nest_sixteen_levels_deep():
    def nested(levels):
        return () if levels == 1 else (nested(levels - 1),)

    path = Path(nested(16))
    assert Path.parse(str(path)) == path
    with pytest.raises(UsageError):
        Path(nested(17))


SCALARS = (
    st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=20)
)
ITEMS = st.recursive(SCALARS | st.none(), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=6)
ELEMENTS = st.lists(SCALARS | st.lists(ITEMS, max_size=4).map(tuple), max_size=6)


@given(ELEMENTS)
def test_every_path_reads_back_from_its_text_and_bytes(elements):
    path = Path(*elements)
    assert Path.parse(str(path)) == path
    assert Path.from_bytes(bytes(path)) == path


@given(st.text(max_size=30))
def test_any_text_is_a_path_or_refused(text):
    try:
        path = Path.parse(text)
    except UsageError:
        return
    assert Path.parse(str(path)) == path


@given(st.binary(max_size=60))
def test_any_bytes_are_a_path_or_refused(data):
    try:
        path = Path.from_bytes(data)
    except UsageError:
        return
    assert Path.from_bytes(bytes(path)) == path
