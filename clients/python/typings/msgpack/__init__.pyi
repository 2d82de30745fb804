"""What this client uses of msgpack, typed: the package itself has no types."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

class ExtType(NamedTuple):
    code: int
    data: bytes

class Timestamp:
    @staticmethod
    def from_bytes(b: bytes) -> Timestamp: ...

class OutOfData(Exception): ...
class BufferFull(Exception): ...

class Packer:
    def __init__(
        self,
        *,
        default: Callable[[Any], Any] | None = ...,
        unicode_errors: str = ...,
        autoreset: bool = ...,
        use_bin_type: bool = ...,
        strict_types: bool = ...,
    ) -> None: ...
    def pack(self, obj: object) -> bytes: ...

class Unpacker:
    def __init__(
        self,
        *,
        raw: bool = ...,
        use_list: bool = ...,
        strict_map_key: bool = ...,
        unicode_errors: str = ...,
        object_pairs_hook: Callable[[Iterable[tuple[Any, Any]]], Any] = ...,
        ext_hook: Callable[[int, bytes], Any] = ...,
        max_buffer_size: int = ...,
    ) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> None: ...
    def skip(self) -> None: ...
    def tell(self) -> int: ...
    def unpack(self) -> Any: ...
    def read_map_header(self) -> int: ...
    def read_array_header(self) -> int: ...

def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    raw: bool = ...,
    use_list: bool = ...,
    strict_map_key: bool = ...,
    unicode_errors: str = ...,
    object_pairs_hook: Callable[[Iterable[tuple[Any, Any]]], Any] = ...,
    ext_hook: Callable[[int, bytes], Any] = ...,
) -> Any: ...
