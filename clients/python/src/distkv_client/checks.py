"""Arguments of calls, checked before anything is sent: what has the wrong type is a `UsageError`. Pure."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from .errors import UsageError

T = TypeVar("T")

WORDS: dict[type, str] = {bool: "True or False", bytes: "bytes", int: "an integer", str: "a text", type(None): "None"}
"""What types are called; others by their names."""


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
        raise UsageError(f"{what} must be an integer from {least} to {greatest}, not {value}")
    return value


def seconds_of(value: object, what: str) -> float:
    """A number of seconds, perhaps infinite, or none left."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"{what} must be a number of seconds, not {type(value).__name__}")
    if math.isnan(value):
        raise UsageError(f"{what} must be a number of seconds, not NaN")
    return value


def check_fields(told: object, what: str) -> None:
    """All fields of a dataclass, and of those in it, have the types that they are declared with."""
    hints = get_type_hints(type(told))
    for field in fields(told):  # type: ignore[arg-type]
        name, value = f"{what}.{field.name}", getattr(told, field.name)
        kinds: tuple[Any, ...] = get_args(hints[field.name]) or (hints[field.name],)
        if float in kinds:
            seconds_of(value, name)
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            words = [WORDS.get(kind) or str(kind.__name__) for kind in kinds]
            raise UsageError(f"{name} must be {' or '.join(words)}, not {type(value).__name__}")
        elif is_dataclass(value):
            check_fields(value, name)
