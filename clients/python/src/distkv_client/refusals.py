"""Whether a client that nodes do not let in has anywhere left to go. Pure.

One node that refuses a client may be wrong: its certificate, or its view of the users, may be out of date. So no access
is a failure of that node, like a connection that does not come about, until all nodes have been tried.
"""

from __future__ import annotations

from collections.abc import Iterable

from .config import Address
from .errors import ConnectError, NoAccessError, TimedOutError, TryError
from .view import Target


class Refusals:
    """What the nodes that were tried have said last."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Address, tuple[str, TryError]] = {}
        """The newest is the last one."""

    def note(self, target: Target, failure: TryError) -> None:
        """A try at this node has failed."""
        self._said.pop(target.address, None)
        self._said[target.address] = (target.name, failure)

    def verdict(self, targets: Iterable[Target]) -> tuple[str, TryError] | None:
        """The refusal of all of these nodes, once each was tried: none of them does anything but refuse, as far as they
        can be reached. With the name of the node that said it."""
        if any(target.address not in self._said for target in targets):
            return None
        return self._only_refusal()

    def most_telling(self) -> tuple[str, TryError]:
        """Of what was said, what tells best why nobody did it: the refusal, if nothing else was said; else the last
        failure that is none, since one node's refusal is not the answer."""
        others = [said for said in self._said.values() if not isinstance(said[1], NoAccessError)]
        return self._only_refusal() or others[-1]

    def _only_refusal(self) -> tuple[str, TryError] | None:
        found: tuple[str, TryError] | None = None
        for name, failure in self._said.values():
            if isinstance(failure, NoAccessError):
                found = (name, failure)
            elif not isinstance(failure, (ConnectError, TimedOutError)):
                return None
        return found
