"""What became of paths that another node does not show, or shows older: deleted meanwhile, or not there yet? And is
what its stream brings still there, or only its past?"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from typing import Any

from .codec import Fields
from .connection import Connection
from .line import LONGEST_ARRIVAL
from .model import Entry, Version, entry_of
from .path import Path

LOOKS_AT_ONCE = 64
"""Requests that are open at a time."""


class Settled(enum.Enum):
    """What became of one path."""

    NEWER = "newer"
    SAME = "same"
    GONE = "gone"
    """It was deleted so long ago that nothing is left of it."""
    BEHIND = "behind"
    """The node has not heard of the version in doubt."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A question about a path: what has the node, compared with this version?"""

    path: Path
    version: Version
    is_arriving: bool
    """It has come in the stream, and was not delivered: it is told if it is still there, or else what is newer. If this
    is false, it was delivered: what became of it since is told."""


async def settle(connection: Connection, doubts: list[Doubt], patience: float) -> list[tuple[Settled, Entry]]:
    """Asks a node about these paths. Each answer must come in so many seconds, but that other things may be under way.

    First what the node knows, then what it has: a version that arrives in between is found by the second
    question. In the other order, such a version would seem to have been deleted.

    Raises a :class:`~distkv_client.errors.TryError`: nothing is known then.
    """
    knows_all = await _knows_all(connection, [doubt.version for doubt in doubts], _times(connection, patience))
    found: list[tuple[Settled, Entry]] = []
    for start in range(0, len(doubts), LOOKS_AT_ONCE):
        part = doubts[start : start + LOOKS_AT_ONCE]
        times = _times(connection, patience)
        requests = [connection.request(doubt.path.get_head_chain, *times) for doubt in part]
        replies: list[Any] = await asyncio.gather(*requests, return_exceptions=True)
        for doubt, reply in zip(part, replies, strict=True):
            if isinstance(reply, BaseException):
                raise reply
            entry = entry_of(reply, connection.name)
            found.append((_judge(entry.version, doubt.version, knows_all), entry))
    return found


def _times(connection: Connection, patience: float) -> tuple[float, float]:
    """Until when an answer is waited for that is asked for now; and while a message is arriving."""
    deadline = asyncio.get_running_loop().time() + patience + connection.line.delay
    return deadline, deadline + LONGEST_ARRIVAL


def _judge(version: Version | None, asked: Version, knows_all: bool) -> Settled:
    if version is None:
        return Settled.GONE if knows_all else Settled.BEHIND
    if version == asked:
        return Settled.SAME
    return Settled.NEWER if asked < version else Settled.BEHIND


async def _knows_all(connection: Connection, versions: list[Version], times: tuple[float, float]) -> bool:
    """Whether a node has accounted for all of these events."""
    ticks: dict[str, set[int]] = {}
    for version in versions:
        if version.tick is not None:
            ticks.setdefault(version.node, set()).add(version.tick)
    fields = Fields().add("nodes", {node: sorted(some) for node, some in sorted(ticks.items())})
    reply: Any = await connection.request(fields.head("check_deleted"), *times)
    # A node that does not say so does not know it.
    return bool(reply.get("missing") == {})
