"""Values to MessagePack and back, and messages out of a stream of bytes. Pure.

MessagePack has no frames: the splitter finds where each message ends and decodes each alone, so an entry that
cannot be decoded in the quick way (a map with other keys than texts, an odd timestamp) breaks nothing behind it.

>>> decode(encode({"on": True, ("a", 1): b"x"}))
{'on': True, ('a', 1): b'x'}
>>> decode(encode(1 << 70)) == 1 << 70
True
>>> decode(encode([Extension(-2, b"x")]))
[Extension(code=-2, data=b'x')]
>>> decode(b"\\x82\\xc3\\x01\\x01\\x02")
Pairs(pairs=((True, 1), (1, 2)))
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import msgpack

from .checks import bytes_of, integer_of
from .errors import BadValueError, ProtocolError, UsageError
from .nesting import nests_deeper
from .pairs import Packed, Pairs, map_of
from .path import Path

MESSAGE_BYTES_MAX = 64 << 20
"""Longest message that is taken from a node."""
VALUE_BYTES_MAX = 4 << 20
"""Longest value that nodes take."""
REQUEST_BYTES_MAX = 2 * VALUE_BYTES_MAX + 4096 + 4096
"""Longest request that is sent: two of the longest values, a path, and something for the rest."""
VALUE_DEPTH_MAX = 64
"""Levels of arrays and maps of a value, as nodes take them."""
DEPTH_GREATEST = (1 << 63) - 1
"""The greatest depth below a path that can be asked for; no path is as long."""
DEPTH_MAX = 128
"""Deepest nesting that the slow decoder follows."""

Message = dict[str, Any]
"""One message: a map whose keys are texts."""

EXT_TIMESTAMP = -1
EXT_BIG_INT = 2
EXT_PATH = 3
_EXT_SIZES = {0xD4 + power: 1 << power for power in range(5)}
"""How many bytes of data an extension has, by its first byte, where that says it."""
_EXT_LENGTHS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
"""In how many bytes behind the first one it says it elsewhere."""
_WRAPPED = b"\xc9\xff\xff\xff\xff"
"""How an extension begins for which msgpack counts wrong: it adds one byte for the code, and comes to none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Extension:
    """An extension of MessagePack that `msgpack` has no type for: of a code below -1, or a timestamp (code -1) of a
    length that none has, or with more than 999,999,999 nanoseconds. Written, it is the same bytes again.

    Others are read as `msgpack.ExtType` (codes from 0) and `msgpack.Timestamp`, also where they were written with this.
    """

    code: int
    """-128 to 127."""
    data: bytes

    def __post_init__(self) -> None:
        integer_of(self.code, "an extension's code", -128, 127)
        object.__setattr__(self, "data", bytes_of(self.data, "an extension's data"))


class NoValue(enum.Enum):
    """The base of what stands for an argument that is not given: it is stored by mistake only."""


def _ext_hook(code: int, data: bytes) -> object:
    if code < 0:
        # Timestamps come here only from the slow way: the quick way decodes them itself.
        if code == EXT_TIMESTAMP:
            try:
                return msgpack.Timestamp.from_bytes(data)
            except ValueError:
                pass
        return Extension(code, data)
    if code == EXT_BIG_INT:
        return int.from_bytes(data, "big")
    if code == EXT_PATH:
        try:
            return Path.from_bytes(bytes(data))
        except UsageError:
            return msgpack.ExtType(code, bytes(data))
    return msgpack.ExtType(code, bytes(data))


def _default(value: Any) -> object:
    """What the packer does not know: paths, great integers, pairs, and the classes that users write."""
    if isinstance(value, Path):
        return msgpack.ExtType(EXT_PATH, bytes(value))
    if isinstance(value, Extension):
        # Not through its constructor, which refuses codes below 0; the packer takes them.
        return msgpack.ExtType._make((value.code, value.data))
    if isinstance(value, Pairs):
        return Packed(value)
    if isinstance(value, int):
        if value >= 1 << 64:
            return msgpack.ExtType(EXT_BIG_INT, value.to_bytes((value.bit_length() + 7) // 8, "big"))
        raise BadValueError("integers below -2^63 cannot be stored")
    if isinstance(value, NoValue):
        raise BadValueError(f"{value!r} is no value: it stands for an argument that is not given")
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    for names in ("__attrs_attrs__", "__struct_fields__"):
        # Of the class, but that an instance has it, too.
        fields: Any = getattr(value, names, None)
        if fields is not None:
            found = [field if isinstance(field, str) else str(field.name) for field in fields]
            return {name: getattr(value, name) for name in found}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    kind, instead = cast("type[object]", type(value)).__name__, ""
    if isinstance(value, datetime.date):
        instead = "; store a msgpack.Timestamp (msgpack.Timestamp.from_datetime), or a text"
    elif isinstance(value, (set, frozenset)):
        instead = "; store a list, which is read back as a set where the type says so"
    raise BadValueError(f"{kind} is no value: it has no form in MessagePack{instead}")


_packer = msgpack.Packer(default=_default, unicode_errors="surrogateescape", use_bin_type=True)
# Keys that are no texts or bytes, of which a message has none itself, are left to a second try.
unpack = partial(msgpack.unpackb, unicode_errors="surrogateescape", ext_hook=_ext_hook, object_pairs_hook=map_of)
unpacker_of = partial(msgpack.Unpacker, unicode_errors="surrogateescape", ext_hook=_ext_hook, object_pairs_hook=map_of)
_unpack_all_keys = partial(unpack, strict_map_key=False)

pack_int = msgpack.Packer().pack


def encode(value: object) -> bytes:
    """A value as MessagePack. Raises :class:`~distkv_client.errors.BadValueError`."""
    try:
        return _packer.pack(value)
    except BadValueError:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadValueError(f"the value has no form in MessagePack: {error}") from None


def encode_value(value: object) -> bytes:
    """A value that a node is to take. Raises :class:`~distkv_client.errors.BadValueError`."""
    data = encode(value)
    if nests_deeper(data, VALUE_DEPTH_MAX):
        raise _too_deep()
    return data


def _too_deep() -> BadValueError:
    return BadValueError(f"the value is nested too deeply: it may have {VALUE_DEPTH_MAX} levels of arrays and maps")


def decode(data: bytes | memoryview) -> Any:
    """One whole value. Raises :class:`ValueError` of some kind where it is none."""
    for quick in (unpack, _unpack_all_keys):
        try:
            return quick(data)
        except (TypeError, ValueError):
            pass
    # An odd timestamp; what is no MessagePack is none in the slow way either.
    return _Slow(bytes(data)).whole()


def one_value(data: object) -> bytes:
    """Bytes of a caller, of which a request is made: exactly one value, not nested too deeply.

    Raises :class:`~distkv_client.errors.BadValueError`, and :class:`~distkv_client.errors.UsageError` for what is
    no bytes, or longer than any request.
    """
    value = bytes_of(data, "a raw value")
    if len(value) > REQUEST_BYTES_MAX:
        raise UsageError(f"the value is {len(value)} bytes long; at most {REQUEST_BYTES_MAX} can be sent")
    unpacker = msgpack.Unpacker(max_buffer_size=len(value))
    unpacker.feed(value)
    try:
        unpacker.skip()
        if unpacker.tell() != len(value):
            raise ValueError("there is something behind it")
        if _WRAPPED in value:
            _Slow(value).whole()
        is_too_deep = nests_deeper(value, VALUE_DEPTH_MAX)
    except Exception as error:
        raise BadValueError(f"the bytes are not one MessagePack value: {str(error) or type(error).__name__}") from None
    if is_too_deep:
        raise _too_deep()
    return value


class _Slow:
    """Decodes what the quick ways cannot: odd timestamps are extensions."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape", ext_hook=_ext_hook)
        self.unpacker.feed(data)

    def whole(self) -> Any:
        try:
            value = self.value(0)
        except (IndexError, msgpack.OutOfData):
            raise ValueError("it is cut off") from None
        if self.unpacker.tell() != len(self.data):
            raise ValueError("there is something behind the value")
        return value

    def value(self, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise ValueError("it is nested too deeply")
        head = self.data[self.unpacker.tell()]
        if head & 0xF0 == 0x80 or head in (0xDE, 0xDF):
            count = self.unpacker.read_map_header()
            return map_of([(self.value(depth + 1), self.value(depth + 1)) for _ in range(count)])
        if head & 0xF0 == 0x90 or head in (0xDC, 0xDD):
            return [self.value(depth + 1) for _ in range(self.unpacker.read_array_header())]
        if head in _EXT_SIZES or head in _EXT_LENGTHS:
            return self.extension(head)
        return self.unpacker.unpack()

    def extension(self, head: int) -> Any:
        code_at = self.unpacker.tell() + 1 + _EXT_LENGTHS.get(head, 0)
        size = _EXT_SIZES.get(head)
        if size is None:
            size = int.from_bytes(self.data[self.unpacker.tell() + 1 : code_at], "big")
        self.unpacker.skip()
        if self.unpacker.tell() != code_at + 1 + size:
            raise ValueError("an extension is longer than all that there is")
        code = int.from_bytes(self.data[code_at : code_at + 1], "big", signed=True)
        return _ext_hook(code, self.data[code_at + 1 : self.unpacker.tell()])


def map_fields(data: bytes) -> Iterator[tuple[Any, bytes]]:
    """The keys of a map with the bytes of their values."""
    unpacker = msgpack.Unpacker(strict_map_key=False, unicode_errors="surrogateescape")
    unpacker.feed(data)
    for _ in range(unpacker.read_map_header()):
        key = unpacker.unpack()
        start = unpacker.tell()
        unpacker.skip()
        yield key, data[start : unpacker.tell()]


def with_raw_value(data: bytes) -> Message:
    """A message whose `value`, if it has one, stays as it has come: bytes."""
    return {key: value if key == "value" else decode(value) for key, value in map_fields(data)}


class Splitter:
    """Bytes in, whole messages out, each with its bytes. Each byte is looked at once."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=MESSAGE_BYTES_MAX)
        self._rest = b""
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._origin = 0
        """Where the first byte of the unfinished message is in the stream."""
        self.is_between = True
        """Whether no message has come in part. It is looked at for each read."""

    def split(self, chunk: bytes) -> list[memoryview]:
        """The messages that end in this chunk.

        Raises :class:`~distkv_client.errors.ProtocolError`; the splitter is of no more use then.
        """
        unpacker = self._unpacker
        try:
            unpacker.feed(chunk)
        except msgpack.BufferFull:
            raise ProtocolError("a message is longer than 64 MiB") from None
        messages: list[memoryview] = []
        origin = self._origin
        whole: memoryview | None = None
        start = 0
        try:
            while True:
                unpacker.skip()
                if whole is None:
                    if self._parts:
                        self._parts.append(chunk)
                        whole = memoryview(b"".join(self._parts))
                        self._parts.clear()
                        self._parts_bytes = 0
                    else:
                        whole = memoryview(chunk)
                end = unpacker.tell() - origin
                messages.append(whole[start:end])
                start = end
                if end == len(whole):
                    break
        except msgpack.OutOfData:
            pass
        except Exception as error:
            raise ProtocolError(f"what came is no MessagePack: {error}") from None
        if whole is None:
            self._parts.append(chunk)
            self._parts_bytes += len(chunk)
            if self._parts_bytes > MESSAGE_BYTES_MAX:
                raise ProtocolError("a message is longer than 64 MiB")
        else:
            if start < len(whole):
                self._parts.append(bytes(whole[start:]))
                self._parts_bytes = len(self._parts[0])
            self._origin = origin + start
        self.is_between = not self._parts
        return messages


def decode_message(data: memoryview) -> Message:
    """A message of a node. Raises :class:`~distkv_client.errors.ProtocolError` where it is no map of texts."""
    try:
        message = decode(data)
    except Exception as error:
        raise ProtocolError(f"a message cannot be decoded: {error}") from None
    if type(message) is not dict:
        raise ProtocolError("a message is no map")
    return message  # pyright: ignore[reportUnknownVariableType]


class Fields:
    """The fields of a request, next to its `action` and `seq`."""

    __slots__ = ("_count", "_parts")

    def __init__(self, path: Path | None = None) -> None:
        self._parts: list[bytes] = []
        self._count = 0
        if path is not None:
            self.raw("path", path.ext)

    def raw(self, name: str, value: bytes) -> Fields:
        """Adds one value that is MessagePack already; a caller's own has passed :func:`one_value`."""
        self._parts.append(_packer.pack(name))
        self._parts.append(value)
        self._count += 1
        return self

    def copy(self) -> Fields:
        """The same fields, to add others to."""
        fields = Fields()
        fields._parts, fields._count = list(self._parts), self._count
        return fields

    def add(self, name: str, value: object) -> Fields:
        """Adds a value."""
        return self.raw(name, encode(value))

    def depths(self, least: object, most: object) -> Fields:
        """Adds between which depths below the path entries are meant, as far as that is said.

        Raises :class:`~distkv_client.errors.UsageError`.
        """
        for name, depth in (("min_depth", least), ("max_depth", most)):
            if depth is not None:
                self.add(name, integer_of(depth, name, 0, DEPTH_GREATEST))
        return self

    def path(self, name: str, path: Path) -> Fields:
        """Adds a path, as an extension."""
        return self.raw(name, path.ext)

    def head(self, action: str) -> bytes:
        """The whole request up to the value of `seq`, which comes last."""
        return b"".join((map_head(self._count + 2), b"\xa6action", _packer.pack(action), *self._parts, b"\xa3seq"))

    def as_map(self, action: str) -> bytes:
        """The request without `seq`, as an operation of a batch."""
        return b"".join((map_head(self._count + 1), b"\xa6action", _packer.pack(action), *self._parts))


def map_head(count: int) -> bytes:
    """The head of a map of so many pairs."""
    if count < 16:
        return bytes((0x80 | count,))
    return b"\xde" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdf" + count.to_bytes(4, "big")


def array_head(count: int) -> bytes:
    """The head of an array of so many items."""
    return bytes((0x90 | count,)) if count < 16 else b"\xdc" + count.to_bytes(2, "big")
