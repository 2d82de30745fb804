"""Slow lines: what has to be sent before a node can answer, and an answer that is still arriving, are not the node's
silence (docs/client-behaviour.md, "Slow lines"). Pure.

>>> sending(1_000_000)
2.0
"""

from __future__ import annotations

from .codec import MESSAGE_BYTES_MAX

LINE_BYTES_PER_S = 500_000
"""So many bytes a line carries in a second, at least. Whoever has a slower one gives each try more time."""
COUNTED_BYTES_MIN = 256
"""Requests that are shorter are not counted: it would cost more than it tells."""
ARRIVING = 1.0
"""A message of which nothing has come for so many seconds is not arriving any more."""
LONGEST_ARRIVAL = MESSAGE_BYTES_MAX // LINE_BYTES_PER_S + 1
"""Seconds that a message can take to arrive over such a line."""
GLANCE = 0.1
"""Seconds between two looks whether one is."""


def sending(size: int) -> float:
    """Seconds that so many bytes may take to get to a node."""
    return size / LINE_BYTES_PER_S


class Line:
    """What is under way on one connection."""

    __slots__ = ("_arrived_at", "delay", "unanswered_bytes")

    def __init__(self) -> None:
        self.unanswered_bytes = 0
        """Of the requests with one reply that were sent, or wait for the socket, and have no answer yet."""
        self.delay = 0.0
        """Seconds that these may take to get to the node."""
        self._arrived_at = float("-inf")
        """When the last bytes of a message came whose rest is still to come, by the loop's clock; long ago: there is
        none."""

    def on_request(self, size: int) -> None:
        """A request of so many bytes is under way."""
        self.unanswered_bytes += size
        self.delay = sending(self.unanswered_bytes)

    def on_answer(self, size: int) -> None:
        """It is answered, or nobody waits for that any more."""
        self.on_request(-size)

    def delay_of(self, size: int) -> float:
        """Seconds that another request may take, of so many bytes, behind all that is under way."""
        return sending(self.unanswered_bytes + size) if size >= COUNTED_BYTES_MIN else self.delay

    def on_read(self, now: float, is_part: bool) -> None:
        """Bytes have come; `is_part`: with those before, they are not whole messages."""
        self._arrived_at = now if is_part else float("-inf")

    def is_arriving(self, now: float) -> bool:
        """Whether a part of a message has come, and more of it is coming."""
        return now - self._arrived_at < ARRIVING

    def further(self, now: float, longest: float) -> float | None:
        """Until when an answer is waited for whose time is over: while a message arrives, which may be this one, or
        another that comes first, but no longer than `longest`. None: not at all."""
        return min(now + GLANCE, longest) if now < longest and self.is_arriving(now) else None
