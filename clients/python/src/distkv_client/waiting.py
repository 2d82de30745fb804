"""The requests of one connection that wait for their one reply, and how long: one timer serves all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .errors import TimedOutError, TryError
from .replies import again

if TYPE_CHECKING:
    from .connection import Connection

Reply = tuple["asyncio.Future[Any]", float, float, bool]
"""Who waits for a reply, until when, until when while a message is arriving, and whether for its bytes."""

EARLY = 0.0005
"""Seconds by which a timer may be early."""


class Waiting:
    """See the module."""

    __slots__ = ("_connection", "_loop", "_timer", "at", "replies")

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.replies: dict[int, Reply] = {}
        self.at = float("inf")
        """When it is looked who has waited in vain. Invariant: no later than the first deadline."""
        self._connection = connection
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def look_at(self, at: float) -> None:
        """Looks then."""
        self.at = at
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        now = self._loop.time() + EARLY
        line = self._connection.line
        self._timer = None
        following = float("inf")
        for seq, (future, deadline, longest, _) in list(self.replies.items()):
            at: float | None = deadline
            if deadline <= now:
                at = None if future.done() else line.further(now, longest)
            if at is not None:
                following = min(following, at)
                continue
            del self.replies[seq]
            if not future.done():
                future.set_exception(TimedOutError(f"no answer from {self._connection.name} in time"))
        self.at = following
        if following != float("inf"):
            self.look_at(following)

    def end(self, error: TryError) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for future, _, _, _ in self.replies.values():
            if not future.done():
                future.set_exception(again(error))
        self.replies.clear()
