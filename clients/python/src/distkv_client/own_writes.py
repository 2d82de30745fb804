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
            self.missed.pop(path, None)
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

    def covers(self, path: Path, own: int, tock: int | None, life: Life) -> bool:
        """Whether an answer is as new as an own write with the tock `own`; `tock`: the entry's, none if the node has
        none."""
        if path not in self.tocks:
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

    def found(self, path: Path, own: int) -> None:
        """An answer has the write with this tock, which may not be the last one any more."""
        if self.tocks.get(path) == own:
            self.missed.pop(path, None)

    def give_up(self, path: Path) -> None:
        """The write is nowhere to be found: it is not looked for again."""
        self.tocks.pop(path, None)
        self._turns.pop(path, None)
        self.missed.pop(path, None)


class Sought:
    """The own write that a read looks for: the last one that was acknowledged before the read began. Of what is written
    meanwhile, each answer may lack some, so a read that looked for that as well might never end."""

    __slots__ = ("_path", "_since", "_writes", "tock")

    def __init__(self, writes: OwnWrites, path: Path, tock: int | None = None) -> None:
        self.tock = writes.tocks.get(path) if tock is None else tock
        """None: there is none."""
        self._writes = writes
        self._path = path
        self._since: float | None = None
        """When an answer to this read first lacked it."""

    @property
    def is_over(self) -> bool:
        """There is none, or nobody looks for it any more."""
        return self.tock is None or self._path not in self._writes.tocks

    def is_in(self, tock: int | None, life: Life) -> bool:
        """Whether an answer has it; as of :meth:`OwnWrites.covers`."""
        if self.tock is None:
            return True
        if not self._writes.covers(self._path, self.tock, tock, life):
            return False
        self._writes.found(self._path, self.tock)
        return True

    def ends(self, now: float, patience: float) -> float:
        """An answer lacks it: until when this read looks for it. All reads of a path look for it together, but one that
        finds it gives the others no more time."""
        if self._since is None:
            self._since = now
        return min(self._since, self._writes.missing_since(self._path, now)) + patience
