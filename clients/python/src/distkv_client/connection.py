"""One connection to a node's client port, shared by any number of requests and streams.

Replies are told apart by `seq`, so a cancelled call gives up its reply, not the connection. Requests that begin in
one turn of the loop leave in one write. Everything runs on the loop's thread.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from .clock import Clock
from .codec import REQUEST_BYTES_MAX, Fields, Message, Splitter, decode_message, encode, pack_int, unpack, unpacker_of
from .config import Address, PoolConfig
from .dial import dial, is_own_machine, look, prepare
from .entrance import greeted, learn_identity, log_in, settings_of, window_of
from .errors import BusyError, ConnectError, LostError, ProtocolError, ServerError, TooLargeError, TryError
from .line import COUNTED_BYTES_MIN, Line
from .login import Access
from .network import Network
from .replies import NO_REPLY, again, check_reply, end_of, server_error
from .stream import Stream
from .tls import Session
from .try_time import NodeClock, timed
from .waiting import Reply, Waiting

OPEN_MAX = 4096
"""Requests and streams that are open on one connection at a time."""
CALLS_KEPT = 256
"""Places of these that no stream of a caller takes, so that calls go on however many watches are open."""
STREAMS_MAX = OPEN_MAX - CALLS_KEPT
"""Streams that are open on one connection when a caller's may begin: that of the client's view is one of them."""
OUTGOING_BYTES_MAX = 1 << 20
"""Bytes that wait to be written; further calls wait before they write."""
GATHER_BYTES_MAX = 64 << 10
"""Bytes that are gathered for one write."""
READ_BYTES_MAX = 64 << 10
"""Bytes that are read at once, into one buffer: asyncio's own would be allocated for each read."""


class Connection(asyncio.BufferedProtocol):
    """See the module. Made with :meth:`open`."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop, session: Session | None) -> None:
        self.address = address
        self.name = str(address)
        """The node's name; of a node that has not said it yet, its address."""
        self.incarnation: int | None = None
        """The node's life; none from a node that has no action `cluster`."""
        self.window: int | None = None
        self.used_at = loop.time()
        self.heard_at = loop.time()
        """When the last whole message came, by the loop's clock."""
        self.clock = Clock()
        """Its own until the pool gives it the client's: before that, the node may be left again."""
        self.node_clock = NodeClock()
        self.line = Line()
        self.is_probed = False
        self.ended: TryError | None = None
        """How the connection ended; none while it lasts."""
        self.is_paused = False
        """The socket takes no more: callers wait before they send."""
        self._loop = loop
        self._session = session
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._buffer = memoryview(bytearray(READ_BYTES_MAX))
        self._seq = 0
        self._waiting = Waiting(self, loop)
        self._replies = self._waiting.replies
        self._streams: dict[int, Stream] = {}
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._is_alone = True
        """The last read had one message: no other caller is about to send, with which one could share a write."""
        self._writable: asyncio.Future[None] | None = None
        self._full: set[int] = set()
        self._greeting: asyncio.Future[Message] | None = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()

    # -- making one --------------------------------------------------------------------------

    @classmethod
    async def open(cls, address: Address, config: PoolConfig, access: Access, network: Network) -> Connection:
        """Connects, reads the greeting, logs in, and learns who the node is. A node of another network is left before
        anything is sent to it.

        Raises a :class:`~distkv_client.errors.TryError`; nothing is left behind then, also if cancelled.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + config.connect_timeout
        tls = access.tls
        connection: Connection | None = None
        try:
            async with asyncio.timeout_at(until):
                session = None
                if tls is not None:
                    tls.renew()
                    if tls.context is None:
                        tls.learn(await look(address, loop, config.connect_timeout))
                    assert tls.context is not None
                    session = Session(tls.context, address.host, tls)
                connection = cls(address, loop, session)
                await dial(connection, address, loop, config.connect_timeout)
                await connection._begin(config, access, network, until)
                return connection
        except TimeoutError:
            error: TryError = ConnectError(
                f"cannot connect to {address}: no greeting within {config.connect_timeout} s; is this a node's "
                "client port?"
            )
        except TryError as failure:
            error = failure
        except BaseException:
            if connection is not None:
                connection.close("the attempt to connect was given up")
            raise
        if connection is not None:
            connection.close(str(error))
        if isinstance(error, (LostError, ServerError)):
            raise ConnectError(f"cannot connect to {address}: {error}") from error
        raise error

    async def _begin(self, config: PoolConfig, access: Access, network: Network, until: float) -> None:
        assert self._greeting is not None
        greeting = await greeted(self.address, self._greeting)
        self._greeting = None
        self.node_clock = NodeClock(greeting.clock)
        network.check(self.address, greeting.network)
        self.name = greeting.node
        self.window = window_of(greeting, config.window)
        self._write(settings_of(greeting, self.window))
        await log_in(self, access, greeting, until)
        await learn_identity(self)
        network.settle(self.address, greeting.network)

    # -- requests ----------------------------------------------------------------------------

    @property
    def is_private(self) -> bool:
        """Whether nobody else can read what is sent: by TLS, or within this machine."""
        if self._session is not None or self._transport is None:
            return self._session is not None
        # What the socket is connected to, whatever name was given for it.
        peer: Any = self._transport.get_extra_info("peername")
        return is_own_machine(peer[0] if peer else None)

    @property
    def load(self) -> int:
        """Requests and streams that are open on it."""
        return len(self._replies) + len(self._streams)

    @property
    def streams(self) -> int:
        """Streams that are open on it."""
        return len(self._streams)

    def has_room(self, for_stream: bool) -> bool:
        """Whether it has a place for one more request, or for a stream of a caller."""
        return self.load < OPEN_MAX and not (for_stream and len(self._streams) >= STREAMS_MAX)

    def send_request(
        self,
        head: bytes,
        deadline: float,
        longest: float,
        until: float | None = None,
        raw: bool = False,
        kept: int = 0,
    ) -> asyncio.Future[Any]:
        """Sends a request; `head` is all of it up to the value of `seq`. `until`: until when it counts, by the loop's
        clock, if the node tells its own; none: whenever it comes. `kept`: so many more places there are for this one.

        The future gets the reply, a :class:`~distkv_client.errors.TryError`, or
        :class:`~distkv_client.errors.TimedOutError` at `deadline`; while a message is arriving, at `longest`.
        Cancelling it gives up the reply.
        """
        replies = self._replies
        if self.ended is not None:
            raise again(self.ended)
        if len(replies) + len(self._streams) >= OPEN_MAX + kept:
            raise BusyError(f"{OPEN_MAX} requests are open on this connection already")
        self._seq = seq = self._seq + 1
        if until is None or (by := self.node_clock.after(until - self._loop.time())) is None:
            data = head + pack_int(seq)
        else:
            data = timed(head, seq, by)
        future: asyncio.Future[Any] = asyncio.Future(loop=self._loop)
        if len(data) >= COUNTED_BYTES_MIN:
            self._count(len(data), future)
        replies[seq] = (future, deadline, longest, raw)
        if deadline < self._waiting.at:
            self._waiting.look_at(deadline)
        if len(replies) == 1 and self._is_alone and not self._gathered:
            self._write(data)
        else:
            self._gather(data)
        return future

    def _count(self, size: int, future: asyncio.Future[Any]) -> None:
        """Others find a request of so many bytes ahead of theirs, until it is answered or given up."""
        if size > REQUEST_BYTES_MAX:
            raise TooLargeError(f"the request is {size} bytes long; at most {REQUEST_BYTES_MAX} can be sent")
        self.line.on_request(size)
        future.add_done_callback(lambda _: self.line.on_answer(size))

    async def request(
        self,
        head: bytes,
        deadline: float,
        longest: float | None = None,
        until: float | None = None,
        raw: bool = False,
        kept: int = 0,
    ) -> Any:
        """Sends a request, as :meth:`send_request`, and waits for its one reply: a message, or its bytes. Where the
        node's clock was ahead of what was counted, it is sent once more. Without `longest`, the deadline counts always.

        Raises a :class:`~distkv_client.errors.TryError`; the node's own is a
        :class:`~distkv_client.errors.ServerError`.
        """
        if longest is None:
            longest = deadline
        if self.is_paused:
            # What waits here is ahead of what comes later, as if it was sent.
            self.line.on_request(len(head))
            try:
                await self._writable_again(deadline)
            finally:
                self.line.on_answer(len(head))
        message: Any = await self.send_request(head, deadline, longest, until, raw, kept)
        if type(message) is dict:
            if until is not None and self.node_clock.was_behind(message):  # pyright: ignore[reportUnknownArgumentType]
                message = await self.send_request(head, deadline, longest, until, raw, kept)
            if "state" in message:  # Nobody reads the stream that it begins.
                self.forget_stream(message["seq"], stop=True)  # pyright: ignore[reportUnknownArgumentType]
            check_reply(message)  # pyright: ignore[reportUnknownArgumentType]
        return message  # pyright: ignore[reportUnknownVariableType]

    async def stream(
        self, head: bytes, deadline: float = float("inf"), longest: float | None = None, is_own: bool = False
    ) -> Stream:
        """Sends a request that is answered with a stream, and waits for its start, as long as :meth:`request`.
        `is_own`: the client needs it for itself, and it may take a place that is kept for calls."""
        await self._writable_again(deadline)
        if self.ended is not None:
            raise again(self.ended)
        if not self.has_room(not is_own):
            raise BusyError(f"{self.load} requests, {self.streams} of them streams, are open on this connection")
        self._seq = seq = self._seq + 1
        stream = Stream(self, seq, self.window)
        self._streams[seq] = stream
        self._gather(head + pack_int(seq))
        try:
            await stream.started(deadline, deadline if longest is None else longest)
        except BaseException:
            stream.close()
            raise
        return stream

    async def _writable_again(self, deadline: float) -> None:
        """Waits until the socket takes more, if it does not."""
        while self.is_paused:
            if self._writable is None:
                self._writable = self._loop.create_future()
            left = None if deadline == float("inf") else max(deadline - self._loop.time(), 0)
            done, _ = await asyncio.wait({self._writable}, timeout=left)
            if not done:
                raise BusyError("the node does not take what is sent to it")
            if self.ended is not None:
                raise again(self.ended)

    # -- what streams use --------------------------------------------------------------------

    def acknowledge(self, seq: int, wseq: int) -> None:
        """Tells the node how far a stream was read."""
        if self.ended is None:
            self._gather(encode({"seq": seq, "state": "ack", "ack": wseq}))

    def forget_stream(self, seq: int, stop: bool) -> None:
        """A stream has ended, or is not wanted any more."""
        self._streams.pop(seq, None)
        self.on_room(seq)
        if stop and self.ended is None:
            self._seq += 1
            self._gather(Fields().add("task", seq).head("stop") + pack_int(self._seq))

    def on_full(self, seq: int) -> None:
        """A stream's queue is full: nothing more is read until there is room."""
        self._full.add(seq)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def on_room(self, seq: int) -> None:
        """A stream's queue has room again."""
        if seq in self._full:
            self._full.discard(seq)
            if not self._full and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    # -- writing -----------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self.ended is not None:
            return
        if self._session is not None:
            try:
                data = self._session.send(data)
            except ssl.SSLError as error:
                self._end(LostError(f"the connection to {self.address} is lost: {error}"))
                return
        transport.write(data)

    def _gather(self, data: bytes) -> None:
        gathered = self._gathered
        if not gathered:
            self._loop.call_soon(self._flush)
        gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= GATHER_BYTES_MAX:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            data = b"".join(self._gathered)
            self._gathered = []
            self._gathered_bytes = 0
            self._write(data)

    # -- asyncio's callbacks -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        # A stream's transport; uvloop's is no subclass.
        self._transport = stream = cast(asyncio.Transport, transport)
        if self.ended is not None:
            stream.abort()
            return
        stream.set_write_buffer_limits(high=OUTGOING_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            prepare(sock)
        if self._session is not None:
            stream.write(self._session.begin())

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are to be put."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came: whole messages go to whoever waits for them."""
        data = bytes(self._buffer[:nbytes])
        try:
            if self._session is not None:
                data, out = self._session.receive(data)
                if out and self._transport is not None:
                    self._transport.write(out)
                if not data:
                    return
            if len(self._replies) == 1 and self._splitter.is_between:
                # One answer is expected, and it mostly comes alone and whole.
                try:
                    found: Any = unpack(data)
                except Exception:
                    pass
                else:
                    self.heard_at = self._loop.time()
                    self._is_alone = True
                    self._on_found(found, data)
                    return
            if len(self._replies) > 1 and self._splitter.is_between:
                data = self._take_quickly(data)
                if not data:
                    return
            parts = self._splitter.split(data)
            now = self._loop.time()
            self.line.on_read(now, not self._splitter.is_between)
            if parts:
                # Part of a message is nothing yet: it may announce more than ever comes.
                self.heard_at = now
                self._is_alone = len(parts) == 1
            for part in parts:
                try:
                    found = unpack(part)
                except Exception:
                    # In the slow way, or it is none.
                    found = decode_message(part)
                self._on_found(found, part)
        except (TryError, ssl.SSLError) as error:
            self._end(end_of(error, self.address, self._greeting is not None))

    def _take_quickly(self, data: bytes) -> bytes:
        """Takes messages from the beginning of what came, without looking for their ends first. Gives back what is to
        be taken in the slow way: a part of a message, or one that cannot be decoded like that."""
        # No length in it is believed that is greater than what came.
        unpacker = unpacker_of(max_buffer_size=len(data))
        unpacker.feed(data)
        end = count = 0
        while True:
            try:
                found: Any = unpacker.unpack()
            except Exception:
                break
            start, end = end, unpacker.tell()
            count += 1
            if count == 1:
                self.heard_at = self._loop.time()
            self._on_found(found, data[start:end])
        if count:
            self._is_alone = count == 1
        return data[end:]

    def _on_found(self, found: Any, part: bytes | memoryview) -> None:
        """A whole message, decoded and as its bytes."""
        if type(found) is not dict:
            raise ProtocolError("a message is no map")
        message: Message = found  # pyright: ignore[reportUnknownVariableType]
        seq: Any = message.get("seq")
        if seq:
            self.clock.hear(message)
        reply: Reply | None = self._replies.pop(seq, None)
        if reply is None:
            self._on_message(message)
        elif not reply[0].done():
            reply[0].set_result(bytes(part) if reply[3] and not message.keys() & NO_REPLY else message)

    def _on_message(self, message: Message) -> None:
        """What is no reply to a request."""
        seq = message.get("seq")
        stream = self._streams.get(seq) if isinstance(seq, int) else None
        if stream is not None:
            stream.on_message(message)
        elif self._greeting is not None and not self._greeting.done():
            if "error" in message:
                self._greeting.set_exception(server_error(message))
            else:
                self._greeting.set_result(message)
        elif "error" in message and not seq:
            # Its last words: it says why, and closes.
            error = server_error(message)
            text = f"the connection to {self.address} is lost: the node says: {error}"
            self._end(LostError(text, error.code))

    def eof_received(self) -> bool:
        """The node closed its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        why = str(exc) if exc is not None else "the node closed it"
        self._end(LostError(f"the connection to {self.address} is lost: {why}"))
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self.is_paused = True

    def resume_writing(self) -> None:
        """The socket takes more again."""
        self.is_paused = False
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # -- the end -----------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Ends the connection for all its users; open calls get a
        :class:`~distkv_client.errors.LostError` with this reason."""
        self._end(LostError(f"the connection to {self.address} is lost: {reason}"))

    async def wait_closed(self) -> None:
        """Waits until the socket is closed, after :meth:`close`."""
        if self._transport is not None:
            await asyncio.wait({self._lost})

    def _end(self, error: TryError) -> None:
        if self.ended is not None:
            return
        self.ended = error
        self._waiting.end(error)
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.on_end(again(error))
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(again(error))
            self._greeting.exception()
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        self.is_paused = False
        self._gathered = []
        if self._transport is not None:
            self._transport.abort()
