"""How deeply values are nested, from their MessagePack: nodes take so many levels and no more. Pure.

>>> nests_deeper(b"\\x91\\x91\\x01", 1), nests_deeper(b"\\x91\\x91\\x01", 2)
(True, False)
"""

from __future__ import annotations

import msgpack

_CONTAINERS = bytes((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of arrays and maps."""
_MAPS = bytes((*range(0x80, 0x90), 0xDE, 0xDF))
_MARKS = bytes(byte in _CONTAINERS for byte in range(256))
"""Makes 1 of what may be the first byte of an array or a map, and 0 of all else."""


def nests_deeper(data: bytes, levels: int) -> bool:
    """Whether one whole value has more levels of arrays and maps than that.

    Each level begins with a byte of its own. So only a value with more such bytes is looked at item by item, and of
    it only the items that have too many themselves.
    """
    if data[0] not in _CONTAINERS or len(data) <= levels:
        return False
    marks = data.translate(_MARKS)
    return marks.count(1) > levels and _goes_deeper(data, marks, 0, len(data), levels)


def _goes_deeper(data: bytes, marks: bytes, start: int, end: int, levels: int) -> bool:
    """Of the array or map that stands there."""
    if not levels:
        return True
    unpacker = msgpack.Unpacker(max_buffer_size=end - start)
    unpacker.feed(memoryview(data)[start:end])
    is_map = data[start] in _MAPS
    count = 2 * unpacker.read_map_header() if is_map else unpacker.read_array_header()
    for _ in range(count):
        begin = start + unpacker.tell()
        unpacker.skip()
        if marks[begin]:
            stop = start + unpacker.tell()
            if marks.count(1, begin, stop) >= levels and _goes_deeper(data, marks, begin, stop, levels - 1):
                return True
    return False
