"""The greatest tock that a client has heard of, Lamport's clock: what the client writes says so, and comes after all
that it knows, at whichever node. Pure."""

from __future__ import annotations

from .codec import Message

TOCK_END = 1 << 62
"""Tocks are below this; nodes take no others."""


class Clock:
    """See the module. All connections of a client hear."""

    def __init__(self) -> None:
        self.latest = 0

    def hear(self, message: Message) -> None:
        """A node has answered this, or sent it in a stream."""
        tock = message.get("tock")
        if type(tock) is int and self.latest < tock < TOCK_END:
            self.latest = tock
