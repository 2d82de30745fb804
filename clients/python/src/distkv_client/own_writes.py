"""The writes of this client, so that it reads them back, and later ones come after them. Pure; both tables are bounded.

One says per shard which life of which node acknowledged the last write: reads of the shard go there first. The
other says per path which tock the last own write got: another node's answer must have at least that.
"""

from __future__ import annotations

from .clock import Clock
from .codec import Fields
from .path import Path

Life = tuple[str, int | None]
"""A node's name and incarnation; none where the node has not told it."""


class OwnWrites:
    """See the module."""

    def __init__(self, paths_max: int, clock: Clock | None = None) -> None:
        self._max = paths_max
        self._clock = clock or Clock()
        self._turn = 0
        """Counts the writes, in the order in which they were acknowledged."""
        self.homes: dict[int, Life] = {}
        """At most one per shard."""
        self._since: dict[int, int] = {}
        """The turn at which a shard's home became that."""
        self.tocks: dict[Path, int] = {}
        """Oldest first."""
        self._turns: dict[Path, int] = {}
        """The turn of the write that got that tock."""
        self.missed: dict[Path, float] = {}
        """When an answer was first found to lack that write, since it was made or last found."""

    def on_home(self, shard: int, life: Life) -> None:
        """A node acknowledged a write somewhere in a shard."""
        self._turn += 1
        if self.homes.get(shard) != life:
            self.homes[shard] = life
            self._since[shard] = self._turn

    def on_written(self, path: Path, tock: int, life: Life) -> None:
        """A node acknowledged a write."""
        self.on_home(path.shard, life)
        if self._max <= 0:
            return
        # Two writes at once are acknowledged in any order.
        known = self.tocks.pop(path, 0)
        if tock >= known:
            self.found(path)
            self.tocks[path] = tock
            self._turns[path] = self._turn
        else:
            self.tocks[path] = known
        if len(self.tocks) > self._max:
            self.give_up(next(iter(self.tocks)))

    def order_into(self, fields: Fields, path: Path | None = None) -> Fields:
        """Adds what a write says of what this client knows: it comes after that. `path`: where it may seem to be done
        already, the node is told of the last own write, of which it may not have heard."""
        if self._clock.latest:
            fields.add("above", self._clock.latest)
        own = self.tocks.get(path) if path is not None else None
        return fields if own is None else fields.add("own", own)

    def is_enough(self, path: Path, tock: int | None, life: Life) -> bool:
        """Whether an answer is good enough; `tock`: the entry's, none if the node has none."""
        own = self.tocks.get(path)
        if own is None:
            return True
        if tock is None:
            # At the node that took the write, it was deleted and purged since. Another write of the shard may have made
            # this node the home, which need not have heard of this one.
            is_home = life[1] is not None and self.homes.get(path.shard) == life
            return is_home and self._turns[path] >= self._since[path.shard]
        return tock >= own

    def missing_since(self, path: Path, now: float) -> float:
        """An answer lacks the write: since when that is so. All reads of a path look for its write for a while
        together, since each of them may be cut off before that. Ever since, where it is not looked for any more."""
        return self.missed.setdefault(path, now) if path in self.tocks else float("-inf")

    def found(self, path: Path) -> None:
        """An answer has the write."""
        self.missed.pop(path, None)

    def give_up(self, path: Path) -> None:
        """The write is nowhere to be found: it is not looked for again."""
        self.tocks.pop(path, None)
        self._turns.pop(path, None)
        self.missed.pop(path, None)
