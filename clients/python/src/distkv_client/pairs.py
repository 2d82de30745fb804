"""Maps that a dict cannot hold: in Python, `True`, `1` and `1.0` are one key, and so are 0.0 and -0.0; or a key is
there twice, as other clients may write it. Pure.

>>> map_of([(True, "a"), (2, "b")])
{True: 'a', 2: 'b'}
>>> map_of([(True, "a"), (1.0, "b")])
Pairs(pairs=((True, 'a'), (1.0, 'b')))
>>> map_of([([1, 2], "a")])
{(1, 2): 'a'}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import UsageError


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map of which a dict would lose something, as the pairs of its keys and values, in their order. Written, it is
    the same map again. Maps are read like this only where a dict will not do, and where they are keys of maps."""

    pairs: tuple[tuple[Any, Any], ...]

    def __post_init__(self) -> None:
        try:
            pairs: Iterable[Any] = self.pairs
            told = tuple((key, value) for key, value in pairs)
        except (TypeError, ValueError):
            raise UsageError("pairs are tuples of a key and a value") from None
        object.__setattr__(self, "pairs", told)


class Packed(dict[Any, Any]):
    """What the packer takes for a map of these pairs."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__()
        self._pairs = pairs.pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def items(self) -> Any:
        """The pairs."""
        return self._pairs


def map_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any] | Pairs:
    """The map of these pairs; an array that is a key becomes a tuple, and a map that is one, pairs."""
    # Each reply comes by here. msgpack without its C code reads each pair when it is asked for it.
    told: list[tuple[Any, Any]] = pairs if isinstance(pairs, list) else list(pairs)
    try:
        found = dict(told)
    except TypeError:
        told = [(_as_key(key), value) for key, value in told]
        found = dict(told)
    return found if len(found) == len(told) else Pairs(tuple(told))


def _as_key(value: Any) -> Any:
    """The same as something that can be a key."""
    if isinstance(value, list):
        return tuple(_as_key(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, Pairs):
        return Pairs(tuple((key, _as_key(item)) for key, item in value.pairs))
    if isinstance(value, dict):
        return Pairs(tuple((key, _as_key(item)) for key, item in value.items()))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value
