"""The same client for programs without an event loop: a loop in a thread of its own carries the calls out.

Threads may share a client. It is slower than the asyncio client, whose calls need not change threads.

>>> from distkv_client import sync
>>> with sync.Client(SEED) as client:
...     _ = client.put("sync.n", 1)
...     client.get("sync.n", int)
1
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar, overload

from . import client as _async
from .abandoned import NOT_CLOSED
from .batch import Batch, BatchReply, Operations
from .checks import callable_of
from .config import Config, ReadMode
from .copies import Uncopied
from .errors import ClosedError, UsageError
from .events import Events
from .loop_thread import LoopThread
from .model import UNSET, Entry, TreeEntry, Unset, Version, Written
from .monitor import Monitor as _Monitor
from .monitor import MonitorEvent
from .path import PathLike
from .shards import ShardRow
from .stats import ClientStats
from .tree import ConflictsFound
from .view import ClusterView, TopologyChange
from .watch import Watch as _Watch
from .watch import WatchEvent
from .writes import AUTO, WriteIdLike

T = TypeVar("T")
D = TypeVar("D")
R = TypeVar("R")


class SyncBatch(Operations):
    """Operations that are to be done in this order, at one node, by :meth:`run`."""

    def __init__(self, batch: Operations, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__(batch._caller)
        self._run = run

    def run(self, *, timeout: float | None = None) -> list[BatchReply]:
        """See :meth:`distkv_client.Batch.run`."""
        found: list[BatchReply] = self._run(self.carry_out(timeout))
        return found


class Client(Uncopied):
    """See the module. Connected when this returns; its methods are those of
    :class:`distkv_client.Client`, without `await`."""

    _instead = "threads share it; make another one in another process"

    def __init__(self, *seeds: str, config: Config | None = None) -> None:
        # Until it is connected.
        self._is_closed = True
        # Held while the thread ends. A signal handler may close the client while it is being closed.
        self._closing = threading.RLock()
        self._worker = LoopThread()

        async def connect() -> _async.Client:
            return await _async.Client.connect(*seeds, config=config)

        try:
            self._worker.start()
            self._client = self._run(connect())
            self._is_closed = False
        except BaseException:
            self._worker.end()
            raise

    def __del__(self) -> None:
        if self._is_closed or not self._worker.is_here:
            return
        warnings.warn(NOT_CLOSED, ResourceWarning, stacklevel=2, source=self)
        self._worker.abandon(self._client)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        # What has this has the client, which lives as long.
        return self._worker.run(work)

    @property
    def is_closed(self) -> bool:
        """See :attr:`distkv_client.Client.is_closed`."""
        return self._is_closed

    def close(self, *, grace: float = 1.0) -> None:
        """See :meth:`distkv_client.Client.close`. Interrupted, it can be called again."""
        if not self._worker.is_here:
            # The loop, and whoever held the locks, stayed behind. A program that ends gets here by a `__del__`.
            self._is_closed = True
            return
        self._worker.check_thread()
        if not self._is_closed:
            # Not behind a thread that waits for longer.
            try:
                self._run(self._client.close(grace=grace))
            except ClosedError:
                pass  # By another thread or a signal's handler, meanwhile.
        with self._closing:
            self._is_closed = True
            # Also where that was begun before, and interrupted.
            self._worker.end()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading -----------------------------------------------------------------------------

    @overload
    def get(self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None) -> Any: ...

    @overload
    def get(
        self,
        path: PathLike,
        as_type: type[T],
        *,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> T: ...

    @overload
    def get(
        self,
        path: PathLike,
        *,
        default: D,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> Any | D: ...

    @overload
    def get(
        self,
        path: PathLike,
        as_type: type[T],
        *,
        default: D,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> T | D: ...

    def get(
        self,
        path: PathLike,
        as_type: Any = UNSET,
        *,
        default: Any = UNSET,
        read: ReadMode | str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """See :meth:`distkv_client.Client.get`."""
        return self._run(self._client.get(path, as_type, default=default, read=read, timeout=timeout))

    def get_raw(self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None) -> bytes:
        """See :meth:`distkv_client.Client.get_raw`."""
        return self._run(self._client.get_raw(path, read=read, timeout=timeout))

    def entry(
        self, path: PathLike, *, read: ReadMode | str | None = None, timeout: float | None = None
    ) -> Entry | None:
        """See :meth:`distkv_client.Client.entry`."""
        return self._run(self._client.entry(path, read=read, timeout=timeout))

    def tree(
        self,
        path: PathLike,
        *,
        min_depth: int | None = None,
        max_depth: int | None = None,
        versions: bool = False,
        timeout: float | None = None,
    ) -> list[TreeEntry]:
        """See :meth:`distkv_client.Client.tree`."""

        async def work() -> list[TreeEntry]:
            return await self._client.tree(
                path, min_depth=min_depth, max_depth=max_depth, versions=versions, timeout=timeout
            )

        return self._run(work())

    def children(self, path: PathLike) -> list[Any]:
        """See :meth:`distkv_client.Client.children`."""
        return self._run(self._client.children(path))

    def conflicts(self, path: PathLike = ":") -> ConflictsFound:
        """See :meth:`distkv_client.Client.conflicts`."""

        async def work() -> ConflictsFound:
            return await self._client.conflicts(path)

        return self._run(work())

    # -- writing -----------------------------------------------------------------------------

    def put(
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
        """See :meth:`distkv_client.Client.put`."""
        work = self._client.put(
            path,
            value,
            if_version=if_version,
            if_new=if_new,
            if_value=if_value,
            write_id=write_id,
            copies=copies,
            idempotent=idempotent,
            timeout=timeout,
        )
        return self._run(work)

    def put_raw(
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
        """See :meth:`distkv_client.Client.put_raw`."""
        work = self._client.put_raw(
            path,
            value,
            if_version=if_version,
            if_new=if_new,
            if_value=if_value,
            write_id=write_id,
            copies=copies,
            idempotent=idempotent,
            timeout=timeout,
        )
        return self._run(work)

    def delete(
        self,
        path: PathLike,
        *,
        if_version: Version | Unset | None = UNSET,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
        copies: int = 0,
        timeout: float | None = None,
    ) -> Written:
        """See :meth:`distkv_client.Client.delete`."""
        work = self._client.delete(
            path, if_version=if_version, if_value=if_value, write_id=write_id, copies=copies, timeout=timeout
        )
        return self._run(work)

    def delete_tree(self, path: PathLike, *, again_if_unknown: bool = False) -> int:
        """See :meth:`distkv_client.Client.delete_tree`."""
        return self._run(self._client.delete_tree(path, again_if_unknown=again_if_unknown))

    @overload
    def batch(self) -> SyncBatch: ...

    @overload
    def batch(self, fill: Callable[[Batch], object], *, timeout: float | None = None) -> list[BatchReply]: ...

    def batch(
        self, fill: Callable[[Batch], object] | None = None, *, timeout: float | None = None
    ) -> SyncBatch | list[BatchReply]:
        """See :meth:`distkv_client.Client.batch`: `client.batch().put("a", 1).delete("b").run()`. Or `fill` adds the
        operations, and this carries them out."""
        batch = self._client.batch()
        if fill is None:
            if timeout is not None:
                raise UsageError("without `fill`, a timeout is for `run`: client.batch().put(…).run(timeout=…)")
            return SyncBatch(batch, self._run)
        callable_of(fill, "fill")(batch)
        return self._run(batch.run(timeout=timeout))

    # -- watching ----------------------------------------------------------------------------

    def watch(
        self,
        path: PathLike,
        *,
        fetch: bool = True,
        min_depth: int | None = None,
        max_depth: int | None = None,
    ) -> Events[WatchEvent]:
        """See :meth:`distkv_client.Client.watch`: `with` it, then `for` over it."""

        async def begin() -> _Watch:
            watch = self._client.watch(path, fetch=fetch, min_depth=min_depth, max_depth=max_depth)
            await watch.begin()
            return watch

        watch = self._run(begin())
        return Events(self._run, watch.next, watch.aclose)

    def send(self, topic: PathLike, data: object) -> None:
        """See :meth:`distkv_client.Client.send`."""
        self._run(self._client.send(topic, data))

    def monitor(self, topic: PathLike) -> Events[MonitorEvent]:
        """See :meth:`distkv_client.Client.monitor`: `with` it, then `for` over it."""

        async def begin() -> _Monitor:
            monitor = self._client.monitor(topic)
            await monitor.begin()
            return monitor

        monitor = self._run(begin())
        return Events(self._run, monitor.next, monitor.aclose)

    # -- the cluster -------------------------------------------------------------------------

    def cluster_view(self) -> ClusterView:
        """See :meth:`distkv_client.Client.cluster_view`."""
        return self._client.cluster_view()

    def on_topology_change(self, call: Callable[[TopologyChange], None]) -> Callable[[], None]:
        """See :meth:`distkv_client.Client.on_topology_change`. It is called in the client's thread."""
        return self._client.on_topology_change(call)

    def preferred(self, path: PathLike) -> str | None:
        """See :meth:`distkv_client.Client.preferred`."""
        return self._client.preferred(path)

    def list_shards(self) -> list[ShardRow]:
        """See :meth:`distkv_client.Client.list_shards`."""
        return self._run(self._client.list_shards())

    def prefer_shard(self, shard: int, node: str | None) -> None:
        """See :meth:`distkv_client.Client.prefer_shard`."""
        self._run(self._client.prefer_shard(shard, node))

    def refresh_shards(self) -> None:
        """See :meth:`distkv_client.Client.refresh_shards`."""
        self._run(self._client.refresh_shards())

    def stats(self) -> ClientStats:
        """See :meth:`distkv_client.Client.stats`."""
        return self._client.stats()

    def request(
        self,
        action: str,
        *,
        path: PathLike | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
        **fields: object,
    ) -> dict[str, Any]:
        """See :meth:`distkv_client.Client.request`."""
        work = self._client.request(action, path=path, idempotent=idempotent, timeout=timeout, **fields)
        return self._run(work)
