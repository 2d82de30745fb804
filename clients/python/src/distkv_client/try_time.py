"""Until when a try counts, by the clock of the node that it is sent to (docs/client-protocol.md, "The time of a try"):
what a network, or a node that stood still, delivers later than that is not carried out.

What is counted here is never ahead of the node's clock, so that nothing counts for longer than it should. It may be
behind: by as long as a message of the node was on its way, and by a little more each hour. Then the node refuses what
is still waited for, and says what its clock is.

>>> timed(b"\\x82\\xa6action\\xa1x\\xa3seq", 1, 5).hex(" ")
'83 a6 61 63 74 69 6f 6e a1 78 a3 73 65 71 01 a2 62 79 05'
"""

from __future__ import annotations

import math
from time import monotonic
from typing import Any, NamedTuple

from .codec import map_head, pack_int

CLOCK_END = 1 << 63
"""A node's clock is below this, in milliseconds; anything else is none."""
SLACK = 4096
"""Of so many milliseconds one is left out: the clocks of two machines differ by less."""
ROUNDED = 2
"""What the node's clock and the count of it are rounded down by, together, in milliseconds."""
_LONGEST = 1e15
"""More seconds than any clock has left."""


class TryTime(NamedTuple):
    """The times of one try, by the loop's clock, as a connection's `request` takes them."""

    end: float
    longest: float
    """Its end while a message is arriving: that of its call."""
    until: float | None
    """Until when what it sends counts; none: whenever it comes."""


class NodeClock:
    """See the module. Counts with the time of this process, not with the loop's, which may be that of the beginning of
    a turn: a greeting would seem to be older than it is."""

    __slots__ = ("_at", "_clock")

    def __init__(self, told: object = None) -> None:
        """`told`: in the greeting that has just come. None from nodes of former versions."""
        self._clock = _clock_of(told)
        self._at = monotonic()

    def _now(self, clock: int, at: float) -> int:
        since = int((at - self._at) * 1000)
        return clock + since + -since // SLACK if since > 0 else clock

    def hear(self, told: object) -> bool:
        """The node says what its clock is. That counts where it is ahead of what was counted; whether it is."""
        clock, at = _clock_of(told), monotonic()
        if clock is None or self._clock is None or clock <= self._now(self._clock, at):
            return False
        self._clock, self._at = clock, at
        return True

    def was_behind(self, reply: dict[str, Any]) -> bool:
        """Whether what the reply is to came too late only by what was counted here, so that it may be sent again."""
        return reply.get("code") == "too_late" and self.hear(reply.get("clock"))

    def after(self, seconds: float) -> int | None:
        """What the node's clock will say in so many seconds; none if the node does not tell it. All that was rounded
        down on the way is added: else what has a millisecond would always be too late."""
        if self._clock is None:
            return None
        by = self._now(self._clock, monotonic()) + ROUNDED
        if seconds > 0:
            # The last digits of a float are no millisecond.
            by += math.ceil((seconds if seconds < _LONGEST else _LONGEST) * 1000 - 0.001)
        return by if by < CLOCK_END else CLOCK_END - 1


def _clock_of(told: object) -> int | None:
    return told if type(told) is int and 0 <= told < CLOCK_END else None


def counts_until(is_change: bool, end: float, now: float, longest: float) -> float | None:
    """Until when a try counts that is sent now, by the loop's clock; none: whenever it comes. `end`: the try's. One
    that may take longer than `longest`, as the deletion of a tree may, must begin in that time."""
    return min(end, now + longest) if is_change else None


def timed(head: bytes, seq: int, by: int) -> bytes:
    """A whole request; `head`: all of it up to the value of `seq`, as all tries have it. `by`: until when this one
    counts."""
    first = head[0]
    if first < 0x8F:
        return b"%c%b%b\xa2by%b" % (first + 1, head[1:], pack_int(seq), pack_int(by))
    begin = 1 if first == 0x8F else 3 if first == 0xDE else 5
    count = int.from_bytes(head[1:begin], "big") or 15
    return b"%b%b%b\xa2by%b" % (map_head(count + 1), head[begin:], pack_int(seq), pack_int(by))
