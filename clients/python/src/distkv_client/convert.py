"""Values as types of yours: dataclasses, attrs, pydantic, msgspec, and the types of the standard library. Pure.

>>> from dataclasses import dataclass
>>> @dataclass
... class Lamp:
...     on: bool
...     level: int = 0
>>> convert({"on": True}, Lamp)
Lamp(on=True, level=0)
>>> convert([1, 2], list[int])
[1, 2]
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from .errors import BadValueError

T = TypeVar("T")
TYPES_CACHED_MAX = 256
"""Classes whose fields are remembered."""


def convert(value: Any, as_type: type[T]) -> T:
    """The value as this type. Fields that the class does not know are left out.

    Raises :class:`~distkv_client.errors.BadValueError`.
    """
    try:
        return typing.cast(T, _convert(value, as_type))
    except BadValueError:
        raise
    except Exception as error:
        raise BadValueError(f"the value does not fit {_name(as_type)}: {error}") from error


def _name(as_type: Any) -> str:
    return getattr(as_type, "__name__", None) or str(as_type)


def _no(value: Any, as_type: Any) -> BadValueError:
    return BadValueError(f"the value does not fit {_name(as_type)}: it is {type(value).__name__}")


def _convert(value: Any, wanted: Any) -> Any:
    as_type: Any = wanted
    if as_type is Any or as_type is object:
        return value
    if as_type is None or as_type is type(None):
        if value is None:
            return None
        raise _no(value, as_type)
    origin = get_origin(as_type)
    if origin is not None:
        return _convert_generic(value, as_type, origin, get_args(as_type))
    if not isinstance(as_type, type):
        raise BadValueError(f"{as_type!r} is no type that values can be read as")
    if as_type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if as_type in (tuple, set, frozenset) and isinstance(value, list):
        return wanted(value)
    if issubclass(as_type, enum.Enum):
        return wanted(value)
    structured = _structured(wanted)
    if structured is not None and not isinstance(value, wanted):
        return structured(value)
    if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is int):
        return value
    raise _no(value, wanted)


def _convert_generic(value: Any, as_type: Any, origin: Any, args: tuple[Any, ...]) -> Any:
    if origin is Union or origin is types.UnionType:
        for one in args:
            try:
                return _convert(value, one)
            except (BadValueError, ValueError, TypeError):
                continue
        raise _no(value, as_type)
    if origin is Literal:
        for one in args:
            if type(one) is type(value) and one == value:
                return value
        raise _no(value, as_type)
    if origin is typing.Annotated:
        return _convert(value, args[0])
    if origin in (dict, Mapping) or origin is typing.get_origin(typing.Mapping[str, int]):
        if not isinstance(value, dict):
            raise _no(value, as_type)
        pairs: Any = value.items()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return {_convert(key, args[0]): _convert(item, args[1]) for key, item in pairs}
    if not isinstance(value, (list, tuple)):
        raise _no(value, as_type)
    items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    if origin is tuple and not (len(args) == 2 and args[1] is ...):
        if len(items) != len(args):
            raise _no(value, as_type)
        return tuple(_convert(item, one) for item, one in zip(items, args, strict=True))
    converted = [_convert(item, args[0]) for item in items]
    if origin in (list, Sequence):
        return converted
    make: Any = origin
    return make(converted)


@lru_cache(maxsize=TYPES_CACHED_MAX)
def _structured(wanted: Hashable) -> Callable[[Any], Any] | None:
    """What makes an instance of a class with fields; none for other classes."""
    as_type: Any = wanted
    # Classes of libraries that may not be installed: known by what they have.
    validate = getattr(as_type, "model_validate", None)
    if callable(validate):
        return typing.cast("Callable[[Any], Any]", validate)
    if hasattr(as_type, "__struct_fields__"):
        import importlib

        msgspec: Any = importlib.import_module("msgspec")
        return lambda value: msgspec.convert(value, as_type)
    if dataclasses.is_dataclass(as_type):
        hints = typing.get_type_hints(as_type)
        fields: Any = dataclasses.fields(as_type)
        names = {str(field.name): str(field.name) for field in fields if field.init}
        later = [str(field.name) for field in fields if not field.init]
    elif hasattr(as_type, "__attrs_attrs__"):
        hints = typing.get_type_hints(as_type)
        attributes: Any = getattr(as_type, "__attrs_attrs__")  # noqa: B009
        names = {str(field.name): str(field.alias) for field in attributes if field.init}
        later = [str(field.name) for field in attributes if not field.init]
    else:
        return None

    def make(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _no(value, as_type)
        told: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        found = {alias: _convert(told[name], hints[name]) for name, alias in names.items() if name in told}
        kind: Any = wanted
        made = kind(**found)
        for name in later:
            if name in told:
                # Written with the others, so it is read, too; a frozen class would refuse the usual way.
                object.__setattr__(made, name, _convert(told[name], hints[name]))
        return made

    return make
