"""Clients that nobody has closed, and that nobody has any more: what of them runs by itself ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

NOT_CLOSED = "a client was not closed: use it as a context manager, or close it"
"""What the warning says."""


class Part(Protocol):
    """What runs by itself: it does not keep its client, and nobody else may."""

    async def close(self) -> None:
        """Ends it."""


_ending: set[asyncio.Task[None]] = set()
"""The loop itself does not keep tasks."""


async def close_all(parts: Iterable[Part]) -> None:
    """Ends them, one after the other."""
    for part in parts:
        await part.close()


def abandon(parts: Iterable[Part], loop: asyncio.AbstractEventLoop) -> None:
    """Has the loop end them, if it has not ended itself; in any thread, since the collector runs where it wants."""

    def end() -> None:
        task = loop.create_task(close_all(parts), name="distkv_client: end")
        _ending.add(task)
        task.add_done_callback(_ending.discard)

    try:
        loop.call_soon_threadsafe(end)
    except RuntimeError:
        # Its end was the end of all tasks.
        pass
