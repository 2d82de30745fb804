"""Which node serves a path, and which ones come next if it does not. Pure.

Every node can serve every path. The router only sees to it that all clients take a path to the same node: its
writers then meet there. A shard has a preferred node: the one that an override names, else the first live one
by rendezvous hashing. Clients that rank otherwise would write the same paths at other nodes, so the ranks may
not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .shard import SHARD_COUNT, hash_key

NODES_MAX = 4096
"""Most nodes that are considered."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the router must know of a node."""

    name: str
    is_live: bool


def rank(name_hash: int, shard: int) -> int:
    """The rank of a node for a shard, from the hash of its name: splitmix64's finalizer. The greatest is first."""
    x = (name_hash + (shard + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class Router:
    """Which nodes serve which shards; never changed, made anew when nodes or overrides change.

    A shard's preferred node is decided when it is first asked for.
    """

    def __init__(self, nodes: Sequence[Candidate], overrides: Mapping[int, str]) -> None:
        self._nodes = list(nodes[:NODES_MAX])
        self._hashes = [hash_key(node.name.encode(errors="surrogateescape")) for node in self._nodes]
        self._overrides = overrides
        self._live = {node.name: i for i, node in reversed(list(enumerate(self._nodes))) if node.is_live}
        self._preferred: dict[int, int | None] = {}

    def preferred(self, shard: int) -> int | None:
        """The node that serves a shard, as an index into those given; none if none is live."""
        try:
            return self._preferred[shard]
        except KeyError:
            index = self._decide(shard) if 0 <= shard < SHARD_COUNT else None
            if 0 <= shard < SHARD_COUNT:
                self._preferred[shard] = index
            return index

    def _decide(self, shard: int) -> int | None:
        name = self._overrides.get(shard)
        if name is not None and name in self._live:
            return self._live[name]
        return next(iter(self._ranked(shard, True)), None)

    def _ranked(self, shard: int, is_live: bool) -> list[int]:
        indices = [i for i, node in enumerate(self._nodes) if node.is_live == is_live]
        indices.sort(key=lambda i: (-rank(self._hashes[i], shard), self._nodes[i].name, i))
        return indices

    def order(self, shard: int) -> Iterator[int]:
        """All nodes, each once: the preferred one, the other live ones by rank, then those not live."""
        preferred = self.preferred(shard)
        if preferred is not None:
            yield preferred
        for is_live in (True, False):
            for index in self._ranked(shard, is_live):
                if index != preferred:
                    yield index

    def preferred_name(self, shard: int) -> str | None:
        """The same by name."""
        index = self.preferred(shard)
        return None if index is None else self._nodes[index].name
