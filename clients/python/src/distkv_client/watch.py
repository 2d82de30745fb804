"""Watches that continue at another node when theirs is lost, without a gap or a repetition.

For each path, versions come in order, and none is delivered twice: a watch remembers what it has delivered.
At the next node it gets the whole state, delivers what is newer, and asks about paths that are not shown. If it
cannot tell what is missing, it starts over and says so (:class:`Restarted`). Versions that were superseded
while the watch was away, or was not read while its node could send no more, are not delivered, nor deletions in
between: only the latest of each path.

What takes several awaits is kept in tasks of the watch's own, so cancelling a wait loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from .call import Caller
from .checks import bool_of
from .codec import Fields
from .convert import convert
from .errors import DistKVError, ProtocolError, ServerError, TryError
from .feed import Search
from .memory import Look, Memory
from .model import Entry, Version, entry_of
from .path import Path
from .pool import closed_error
from .retry import ErrorClass, class_of
from .settle import Doubt, Settled, settle
from .stream import Item
from .subscription import Subscription

DOUBTS_MAX = 4096
"""Most paths of which a watch asks what became of them; with more, it starts over."""
LOOK_INTERVAL = 0.05
"""Seconds between two questions about late versions."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """An entry was created, changed, or deleted."""

    path: Path
    value: Any
    """Its value; None also if it was deleted: see `deleted`."""
    deleted: bool = False
    version: Version | None = None
    """None for a deletion that was found later, of which nothing else is known."""
    tock: int = 0

    def get(self, as_type: type[T]) -> T:
        """The value as a type of yours. Raises :class:`~distkv_client.errors.BadValueError`."""
        return convert(self.value, as_type)


@dataclass(frozen=True, slots=True)
class UpToDate:
    """All that was there has come; what follows is what changes."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Its node was lost, and it continues at another one where it was."""

    node: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """It could not continue where it was. Discard what it reported: the whole present state follows."""


WatchEvent = Union[Change, UpToDate, Resumed, Restarted]
"""What a watch reports."""


class Watch(Subscription[WatchEvent]):
    """A watch: `async with` it and `async for` over it. Begins with the first of both. It has one reader."""

    def __init__(
        self,
        caller: Caller,
        path: Path,
        *,
        fetch: bool = True,
        min_depth: int | None = None,
        max_depth: int | None = None,
    ) -> None:
        fields = Fields(path).add("fetch", True).add("nchain", 1).depths(min_depth, max_depth)
        self.path = path
        config = caller.config
        self._memory = Memory(config.watch_paths_max, config.watch_bytes_max)
        self._events: deque[WatchEvent] = deque()
        """What one message, or one answer about doubts, has brought: a bounded number."""
        self._is_fetching = True
        self._owes_state = True
        """The state has not arrived completely yet: `UpToDate` must follow."""
        self._is_silent = not bool_of(fetch, "fetch")
        """The state is not reported, since it was not requested."""
        self._older: dict[Path, None] = {}
        """Paths that this node shows older than they were delivered, each once, in this order."""
        self._doubts: list[Doubt] = []
        self._doubts_until = 0.0
        self._was_live = False
        super().__init__("watch", caller, Search(caller, "watch", path.shard, fields.head("watch")))

    async def _next(self) -> WatchEvent:
        while not self._events:
            if self._ended is not None:
                raise self._ended
            await self._advance()
        return self._events.popleft()

    # -- its steps ---------------------------------------------------------------------------

    async def _advance(self) -> None:
        """One step. The state changes only after the await, so cancelling loses nothing."""
        self._caller.check_loop()
        if self._opened is None or self._doubts:
            if self._work is None:
                work = self._settle(LOOK_INTERVAL) if self._doubts else self._search.again()
                self._work = self._caller.loop.create_task(work, name="distkv_client: watch")
            await asyncio.wait({self._work})
            work_done, self._work = self._work, None
            if self._ended is not None or work_done is None:  # pyright: ignore[reportUnnecessaryComparison]
                return
            if self._opened is None:
                self._on_found(work_done)
            else:
                self._on_settled(work_done)
            return
        try:
            item = await self._opened.stream.next()
        except TryError as error:
            if self._ended is None:
                self._on_error(error)
            return
        try:
            self._on_item(item)
        except ProtocolError:
            # It does not keep to the protocol.
            self._on_lost()

    def _on_found(self, work: asyncio.Task[Any]) -> None:
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            self._ended = error if isinstance(error, DistKVError) else closed_error()
            return
        self._opened = work.result()
        self._memory.begin_feed()
        self._older.clear()
        self._is_fetching = True

    def _on_error(self, error: TryError) -> None:
        """The stream has failed."""
        is_final = class_of(error) is ErrorClass.FINAL and isinstance(error, ServerError)
        if is_final and self._caller.is_open:
            self._ended = self._search.refusal(error, self.node or "")
            self._close_stream()
        else:
            self._on_lost()

    def _on_item(self, item: Item | None) -> None:
        if item is None:
            self._on_lost()
        elif item.path is not None:
            self._on_version(item.path, item)
        elif item.state == "uptodate" and self._is_fetching:
            self._on_state_has_come()

    def _on_version(self, below: Path, item: Item) -> None:
        path = self.path.join(*below.elements) if len(self.path) else below
        entry = entry_of(item.message, self.node or "")
        look = self._memory.look(path, entry, self._is_fetching and not self._owes_state)
        if look is Look.NEW:
            self._deliver(path, entry)
            if self._is_fetching and self._memory.has_lost_earlier:
                self._start_over()
        elif look is Look.KNOWN:
            self._caller.stats.watches.repeats += 1
        elif look is Look.DOUBTFUL and self._is_fetching:
            self._start_over()
        elif look is Look.DOUBTFUL:
            # It may be only the past of what the node answered before.
            assert entry.version is not None
            self._begin_doubts([Doubt(path, entry.version, is_arriving=True)], was_live=True)
        elif self._is_fetching and len(self._older) <= DOUBTS_MAX:
            self._older[path] = None
        else:
            # Another node has told what was delivered, and this one has not heard of it yet, or it is lost.
            version = self._memory.version(path)
            if version is not None:
                self._begin_doubts([Doubt(path, version, is_arriving=False)], was_live=True)

    def _deliver(self, path: Path, entry: Entry) -> None:
        self._memory.on_delivered(path, entry)
        if not (self._is_fetching and self._is_silent):
            self._tell(path, entry)

    def _tell(self, path: Path, entry: Entry) -> None:
        self._events.append(Change(path, entry.value, entry.deleted, entry.version, entry.tock))

    def _on_state_has_come(self) -> None:
        """The state of a node has come whole."""
        paths: list[Path] = []
        for path in self._memory.not_seen():
            paths.append(path)
            if len(paths) > DOUBTS_MAX:
                break
        paths += self._older
        self._older = {}
        if len(paths) > DOUBTS_MAX:
            self._start_over()
            return
        versions = ((path, self._memory.version(path)) for path in paths)
        doubts = [Doubt(path, version, is_arriving=False) for path, version in versions if version is not None]
        if doubts:
            self._begin_doubts(doubts, was_live=False)
        else:
            self._go_live()

    def _begin_doubts(self, doubts: list[Doubt], *, was_live: bool) -> None:
        caller = self._caller
        self._doubts, self._was_live = doubts, was_live
        self._doubts_until = caller.loop.time() + caller.config.watch_patience
        self._work = caller.loop.create_task(self._settle(0.0), name="distkv_client: watch")

    async def _settle(self, delay: float) -> list[tuple[Settled, Entry]]:
        assert self._opened is not None
        await asyncio.sleep(delay)
        return await settle(self._opened.connection, self._doubts, self._caller.config.retry.try_deadline)

    def _on_settled(self, work: asyncio.Task[Any]) -> None:
        doubts, self._doubts = self._doubts, []
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or error is not None:
            if isinstance(error, ServerError):
                # It cannot answer: that is no reason to leave it.
                self._start_over()
            elif error is None or isinstance(error, TryError):
                self._on_lost()
            else:
                raise error
            return
        behind: list[Doubt] = []
        for doubt, (settled, entry) in zip(doubts, work.result(), strict=True):
            if settled is Settled.BEHIND:
                behind.append(doubt)
            elif doubt.is_arriving:
                self._on_settled_arriving(doubt, settled, entry)
            else:
                self._on_settled_delivered(doubt, settled, entry)
        if not behind:
            if self._was_live:
                return
            self._go_live()
        elif self._caller.loop.time() < self._doubts_until:
            self._doubts = behind
        else:
            self._start_over()

    def _on_settled_delivered(self, doubt: Doubt, settled: Settled, entry: Entry) -> None:
        """What became of a version that was delivered."""
        if settled is Settled.SAME:
            self._memory.on_same(doubt.path)
        elif settled is Settled.NEWER:
            self._memory.on_delivered(doubt.path, entry, by_answer=True)
            if not self._is_silent:
                self._tell(doubt.path, entry)
        elif self._memory.on_gone(doubt.path, doubt.version, entry.tock) and not self._is_silent:
            self._events.append(Change(doubt.path, None, True, None, entry.tock))

    def _on_settled_arriving(self, doubt: Doubt, settled: Settled, entry: Entry) -> None:
        """Whether a version that has arrived is still there. Only while live."""
        if settled is Settled.GONE:
            self._memory.on_gone(doubt.path, doubt.version, entry.tock)
            return
        self._memory.on_delivered(doubt.path, entry, by_answer=True)
        if not entry.deleted:
            # It was told before that there is nothing.
            self._tell(doubt.path, entry)

    def _go_live(self) -> None:
        self._is_silent = False
        self._is_fetching = False
        if self._owes_state:
            self._owes_state = False
            self._events.append(UpToDate())
        else:
            self._caller.stats.watches.resumed += 1
            self._events.append(Resumed(self.node or ""))

    def _on_lost(self) -> None:
        """The stream has ended."""
        if not self._caller.is_open:
            # Nothing goes on, nor anew.
            self._ended = self._ended or closed_error()
            self._close_stream()
            return
        self._caller.stats.watches.lost += 1
        if self._opened is not None:
            self._search.on_lost(self._opened.address)
        self._close_stream()
        if self._is_silent or not self._memory.is_whole:
            # What changed since the watch began cannot be told from what was there before a state that is not whole.
            self._start_over()

    def _start_over(self) -> None:
        """What was reported does not count any more."""
        self._caller.stats.watches.restarted += 1
        self._close_stream()
        self._memory.clear()
        self._older = {}
        self._doubts = []
        self._owes_state, self._is_silent = True, False
        self._events.append(Restarted())
