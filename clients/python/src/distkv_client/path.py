"""Paths of entries: canonical MessagePack bytes, their elements, and their shard. Pure.

Two paths are equal if their canonical bytes are: in Python ``True == 1 == 1.0``, on nodes the three are
three elements. Everything that calls need of a path is worked out once and kept with it.

>>> Path("site", "lamp") == Path.parse("site.lamp")
True
>>> Path("a", 1) == Path("a", True)
False
>>> str(Path("site", 1, "on air"))
'site:1.on:_air'
>>> Path("site") / "lamp"
Path(site.lamp)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Union

import msgpack

from .errors import UsageError
from .path_text import TextError, format_elements, parse_elements
from .shard import shard_of_key

PATH_ELEMENTS_MAX = 64
"""Most elements of a path."""
PATH_BYTES_MAX = 4096
"""Most bytes of a path in canonical form."""
PATH_NESTING_MAX = 16
"""Deepest nesting of arrays within an element."""
PATHS_CACHED_MAX = 4096
"""Texts and tuples whose paths are remembered."""

Element = Union[None, bool, int, float, str, bytes, tuple["Element", ...]]
"""An element of a path. Nil may only be the first one, or be within a tuple."""
PathLike = Union["Path", str, tuple[object, ...]]
"""What calls take for a path: a :class:`Path`, its text, or a tuple of its elements."""

_packer = msgpack.Packer(use_bin_type=True)
_pack = _packer.pack


def normalise(element: object, depth: int = 0) -> Element:
    """The element as nodes see it: tuples for all arrays, `""` for `b""`, 0.0 for -0.0.

    Raises :class:`~distkv_client.errors.UsageError` where it cannot be one.
    """
    if isinstance(element, str):
        try:
            element.encode()
        except UnicodeEncodeError:
            raise UsageError("an element of a path is no valid text") from None
        return str(element)
    if element is None or isinstance(element, bool):
        return element
    if isinstance(element, int):
        if not -(1 << 63) <= element < 1 << 64:
            raise UsageError("an integer in a path has at most 64 bits")
        return int(element)
    if isinstance(element, float):
        if math.isnan(element):
            raise UsageError("NaN cannot be in a path")
        return float(element) if element else 0.0
    if isinstance(element, (bytes, bytearray)):
        return bytes(element) or ""
    if isinstance(element, msgpack.ExtType):
        # It is a tuple.
        raise UsageError("an extension cannot be an element of a path")
    if isinstance(element, Path):
        element = element.elements
    if isinstance(element, (tuple, list)):
        if depth >= PATH_NESTING_MAX:
            raise UsageError(f"arrays in a path nest at most {PATH_NESTING_MAX} levels deep")
        items: tuple[object, ...] = tuple(element)  # pyright: ignore[reportUnknownArgumentType]
        return tuple(normalise(item, depth + 1) for item in items)
    raise UsageError(f"{type(element).__name__} cannot be an element of a path")


def _pack_element(element: Element) -> bytes:
    return _pack(element)


class Path:
    """The path of an entry; never changed. `Path("a", 1)` from elements, :meth:`parse` from text."""

    __slots__ = ("_bytes", "_elements", "_text", "ext", "get_head", "get_head_chain", "shard")

    _bytes: bytes
    _elements: tuple[Element, ...]
    _text: str | None
    shard: int
    """The virtual shard, 0 to 1,023."""
    ext: bytes
    """The path as a MessagePack extension, as requests carry it."""
    get_head: bytes
    """The request `get_value` up to the value of `seq`."""
    get_head_chain: bytes
    """The same with `nchain` 1."""

    def __init__(self, *elements: object) -> None:
        if len(elements) > PATH_ELEMENTS_MAX:
            raise UsageError(f"a path has at most {PATH_ELEMENTS_MAX} elements")
        self._elements = tuple([normalise(element) for element in elements])
        if None in self._elements[1:]:
            raise UsageError("nil can only be the first element of a path")
        packed = [_pack_element(element) for element in self._elements]
        self._finish(b"".join(packed), packed[0] if packed else b"")

    def _finish(self, canonical: bytes, first: bytes) -> None:
        if len(canonical) > PATH_BYTES_MAX:
            raise UsageError(f"a path has at most {PATH_BYTES_MAX} bytes")
        self._bytes = canonical
        self._text = None
        head = self._elements[0] if self._elements else ""
        self.shard = shard_of_key(head.encode() if isinstance(head, str) else first)
        self.ext = pack_ext(3, canonical)
        self.get_head = b"\x83\xa6action\xa9get_value\xa4path" + self.ext + b"\xa3seq"
        self.get_head_chain = b"\x84\xa6action\xa9get_value\xa4path" + self.ext + b"\xa6nchain\x01\xa3seq"

    @classmethod
    def of(cls, path: PathLike) -> Path:
        """From whatever calls take. Results are remembered, a bounded number of them."""
        if isinstance(path, str):
            known = _texts.get(path)
            if known is None:
                known = cls.parse(path)
                if len(_texts) >= PATHS_CACHED_MAX:
                    del _texts[next(iter(_texts))]
                _texts[path] = known
            return known
        if isinstance(path, Path):
            return path
        if isinstance(path, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return cls(*path)
        raise UsageError(f"a path is a Path, a text or a tuple, not {type(path).__name__}")

    @classmethod
    def parse(cls, text: str) -> Path:
        """From its text: `site.lamp`, `a:1.b`, `:` for the root.

        Raises :class:`~distkv_client.errors.UsageError`.
        """
        try:
            return cls(*parse_elements(text))
        except TextError as error:
            raise UsageError(str(error)) from None

    @classmethod
    def from_bytes(cls, canonical: bytes) -> Path:
        """From its elements' MessagePack, one after the other, in whatever width."""
        unpacker = msgpack.Unpacker(
            raw=False, use_list=False, strict_map_key=False, max_buffer_size=PATH_BYTES_MAX + 64
        )
        elements: list[object] = []
        try:
            unpacker.feed(canonical)
            while unpacker.tell() < len(canonical):
                elements.append(unpacker.unpack())
        except Exception as error:
            raise UsageError(f"these bytes are no path: {error}") from None
        return cls(*elements)

    @property
    def elements(self) -> tuple[Element, ...]:
        """The elements; arrays are tuples."""
        return self._elements

    @property
    def place(self) -> int:
        """Where it is in the 128-bit space that `list_shards` shows in ranges: its shard's first place."""
        return self.shard << 118

    def join(self, *elements: object) -> Path:
        """The path with these elements behind it."""
        return Path(*self._elements, *elements)

    def __truediv__(self, element: object) -> Path:
        return Path(*self._elements, element)

    @property
    def parent(self) -> Path:
        """The path without its last element; the root is its own parent."""
        return Path(*self._elements[:-1])

    def __bytes__(self) -> bytes:
        return self._bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and self._bytes == other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __len__(self) -> int:
        return len(self._elements)

    def __iter__(self) -> Iterator[Element]:
        return iter(self._elements)

    def __getitem__(self, index: int) -> Element:
        return self._elements[index]

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        if self._text is None:
            self._text = format_elements(self._elements)
        return self._text

    def __repr__(self) -> str:
        return f"Path({self})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Path, self._elements)


def pack_ext(code: int, data: bytes) -> bytes:
    """An extension in its shortest form; `code` is 0 to 127."""
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}.get(len(data))
    if fixed is not None:
        return bytes((fixed, code)) + data
    if len(data) < 1 << 8:
        return bytes((0xC7, len(data), code)) + data
    if len(data) < 1 << 16:
        return b"\xc8" + len(data).to_bytes(2, "big") + bytes((code,)) + data
    return b"\xc9" + len(data).to_bytes(4, "big") + bytes((code,)) + data


_texts: dict[str, Path] = {}

ROOT = Path()
"""The path without elements."""
