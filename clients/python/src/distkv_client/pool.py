"""Few connections to each node, shared by all calls, opened on first use.

A call that needs a connection while one is being opened waits for that attempt, which goes on even if the call
is cancelled. A failed attempt is remembered for a short while. A second connection is opened only when the
first is busy, and is waited for only where the first has no room left; unused ones are closed; a silent node is
asked whether it is alive. Nodes of another network are not used. Whoever means a node by its name gets no connection
to another one, though it may be at that address: for those who mean that one, or whoever is there, the connection
stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .clock import Clock
from .config import CONNECTIONS_PER_NODE_MAX, Address, PoolConfig
from .connection import STREAMS_MAX, Connection
from .errors import (
    ACCESS_CODES,
    ClosedError,
    ClosedFateUnknownError,
    ConnectError,
    Fate,
    FullError,
    LoginWaitError,
    LostError,
    NoAccessError,
    NotMetError,
    OtherNodeError,
    PlaintextLoginError,
    ServerError,
    TryError,
)
from .login import Access
from .network import Network
from .question import ask
from .replies import again
from .stats import PoolStats

NODES_MAX = 4096
"""Most nodes that are remembered; those without a connection are dropped first."""
LOOK_MIN, LOOK_MAX = 0.01, 1.0
"""Seconds between two looks at the pool."""
DOUBLINGS_MAX = 16
"""After so many failures in a row their memory grows no more."""
REFUSAL_MEMORY = 60.0
"""Seconds for which a node that has refused a client, or shut it out, is taken to refuse it still if it makes a login
wait."""


class Slot:
    """What the pool has of one node."""

    __slots__ = ("attempt", "connections", "failed_until", "failure", "failures", "word", "word_at")

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.attempt: asyncio.Task[Connection] | None = None
        self.failure: TryError | None = None
        self.failed_until = 0.0
        self.failures = 0
        self.word: NoAccessError | LostError | None = None
        """The last refusal that the node itself has spoken, or the last words of a connection that it closed to shut
        the client out; since it was well."""
        self.word_at = 0.0

    def other_than(self, name: str | None) -> str | None:
        """The name of the node that is there instead of this one, if its connection lasts."""
        if name is None:
            return None
        names = [one.name for one in self.connections if one.ended is None]
        return names[0] if names and name not in names else None

    def note_failure(self, error: TryError, now: float, config: PoolConfig) -> None:
        """Remembers it for a while that grows."""
        memory = config.failure_memory * 2 ** min(self.failures, DOUBLINGS_MAX)
        self.failure = error
        self.failed_until = now + min(memory, config.failure_memory_max)
        self.failures += 1

    def clear_failure(self) -> None:
        """The node is well."""
        self.failure = None
        self.failed_until = 0.0
        self.failures = 0
        self.word = None

    def note_word(self, word: NoAccessError | LostError, at: float) -> None:
        """The node does not want this client. As it closes a connection, that is no refusal yet: it may know the user
        again when it is asked."""
        if self.word is None or self.word_at <= at:
            self.word, self.word_at = word, at

    def forget_word_before(self, since: float) -> None:
        """The client came with another secret then."""
        if self.word_at < since:
            self.word = None

    def still_refuses(self, wait: LoginWaitError, now: float) -> NoAccessError | None:
        """What it means that the node makes a login wait: it has not looked at the secret. Who was refused too often,
        or uses what others were refused with, has to wait, so shortly after its word the node still means that."""
        if self.word is None or now - self.word_at >= REFUSAL_MEMORY:
            return None
        return NoAccessError(f"{self.word}; it makes the next login wait: {wait.__cause__}")


class Pool:
    """See the module. Belongs to one event loop."""

    def __init__(
        self,
        config: PoolConfig,
        loop: asyncio.AbstractEventLoop,
        access: Access,
        network: Network,
    ) -> None:
        self.config = config
        self.stats = PoolStats()
        self.clock = Clock()
        """What all nodes say."""
        self.on_other_node: Callable[[str], None] = lambda _: None
        """Is told the name of a node at whose address another one answers."""
        self.network = network
        self.is_closed = False
        self._ended = asyncio.Event()
        self._loop = loop
        self._access = access
        self._slots: dict[Address, Slot] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        shortest = min(config.idle_close, config.probe_after)
        self._interval = min(max(shortest / 4, LOOK_MIN), LOOK_MAX)
        self._looking: asyncio.TimerHandle | None = loop.call_later(self._interval, self._look)

    def ready(self, address: Address, name: str | None = None, for_stream: bool = False) -> Connection | None:
        """An open connection that is not busy, if there is one: no waiting. `name`: to this node only; `for_stream`: it
        has room for a stream."""
        slot = self._slots.get(address)
        if slot is not None:
            for connection in slot.connections:
                if (
                    connection.ended is None
                    and connection.load < self.config.busy_at
                    and connection.has_room(for_stream)
                    and (name is None or connection.name == name)
                ):
                    connection.used_at = self._loop.time()
                    return connection
        return None

    def slot(self, address: Address) -> Slot | None:
        """What there is of a node. One without connections may be forgotten."""
        return self._slots.get(address)

    async def get(
        self, address: Address, deadline: float, name: str | None = None, for_stream: bool = False
    ) -> Connection:
        """A connection to this node; `name`: which one is meant; `for_stream`: what it is for, since calls have room
        where streams have none. Cancelling gives up waiting, not the attempt.

        Raises a :class:`~distkv_client.errors.TryError`: nothing was sent.
        """
        while not isinstance(planned := self._plan(address, name, for_stream), Connection):
            connection = await self._outcome(planned, address, deadline, name)
            if connection.has_room(for_stream):
                return connection
            # Others have waited for it, too, and have filled it: there may be a further one.
        return planned

    async def _outcome(
        self, attempt: asyncio.Task[Connection], address: Address, deadline: float, name: str | None
    ) -> Connection:
        """The connection of an attempt, to the node that is meant."""
        left = None if deadline == float("inf") else max(deadline - self._loop.time(), 0)
        await asyncio.wait({attempt}, timeout=left)
        if not attempt.done():
            # This caller's time ended, not the attempt's: how the one before failed says more than that.
            slot = self._slots.get(address)
            before = "" if slot is None or slot.failure is None else f"; before that: {slot.failure}"
            raise ConnectError(f"no connection to {address} in time{before}")
        if attempt.cancelled():
            raise ConnectError(f"cannot connect to {address}: the client was closed")
        error = attempt.exception()
        if error is not None:
            raise again(error) if isinstance(error, TryError) else ConnectError(f"{address}: {error!r}")
        connection = attempt.result()
        if connection.ended is not None:
            raise ConnectError(f"no connection to {address} that lasts: {connection.ended}") from connection.ended
        if name is not None and connection.name != name:
            raise self._other_node(address, name, connection.name)
        return connection

    def _other_node(self, address: Address, meant: str, found: str) -> OtherNodeError:
        self.on_other_node(meant)
        # It may say anything, and is shown in one line.
        shown = found if found.isprintable() else repr(found)
        return OtherNodeError(f"at {address} another node answers, {shown}")

    def _plan(self, address: Address, name: str | None, for_stream: bool) -> Connection | asyncio.Task[Connection]:
        if self.is_closed:
            raise ConnectError(f"cannot connect to {address}: the client was closed")
        now = self._loop.time()
        if len(self._slots) >= NODES_MAX and address not in self._slots:
            self.retain(lambda _: False)
        slot = self._slots.setdefault(address, Slot())
        self._drop_ended(slot)
        other = slot.other_than(name)
        if name is not None and other is not None:
            raise self._other_node(address, name, other)
        usable = [one for one in slot.connections if name is None or one.name == name]
        roomy = [one for one in usable if one.has_room(for_stream)]
        best = min(roomy or usable, key=lambda one: one.load, default=None)
        is_failing = now < slot.failed_until
        if best is not None:
            best.used_at = now
            is_busy = best.load >= self.config.busy_at or not roomy
            if (
                is_busy
                and len(slot.connections) < self.config.connections_per_node
                and not is_failing
                and slot.attempt is None
            ):
                # It is busy, but there; the next caller gets the new one.
                self._open(address, slot)
            if not roomy and slot.attempt is not None:
                return slot.attempt
            if for_stream and all(one.streams >= STREAMS_MAX for one in usable):
                raise self._full(address, slot)
            return best
        if is_failing and slot.failure is not None:
            self.stats.failures_remembered += 1
            raise again(slot.failure)
        return slot.attempt or self._open(address, slot)

    def _full(self, address: Address, slot: Slot) -> TryError:
        """Why there is no room for another stream."""
        limit, count = self.config.connections_per_node, len(slot.connections)
        if count < limit and slot.failure is not None:
            return again(slot.failure)
        streams = sum(one.streams for one in slot.connections)
        where = "the connection" if count == 1 else f"the {count} connections"
        return FullError(
            f"this client has no room for another stream: {streams} watches, monitors and trees are open on {where} to "
            f"{address}, at most {STREAMS_MAX} on each; `pool.connections_per_node` is {limit}, and may be up to "
            f"{CONNECTIONS_PER_NODE_MAX}"
        )

    def _open(self, address: Address, slot: Slot) -> asyncio.Task[Connection]:
        task = self._loop.create_task(
            self._connect(address, slot),
            name=f"distkv_client: connect to {address}",
        )
        slot.attempt = task
        task.add_done_callback(lambda done: self._on_attempt(address, slot, done))
        return task

    async def _connect(self, address: Address, slot: Slot) -> Connection:
        try:
            connection = await Connection.open(address, self.config, self._access, self.network)
            connection.clock = self.clock
            return connection
        except (NotMetError, PlaintextLoginError):
            # Nobody knows whose words these are; or they are the client's own.
            raise
        except NoAccessError as error:
            slot.note_word(error, self._loop.time())
            raise
        except LoginWaitError as error:
            slot.forget_word_before(self._access.since)
            refusal = slot.still_refuses(error, self._loop.time())
            if refusal is None:
                raise
            raise refusal from None

    def _on_attempt(self, address: Address, slot: Slot, task: asyncio.Task[Connection]) -> None:
        if slot.attempt is task:
            slot.attempt = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.stats.failed += 1
            told = error if isinstance(error, TryError) else ConnectError(f"{address}: {error!r}")
            slot.note_failure(told, self._loop.time(), self.config)
            return
        connection = task.result()
        if self.is_closed:
            connection.close("the client was closed")
            return
        self.stats.opened += 1
        # Those that ended before count no more.
        self._drop_ended(slot)
        slot.clear_failure()
        slot.connections.append(connection)
        # It may have been forgotten meanwhile.
        self._slots[address] = slot

    def is_failing(self, address: Address, name: str | None = None) -> bool:
        """Whether the last attempt failed so recently that :meth:`get` would not try again, or the node let a
        call wait in vain, or another one is there than the one of this name."""
        slot = self._slots.get(address)
        if slot is None:
            return False
        if name is not None and slot.other_than(name) is not None:
            self.on_other_node(name)
            return True
        return self._loop.time() < slot.failed_until

    def failure(self, address: Address) -> TryError | None:
        """How the last attempt failed, if it did."""
        slot = self._slots.get(address)
        return slot.failure if slot is not None else None

    def on_timeout(self, address: Address, connection: Connection, since: float) -> None:
        """A call has waited in vain since then. If the node sent nothing at all meanwhile, and nothing is arriving,
        others avoid it for a moment, and it is asked whether it is alive."""
        if connection.heard_at >= since or connection.ended is not None or self._hears(connection):
            return
        slot = self._slots.get(address)
        if slot is not None:
            error = ConnectError(f"{address} does not answer requests")
            slot.note_failure(error, self._loop.time(), self.config)
        self._start_probe(address, connection)

    def _hears(self, connection: Connection) -> bool:
        """Whether a message of the node is arriving."""
        return connection.line.is_arriving(self._loop.time())

    def probe(self, address: Address) -> None:
        """Asks a node whether it is alive, after a report that it is not."""
        slot = self._slots.get(address)
        for connection in list(slot.connections) if slot is not None else ():
            self._start_probe(address, connection)

    def retain(self, is_wanted: Callable[[Address], bool]) -> None:
        """Forgets the nodes that are none of these and have no connection."""
        for address, slot in list(self._slots.items()):
            if not is_wanted(address) and not slot.connections and slot.attempt is None:
                del self._slots[address]

    def life_of(self, address: Address) -> tuple[str, int | None] | None:
        """The node at an address, if there is a connection to it."""
        slot = self._slots.get(address)
        for connection in slot.connections if slot is not None else ():
            return connection.name, connection.incarnation
        return None

    def fill_stats(self) -> PoolStats:
        """The counters, and what there is now."""
        stats = self.stats
        loads = [[one.load for one in slot.connections if one.ended is None] for slot in self._slots.values()]
        stats.nodes = sum(1 for load in loads if load)
        stats.connections = sum(len(load) for load in loads)
        stats.open_requests = sum(sum(load) for load in loads)
        return stats

    def open_replies(self) -> int:
        """Requests and streams that are open on all connections."""
        return self.fill_stats().open_requests

    async def pause(self, delay: float) -> None:
        """Waits for so many seconds, but not beyond the end of the pool, which whoever has waited must look for."""
        try:
            async with asyncio.timeout(delay):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def close(self) -> None:
        """Ends all connections, for all their users, and waits until they are gone."""
        self.is_closed = True
        self._ended.set()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        slots, self._slots = self._slots, {}
        tasks: list[asyncio.Task[object]] = list(self._tasks)
        connections: list[Connection] = []
        for slot in slots.values():
            if slot.attempt is not None:
                tasks.append(slot.attempt)  # pyright: ignore[reportArgumentType]
            connections += slot.connections
        for task in tasks:
            task.cancel()
        for connection in connections:
            connection.close("the client was closed")
        if tasks:
            await asyncio.wait(tasks)
        for connection in connections:
            await connection.wait_closed()

    # -- looking after it --------------------------------------------------------------------

    def _drop_ended(self, slot: Slot) -> None:
        before = len(slot.connections)
        for one in slot.connections:
            if isinstance(one.ended, LostError) and one.ended.code in ACCESS_CODES:
                slot.note_word(one.ended, one.heard_at)
        slot.connections = [one for one in slot.connections if one.ended is None]
        self.stats.lost += before - len(slot.connections)

    def _look(self) -> None:
        self._looking = self._loop.call_later(self._interval, self._look)
        now = self._loop.time()
        for address, slot in list(self._slots.items()):
            self._drop_ended(slot)
            for connection in list(slot.connections):
                if connection.load:
                    if now - connection.heard_at >= self.config.probe_after:
                        self._start_probe(address, connection)
                elif now - max(connection.used_at, connection.heard_at) >= self.config.idle_close:
                    slot.connections.remove(connection)
                    self.stats.idle_closed += 1
                    connection.close("it was unused")

    def _start_probe(self, address: Address, connection: Connection) -> None:
        if connection.is_probed or connection.ended is not None or self.is_closed:
            return
        connection.is_probed = True
        self.stats.probes += 1
        task: asyncio.Task[object] = self._loop.create_task(
            self._probe(address, connection), name=f"distkv_client: probe {address}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, address: Address, connection: Connection) -> None:
        since = self._loop.time()
        is_answered = True
        try:
            await ask(connection, self.config.probe_timeout)
        except ServerError:
            pass
        except TryError:
            is_answered = False
        finally:
            connection.is_probed = False
        slot = self._slots.get(address)
        if slot is None or connection.ended is not None:
            return
        if is_answered:
            slot.clear_failure()
        elif connection.heard_at <= since and not self._hears(connection):
            self.stats.silent_closed += 1
            # First, so that the calls that lose it do not come back at once.
            slot.note_failure(ConnectError(f"{address} does not answer"), self._loop.time(), self.config)
            connection.close("the node does not answer")


def closed_error(attempts: int = 0, fate: Fate = Fate.NOT_DONE) -> ClosedError:
    """What calls of a closed client get."""
    kind = ClosedError if fate is Fate.NOT_DONE else ClosedFateUnknownError
    return kind("the client was closed", attempts=attempts, fate=fate)
