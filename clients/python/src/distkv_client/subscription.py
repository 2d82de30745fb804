"""What watches and monitors share: how they begin, follow their node, and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from .call import Caller
from .errors import DistKVError, UsageError
from .feed import Opened, Search
from .pool import closed_error

Event = TypeVar("Event")


class Subscription(Generic[Event]):
    """Goes on until it is closed: `async with` it and `async for` over it. Begins with the first of both.

    It has one reader: while one task waits for the next event, another one may close it, but not wait, too.
    """

    def __init__(self, what: str, caller: Caller, search: Search) -> None:
        self._what = what
        self._caller = caller
        self._search = search
        self._opened: Opened | None = None
        self._is_begun = False
        self._work: asyncio.Task[Any] | None = None
        """A search, or a question, under way."""
        self._ended: DistKVError | None = None
        self._is_closed = False
        self._is_waited_for = False
        caller.endless.add(self)

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._is_closed:
            raise StopAsyncIteration
        return await self.next()

    @property
    def node(self) -> str | None:
        """The node that sends at present, if there is one."""
        return self._opened.connection.name if self._opened is not None else None

    async def begin(self) -> None:
        """Begins, if it has not: raises :class:`~distkv_client.errors.DistKVError` if no node could in time."""
        if self._is_closed:
            raise self._closed()
        if not self._is_begun:
            opened = await self._search.first()
            if self._is_begun or self._is_closed:
                opened.stream.close()
                return
            self._is_begun = True
            self._opened = opened

    async def next(self) -> Event:
        """The next event; waits as long as necessary, also while no node can be reached. Cancelling loses
        nothing.

        Raises :class:`~distkv_client.errors.DistKVError`: a node refused for good, or the client was closed;
        :class:`~distkv_client.errors.UsageError` at once where another task waits for it.
        """
        if self._is_waited_for:
            raise UsageError(f"the {self._what} is waited for already; it has one reader")
        self._is_waited_for = True
        try:
            await self.begin()
            return await self._next()
        finally:
            self._is_waited_for = False

    async def _next(self) -> Event:
        """The next event, of one that has begun."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Ends it."""
        self._caller.check_loop()
        self._is_closed = True
        await self._end(self._closed())

    async def client_closed(self) -> None:
        """The client is closed: whoever waits here is told."""
        if not self._is_closed:
            await self._end(closed_error())

    def _closed(self) -> UsageError:
        return UsageError(f"the {self._what} was closed")

    async def _end(self, error: DistKVError) -> None:
        self._ended = self._ended or error
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.wait({work})
            drop(work)
        self._close_stream()

    def _close_stream(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.stream.close()
            self._search.on_end(opened)

    def __del__(self) -> None:
        opened, work = getattr(self, "_opened", None), getattr(self, "_work", None)
        if (opened is None and work is None) or self._caller.loop.is_closed():
            return
        # Perhaps in another thread: the collector runs where it wants.
        soon = self._caller.loop.call_soon_threadsafe
        if opened is not None:
            soon(opened.stream.close)
        if work is not None:
            soon(work.add_done_callback, drop)
            soon(work.cancel)


def drop(work: asyncio.Task[Any]) -> None:
    """A task's outcome is not wanted: a stream that it has opened is closed."""
    if work.cancelled() or work.exception() is not None:
        return
    result: Any = work.result()
    if isinstance(result, Opened):
        result.stream.close()
