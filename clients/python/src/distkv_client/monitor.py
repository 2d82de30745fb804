"""Messages through the network that are not stored: only programs that listen receive them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Union

from .call import Caller
from .codec import Fields, Message
from .errors import DistKVError, ServerError, TryError, UsageError
from .feed import Opened, Search
from .path import Path
from .pool import closed_error
from .retry import ErrorClass, class_of
from .subscription import Subscription


@dataclass(frozen=True, slots=True)
class TopicMessage:
    """One message."""

    topic: Path
    data: Any
    """Its value; None if it is no MessagePack: then `raw` has its bytes."""
    raw: bytes | None = None
    dropped: int = 0
    """Messages that were lost just before it, since this monitor did not keep up."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Its node was lost, and it continues at another one: messages may have been lost in between."""

    node: str


MonitorEvent = Union[TopicMessage, Gap]
"""What a monitor reports."""


class Monitor(Subscription[MonitorEvent]):
    """A monitor of messages: `async with` it and `async for` over it. In a topic, `+` stands for one element
    and `#`, at the end, for one or more. It has one reader."""

    def __init__(self, caller: Caller, topic: Path) -> None:
        self.topic = topic
        head = Fields().path("topic", topic).head("msg_monitor")
        super().__init__("monitor", caller, Search(caller, "msg_monitor", topic.shard, head))

    async def _next(self) -> MonitorEvent:
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
                message = _message_of(item.message)
                if message is not None:
                    return message

    async def _find(self) -> Gap | None:
        if self._work is None:
            search = self._search.again()
            self._work = self._caller.loop.create_task(search, name="distkv_client: monitor")
        await asyncio.wait({self._work})
        work, self._work = self._work, None
        if self._ended is not None or work is None:  # pyright: ignore[reportUnnecessaryComparison]
            return None
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            self._ended = error if isinstance(error, DistKVError) else closed_error()
            return None
        opened: Opened = work.result()
        self._opened = opened
        return Gap(opened.connection.name)

    def _on_error(self, error: TryError) -> None:
        if self._caller.pool.is_closed:
            self._ended = closed_error()
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
