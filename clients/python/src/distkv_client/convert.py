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
_INSTEAD = "read it as a dict, a dataclass, or an attrs, pydantic or msgspec class that is not generic"
KEY_SHOWN_MAX = 40
"""As many characters of a map's key are in an error."""


class _MisfitError(ValueError):
    """A part of a value does not fit. Which part: what leads there, the innermost first."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.places: list[str] = []

    def told(self) -> str:
        """The error for people."""
        place = "".join(reversed(self.places)).removeprefix(".")
        return f"{self} (at {place})" if place else str(self)


def convert(value: Any, as_type: type[T]) -> T:
    """The value as this type. Fields that the class does not know are left out.

    Raises :class:`~distkv_client.errors.BadValueError`.
    """
    try:
        return typing.cast(T, _convert(value, as_type))
    except BadValueError:
        raise
    except _MisfitError as misfit:
        # What a library has found is the cause.
        raise BadValueError(misfit.told()) from misfit.__cause__
    except Exception as error:
        raise BadValueError(f"the value does not fit {_name(as_type)}: {error}") from error


def _convert_part(value: Any, as_type: Any, key: Any, is_field: bool = False) -> Any:
    """A part of a value: at an index or a key of it, or its field of this name."""
    try:
        return _convert(value, as_type)
    except _MisfitError as misfit:
        misfit.places.append(_place_of(key, is_field))
        raise
    except BadValueError:
        raise
    except Exception as error:
        found = _MisfitError(f"the value does not fit {_name(as_type)}: {error}")
        found.places.append(_place_of(key, is_field))
        raise found from error


def _place_of(key: Any, is_field: bool) -> str:
    if is_field:
        return f".{key}"
    text = repr(key)
    return f"[{text}]" if len(text) <= KEY_SHOWN_MAX else f"[{text[:KEY_SHOWN_MAX]}…]"


def _name(as_type: Any) -> str:
    return getattr(as_type, "__name__", None) or str(as_type)


def _no(value: Any, as_type: Any) -> _MisfitError:
    return _MisfitError(f"the value does not fit {_name(as_type)}: it is {type(value).__name__}")


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
    if not isinstance(as_type, type) or typing.is_typeddict(as_type):
        raise BadValueError(f"{_name(as_type)} is no type that values can be read as: {_INSTEAD}")
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
        some = [one for one in args if one is not type(None)]
        if len(some) == 1 and value is not None:
            # Its own error says which part of it does not fit.
            return _convert(value, some[0])
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
        return {_convert(key, args[0]): _convert_part(item, args[1], key) for key, item in pairs}
    if dataclasses.is_dataclass(origin) or hasattr(origin, "__attrs_attrs__"):
        raise BadValueError(f"{as_type} is no type that values can be read as: {_INSTEAD}")
    if not isinstance(value, (list, tuple)):
        raise _no(value, as_type)
    items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    if origin is tuple and not (len(args) == 2 and args[1] is ...):
        if len(items) != len(args):
            raise _no(value, as_type)
        parts = enumerate(zip(items, args, strict=True))
        return tuple(_convert_part(item, one, at) for at, (item, one) in parts)
    converted = [_convert_part(item, args[0], at) for at, item in enumerate(items)]
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
    elif tuple in as_type.__mro__ and hasattr(as_type, "_fields"):
        return _named_tuple(as_type)
    else:
        return None

    def make(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _no(value, as_type)
        told: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        found = {
            alias: _convert_part(told[name], hints[name], name, True) for name, alias in names.items() if name in told
        }
        kind: Any = wanted
        made = kind(**found)
        for name in later:
            if name in told:
                # Written with the others, so it is read, too; a frozen class would refuse the usual way.
                object.__setattr__(made, name, _convert_part(told[name], hints[name], name, True))
        return made

    return make


def _named_tuple(as_type: Any) -> Callable[[Any], Any]:
    """What makes one of an array, as which it is stored."""
    hints = typing.get_type_hints(as_type)
    names: tuple[str, ...] = as_type._fields

    def make(value: Any) -> Any:
        if type(value) is not list:
            raise _no(value, as_type)
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        if len(items) > len(names):
            raise _MisfitError(f"the value does not fit {_name(as_type)}: it has {len(items)} items")
        parts = (_convert_part(one, hints.get(name, Any), name, True) for name, one in zip(names, items, strict=False))
        return as_type(*parts)

    return make
