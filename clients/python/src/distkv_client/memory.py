"""What a watch has delivered, so that it can continue at another node. Pure.

The last delivered version of each path, bounded; it says when it cannot tell any more. A node's answer to a question
is ahead of what still waits in its stream, so it matters not only what was delivered, but also in which feed (a node's
stream, from one begin to the next) the node was seen to have it.
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
NEVER = -1
"""Stands for no feed at all."""


class Look(enum.Enum):
    """How an arriving version compares with the delivered one."""

    NEW = "new"
    KNOWN = "known"
    """It was delivered, or it is the past of what this feed's node was seen to have."""
    OLDER = "older"
    """Something newer was delivered, and this feed's node was not seen to have it."""
    DOUBTFUL = "doubtful"
    """Whether it is older than what was delivered is not known any more."""


@dataclass(slots=True)
class Gone:
    """A node's answer that it has nothing of a path any more."""

    tock: int
    """The node's own tock then. What it had before has none that is greater, and may still wait in its stream."""
    feed: int
    """Of what comes in a later one, this says nothing."""
    is_known: bool
    """The version that is remembered is that of the deletion: it has come since."""


@dataclass(slots=True)
class Delivered:
    """What was delivered last for a path."""

    version: Version
    hash: int
    """Of the value: an event that is used twice is recognised as different."""
    is_deleted: bool
    seen: int
    """The last feed in which anything came for this path."""
    held: int
    """The last feed whose node was seen to have this version, or a later one: by its stream or by an answer."""
    came: int
    """The feed in which it came; NEVER if an answer brought it."""
    gone: Gone | None = None
    """Set where it is deleted by a version that nobody told."""

    def counts_in(self, feed: int) -> bool:
        """Whether what comes in this feed can be compared with it."""
        return self.gone is None or self.gone.feed == feed or self.gone.is_known

    @property
    def deletes_until(self) -> int:
        """Of a deletion: nothing that it has deleted has a greater tock."""
        return self.version.tock if self.gone is None else max(self.gone.tock, self.version.tock)

    def look(self, version: Version, entry: Entry, feed: int) -> Look:
        """Compares what comes in this feed."""
        self.seen = feed
        if self.gone is not None and self.gone.feed == feed:
            return self._look_behind(self.gone, version, entry.deleted)
        if version == self.version:
            if self.is_deleted != entry.deleted or self.hash != hash_of(entry):
                return Look.NEW
            self.held = feed
            return Look.KNOWN
        if version > self.version:
            return Look.NEW
        # No stream is ahead of its node.
        return Look.KNOWN if self.held == feed else Look.OLDER

    def _look_behind(self, gone: Gone, version: Version, is_deleted: bool) -> Look:
        """Compares what comes behind the answer that nothing is there any more."""
        if version <= self.version:
            return Look.KNOWN
        if is_deleted:
            # That it is deleted was told. There may have been later deletions before the answer, which counts on.
            self.version, gone.is_known = version, True
            return Look.KNOWN
        # Created again, unless the node can have had it before its answer.
        return Look.NEW if version.tock > gone.tock else Look.DOUBTFUL


class Memory:
    """See the module."""

    def __init__(self, paths_max: int, bytes_max: int) -> None:
        self._paths_max = paths_max
        self._bytes_max = bytes_max
        self._feed = 0
        self._began = 0
        """The feed in which the first came of what is remembered, or was until a bound was exceeded."""
        self.clear()

    def clear(self) -> None:
        """Forgets everything; everything is new."""
        self._delivered: dict[Path, Delivered] | None = {}
        self._bytes = 0
        self._deletions: deque[tuple[Path, int]] = deque()
        """With the tock until which they delete. Oldest first; those that were written again since are skipped."""
        self._forgotten = 0
        """The greatest tock of a deletion that was forgotten."""
        self._forgotten_ahead = 0
        """The same, of those that did not come in this feed: its stream may still have what they deleted."""

    @property
    def is_whole(self) -> bool:
        """Whether it knows what was delivered."""
        return self._delivered is not None

    @property
    def has_lost_earlier(self) -> bool:
        """Whether a bound was exceeded when it knew something of an earlier feed: if the state of this one is still
        coming, what of that is gone cannot be found out any more."""
        return not self.is_whole and self._began != self._feed

    def begin_feed(self) -> None:
        """Another node begins to send its state."""
        self._feed += 1
        self._forgotten_ahead = self._forgotten

    def look(self, path: Path, entry: Entry, is_resuming: bool) -> Look:
        """Compares an arriving version, and notes that the path was seen in this feed."""
        version = entry.version
        if self._delivered is None or version is None:
            return Look.NEW
        known = self._delivered.get(path)
        if known is None or not known.counts_in(self._feed):
            if is_resuming:
                return Look.DOUBTFUL if version.tock <= self._forgotten else Look.NEW
            # A deletion that is told once more does no harm.
            may_be_older = not entry.deleted and version.tock <= self._forgotten_ahead
            return Look.DOUBTFUL if may_be_older else Look.NEW
        before = known.deletes_until
        look = known.look(version, entry, self._feed)
        if known.deletes_until != before:
            self._queue_deletion(path, known.deletes_until)
        return look

    def on_delivered(self, path: Path, entry: Entry, *, by_answer: bool = False) -> None:
        """Remembers a version that is delivered now; `by_answer`: the stream still has what is older."""
        if entry.version is None:
            return
        feed, came = self._feed, NEVER if by_answer else self._feed
        self._remember(path, Delivered(entry.version, hash_of(entry), entry.deleted, feed, feed, came))

    def on_same(self, path: Path) -> None:
        """This feed's node has just the version that was delivered."""
        known = (self._delivered or {}).get(path)
        if known is not None:
            known.held = self._feed

    def on_gone(self, path: Path, version: Version, tock: int) -> bool:
        """This feed's node, asked about this version, has nothing there any more; `tock` is its own. False if its
        deletion was told already."""
        known = (self._delivered or {}).get(path)
        is_told = known is not None and known.is_deleted
        is_known = known is not None and is_told and known.version == version
        if known is not None and known.gone is not None:
            is_known = is_known and known.gone.is_known
        gone = Gone(tock, self._feed, is_known)
        self._remember(path, Delivered(version, 0, True, self._feed, self._feed, NEVER, gone))
        return not is_told

    def not_seen(self) -> Iterator[Path]:
        """The paths whose values were delivered and that were not seen in this feed."""
        for path, known in (self._delivered or {}).items():
            if known.seen != self._feed and not known.is_deleted:
                yield path

    def version(self, path: Path) -> Version | None:
        """The version that was delivered last."""
        known = (self._delivered or {}).get(path)
        return known.version if known is not None else None

    def _remember(self, path: Path, now: Delivered) -> None:
        """Within the bounds."""
        if self._delivered is None:
            return
        if not self._delivered:
            self._began = self._feed
        if path not in self._delivered:
            self._bytes += len(bytes(path)) + ENTRY_BYTES
        self._delivered[path] = now
        if now.is_deleted:
            self._queue_deletion(path, now.deletes_until)
        while self._is_full() and self._deletions:
            self._forget_deletion()
        if self._is_full():
            self.clear()
            self._delivered = None

    def _is_full(self) -> bool:
        return len(self._delivered or {}) > self._paths_max or self._bytes > self._bytes_max

    def _queue_deletion(self, path: Path, until: int) -> None:
        self._deletions.append((path, until))
        while len(self._deletions) > min(DELETIONS_MAX, self._paths_max):
            self._forget_deletion()

    def _forget_deletion(self) -> None:
        path, until = self._deletions.popleft()
        known = (self._delivered or {}).get(path)
        if self._delivered is None or known is None or not known.is_deleted or known.deletes_until != until:
            return
        self._forgotten = max(self._forgotten, until)
        if known.came != self._feed:
            self._forgotten_ahead = max(self._forgotten_ahead, until)
        del self._delivered[path]
        self._bytes -= len(bytes(path)) + ENTRY_BYTES


def hash_of(entry: Entry) -> int:
    """Of the value; 0 without one."""
    return 0 if entry.deleted else xxh64_intdigest(encode(entry.value))
