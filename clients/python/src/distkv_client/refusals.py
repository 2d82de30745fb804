"""Whether a client that nodes do not let in has anywhere left to go. Pure.

One node that refuses a client may be wrong: its certificate, or its view of the users, may be out of date. So no access
is a failure of that node, like a connection that does not come about, until all nodes have been tried.
"""

from __future__ import annotations

from collections.abc import Iterable

from .errors import (
    FULL,
    ConnectError,
    FullError,
    LateError,
    LoginWaitError,
    LostError,
    NoAccessError,
    NotMetError,
    ServerError,
    TryError,
)
from .view import Place, Target


class Refusals:
    """What the nodes that were tried in one call, or in one search of a stream, have said last."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Place, tuple[str, TryError]] = {}
        """The newest is the last one."""

    def note(self, target: Target, failure: TryError) -> None:
        """A try at this node has failed."""
        self._said.pop(target.place, None)
        self._said[target.place] = (target.name, failure)

    def verdict(self, targets: Iterable[Target]) -> tuple[str, TryError] | None:
        """The refusal of all of these nodes, once each was tried: one does not let the client in, and none does
        anything else but not to be reached. With the name of the node that said it.

        A node that was not met may be of another network: what it says counts only where all of them refuse the client.
        """
        said = [self._of(target) for target in targets]
        if any(one is None or _is_hope(one[1]) for one in said):
            return None
        refusals = [one for one in said if one is not None and isinstance(one[1], NoAccessError)]
        met = [one for one in refusals if not isinstance(one[1], NotMetError)]
        counted = met or (refusals if len(refusals) == len(said) else [])
        return next(iter(counted), None)

    def full(self, targets: Iterable[Target]) -> tuple[str, TryError] | None:
        """That this client has no room for another stream at any of these nodes, once each was tried: there is none at
        one, and at none anything else but that it cannot be reached, or does not let the client in."""
        said = [self._of(target) for target in targets]
        if any(one is None or (_is_hope(one[1]) and not isinstance(one[1], FullError)) for one in said):
            return None
        return next((one for one in said if one is not None and isinstance(one[1], FullError)), None)

    def refusal(self, targets: Iterable[Target]) -> tuple[str, TryError] | None:
        """What one of these nodes has said that does not let the client in, or makes it wait, and its name."""
        said = [one for target in targets if (one := self._of(target)) is not None]
        return _refusal_or_wait(said)

    def _of(self, target: Target) -> tuple[str, TryError] | None:
        """A seed may have become a node of a view meanwhile."""
        return self._said.get(target.place) or self._said.get((target.address, None))

    def most_telling(self) -> tuple[str, TryError]:
        """Of what was said, what tells best why nobody did it: the last failure of a node that may let the client in;
        else a refusal, which says more than that another node cannot be reached; so does a node that makes the login
        wait; else the last failure."""
        said = list(self._said.values())[::-1]
        hopes = (one for one in said if _is_hope(one[1]))
        return next(hopes, None) or _refusal_or_wait(said) or said[0]


def _refusal_or_wait(said: list[tuple[str, TryError]]) -> tuple[str, TryError] | None:
    """The first refusal; else the first node that makes the login wait."""
    refusals = (one for one in said if isinstance(one[1], NoAccessError))
    waits = (one for one in said if isinstance(one[1], LoginWaitError))
    return next(refusals, None) or next(waits, None)


def _is_hope(failure: TryError) -> bool:
    """The node has let the client in, or may: it neither refuses it, nor is it out of reach. One that makes the login
    wait has not looked at the secret, and does not do so soon."""
    if isinstance(failure, LoginWaitError):
        return False
    if isinstance(failure, ConnectError):
        # A node that says why it takes no more connections is there.
        cause = failure.__cause__
        return isinstance(failure, LateError) or isinstance(cause, ServerError) or _is_full(cause)
    return not isinstance(failure, (NoAccessError, LostError)) or _is_full(failure)


def _is_full(failure: BaseException | None) -> bool:
    """The node has ended the connection since it has no room for it."""
    return isinstance(failure, LostError) and failure.code == FULL
