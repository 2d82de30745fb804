"""A call of the synchronous client on its way through the loop's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class Handed(Generic[R]):
    """Work that was handed to the loop, and what came of it."""

    def __init__(self, work: Coroutine[Any, Any, R]) -> None:
        self.work = work
        self.task: asyncio.Task[R] | None = None
        self.result: R | None = None
        self.error: BaseException | None = None
        self.is_over = threading.Lock()
        """Held until it is. No `Event` and no `Future`: to wait for those is code in Python that holds a lock, which
        whoever raises from a signal's handler there leaves held."""
        self.is_over.acquire()
