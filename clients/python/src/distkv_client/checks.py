"""Arguments of calls, checked before anything is sent: what has the wrong type is a `UsageError`. Pure."""

from __future__ import annotations

import math
from typing import TypeVar

from .errors import UsageError

T = TypeVar("T")


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


def integer_of(value: object, what: str, least: int, greatest: int) -> int:
    """An integer within these bounds. True is none, though Python says so."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} must be an integer, not {type(value).__name__}")
    if not least <= value <= greatest:
        raise UsageError(f"{what} must be an integer from {least} to {greatest}, not {value}")
    return value


def seconds_of(value: object, what: str) -> float:
    """A number of seconds, perhaps infinite, or none left."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{what} must be a number of seconds, not {type(value).__name__}")
    if math.isnan(value):
        raise UsageError(f"{what} must be a number of seconds, not NaN")
    return value
