"""What a write carries: preconditions, a write id, copies; and whether a second one does harm. Pure."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any, Literal, Union

from .checks import bool_of, bytes_of, instance_of, integer_of, text_of
from .codec import Fields, NoValue, encode_value
from .errors import UsageError
from .model import UNSET, Unset, Version
from .retry import Idempotency
from .write_places import Turn

COPIES_SHARE = 0.75
"""The part of a try's time for which a node waits for copies, so that its own answer comes."""
WRITE_ID_BYTES = 16
"""Bytes of a write id."""


class Auto(NoValue):
    """The type of :data:`AUTO`."""

    AUTO = "auto"

    def __repr__(self) -> str:
        return "AUTO"


AUTO = Auto.AUTO
"""A write id of its own for each write, as the client's configuration says."""


@dataclass(frozen=True, slots=True)
class WriteId:
    """The id by which nodes recognise a write: two writes never have the same. Nodes know the last 65,536, and after
    their own restart those of entries that they still have: a write that is older, or was overwritten or deleted
    before such a restart, is made again.

    >>> WriteId.of_text("order 17").data.hex()
    '0bcc920e3938c1b86e3483fc9888c6d6'
    """

    data: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", bytes_of(self.data, "a write id"))
        if len(self.data) != WRITE_ID_BYTES:
            raise UsageError(f"a write id has {WRITE_ID_BYTES} bytes, not {len(self.data)}")

    @classmethod
    def random(cls) -> WriteId:
        """A new one."""
        return cls(os.urandom(WRITE_ID_BYTES))

    @classmethod
    def of_text(cls, text: str) -> WriteId:
        """That of a text, the same in all languages: the first 16 bytes of its SHA-256."""
        try:
            data = text_of(text, "a write id's text").encode()
        except UnicodeEncodeError:
            raise UsageError("a write id's text is no valid text") from None
        return cls(hashlib.sha256(data).digest()[:WRITE_ID_BYTES])


WriteIdLike = Union[WriteId, str, bytes, None, Literal[Auto.AUTO]]
"""A write id, its 16 bytes, a text for one, none at all, or `AUTO`."""


def _given_id(write_id: object) -> bytes | None:
    """The id that a caller names, if it names one."""
    if isinstance(write_id, str):
        write_id = WriteId.of_text(write_id)
    elif isinstance(write_id, bytes):
        write_id = WriteId(write_id)
    if write_id is None or write_id is AUTO:
        return None
    if not isinstance(write_id, WriteId):
        kinds = f"a WriteId, a text, or {WRITE_ID_BYTES} bytes"
        raise UsageError(f"write_id must be {kinds} (`bytes`), not {type(write_id).__name__}")
    return write_id.data


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, as `put` and `delete` take them."""

    if_version: Version | Unset | None = UNSET
    if_new: bool = False
    if_value: Any = UNSET
    write_id: WriteIdLike = AUTO
    copies: int = 0
    idempotent: bool = False

    def __post_init__(self) -> None:
        bool_of(self.if_new, "if_new")
        bool_of(self.idempotent, "idempotent")
        if self.if_new and self.if_version is not UNSET:
            raise UsageError("if_new and if_version exclude each other")
        if self.if_version is None:
            # Without a condition, the write would be made whatever is there.
            raise UsageError(
                "if_version is None: the entry came without its version; list a tree with versions=True, or ask entry()"
            )
        if self.if_version is not UNSET:
            instance_of(self.if_version, Version, "if_version")
        integer_of(self.copies, "copies", 0, (1 << 63) - 1)
        _given_id(self.write_id)

    def id(self, automatic: Turn | None) -> bytes | None:
        """The id that all tries carry; `automatic` makes one where the caller has given none."""
        if self.write_id is AUTO:
            return None if automatic is None else automatic.id()
        return _given_id(self.write_id)

    @property
    def has_chain(self) -> bool:
        """Whether it has a version as precondition."""
        return self.if_new or self.if_version is not UNSET

    @property
    def has_condition(self) -> bool:
        """Whether it is made only where the node has what the caller has read."""
        return self.has_chain or self.if_value is not UNSET

    @property
    def needs_id(self) -> bool:
        """Whether only the id makes a second try count once."""
        return not self.has_chain and not self.idempotent

    def idempotency(self, write_id: bytes | None) -> Idempotency:
        """Whether a second try counts once."""
        if write_id is not None or self.has_chain or self.idempotent:
            return Idempotency.GUARDED
        return Idempotency.UNGUARDED

    def write_into(self, fields: Fields, write_id: bytes | None) -> None:
        """Adds the fields, but for those of :meth:`copies_into`."""
        if self.if_new:
            fields.raw("chain", b"\xc0")
        elif isinstance(self.if_version, Version):
            # The version of a deleted entry counts, too.
            fields.add("chain", self.if_version.chain()).raw("deleted", b"\xc3")
        if self.if_value is not UNSET:
            fields.raw("prev", encode_value(self.if_value))
        if write_id is not None:
            fields.raw("wid", b"\xc4\x10" + write_id)
        if self.idempotent:
            fields.raw("idem", b"\xc3")
        fields.raw("nchain", b"\x01")

    def copies_into(self, fields: Fields, left: float) -> Fields:
        """The fields, and those by which the node waits for copies where its answer must come in so many seconds."""
        return fields.copy().add("copies", self.copies).add("timeout", COPIES_SHARE * max(left, 0))


PLAIN = WriteOptions()
"""No precondition, an id of its own."""
