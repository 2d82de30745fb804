"""Trees: all entries at and below a path, whole or one by one; and the conflicts that nodes have found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from typing import Any

from .call import Caller, Plan
from .checks import bool_of
from .codec import Fields
from .connection import Connection
from .errors import DistKVError, Fate, ProtocolError, TimedOutError, TryError, UnavailableError, UsageError
from .held import Tries, held, observed
from .line import LONGEST_ARRIVAL
from .model import Conflict, TreeEntry, entry_of
from .outcome import final_error, no_access
from .path import Path
from .pool import closed_error
from .refusals import Refusals
from .retry import ErrorClass, class_of
from .stream import Stream
from .try_time import TryTime
from .view import Target

TREE_ENTRIES_MAX = 1 << 20
"""Most entries of a list; a greater tree is an error. Part by part, or by `async for`, it can still be read."""


class Tree:
    """`await` it for a list, or `async for` over it for entry after entry; parents first, in the order of paths.

    As one node has them at one moment, whatever the read mode is: this client's own latest writes may be missing.
    The first entry must come within the time of a call, or the timeout, and each further one within the time of a
    try. While they do, a tree takes as long as it takes, but for a list with a timeout, which must be whole by
    then. Within that time, a list is retried as a whole, and iteration before its first entry.
    """

    def __init__(
        self,
        caller: Caller,
        path: Path,
        min_depth: int | None,
        max_depth: int | None,
        versions: bool,
        timeout: float | None,
    ) -> None:
        self.path = path
        self._caller = caller
        self._timeout = timeout
        fields = Fields(path).depths(min_depth, max_depth)
        if bool_of(versions, "versions"):
            fields.add("nchain", 1)
        self._head = fields.head("get_tree")

    def _plan(self) -> Plan:
        shard = self.path.shard
        return Plan(
            "get_tree",
            shard,
            first=self._caller.home(shard),
            try_deadline=float("inf"),
            deadline=self._timeout,
            goes_on=self._timeout is None,
            is_stream=True,
        )

    def __await__(self) -> Generator[Any, None, list[TreeEntry]]:
        return self._collect().__await__()

    async def _collect(self) -> list[TreeEntry]:
        async def once(connection: Connection, time: TryTime) -> list[TreeEntry] | None:
            stream, entry = await self._begin(connection, time)
            try:
                found: list[TreeEntry] = []
                while entry is not None:
                    if len(found) >= TREE_ENTRIES_MAX:
                        # Another try would find as many.
                        return None
                    found.append(entry)
                    entry = await self._next(stream)
                return found
            finally:
                stream.close()

        served = await self._caller.call(self._plan(), b"", once)
        if served.reply is None:
            raise UsageError(
                f"there are more than {TREE_ENTRIES_MAX} entries, too many for a list: list the paths below it one by "
                "one, or iterate with `async for`, which only the asyncio client has"
            )
        entries: list[TreeEntry] = served.reply
        return entries

    async def _begin(self, connection: Connection, time: TryTime) -> tuple[Stream, TreeEntry | None]:
        """Begins it, and waits for its first entry."""
        stream = await connection.stream(self._head, *_soon(self._caller, time.end, connection.line.delay))
        try:
            return stream, await self._next(stream, time.end)
        except BaseException:
            stream.close()
            raise

    async def _next(self, stream: Stream, end: float = float("inf")) -> TreeEntry | None:
        """The next entry."""
        while True:
            item = await stream.next(*_soon(self._caller, end))
            if item is None:
                return None
            if item.path is None or item.state is not None:
                continue
            path = self.path.join(*item.path.elements) if len(self.path) else item.path
            entry = entry_of(item.message, stream.connection.name)
            return TreeEntry(path, entry.value, entry.version, entry.tock)

    async def __aiter__(self) -> AsyncIterator[TreeEntry]:
        caller = self._caller
        with held(caller):
            served = await caller.call(self._plan(), b"", self._begin)
            reply: tuple[Stream, TreeEntry | None] = served.reply
            stream, entry = reply
            try:
                while entry is not None:
                    yield entry
                    entry = await self._next(stream)
            except TryError as error:
                caller.check_open(served.attempts)
                raise final_error(error, Fate.NOT_DONE, served.life[0], served.attempts) from error
            finally:
                stream.close()


def _soon(caller: Caller, end: float = float("inf"), delay: float = 0.0) -> tuple[float, float]:
    """Until when a message is waited for from now on: for the time of a try; and until when while one is arriving. Both
    no longer than to the end. `delay`: as long as the request for it may take to get to the node."""
    soon = caller.loop.time() + caller.config.retry.try_deadline + delay
    return min(end, soon), min(end, soon + LONGEST_ARRIVAL)


@dataclass(slots=True)
class ConflictsFound:
    """Conflicts, and the nodes that reported them."""

    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    """Each once, however many nodes found it; of one node in the order in which it found them."""
    nodes: list[str] = field(default_factory=list[str])
    """The nodes that answered."""
    missing: dict[str, str] = field(default_factory=dict[str, str])
    """Live nodes that did not, and why: they may have found others."""


class Conflicts:
    """`await` it for :class:`ConflictsFound`, or `async for` over it for conflicts as they come."""

    def __init__(self, caller: Caller, path: Path) -> None:
        self.path = path
        self._caller = caller
        self._head = Fields(path).add("nchain", 1).head("conflicts")

    def __await__(self) -> Generator[Any, None, ConflictsFound]:
        return self._collect().__await__()

    async def _collect(self) -> ConflictsFound:
        with observed(self._caller, "conflicts") as tries:
            return await self._of_all(tries)

    async def _of_all(self, tries: Tries) -> ConflictsFound:
        caller = self._caller
        caller.check_open()
        live = [target for target in caller.topology.routing.targets if target.is_live]
        total = caller.policy_of(None).total_deadline
        answers = await asyncio.gather(*(self._within(target, total, tries) for target in live))
        found = ConflictsFound()
        known: set[object] = set()
        failed: list[tuple[Target, TryError]] = []
        for target, answer in zip(live, answers, strict=True):
            if isinstance(answer, TryError):
                found.missing[target.name] = str(answer)
                failed.append((target, answer))
                continue
            found.nodes.append(target.name)
            for conflict in answer:
                if conflict.key not in known:
                    known.add(conflict.key)
                    found.conflicts.append(conflict)
        if not found.nodes:
            raise self._nobody(failed)
        return found

    def _nobody(self, failed: list[tuple[Target, TryError]]) -> DistKVError:
        """The error where no node has listed its conflicts: a node's refusal, if it is final."""
        if not self._caller.is_open:
            return closed_error(1 if failed else 0)
        refusals = Refusals()
        for target, error in failed:
            refusals.note(target, error)
            if class_of(error) is ErrorClass.FINAL:
                return final_error(error, Fate.NOT_DONE, target.name, 1)
        refused = refusals.verdict(target for target in self._caller.topology.routing.targets if target.is_live)
        if refused is not None:
            return no_access(refused[1], Fate.NOT_DONE, refused[0], 1)
        why = "; ".join(f"{target.name}: {error}" for target, error in failed)
        return UnavailableError(f"no node listed its conflicts: {why or 'none is live'}", attempts=1 if failed else 0)

    async def _within(self, target: Target, total: float, tries: Tries) -> list[Conflict] | TryError:
        try:
            async with asyncio.timeout(total):
                return [conflict async for conflict in self._of(target, tries)]
        except TimeoutError:
            late = TimedOutError(f"no whole list from {target.name} within {total} s")
            tries.on_failed(target.name, late)
            return late
        except TryError as error:
            tries.on_failed(target.name, error)
            return error

    async def _of(self, target: Target, tries: Tries) -> AsyncIterator[Conflict]:
        """What one node lists: a bounded number."""
        tries.on_try(target.name)
        caller = self._caller
        patience = caller.config.retry.try_deadline
        end = caller.loop.time() + patience
        connection = await caller.pool.get(target.address, end, target.expected, for_stream=True)
        asked = caller.loop.time()
        try:
            stream = await connection.stream(self._head, *_soon(caller, delay=connection.line.delay))
        except TimedOutError:
            caller.pool.on_timeout(target.address, connection, asked)
            raise
        try:
            while (item := await stream.next(*_soon(caller))) is not None:
                both: Any = item.message.get("conflict")
                if item.path is None or item.state is not None:
                    continue
                if not isinstance(both, dict):
                    raise ProtocolError("a conflict is none")
                winner, loser = (
                    entry_of(both.get(name) or {}, target.name)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
                    for name in ("winner", "loser")
                )
                path = self.path.join(*item.path.elements) if len(self.path) else item.path
                yield Conflict(path, winner, loser, target.name)
        finally:
            stream.close()

    async def __aiter__(self) -> AsyncIterator[Conflict]:
        caller = self._caller
        with observed(caller, "conflicts") as tries:
            caller.check_open()
            # Without any time, nobody is asked.
            caller.policy_of(None)
            known: set[object] = set()
            failed: list[tuple[Target, TryError]] = []
            answered = False
            for target in [target for target in caller.topology.routing.targets if target.is_live]:
                try:
                    async for conflict in self._of(target, tries):
                        if conflict.key not in known:
                            known.add(conflict.key)
                            yield conflict
                    answered = True
                except TryError as error:
                    tries.on_failed(target.name, error)
                    caller.check_open(1)
                    failed.append((target, error))
            if not answered:
                raise self._nobody(failed)
