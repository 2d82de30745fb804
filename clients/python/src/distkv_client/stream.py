"""The messages of one stream, in order; flow control, and whole paths from shortened ones."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from .codec import Fields, Message
from .errors import LostError, ProtocolError, TimedOutError, TryError, UsageError
from .path import Path
from .replies import server_error

if TYPE_CHECKING:
    from .connection import Connection

STREAM_MESSAGES_MAX = 64
"""Messages of one stream that are kept for its reader, where flow control does not say."""
WINDOW_SLACK = 8
"""Messages beyond the window: a stream's end, or an error, need not wait for acknowledgements."""

_QUESTION = Fields().head("auth_info")


class Item:
    """A message of a stream: its whole path below the request's (none without one), and its content.

    `state` is the node's word in a message that has one: `uptodate`, `restart` …
    """

    __slots__ = ("message", "path", "state")

    def __init__(self, message: Message, path: Path | None, state: str | None) -> None:
        self.message = message
        self.path = path
        self.state = state


class Stream:
    """See the module. It must be read to its end or closed."""

    def __init__(self, connection: Connection, seq: int, window: int | None) -> None:
        self.connection = connection
        self.seq = seq
        self._window = window
        self._capacity = STREAM_MESSAGES_MAX if window is None else window + WINDOW_SLACK
        self._queue: deque[Message] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: TryError | None = None
        """How the connection ended."""
        self._is_done = False
        self._taken = 0
        self._acknowledged = 0
        self._last: tuple[object, ...] = ()

    @property
    def queued(self) -> int:
        """Messages that wait for the reader: never more than the bound."""
        return len(self._queue)

    # -- the connection's side ---------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """A message has come."""
        self._queue.append(message)
        if len(self._queue) >= self._capacity:
            # Only a node that does not heed flow control, or one without it, gets that far.
            self.connection.on_full(self.seq)
        self._wake()

    def on_end(self, error: TryError) -> None:
        """The connection ended; what has come before can still be taken."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # -- the reader's side -------------------------------------------------------------------

    async def started(self, deadline: float, longest: float) -> None:
        """Takes the message that says that the stream begins."""
        message = await self._take(deadline, longest)
        if message.get("state") == "start":
            return
        if "error" in message:
            self._finish()
            raise server_error(message)
        raise ProtocolError("no stream came as the answer")

    async def let_in(self, deadline: float) -> None:
        """Waits until it is clear that the node has not refused the stream, which it does behind its start: raises its
        error. The node is asked something that everybody may ask, and answers that behind what it says of the stream
        at once. One that says neither in time has begun it; what has come is the next."""
        try:
            await self.connection.request(_QUESTION, deadline)
        except TryError:
            pass  # If the connection has ended, the next message tells that.
        first = self._queue[0] if self._queue else {}
        if _is_refusal(first):
            self._finish()
            raise server_error(first)

    async def next(self, deadline: float = float("inf"), longest: float | None = None) -> Item | None:
        """The next message; none after the last. Messages returned before are acknowledged. While one is arriving, it
        is waited for until `longest`.

        Raises the node's error, or how the connection ended; nothing comes after it. Cancelling loses nothing.
        """
        if self._is_done:
            return None
        self._acknowledge()
        try:
            message = await self._take(deadline, deadline if longest is None else longest)
        except TimedOutError:
            raise
        except TryError:
            self._finish()
            raise
        state = message.get("state")
        if isinstance(state, str):
            if state == "end":
                self._finish()
                return None
            return Item(message, None, state)
        if _is_refusal(message):
            self._finish()
            raise server_error(message)
        return Item(message, self._path_of(message), None)

    def close(self) -> None:
        """Makes the node stop, unless the stream has ended."""
        if not self._is_done:
            self._is_done = True
            self._queue.clear()
            self.connection.forget_stream(self.seq, stop=self._error is None)
            self._wake()

    def _finish(self) -> None:
        self._is_done = True
        self.connection.forget_stream(self.seq, stop=False)

    async def _take(self, deadline: float, longest: float) -> Message:
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._is_done:
                raise LostError("the stream was closed")
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            handle = loop.call_at(deadline, self._wake) if deadline != float("inf") else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if handle is not None:
                    handle.cancel()
            if not self._queue and self._error is None and loop.time() >= deadline:
                further = self.connection.line.further(loop.time(), longest)
                if further is None:
                    raise TimedOutError(f"{self.connection.name} sent nothing for long")
                deadline = further
        message = self._queue.popleft()
        if len(self._queue) < self._capacity // 2 + 1:
            self.connection.on_room(self.seq)
        wseq = message.get("wseq")
        if isinstance(wseq, int):
            self._taken = max(self._taken, wseq)
        return message

    def _acknowledge(self) -> None:
        """Once per half window."""
        if self._window is not None and self._taken - self._acknowledged >= max(self._window // 2, 1):
            self._acknowledged = self._taken
            self.connection.acknowledge(self.seq, self._taken)

    def _path_of(self, message: Message) -> Path | None:
        rest: Any = message.get("path")
        if rest is None:
            return None
        try:
            found = rest if isinstance(rest, Path) else Path(*rest)
            depth: Any = message.get("depth")
            if not isinstance(depth, int):
                # It is whole, and does not count for the next one.
                return found
            if not 0 <= depth <= len(self._last):
                raise ProtocolError("a path is shortened by more than the one before it has")
            if depth:
                found = Path(*self._last[:depth], *found.elements)
            self._last = found.elements
            return found
        except (UsageError, TypeError) as error:
            raise ProtocolError(f"a path is none: {error}") from None


def _is_refusal(message: Message) -> bool:
    """A monitored message that cannot be decoded carries an error of its own, and a topic."""
    return "error" in message and "topic" not in message
