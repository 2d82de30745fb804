"""The smart client: a program talks to the cluster, and need not know which node is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from .abandoned import close_all
from .batch import Batch
from .call import Caller, Failed, Plan
from .checks import NOT_NEGATIVE, bool_of, check_type, integer_of, seconds_of, text_of
from .codec import Fields, encode_value, one_value
from .config import Address, Config, ReadMode, checked, seed_of
from .connecting import Connecting, first_view
from .connection import Connection
from .convert import convert
from .copies import Uncopied
from .errors import KeyNotFoundError, TryError, UsageError
from .login import Access
from .model import UNSET, Entry, Unset, Version, Written, tock_of, written_of
from .monitor import Monitor
from .network import Network
from .own_login import OwnLogin
from .own_writes import OwnWrites
from .path import Path, PathLike
from .patience import long_once
from .pool import Pool
from .reads import Reader
from .replies import check_reply
from .request import request
from .retry import Idempotency
from .shard import SHARD_COUNT
from .shards import TABLE, ShardRow, ShardTable
from .stats import ClientStats
from .ticket import with_ticket
from .topology import Topology
from .tree import Conflicts, Tree
from .try_time import TryTime
from .view import ClusterView, TopologyChange
from .watch import Watch
from .write_places import Turn
from .writes import AUTO, WriteIdLike, WriteOptions

SEEDS_MAX = 1024
"""Most seeds of a client."""

T = TypeVar("T")
D = TypeVar("D")


class Client(Uncopied):
    """A client of a cluster, for one event loop; any number of tasks share it. Made with :meth:`connect`."""

    _instead = "share it within its event loop, or connect another one"

    def __init__(self, seeds: list[Address], config: Config, network: Network, own: OwnLogin | None = None) -> None:
        """Only for :meth:`connect`."""
        loop = asyncio.get_running_loop()
        self.config = config
        self._read_mode = ReadMode.of(config.read_mode)
        self._stats = ClientStats()
        access = Access(config.login, config.tls, config.plaintext_login, own)
        self._pool = Pool(config.pool, loop, access, network)
        self._stats.pool = self._pool.stats
        self._topology = Topology(seeds, self._pool, config.topology, config.connect_deadline, loop)
        self._stats.topology = self._topology.stats
        own_writes = OwnWrites(config.own_writes_max, self._pool.clock)
        self._caller = Caller(config, self._pool, self._topology, own_writes, self._stats, loop)
        self._reader = Reader(self._caller)
        self._shards: ShardTable | None = None
        self._closing: asyncio.Task[None] | None = None

    # -- beginning and end -------------------------------------------------------------------

    @classmethod
    def connect(cls, *seeds: str, config: Config | None = None) -> Connecting:
        """Connects: `await` it or `async with` it. Ready as soon as one of the seeds has told which nodes exist.

        Seeds are `host:port` or `host`. Without any, those of the ticket in the configuration count, or of the
        environment's `DISTKV_TICKET`, or else `127.0.0.1`.

        Raises :class:`~distkv_client.errors.UnavailableError` when none could be reached in time, and at once when this
        program may open no more files; :class:`~distkv_client.errors.DeniedError` at once when all refuse this user, or
        are of another network. Nothing is left running.
        """
        return Connecting(lambda: cls._connect(seeds, Config() if config is None else config))

    @classmethod
    async def _connect(cls, seeds: tuple[str, ...], config: Config) -> Client:
        config = checked(config)
        source = "configuration" if config.network else "ticket"
        seeds, config, own = with_ticket(seeds, config)
        if len(seeds) > SEEDS_MAX:
            raise UsageError(f"a client has at most {SEEDS_MAX} seeds")
        client = cls([seed_of(seed) for seed in seeds], config, Network(config.network, source), own)
        try:
            await first_view(client._topology, config.connect_deadline)
        except BaseException:
            await client.close(grace=0)
            raise
        client._shards = ShardTable(client._caller, config.shard_table_age)
        client._caller.parts.insert(0, client._shards)
        return client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._pool.is_closed

    async def close(self, *, grace: float = 1.0) -> None:
        """Closes the client: nothing new begins; open calls, and trees that are iterated over, may end for so many
        seconds, then they fail with :class:`~distkv_client.errors.ClosedError`, as watches do at once. Called again, or
        by several, it is over when the first of them has waited for so long."""
        caller = self._caller
        caller.check_loop()
        grace = seconds_of(grace, "grace")
        NOT_NEGATIVE.check(grace, "grace")
        if self._closing is None:
            caller.idle = caller.loop.create_future()
            self._closing = caller.loop.create_task(self._close(caller.idle), name="distkv_client: close")
        timer = caller.loop.call_later(grace, caller.tell_idle, True)
        self._closing.add_done_callback(lambda _: timer.cancel())
        # Whoever waits may be cancelled; what is begun is brought to its end.
        await asyncio.shield(self._closing)

    async def _close(self, idle: asyncio.Future[None]) -> None:
        caller = self._caller
        caller.is_closing = True
        if self._shards is not None:
            await self._shards.close()
        for stream in list(caller.endless):
            await stream.client_closed()
        caller.tell_idle()
        await idle
        await close_all(caller.parts)

    # -- reading -----------------------------------------------------------------------------

    @overload
    async def get(self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None) -> Any: ...

    @overload
    async def get(
        self,
        path: PathLike,
        as_type: type[T],
        *,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> T: ...

    @overload
    async def get(
        self,
        path: PathLike,
        *,
        default: D,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> Any | D: ...

    @overload
    async def get(
        self,
        path: PathLike,
        as_type: type[T],
        *,
        default: D,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> T | D: ...

    async def get(
        self,
        path: PathLike,
        as_type: Any = UNSET,
        *,
        default: Any = UNSET,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The value at a path, as a type of yours if you say which. A default is given by its name, `default=`.

        Raises :class:`~distkv_client.errors.KeyNotFoundError` without a value, unless there is a default;
        :class:`~distkv_client.errors.BadValueError` if it is not of this type.
        """
        if type(path) is not Path:
            path = Path.of(path)
        if as_type is not UNSET:
            check_type(as_type)
        mode, sent = self._read_mode if read is None else ReadMode.of(read), None
        caller = self._caller
        tocks = caller.own_writes.tocks
        own = tocks.get(path) if tocks else None
        if mode is ReadMode.PREFERRED and timeout is None:
            sent = caller.quick(path)
        if sent is None:
            message, node = await self._reader.message(path, mode, False, timeout)
        else:
            future, route, connection, now = sent
            caller.open_calls += 1
            try:
                message = await future
                if "error" in message or "state" in message:
                    check_reply(message)
                node = route.target.name
                route.node.note(connection.heard_at - now)
                is_enough = own is None or ("value" in message and tock_of(message) >= own)
            except TryError as error:
                failed = Failed(route.target, connection, now, error)
                message, node = await self._reader.retry(path, failed)
                is_enough = own is None
            finally:
                caller.open_calls -= 1
                if caller.idle is not None:
                    caller.tell_idle()
            if not is_enough:
                # Older than an own write, or it cannot be told.
                message, node = await self._reader.newer(path, (message, node), now, own)
            elif own is not None or caller.apart.names:
                if own is not None:
                    caller.own_writes.found(path, own)
                caller.apart.note(path, node)
        if "value" not in message:
            if default is not UNSET:
                return default
            raise KeyNotFoundError(f"there is no value at {path}", node=node, attempts=1)
        value: Any = message["value"]
        return value if as_type is UNSET else convert(value, as_type)

    async def get_raw(
        self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None
    ) -> bytes:
        """The value as the MessagePack that the node sends, byte for byte; otherwise as `get`.

        Raises :class:`~distkv_client.errors.KeyNotFoundError` without one.
        """
        path = Path.of(path)
        mode = self._read_mode if read is None else ReadMode.of(read)
        message, node = await self._reader.message(path, mode, False, timeout, raw=True)
        if "value" not in message:
            raise KeyNotFoundError(f"there is no value at {path}", node=node, attempts=1)
        data: bytes = message["value"]
        return data

    async def entry(
        self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None
    ) -> Entry | None:
        """The entry with its version, which `if_version` takes; None if there never was one, or it was deleted
        and purged. A deleted entry has no value."""
        mode = self._read_mode if read is None else ReadMode.of(read)
        return await self._reader.entry(Path.of(path), mode, timeout)

    def tree(
        self,
        path: PathLike,
        *,
        min_depth: int | None = None,
        max_depth: int | None = None,
        versions: bool = False,
        timeout: float | None = None,
    ) -> Tree:
        """All values at and below a path: `await` it for a list, or `async for` over it; :class:`Tree` says how long
        each may take. `versions`: with the versions of the entries, which `if_version` takes. `timeout`: seconds until
        the list is whole, or, where it is iterated over, until the first entry is there."""
        return Tree(self._caller, Path.of(path), min_depth, max_depth, versions, timeout)

    async def children(self, path: PathLike) -> list[Any]:
        """The names of the direct children that have a value themselves, as path elements, in the nodes' order."""
        path = Path.of(path)
        plan = Plan("enum", path.shard, first=self._caller.home(path.shard))
        served = await self._caller.call(plan, Fields(path).head("enum"))
        result: Any = served.reply.get("result")
        return [tuple(name) if isinstance(name, list) else name for name in result or []]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def conflicts(self, path: PathLike = ":") -> Conflicts:
        """The recent conflicts at and below a path that the live nodes have found: `await`, or `async for`."""
        return Conflicts(self._caller, Path.of(path))

    # -- writing -----------------------------------------------------------------------------

    async def put(
        self,
        path: PathLike,
        value: object,
        *,
        if_version: Version | Unset | None = UNSET,
        if_new: bool = False,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
        copies: int = 0,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Written:
        """Writes a value.

        `if_version`, `if_new`, `if_value`: only if the entry, perhaps a deleted one, has this version still, if there
        is no value, if the value is this one. `write_id`: by which nodes know the write again, a text, 16 bytes or a
        :class:`~distkv_client.writes.WriteId`. `copies`: so many other nodes have it when this returns.
        `idempotent`: the same value again is no change, and a success whatever the other conditions say. `timeout`:
        seconds for all tries; without any left, nothing is sent.

        Raises :class:`~distkv_client.errors.PreconditionError`, if a precondition did not hold: if its `fate` is not
        `NOT_DONE`, perhaps because of an earlier try; :class:`~distkv_client.errors.FateUnknownError`, if it may have
        been made.
        """
        options = WriteOptions(if_version, if_new, if_value, write_id, copies, idempotent)
        return await self._write(Path.of(path), encode_value(value), options, timeout)

    async def put_raw(
        self,
        path: PathLike,
        value: bytes,
        *,
        if_version: Version | Unset | None = UNSET,
        if_new: bool = False,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
        copies: int = 0,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Written:
        """Writes one MessagePack value, byte for byte; `if_value` is a value as `put` takes it.

        Raises :class:`~distkv_client.errors.BadValueError`, and sends nothing, if it is not exactly one.
        """
        options = WriteOptions(if_version, if_new, if_value, write_id, copies, idempotent)
        return await self._write(Path.of(path), one_value(value), options, timeout)

    async def delete(
        self,
        path: PathLike,
        *,
        if_version: Version | Unset | None = UNSET,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
        copies: int = 0,
        timeout: float | None = None,
    ) -> Written:
        """Deletes the entry at a path; entries below it stay."""
        options = WriteOptions(if_version, False, if_value, write_id, copies)
        return await self._write(Path.of(path), None, options, timeout)

    async def _write(self, path: Path, value: bytes | None, options: WriteOptions, timeout: float | None) -> Written:
        with self._caller.write_places.begin() as turn:
            return await self._write_as(turn, path, value, options, timeout)

    async def _write_as(
        self, turn: Turn, path: Path, value: bytes | None, options: WriteOptions, timeout: float | None
    ) -> Written:
        caller = self._caller
        write_id = options.id(turn if self.config.write_ids else None)
        fields = Fields(path)
        if value is not None:
            fields.raw("value", value)
        options.write_into(fields, write_id)
        caller.own_writes.order_into(fields, path if value is None or options.idempotent else None)
        action = "delete_value" if value is None else "set_value"
        first = caller.apart.of(path) if options.has_condition else None
        plan = Plan(action, path.shard, options.idempotency(write_id), options.needs_id, first, deadline=timeout)

        async def once(connection: Connection, time: TryTime) -> Any:
            # The time in which it is sent is none in which the node waits.
            left = min(self.config.retry.try_deadline, time.end - caller.loop.time())
            return await connection.request(options.copies_into(fields, left).head(action), *time)

        served = await caller.call(plan, fields.head(action), once if options.copies else None)
        written = written_of(served.reply, served.life[0], served.attempts, served.maybe_twice)
        return caller.note_write(path, written, served.life)

    async def delete_tree(self, path: PathLike, *, again_if_unknown: bool = False) -> int:
        """Deletes all values at and below a path, as the node that is asked has them; returns how many.

        `again_if_unknown`: retry also if it is unknown whether all of it was done; entries that others wrote
        between two tries are deleted as well.

        Raises :class:`~distkv_client.errors.RefusedError` with the fate `UNKNOWN`, if a part of it was deleted before
        the node refused the rest; :class:`~distkv_client.errors.FateUnknownError`, if a part may have been.
        """
        path = Path.of(path)
        idempotency = Idempotency.GUARDED if bool_of(again_if_unknown, "again_if_unknown") else Idempotency.UNGUARDED
        # As many entries as there are take as long as that takes.
        retry = self.config.retry
        plan = Plan("delete_tree", path.shard, idempotency, try_deadline=retry.total_deadline)
        head = self._caller.own_writes.order_into(Fields(path)).head("delete_tree")
        served = await self._caller.call(plan, b"", long_once(head, retry.try_deadline))
        self._caller.own_writes.on_home(path.shard, served.life)
        changed: Any = served.reply.get("changed")
        return changed if isinstance(changed, int) else 0

    def batch(self) -> Batch:
        """Many reads and writes in one request: add operations, then `await` it."""
        return Batch(self._caller)

    # -- watching ----------------------------------------------------------------------------

    def watch(
        self,
        path: PathLike,
        *,
        fetch: bool = True,
        min_depth: int | None = None,
        max_depth: int | None = None,
    ) -> Watch:
        """Watches a path and everything below it: `async with` it, then `async for` over it.

        `fetch`: the state comes first, then :class:`~distkv_client.watch.UpToDate`, then changes. Of what changes while
        it is not read, only the latest version of each path may come.
        """
        path = Path.of(path)
        return Watch(self._caller, path, fetch=fetch, min_depth=min_depth, max_depth=max_depth)

    async def send(self, topic: PathLike, data: object) -> None:
        """Sends a message to all that monitor its topic at present. It is not stored, and sent at most once."""
        topic = Path.of(topic)
        head = Fields().path("topic", topic).raw("data", encode_value(data)).head("msg_send")
        await self._caller.call(Plan("msg_send", topic.shard, Idempotency.UNGUARDED), head)

    def monitor(self, topic: PathLike) -> Monitor:
        """Delivers the messages of a topic as they arrive: `async with` it, then `async for` over it."""
        return Monitor(self._caller, Path.of(topic))

    # -- the cluster -------------------------------------------------------------------------

    def cluster_view(self) -> ClusterView:
        """Which nodes there are."""
        return self._topology.routing.view

    def on_topology_change(self, call: Callable[[TopologyChange], None]) -> Callable[[], None]:
        """Calls it for each change of the view or of preferred nodes, on the loop: it must be quick. Returns
        what takes it off again. What it raises is logged and stops nothing."""
        return self._topology.listen(call)

    def preferred(self, path: PathLike) -> str | None:
        """The name of the node that calls about this path go to first, if one is live."""
        target = self._topology.routing.preferred(Path.of(path).shard)
        return target.name if target is not None else None

    async def list_shards(self) -> list[ShardRow]:
        """The virtual shards with their overrides, as a node has them now."""
        if self._shards is None:
            raise UsageError("the client is not connected")
        return await self._shards.fetch()

    async def prefer_shard(self, shard: int, node: str | None) -> None:
        """Makes a node the preferred one of a shard for all clients; None: takes that back. For admins."""
        integer_of(shard, "a shard", 0, SHARD_COUNT - 1)
        path = Path("shards", shard)
        fields = self._caller.own_writes.order_into(Fields(path))
        if node is not None:
            fields.add("value", text_of(node, "a node's name"))
        action = "set_internal" if node is not None else "delete_internal"
        plan = Plan(action, shard, Idempotency.GUARDED, True)
        with self._caller.write_places.begin() as turn:
            served = await self._caller.call(plan, fields.raw("wid", b"\xc4\x10" + turn.id()).head(action))
        self._caller.own_writes.on_home(TABLE, served.life)
        if self._shards is not None:
            await self._shards.refresh()

    async def refresh_shards(self) -> None:
        """Fetches the table of overrides again, which happens by itself now and then."""
        self._caller.check_loop()
        self._caller.check_open()
        if self._shards is not None:
            await self._shards.refresh()

    def stats(self) -> ClientStats:
        """Counters; each part is of this moment."""
        self._pool.fill_stats()
        self._topology.fill_stats()
        routing, router = self._topology.routing, self._stats.router
        names = [routing.router.preferred_name(shard) for shard in range(SHARD_COUNT)]
        router.shards = {name: names.count(name) for name in set(names) if name is not None}
        return self._stats

    async def request(
        self,
        action: str,
        *,
        path: PathLike | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        **fields: object,
    ) -> dict[str, Any]:
        """Any other request with one reply, which is returned as it comes. `idempotent`: it may be retried, since a
        second one does no harm. Actions that are answered with a stream are a
        :class:`~distkv_client.errors.UsageError`."""
        return await request(self._caller, action, path, idempotent, timeout, fields)
