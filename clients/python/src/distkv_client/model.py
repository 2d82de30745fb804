"""What calls return: versions, entries, what a write did, conflicts."""

from __future__ import annotations

import enum
import re
import unicodedata
from dataclasses import dataclass
from functools import total_ordering
from typing import Any

from .checks import text_of
from .codec import Message, NoValue
from .errors import ProtocolError, UsageError
from .path import Path

COUNTER_LIMIT = 1 << 62
"""Nodes refuse tocks and ticks from here on."""
LONGEST_NAME = 64
"""Bytes that a node's name has at most."""
_LIFE = "(?P<name>[^~]+)(?P<life>~(?:0|[1-9a-f][0-9a-f]{0,15}))?"
_VERSION = re.compile(f"(?P<tock>0|[1-9][0-9]{{0,18}})@(?P<node>{_LIFE}):(?P<tick>-|[1-9][0-9]{{0,18}})")
"""A tock and an event, which is a life and a tick. Servers of the original have no lives, and tell a name alone."""


class Unset(NoValue):
    """The type of :data:`UNSET`."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset.UNSET
"""Not given; None is a value."""


def _is_name(text: str, has_lives: bool) -> bool:
    """Whether a node can have this name; servers of the original, without lives, have names of all kinds."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    if any(unicodedata.category(char) == "Cc" for char in text):
        return False
    return not has_lives or (size <= LONGEST_NAME and not any(map(str.isspace, text)))


@total_ordering
class Version:
    """Which version of an entry it is. The greater one wins, everywhere.

    >>> Version(5, "n1~1f", 3) < Version(6, "n1~1f", 2)
    True
    >>> Version.parse(str(Version(5, "n1~1f", 3))).index
    3
    """

    __slots__ = ("_key", "node", "tick", "tock")

    def __init__(self, tock: int, node: str, tick: int | None) -> None:
        self.tock = tock
        self.node = node
        """The life of the node that made it, as nodes spell it."""
        self.tick = tick
        self._key: tuple[int, str, int, int] | None = None

    @property
    def term(self) -> int:
        """The tock: the network's counter."""
        return self.tock

    @property
    def index(self) -> int:
        """The tick: the counter of the node that made it."""
        return self.tick or 0

    @property
    def event(self) -> str:
        """The event that made it: `n1~1f:3`."""
        return f"{self.node}:{'-' if self.tick is None else self.tick}"

    @classmethod
    def parse(cls, text: str) -> Version:
        """From what `str` gives, as far as nodes make such versions.

        Raises :class:`~distkv_client.errors.UsageError`, which is a :class:`ValueError`, too.
        """
        found = _VERSION.fullmatch(text_of(text, "a version's text"))
        tock, node, tick = found.group("tock", "node", "tick") if found else ("", "", "")
        if (
            not found
            or not _is_name(found["name"], found["life"] is not None)
            or int(tock) >= COUNTER_LIMIT
            or (tick != "-" and int(tick) >= COUNTER_LIMIT)
        ):
            raise UsageError(f"{text!r} is no version")
        return cls(int(tock), node, None if tick == "-" else int(tick))

    def chain(self) -> dict[str, object]:
        """A chain of only this event, as a precondition."""
        return {"node": self.node, "tick": self.tick}

    def _order(self) -> tuple[int, str, int, int]:
        if self._key is None:
            name, tilde, life = self.node.rpartition("~")
            try:
                key = (self.tock, name, int(life, 16), self.index) if tilde else None
            except ValueError:
                key = None
            self._key = key or (self.tock, self.node, -1, self.index)
        return self._key

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return (self.tock, self.tick, self.node) == (other.tock, other.tick, other.node)

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def __hash__(self) -> int:
        return hash((self.tock, self.tick, self.node))

    def __str__(self) -> str:
        return f"{self.tock}@{self.event}"

    def __repr__(self) -> str:
        return f"Version({self})"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as a node has it."""

    value: Any
    """Its value; None also if it was deleted: see `deleted`."""
    deleted: bool
    version: Version | None
    """For a precondition; none from an operation that does not return it."""
    tock: int
    node: str
    """The node that returned it."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree."""

    path: Path
    value: Any
    version: Version | None
    tock: int


class Repeated(enum.Enum):
    """Whether a write was made by an earlier try than the one that was answered."""

    NO = "no"
    """It was made now, and by no earlier try."""
    YES = "yes"
    """An earlier try had made it; nothing was changed now."""
    MAYBE = "maybe"
    """It was made now, by a node that had not heard of it; an earlier try elsewhere may have made it, too."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    changed: bool
    """False if the value was the same, and for a deletion of what did not exist."""
    version: Version | None
    """The entry's version from then on; none if there was nothing to delete."""
    tock: int
    previous: Any
    """The value before; `UNSET` if there was none, or with a precondition."""
    repeated: Repeated
    node: str
    """The node that answered."""
    attempts: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two changes of an entry, neither of which knew of the other."""

    path: Path
    winner: Entry
    loser: Entry
    node: str
    """The first node that reported it."""

    @property
    def key(self) -> tuple[Path, str | None, str | None]:
        """By which it is known again: the newest events of both versions."""
        events = [one.version.event if one.version else None for one in (self.winner, self.loser)]
        return (self.path, events[0], events[1])


def version_of(message: Message) -> Version | None:
    """The version in a message, if it has a chain that is not nil."""
    chain: Any = message.get("chain")
    if chain is None:
        return None
    if not isinstance(chain, dict) or not isinstance(chain.get("node"), str):  # pyright: ignore[reportUnknownMemberType]
        raise ProtocolError("a chain is none")
    tick: Any = chain.get("tick")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return Version(tock_of(message), str(chain["node"]), tick if isinstance(tick, int) else None)  # pyright: ignore[reportUnknownArgumentType]


def tock_of(message: Message) -> int:
    """The tock in a message, 0 without one."""
    tock = message.get("tock")
    return tock if isinstance(tock, int) else 0


def entry_of(message: Message, node: str) -> Entry:
    """The entry in a message."""
    return Entry(message.get("value"), "value" not in message, version_of(message), tock_of(message), node)


def written_of(message: Message, node: str, attempts: int, maybe_twice: bool) -> Written:
    """What a write's reply says."""
    changed = message.get("changed", True) is not False
    repeated = Repeated.YES if message.get("repeated") is True else Repeated.NO
    if maybe_twice and repeated is Repeated.NO and changed:
        repeated = Repeated.MAYBE
    version = version_of(message)
    return Written(changed, version, tock_of(message), message.get("prev", UNSET), repeated, node, attempts)
