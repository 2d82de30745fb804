"""Where a write with a condition goes: which node the last answer about a path came from, where that one is not live.
It is cut off from the node that tells which ones are, and clients reach it. What it has, the others may not have heard
of, and so would refuse each change of it until the split is over."""

from __future__ import annotations

from .path import Path
from .topology import Topology
from .view import Target


class Apart:
    """See the module. Bounded. If an entry is lost, one write is refused, and the caller reads again."""

    def __init__(self, topology: Topology, paths_max: int) -> None:
        self._topology = topology
        self._max = paths_max
        self.names: dict[Path, str] = {}
        """By path the node's name."""

    def note(self, path: Path, node: str) -> None:
        """An answer of this node about a path counts."""
        target = self._topology.routing.by_name.get(node)
        if target is None or not target.is_apart:
            self.names.pop(path, None)
        elif self._max > 0:
            if len(self.names) >= self._max and path not in self.names:
                self.names.clear()
            self.names[path] = node

    def of(self, path: Path) -> Target | None:
        """The node that the last answer about a path came from, if that one is not live."""
        target = self._topology.routing.by_name.get(self.names.get(path, ""))
        return target if target is not None and target.is_apart else None
