"""Whose answer a read takes: of the node of the own last write, of any node, of a majority."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from .call import Caller, Failed, Plan
from .codec import field_of
from .config import Address, ReadMode
from .errors import Fate, NoMajorityError, TryError, UsageError
from .model import Entry, entry_of, tock_of
from .outcome import check_time, final_error
from .path import Path
from .retry import ErrorClass, GiveUp, Idempotency, class_of
from .view import Target

LOOK_AGAIN = 0.02
"""Seconds until a read looks for a write of its own again, once all nodes were asked."""


class Reader:
    """Reads in a mode."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def message(self, path: Path, mode: ReadMode, with_chain: bool, deadline: float | None) -> tuple[Any, str]:
        """A node's answer, and its name."""
        if mode is ReadMode.PREFERRED:
            return await self._preferred(path, with_chain, deadline)
        if mode is ReadMode.ANY:
            plan = Plan("get_value", path.shard, first=self._any_live(), deadline=deadline)
            served = await self._caller.call(plan, path.get_head_chain if with_chain else path.get_head)
            return served.reply, served.connection.name
        return await self._freshest(path, deadline)

    async def retry(self, path: Path, failed: Failed) -> tuple[Any, str]:
        """The rest of a read whose first try has failed."""
        caller = self._caller
        plan = Plan("get_value", path.shard, first=caller.home(path.shard), failed=failed)
        served = await caller.call(plan, path.get_head)
        return served.reply, served.connection.name

    async def raw(self, path: Path, deadline: float | None) -> bytes | None:
        """The bytes of the value; none without one. As `preferred`, of the node of the own last write."""
        plan = Plan("get_value", path.shard, first=self._caller.home(path.shard), deadline=deadline)
        served = await self._caller.call(plan, path.get_head, raw=True)
        return field_of(served.reply, "value")

    async def entry(self, path: Path, mode: ReadMode, deadline: float | None) -> Entry | None:
        """The entry; none if there never was one, or it was deleted and purged."""
        message, node = await self.message(path, mode, True, deadline)
        entry = entry_of(message, node)
        return None if entry.deleted and entry.version is None else entry

    async def _preferred(self, path: Path, with_chain: bool, deadline: float | None) -> tuple[Any, str]:
        """A version older than an own write is not taken while there is hope for a newer one."""
        caller = self._caller
        own = caller.own_writes
        if path not in own.tocks:
            plan = Plan("get_value", path.shard, first=caller.home(path.shard), deadline=deadline)
            served = await caller.call(plan, path.get_head_chain if with_chain else path.get_head)
            return served.reply, served.connection.name
        started = caller.loop.time()
        stale: list[Address] = []
        while True:
            first = caller.home(path.shard)
            plan = Plan("get_value", path.shard, first=first, last=stale, deadline=deadline)
            served = await caller.call(plan, path.get_head_chain)
            message = served.reply
            is_there = "value" in message or message.get("chain") is not None
            if own.is_enough(path, tock_of(message) if is_there else None, served.life):
                return message, served.connection.name
            caller.stats.reads.stale_answers += 1
            if caller.loop.time() - started >= caller.config.own_write_patience:
                caller.stats.reads.stale_taken += 1
                own.give_up(path)
                return message, served.connection.name
            if served.address in stale:
                # All nodes were asked.
                stale.clear()
                await asyncio.sleep(LOOK_AGAIN)
            stale.append(served.address)

    def _any_live(self) -> Target | None:
        live = [target for target in self._caller.topology.routing.targets if target.is_live]
        return random.choice(live) if live else None

    async def _freshest(self, path: Path, deadline: float | None) -> tuple[Any, str]:
        """Asks all live nodes until a majority of those in the view has answered."""
        caller = self._caller
        caller.check_loop()
        policy = caller.policy_of(deadline)
        total = policy.total_deadline
        started = caller.loop.time()
        newest: tuple[Any, str] | None = None
        answered: set[str] = set()
        attempt = 0
        caller.stats.retry.calls += 1
        while True:
            attempt += 1
            routing = caller.topology.routing
            if routing.view.source is None:
                raise UsageError(
                    "the nodes cannot tell which nodes there are, so none knows what a majority of them is; read "
                    "mode 'freshest' needs that"
                )
            caller.check_open(attempt)
            counted = {node.name for node in routing.view.nodes if node.counts}
            needed = len(counted) // 2 + 1
            answered &= {node.name for node in routing.view.nodes}
            asked = [t for t in routing.targets if t.name in counted and t.name not in answered]
            end = min(caller.loop.time() + policy.try_deadline, started + total)
            refusal: tuple[str, TryError] | None = None
            tasks = {caller.loop.create_task(self._ask(target, path, end)) for target in asked}
            try:
                # More are waited for only if this client knows that there is something newer.
                while tasks and (len(answered) < needed or self._is_behind(path, newest)):
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        name, message = task.result()
                        caller.stats.router.to_others += 1
                        if isinstance(message, TryError):
                            kind = class_of(message)
                            caller.count_failure(kind)
                            if kind is ErrorClass.FINAL:
                                refusal = refusal or (name, message)
                        else:
                            answered.add(name)
                            newest = _newer(newest, (message, name))
            finally:
                for task in tasks:
                    task.cancel()
                if tasks:
                    await asyncio.wait(tasks)
            if newest is not None and len(answered) >= needed:
                return newest
            if refusal is not None:
                # No other try would find a majority that allows it.
                name, error = refusal
                raise final_error(error, Fate.NOT_DONE, name, attempt)
            elapsed = caller.loop.time() - started
            decision = policy.decide(ErrorClass.UNAVAILABLE, attempt, elapsed, Idempotency.READ, random.random())
            if not isinstance(decision, GiveUp):
                await asyncio.sleep(decision.delay)
            if isinstance(decision, GiveUp) or caller.loop.time() - started >= total:
                caller.stats.retry.deadlines += 1
                raise NoMajorityError(len(answered), needed, len(counted), attempt)

    def _is_behind(self, path: Path, newest: tuple[Any, str] | None) -> bool:
        """Whether an answer is older than what this client wrote."""
        if newest is None:
            return False
        message, name = newest
        is_there = "value" in message or message.get("chain") is not None
        tock = tock_of(message) if is_there else None
        return not self._caller.own_writes.is_enough(path, tock, (name, None))

    async def _ask(self, target: Target, path: Path, end: float) -> tuple[str, Any]:
        """One node's answer, or how it has failed."""
        caller = self._caller
        try:
            connection = await caller.pool.get(target.address, end)
            check_time(caller.loop.time(), end, target.name)
            return target.name, await connection.request(path.get_head_chain, end)
        except TryError as error:
            return target.name, error


def _newer(known: tuple[Any, str] | None, other: tuple[Any, str]) -> tuple[Any, str]:
    """The newer of two nodes' answers. Nothing at all is older than anything."""
    if known is None:
        return other
    one, two = entry_of(*known).version, entry_of(*other).version
    if two is not None and (one is None or one < two):
        return other
    return known
