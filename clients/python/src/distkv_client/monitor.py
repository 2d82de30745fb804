"""Messages through the network that are not stored: only programs that listen receive them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Union

from .call import Caller
from .codec import Fields, Message
from .errors import DistKVError, ServerError, TryError, UsageError
from .feed import Opened, Search
from .path import Path
from .pool import closed_error
from .retry import ErrorClass, class_of
from .watch import drop


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """One message."""

    topic: Path
    data: Any
    """Its value; None if it is no MessagePack: then `raw` has its bytes."""
    raw: bytes | None = None
    dropped: int = 0
    """Messages before it that were lost since this monitor did not keep up."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Its node was lost, and it continues at another one: messages may have been lost in between."""

    node: str


MonitorEvent = Union[TopicMessage, Gap]
"""What a monitor reports."""


class Monitor:
    """A monitor of messages: `async with` it and `async for` over it. In a topic, `+` stands for one element
    and `#`, at the end, for one or more."""

    def __init__(self, caller: Caller, topic: Path) -> None:
        self.topic = topic
        self._caller = caller
        head = Fields().path("topic", topic).head("msg_monitor")
        self._search = Search(caller, "msg_monitor", topic.shard, head)
        self._opened: Opened | None = None
        self._is_begun = False
        self._work: asyncio.Task[Opened] | None = None
        self._ended: DistKVError | None = None
        self._is_closed = False
        caller.endless.add(self)

    async def __aenter__(self) -> Monitor:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[MonitorEvent]:
        return self

    async def __anext__(self) -> MonitorEvent:
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
            raise UsageError("the monitor was closed")
        if not self._is_begun:
            opened = await self._search.first()
            if self._is_begun or self._is_closed:
                opened.stream.close()
                return
            self._is_begun = True
            self._opened = opened

    async def next(self) -> MonitorEvent:
        """The next event; waits as long as necessary. Cancelling loses nothing."""
        await self.begin()
        while True:
            if self._ended is not None:
                raise self._ended
            self._caller.check_loop()
            if self._opened is None:
                found = await self._find()
                if found is not None:
                    return found
                continue
            try:
                item = await self._opened.stream.next()
            except TryError as error:
                if self._ended is None:
                    self._on_error(error)
                continue
            if item is None:
                self._on_lost()
            elif item.state is None:
                self._search.on_success()
                message = _message_of(item.message)
                if message is not None:
                    return message

    async def _find(self) -> Gap | None:
        if self._work is None:
            search = self._search.again()
            self._work = self._caller.loop.create_task(search, name=f"distkv_client: monitor {self.topic}")
        await asyncio.wait({self._work})
        work, self._work = self._work, None
        if self._ended is not None or work is None:  # pyright: ignore[reportUnnecessaryComparison]
            return None
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            self._ended = error if isinstance(error, DistKVError) else closed_error()
            return None
        self._opened = work.result()
        return Gap(self._opened.connection.name)

    def _on_error(self, error: TryError) -> None:
        if self._caller.pool.is_closed:
            self._ended = closed_error(1)
            self._close_stream()
        elif isinstance(error, ServerError) and class_of(error) is ErrorClass.FINAL:
            self._ended = self._search.refusal(error, self.node or "")
            self._close_stream()
        else:
            self._on_lost()

    def _on_lost(self) -> None:
        if self._opened is not None:
            self._search.on_lost(self._opened.address)
        self._close_stream()

    def _close_stream(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.stream.close()

    async def aclose(self) -> None:
        """Ends the monitor."""
        self._is_closed = True
        await self._end(UsageError("the monitor was closed"))

    async def client_closed(self) -> None:
        """The client is closed: whoever waits here is told."""
        if not self._is_closed:
            await self._end(closed_error(1))

    async def _end(self, error: DistKVError) -> None:
        self._ended = self._ended or error
        work, self._work = self._work, None
        if work is not None:
            work.cancel()
            await asyncio.wait({work})
            drop(work)
        self._close_stream()

    def __del__(self) -> None:
        opened = getattr(self, "_opened", None)
        if opened is not None and not self._caller.loop.is_closed():
            self._caller.loop.call_soon_threadsafe(opened.stream.close)


def _message_of(message: Message) -> TopicMessage | None:
    topic: Any = message.get("topic")
    try:
        path = topic if isinstance(topic, Path) else Path(*topic)
    except (UsageError, TypeError):
        return None
    raw: Any = message.get("raw")
    dropped: Any = message.get("dropped")
    return TopicMessage(
        path,
        message.get("data"),
        raw if isinstance(raw, bytes) else None,
        dropped if isinstance(dropped, int) else 0,
    )
