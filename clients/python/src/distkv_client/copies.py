"""What can be neither copied nor pickled says so, instead of what of it is first in the way."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class Uncopied:
    """The base of such classes."""

    _instead: ClassVar[str]
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        kind = type(self)
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} can be neither copied nor pickled: {self._instead}")
