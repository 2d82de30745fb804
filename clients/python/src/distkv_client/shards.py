"""The table of virtual shards that nodes export: which shards have a preferred node of their own.

It is fetched again when it is older than the configuration says, by one task, with a growing pause where that
fails; until a new one is here, the old one counts.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any
from weakref import ref

from .call import Caller, Plan
from .codec import Fields
from .errors import DistKVError
from .observer import log
from .pool import closed_error
from .retry import backoff
from .shard import SHARD_COUNT

BACKOFF_FIRST, BACKOFF_MAX = 1.0, 30.0
"""Seconds until a fetch that failed is repeated."""
PAGES_MAX = SHARD_COUNT
"""Most pages of a table; each has at least one row."""
TABLE = SHARD_COUNT
"""Stands for the table among the shards whose last own write is remembered."""


@dataclass(frozen=True, slots=True)
class ShardRow:
    """A run of adjacent shards with the same preferred node, as a range of a 128-bit space."""

    id: int
    """Changes as soon as anything in the row changes."""
    start: int
    end: int
    """Inclusive."""
    first: int
    last: int
    """The shards' numbers, inclusive."""
    prefer: str | None
    """The node that an override names."""


class ShardTable:
    """See the module. Its task does not keep the client: it ends with it."""

    def __init__(self, caller: Caller, age: float) -> None:
        self._caller = ref(caller)
        self._age = age
        self._wanted = asyncio.Event()
        self._fetched: asyncio.Future[None] = caller.loop.create_future()
        """Is done when the next fetch that begins has ended."""
        self._under_way: asyncio.Future[None] | None = None
        """Is done when the fetch that has begun has ended."""
        self._loop = caller.loop
        self._stats = caller.stats
        self._topology = caller.topology
        self._task = caller.loop.create_task(self._keep(), name="distkv_client: shards")

    async def fetch(self) -> list[ShardRow]:
        """The table of now, from a node, page by page."""
        caller = self._caller()
        if caller is None:
            raise closed_error()
        rows: list[ShardRow] = []
        after: bytes | None = None
        # The node that took an override has it first.
        home = caller.home(TABLE)
        for _ in range(PAGES_MAX):
            fields = Fields().add("limit", SHARD_COUNT)
            if after is not None:
                fields.add("after", after)
            served = await caller.call(Plan("list_shards", 0, first=home, is_own=True), fields.head("list_shards"))
            rows += [row for row in map(_row_of, served.reply.get("result") or []) if row is not None]
            after = served.reply.get("next")
            if not isinstance(after, bytes):
                break
        return rows

    async def refresh(self) -> None:
        """Fetches it again, and waits until it is here, or the fetch has failed: a fetch that was under way already
        may be too old."""
        fetched = self._fetched
        self._wanted.set()
        await asyncio.wait({fetched})

    async def close(self) -> None:
        """Ends the task."""
        self._task.cancel()
        await asyncio.wait({self._task})
        for fetched in (self._fetched, self._under_way):
            if fetched is not None and not fetched.done():
                fetched.set_result(None)

    async def _keep(self) -> None:
        stats = self._stats.shards
        failures = 0
        while True:
            self._wanted.clear()
            fetched, self._fetched = self._fetched, self._loop.create_future()
            self._under_way = fetched
            stats.fetches += 1
            try:
                rows = await self.fetch()
                failures = 0
                stats.rows = len(rows)
                self._take(rows)
                pause = self._age
            except DistKVError as error:
                # Nodes without such a table have no overrides either.
                failures += 1
                stats.failures += 1
                pause = backoff(BACKOFF_FIRST, 2, BACKOFF_MAX, failures, random.random())
                # A node's own words are not for logs.
                log.debug("the table of shards could not be fetched: %s (at %s)", error.code, error.node)
            fetched.set_result(None)
            try:
                async with asyncio.timeout(pause):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _take(self, rows: list[ShardRow]) -> None:
        overrides: dict[int, str] = {}
        for row in rows:
            if row.prefer is not None:
                last = min(row.last, SHARD_COUNT - 1)
                overrides.update(dict.fromkeys(range(max(row.first, 0), last + 1), row.prefer))
        self._stats.router.overrides = len(overrides)
        self._topology.prefer(overrides)


def _row_of(told: Any) -> ShardRow | None:
    if not isinstance(told, dict):
        return None
    fields: dict[str, Any] = told  # pyright: ignore[reportUnknownVariableType]
    numbers = [fields.get(name) for name in ("id", "first", "last")]
    places = [fields.get(name) for name in ("start", "end")]
    if not all(isinstance(n, int) for n in numbers) or not all(isinstance(p, bytes) for p in places):
        return None
    start, end = (int.from_bytes(place or b"", "big") for place in places)
    prefer = fields.get("prefer")
    row_id, first, last = (int(number or 0) for number in numbers)
    return ShardRow(row_id, start, end, first, last, prefer if isinstance(prefer, str) else None)
