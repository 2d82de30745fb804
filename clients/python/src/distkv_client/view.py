"""The nodes of a network as one node sees them, the differences between two views, and routing by them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .config import Address
from .errors import UsageError
from .router import Candidate, Router

VIEW_NODES_MAX = 1024
"""Most nodes of a view that count; further ones are left out."""
_NOT_LIVE = frozenset(("down", "left", "away"))


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a view."""

    name: str
    """Its name; of a seed that was never reached, its address."""
    incarnation: int | None
    client: Address | None
    """Its address for clients; none if it is not known."""
    gossip: str | None
    state: str
    """`self`, `joining`, `up`, `suspect`, `down`, `left`, `away`, `seed`, or a word of a later version."""
    is_ready: bool
    housekeeper: int | None

    @property
    def is_live(self) -> bool:
        """Whether requests should go to it."""
        return self.is_ready and self.state not in _NOT_LIVE and self.client is not None

    @property
    def counts(self) -> bool:
        """Whether it is one of those of which a majority is a majority."""
        return self.state != "left"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Which nodes there are."""

    epoch: int
    """Counted by this client: 0 before the first view, then it rises by 1 with each that differs."""
    nodes: tuple[Node, ...]
    """In the order of names, each name once."""
    source: str | None
    """The node that reported it first; none if only the seeds are known."""


@dataclass(frozen=True, slots=True)
class Move:
    """A shard whose preferred node is another one than before."""

    shard: int
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class TopologyChange:
    """How a view, or a table of overrides, differs from the one before."""

    previous_epoch: int
    epoch: int
    added: tuple[Node, ...]
    removed: tuple[Node, ...]
    changed: tuple[tuple[Node, Node], ...]
    """As they were, and as they are."""
    moved: tuple[Move, ...]


Place = tuple[Address, str | None]
"""Where a node is to be reached, and which one is meant there; none: whichever is there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A node that requests can go to."""

    name: str
    incarnation: int | None
    address: Address
    is_live: bool
    expected: str | None = None
    """The name with which it must greet; none of a seed, since nobody says which node is there."""

    @property
    def place(self) -> Place:
        """Where it is to be reached."""
        return self.address, self.expected

    @property
    def is_apart(self) -> bool:
        """Whether the view calls it not live, wherever clients reach it all the same. Of a seed, nobody says that."""
        return not self.is_live and self.expected is not None


def decode_node(told: Any) -> Node | None:
    """A node as a view has it; none where it is none."""
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):  # pyright: ignore[reportUnknownMemberType]
        return None
    fields: dict[str, Any] = told  # pyright: ignore[reportUnknownVariableType]
    gossip = fields.get("gossip") if isinstance(fields.get("gossip"), str) else None
    client: Address | None = None
    if isinstance(fields.get("client"), str):
        try:
            client = reachable(Address.parse(fields["client"]), gossip)
        except UsageError:
            client = None
    numbers = [fields.get(name) for name in ("incarnation", "housekeeper")]
    incarnation, housekeeper = (n if isinstance(n, int) else None for n in numbers)
    state = fields.get("state")
    return Node(
        fields["name"],
        incarnation,
        client,
        gossip,
        state if isinstance(state, str) else "",
        fields.get("ready") is True,
        housekeeper,
    )


def reachable(client: Address, gossip: str | None) -> Address:
    """Nobody can connect to "all addresses": then it is where its peers find it."""
    try:
        if gossip is not None and ipaddress.ip_address(client.host).is_unspecified:
            return Address(Address.parse(gossip, 0).host, client.port)
    except (ValueError, UsageError):
        pass
    return client


def decode_view(told: Any) -> tuple[tuple[Node, ...], str | None] | None:
    """Nodes and source from `{epoch, nodes, id}`. The node's own epoch means nothing to a client of several."""
    if not isinstance(told, dict) or not isinstance(told.get("nodes"), list):  # pyright: ignore[reportUnknownMemberType]
        return None
    fields: dict[str, Any] = told  # pyright: ignore[reportUnknownVariableType]
    identity: Any = fields.get("id")
    name: Any = identity.get("name") if isinstance(identity, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    decoded = (decode_node(node) for node in fields["nodes"][:VIEW_NODES_MAX])
    return by_name(node for node in decoded if node is not None), name if isinstance(name, str) else None


def by_name(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """In the order of names, each once: of two lives of one name the present one."""
    best: dict[str, Node] = {}

    def worth(node: Node) -> tuple[bool, bool, bool]:
        return (node.state not in _NOT_LIVE, node.is_ready, node.client is not None)

    for node in nodes:
        other = best.get(node.name)
        if other is None or worth(node) > worth(other):
            best[node.name] = node
    return tuple(best[name] for name in sorted(best))


def compare(
    old: Iterable[Node], new: Iterable[Node]
) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[tuple[Node, Node], ...]]:
    """What was added, removed and changed, in the order of names."""
    before, after = ({node.name: node for node in nodes} for nodes in (old, new))

    def seen(node: Node) -> Node:
        # It does not matter which of them was asked: that one is up.
        return replace(node, state="up") if node.state == "self" else node

    added = tuple(after[name] for name in sorted(after.keys() - before.keys()))
    removed = tuple(before[name] for name in sorted(before.keys() - after.keys()))
    both = sorted(before.keys() & after.keys())
    pairs = ((before[name], after[name]) for name in both)
    return added, removed, tuple(pair for pair in pairs if seen(pair[0]) != seen(pair[1]))


class Routing:
    """One view combined with one table of overrides: which node is preferred, and where each node is.

    `targets`: the nodes with a known address, in the order of names; then the seeds that none of them is.
    """

    def __init__(self, view: ClusterView, seeds: Iterable[Address], overrides: Mapping[int, str]) -> None:
        self.view = view
        is_first = view.epoch == 0
        self.targets = [
            Target(node.name, node.incarnation, node.client, node.is_live, None if node.state == "seed" else node.name)
            for node in view.nodes
            if node.client is not None
        ]
        known = {target.address for target in self.targets}
        for seed in seeds:
            if seed not in known:
                known.add(seed)
                self.targets.append(Target(str(seed), None, seed, is_first))
        self.addresses = known
        self.by_name = {target.name: target for target in reversed(self.targets)}
        self.overrides = overrides
        self._preferred: dict[int, Target | None] = {}
        self.router = Router([Candidate(t.name, t.is_live) for t in self.targets], overrides)

    def preferred(self, shard: int) -> Target | None:
        """The node that is preferred for a shard."""
        try:
            return self._preferred[shard]
        except KeyError:
            index = self.router.preferred(shard)
            target = self._preferred[shard] = None if index is None else self.targets[index]
            return target

    def moves_to(self, newer: Routing, shards: int) -> tuple[Move, ...]:
        """What moved from this one to a newer one."""
        pairs = ((s, self.router.preferred_name(s), newer.router.preferred_name(s)) for s in range(shards))
        return tuple(Move(shard, one, other) for shard, one, other in pairs if one != other)
