"""MessagePack as bytes: where each object begins and ends, nothing decoded that need not be.

The tests compare what the server sends byte for byte, so they must see the bytes of each
field and their order, which a decoder hides.
"""

from __future__ import annotations

import struct
from typing import Any, List, Tuple

import msgpack

PATH_EXT = 3
BIGNUM_EXT = 2


class Incomplete(Exception):
    """The bytes end within an object: more must be read."""


class Malformed(Exception):
    """The bytes are no MessagePack."""


# First byte -> (size of the length field, bytes before the payload that the length leaves out).
_SIZED = {
    0xC4: 1, 0xC5: 2, 0xC6: 4,  # bin
    0xC7: 1, 0xC8: 2, 0xC9: 4,  # ext
    0xD9: 1, 0xDA: 2, 0xDB: 4,  # str
}
_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0,  # nil, false, true
    0xCA: 4, 0xCB: 8,  # float
    0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,  # uint
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,  # int
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,  # fixext
}  # fmt: skip
_CONTAINERS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_LENGTH = {1: ">B", 2: ">H", 4: ">I"}


def _take(buf: bytes, pos: int, size: int) -> int:
    if pos + size > len(buf):
        raise Incomplete
    return struct.unpack_from(_LENGTH[size], buf, pos)[0]


def _header(buf: bytes, pos: int) -> Tuple[int, int]:
    """Returns (end of this object without its children, number of children)."""
    if pos >= len(buf):
        raise Incomplete
    first = buf[pos]
    pos += 1
    if first <= 0x7F or first >= 0xE0:
        return pos, 0
    if first <= 0x8F:
        return pos, 2 * (first & 0x0F)
    if first <= 0x9F:
        return pos, first & 0x0F
    if first <= 0xBF:
        return pos + (first & 0x1F), 0
    if first in _FIXED:
        return pos + _FIXED[first], 0
    if first in _CONTAINERS:
        size, each = _CONTAINERS[first]
        return pos + size, each * _take(buf, pos, size)
    if first in _SIZED:
        size = _SIZED[first]
        kind = 1 if 0xC7 <= first <= 0xC9 else 0
        return pos + size + kind + _take(buf, pos, size), 0
    raise Malformed(f"first byte {first:#04x}")


def skip(buf: bytes, pos: int = 0) -> int:
    """Returns where the object that begins at `pos` ends."""
    todo = 1
    while todo:
        pos, children = _header(buf, pos)
        todo += children - 1
    if pos > len(buf):
        raise Incomplete
    return pos


def fields(raw: bytes) -> List[Tuple[str, bytes]]:
    """The fields of a map with string keys, in order, values as bytes."""
    pos, children = _header(raw, 0)
    if not (0x80 <= raw[0] <= 0x8F or raw[0] in (0xDE, 0xDF)):
        raise Malformed("no map")
    res = []
    for _ in range(children // 2):
        end = skip(raw, pos)
        key = decode(raw[pos:end])
        pos, end = end, skip(raw, end)
        res.append((key, raw[pos:end]))
        pos = end
    if pos != len(raw):
        raise Malformed("bytes left over")
    return res


def decode(raw: bytes) -> Any:
    """Decodes one object; arrays as tuples, extensions as `msgpack.ExtType`."""
    return msgpack.unpackb(raw, strict_map_key=False, use_list=False, raw=False)


def encode(obj: Any) -> bytes:
    """Encodes an object, integers in their shortest form."""
    return msgpack.packb(obj, use_bin_type=True)


def path(*elements: Any) -> msgpack.ExtType:
    """A path in the form that the Python client sends."""
    return msgpack.ExtType(PATH_EXT, b"".join(encode(e) for e in elements))


def elements(obj: Any) -> Tuple[Any, ...]:
    """The elements of a path in either form."""
    if isinstance(obj, msgpack.ExtType):
        assert obj.code == PATH_EXT, obj
        unpacker = msgpack.Unpacker(strict_map_key=False, use_list=False, raw=False)
        unpacker.feed(obj.data)
        return tuple(unpacker)
    assert isinstance(obj, tuple), obj
    return obj
