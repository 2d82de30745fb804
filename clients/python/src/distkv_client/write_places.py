"""The ids of this client's writes. Each says the write's place among the client's, and for which older ones the client
still waits (docs/client-protocol.md, "A client's own order"): so a node refuses a write that comes late, from a buffer
that nobody could empty in time, instead of making it on top of what the client has written since. Pure.

What the client waits for is known by generations, each with a count, and not write by write: a generation ends when a
call begins and nothing of the one before it is waited for any more. So what an id says may be less than the truth,
never more.
"""

from __future__ import annotations

import os

_MARK = b"\xd1\x5c"
"""What stands first in an id that says a place. No text begins like that."""
_CLIENT_BYTES = 7
_NUMBERS = 1 << 32
"""How many writes a client can number."""
_SPAN_UNTOLD = (1 << 24) - 1
"""How many writes apart the two numbers can be; this one: more than that."""


class _Generation:
    """Calls that began at about the same time."""

    __slots__ = ("first", "open")

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of the first write."""
        self.open = 0
        """Calls that have not ended."""


class Turn:
    """A call that writes: until the block is left, the client waits for its writes."""

    __slots__ = ("_generation", "_head", "_next", "_settled")

    def __init__(self, generation: _Generation, head: bytes, first: int, settled: int) -> None:
        self._generation = generation
        self._head = head
        self._next = first
        self._settled = settled

    def id(self) -> bytes:
        """The id of its next write."""
        number = self._next
        self._next = number + 1
        span = min(number - self._settled, _SPAN_UNTOLD)
        return self._head + (number << 24 | span).to_bytes(7, "big")

    def __enter__(self) -> Turn:
        self._generation.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._generation.open -= 1


class WritePlaces:
    """See the module."""

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        """As a client that has written nothing: of the one before, nothing more will be said."""
        self._head = _MARK + os.urandom(_CLIENT_BYTES)
        self._next = 0
        self._older = _Generation(0)
        self._newer = _Generation(0)

    def begin(self, writes: int = 1) -> Turn:
        """A call that makes so many writes. It is to be entered at once."""
        if self._next + writes > _NUMBERS:
            self._renew()
        if not self._older.open:
            self._older, self._newer = self._newer, _Generation(self._next)
        oldest = self._older if self._older.open else self._newer
        turn = Turn(self._newer, self._head, self._next, oldest.first)
        self._next += writes
        return turn
