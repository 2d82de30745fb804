"""What the synchronous client's watches and monitors are: iterators over their events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from .checks import seconds_of
from .errors import ClosedError

E_co = TypeVar("E_co", covariant=True)


class Events(Iterator[E_co]):
    """A watch or a monitor: `with` it, then `for` over it."""

    def __init__(
        self,
        run: Callable[[Coroutine[Any, Any, Any]], Any],
        following: Callable[[], Coroutine[Any, Any, E_co]],
        close: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._run = run
        self._following = following
        self._close = close
        self._is_closed = False

    def __enter__(self) -> Events[E_co]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Events[E_co]:
        return self

    def __next__(self) -> E_co:
        if self._is_closed:
            raise StopIteration
        return self.next()

    def next(self, timeout: float | None = None) -> E_co:
        """The next event. Raises :class:`TimeoutError` after so many seconds; nothing is lost then. One
        thread at a time may wait for it."""
        if timeout is not None:
            seconds_of(timeout, "a timeout")

        async def work() -> E_co:
            async with asyncio.timeout(timeout):
                return await self._following()

        event: E_co = self._run(work())
        return event

    def close(self) -> None:
        """Ends it."""
        if not self._is_closed:
            self._is_closed = True
            try:
                self._run(self._close())
            except ClosedError:
                pass
