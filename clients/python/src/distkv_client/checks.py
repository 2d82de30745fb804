"""Arguments and settings, checked before anything is sent: what has the wrong type, or is out of its range, is a
`UsageError`. Pure."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from .errors import UsageError

T = TypeVar("T")

WORDS: dict[type, str] = {bool: "True or False", bytes: "bytes", int: "an integer", str: "a text", type(None): "None"}
"""What types are called; others by their names."""


@dataclass(frozen=True, slots=True)
class Range:
    """What a setting may be, as its field is annotated: `Annotated[int, Range(1, 16)]`. Of a text, or of bytes, how
    many bytes it has. Each number of a configuration has one.

    >>> print(Range(1, 16)); print(Range(0.1)); print(Range(0, is_least_left_out=True))
    from 1 to 16
    at least 0.1
    longer than zero
    """

    least: float
    greatest: float = math.inf
    is_least_left_out: bool = False
    """Of times: none at all is too short."""

    def __str__(self) -> str:
        if self.is_least_left_out:
            return "longer than zero"
        if self.least == self.greatest:
            return f"{self.least:,}"
        return f"at least {self.least:,}" if self.greatest == math.inf else f"from {self.least:,} to {self.greatest:,}"

    def has(self, number: float) -> bool:
        """Whether this is one of them."""
        return self.least <= number <= self.greatest and not (self.is_least_left_out and number == self.least)

    def check(self, value: object, what: str) -> None:
        """Raises :class:`~distkv_client.errors.UsageError` for what is out of it. A text may be secret: only its length
        is told."""
        if isinstance(value, (int, float)):
            if not self.has(value):
                raise UsageError(f"{what} must be {self}, not {_shown(value)}")
            return
        size = len(_utf8(value, what) if isinstance(value, str) else bytes_of(value, what))
        if not self.has(size):
            raise UsageError(f"{what} must have {self} bytes, not {size}")


NOT_NEGATIVE = Range(0)
ABOVE_ZERO = Range(0, is_least_left_out=True)
"""Of times in which nothing could be done if they were zero, and of pauses without which a client would not pause."""


def _shown(number: float) -> str:
    try:
        return str(number)
    except ValueError:
        # Python itself refuses to write it.
        return "an integer of thousands of digits"


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} must be a text that can be sent, as UTF-8") from None


def instance_of(value: object, kind: type[T], what: str) -> T:
    """An instance of a class."""
    if not isinstance(value, kind):
        raise UsageError(f"{what} must be a {kind.__name__}, not {type(value).__name__}")
    return value


def bytes_of(value: object, what: str) -> bytes:
    """Bytes that nobody changes any more."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise UsageError(f"{what} must be bytes, not {type(value).__name__}")
    return bytes(value)  # pyright: ignore[reportUnknownArgumentType]


def text_of(value: object, what: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a text, not {type(value).__name__}")
    return value


def bool_of(value: object, what: str) -> bool:
    """True or False. Other things are not taken for one of them: "no" would be True."""
    if not isinstance(value, bool):
        raise UsageError(f"{what} must be True or False, not {type(value).__name__}")
    return value


def integer_of(value: object, what: str, least: int, greatest: int) -> int:
    """An integer within these bounds. True is none, though Python says so."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} must be an integer, not {type(value).__name__}")
    if not least <= value <= greatest:
        raise UsageError(f"{what} must be an integer from {least} to {greatest}, not {_shown(value)}")
    return value


def check_type(as_type: object) -> None:
    """Raises :class:`~distkv_client.errors.UsageError` for what is no type, such as a default that is not given by its
    name. None is no type here, though it stands for one in hints: as a default it is too common."""
    if not (isinstance(as_type, type) or as_type is Any or get_origin(as_type) is not None):
        told = "None" if as_type is None else type(as_type).__name__
        raise UsageError(f"as_type must be a type, not {told}; a default is given by its name: default=…")


def callable_of(value: T, what: str) -> T:
    """Something that can be called."""
    if not callable(value):
        raise UsageError(f"{what} must be a function, or what else can be called, not {type(value).__name__}")
    return value


def file_of(value: object, what: str) -> str:
    """The name of a file, as a text or a `pathlib.Path`."""
    name: object = os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else value
    if not isinstance(name, str):
        raise UsageError(f"{what} must be a file's name, not {type(name).__name__}")
    if not name:
        raise UsageError(f"{what} must be a file's name, and is empty")
    return name


def seconds_of(value: object, what: str) -> float:
    """A number of seconds, perhaps infinite, or none left."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{what} must be a number of seconds, not {type(value).__name__}")
    try:
        if math.isnan(value):
            raise UsageError(f"{what} must be a number of seconds, not NaN")
    except OverflowError:
        raise UsageError(f"{what} must be a number of seconds that a float holds; math.inf is for ever") from None
    return value


def settings_of(kind: type) -> dict[str, tuple[tuple[Any, ...], Range | None]]:
    """The fields of a dataclass: of which types each may be, and its range, if it has one."""
    found: dict[str, tuple[tuple[Any, ...], Range | None]] = {}
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        hint, bounds = hints[field.name], None
        if get_origin(hint) is Annotated:
            hint, bounds = get_args(hint)
        found[field.name] = get_args(hint) or (hint,), bounds
    return found


def check_fields(told: object, what: str) -> None:
    """All fields of a dataclass, and of those in it, have the types that they are declared with, and are within their
    ranges."""
    for field, (kinds, bounds) in settings_of(type(told)).items():
        name, value = f"{what}.{field}", getattr(told, field)
        if float in kinds:
            seconds_of(value, name)
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            words = [WORDS.get(kind) or str(kind.__name__) for kind in kinds]
            raise UsageError(f"{name} must be {' or '.join(words)}, not {type(value).__name__}")
        elif is_dataclass(value):
            check_fields(value, name)
        if bounds is not None and value is not None:
            bounds.check(value, name)
