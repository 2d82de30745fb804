"""What a watch has delivered, so that it can continue at another node. Pure.

The last delivered version of each path, bounded; it says when it cannot tell any more.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from xxhash import xxh64_intdigest

from .codec import encode
from .model import Entry, Version
from .path import Path

DELETIONS_MAX = 8192
"""Deletions that are remembered, so that nothing older comes back after them."""
ENTRY_BYTES = 160
"""What an entry costs beside its path, about."""


class Look(enum.Enum):
    """How an arriving version compares with the delivered one."""

    NEW = "new"
    KNOWN = "known"
    OLDER = "older"
    DOUBTFUL = "doubtful"
    """Whether it was delivered is not known any more."""


@dataclass(slots=True)
class Delivered:
    """What was delivered last for a path."""

    version: Version
    hash: int
    """Of the value: an event that is used twice is recognised as different."""
    is_deleted: bool
    feed: int
    """The last feed in which this was seen."""


class Memory:
    """See the module."""

    def __init__(self, paths_max: int, bytes_max: int) -> None:
        self._paths_max = paths_max
        self._bytes_max = bytes_max
        self._feed = 0
        self.clear()

    def clear(self) -> None:
        """Forgets everything; everything is new."""
        self._delivered: dict[Path, Delivered] | None = {}
        self._bytes = 0
        self._deletions: deque[tuple[Path, int]] = deque()
        self._forgotten = 0
        """The greatest tock of a deletion that was forgotten."""

    @property
    def is_whole(self) -> bool:
        """Whether it knows what was delivered."""
        return self._delivered is not None

    def begin_feed(self) -> None:
        """Another node begins to send its state."""
        self._feed += 1

    def look(self, path: Path, entry: Entry, is_resuming: bool) -> Look:
        """Compares an arriving version, and notes that the path was seen in this feed."""
        version = entry.version
        if self._delivered is None or version is None:
            return Look.NEW
        known = self._delivered.get(path)
        if known is None:
            may_be_older = is_resuming and version.tock <= self._forgotten
            return Look.DOUBTFUL if may_be_older else Look.NEW
        known.feed = self._feed
        if version == known.version:
            is_same = known.is_deleted == entry.deleted and known.hash == hash_of(entry)
            return Look.KNOWN if is_same else Look.NEW
        return Look.OLDER if version < known.version else Look.NEW

    def on_delivered(self, path: Path, entry: Entry) -> None:
        """Remembers a version that is delivered now."""
        if entry.version is None or self._delivered is None:
            return
        if path not in self._delivered:
            self._bytes += len(bytes(path)) + ENTRY_BYTES
        self._delivered[path] = Delivered(entry.version, hash_of(entry), entry.deleted, self._feed)
        if entry.deleted:
            self._deletions.append((path, entry.version.tock))
            while len(self._deletions) > min(DELETIONS_MAX, self._paths_max):
                self._forget_deletion()
        while self._is_full() and self._deletions:
            self._forget_deletion()
        if self._is_full():
            self.clear()
            self._delivered = None

    def on_gone(self, path: Path) -> None:
        """It is gone, and it is unknown since which version."""
        if self._delivered is not None and self._delivered.pop(path, None) is not None:
            self._bytes -= len(bytes(path)) + ENTRY_BYTES

    def not_seen(self) -> Iterator[Path]:
        """The paths whose values were delivered and that were not seen in this feed."""
        for path, known in (self._delivered or {}).items():
            if known.feed != self._feed and not known.is_deleted:
                yield path

    def version(self, path: Path) -> Version | None:
        """The version that was delivered last."""
        known = (self._delivered or {}).get(path)
        return known.version if known is not None else None

    def _is_full(self) -> bool:
        return len(self._delivered or {}) > self._paths_max or self._bytes > self._bytes_max

    def _forget_deletion(self) -> None:
        path, tock = self._deletions.popleft()
        known = (self._delivered or {}).get(path)
        if known is not None and known.is_deleted and known.version.tock == tock:
            self._forgotten = max(self._forgotten, tock)
            self.on_gone(path)


def hash_of(entry: Entry) -> int:
    """Of the value; 0 without one."""
    return 0 if entry.deleted else xxh64_intdigest(encode(entry.value))
