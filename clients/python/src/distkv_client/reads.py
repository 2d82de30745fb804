"""Whose answer a read takes: of the node of the own last write, of any node, of a majority."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from .call import Caller, Failed, Plan
from .checks import seconds_of
from .codec import Message, with_raw_value
from .config import Address, ReadMode
from .connection import Connection
from .errors import Fate, NoMajorityError, NotMetError, TimedOutError, TryError, UnavailableError, UsageError
from .held import Tries, observed
from .model import Entry, entry_of, tock_of
from .outcome import check_time, final_error, no_access
from .own_writes import Life, Sought
from .path import Path
from .refusals import Refusals
from .retry import ErrorClass, GiveUp, Idempotency, RetryPolicy, class_of
from .view import Target

LOOK_AGAIN = 0.02
"""Seconds until a read looks for a write of its own again, once all nodes were asked."""


class _Found:
    """What a read of a majority has found so far."""

    def __init__(self, sought: Sought) -> None:
        self.sought = sought
        self.counted: set[str] = set()
        """The nodes of which a majority must answer."""
        self.answered: set[str] = set()
        self.open: dict[asyncio.Task[tuple[Target, Life, Any]], tuple[str, int]] = {}
        """Questions without an answer, at most one to each node: the node, and the number of the round."""
        self.newest: tuple[Any, str] | None = None
        """The newest answer, and whose it is."""
        self.is_enough = False
        """An answer is as new as this client's own write."""
        self.refused: set[str] = set()
        """Those that will not answer, however often they are asked."""
        self.refusal: tuple[str, TryError] | None = None
        """The first final refusal of this round, and who said it."""
        self.refusals = Refusals()

    @property
    def needed(self) -> int:
        """How many nodes must answer."""
        return len(self.counted) // 2 + 1

    @property
    def has_majority(self) -> bool:
        """Whether enough have."""
        return len(self.answered) >= self.needed

    def asked(self, members: list[Target]) -> list[Target]:
        """The nodes to ask next: those that have not answered; once a majority has, which means that it lacks the own
        write, the others as well, since they may have heard of it meanwhile."""
        asked = {name for name, _ in self.open.values()} | self.refused
        left = [target for target in members if target.name not in asked]
        if self.has_majority:
            return left
        return [target for target in left if target.name not in self.answered] or left


class Reader:
    """Reads in a mode."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def message(
        self, path: Path, mode: ReadMode, with_chain: bool, deadline: float | None, raw: bool = False
    ) -> tuple[Any, str]:
        """A node's answer, and its name; `raw`: its value as bytes."""
        message, node = await self._in_mode(path, mode, with_chain, deadline, raw)
        self._caller.apart.note(path, node)
        return message, node

    async def _in_mode(
        self, path: Path, mode: ReadMode, with_chain: bool, deadline: float | None, raw: bool
    ) -> tuple[Any, str]:
        if mode is ReadMode.PREFERRED:
            return await self._preferred(path, with_chain, deadline, raw)
        if mode is ReadMode.ANY:
            plan = Plan("get_value", path.shard, first=self._any_live(), deadline=deadline)
            served = await self._caller.call(plan, path.get_head_chain if with_chain else path.get_head, raw=raw)
            return _message(served.reply), served.connection.name
        return await self._freshest(path, deadline, raw)

    async def retry(self, path: Path, failed: Failed) -> tuple[Any, str]:
        """The rest of a read whose first try has failed."""
        caller = self._caller
        plan = Plan("get_value", path.shard, first=caller.home(path.shard), failed=failed)
        served = await caller.call(plan, path.get_head)
        caller.apart.note(path, served.connection.name)
        return served.reply, served.connection.name

    async def newer(self, path: Path, answer: tuple[Any, str], began: float, own: int | None) -> tuple[Any, str]:
        """The rest of a read that has begun then, and whose first answer may lack the own write of this tock."""
        message, node = await self._preferred(path, False, None, False, answer, began, own)
        self._caller.apart.note(path, node)
        return message, node

    async def entry(self, path: Path, mode: ReadMode, deadline: float | None) -> Entry | None:
        """The entry; none if there never was one, or it was deleted and purged."""
        message, node = await self.message(path, mode, True, deadline)
        entry = entry_of(message, node)
        return None if entry.deleted and entry.version is None else entry

    async def _preferred(
        self,
        path: Path,
        with_chain: bool,
        deadline: float | None,
        raw: bool,
        answer: tuple[Any, str] | None = None,
        began: float | None = None,
        own: int | None = None,
    ) -> tuple[Any, str]:
        """A version older than an own write is not taken while there is hope for a newer one. `answer`: what is taken
        where none is found; `began`, `own`: when the read has begun, and the tock of the own write then, if that is not
        now."""
        caller = self._caller
        sought = Sought(caller.own_writes, path, own)
        if sought.is_over:
            if answer is not None:
                return answer
            plan = Plan("get_value", path.shard, first=caller.home(path.shard), deadline=deadline)
            served = await caller.call(plan, path.get_head_chain if with_chain else path.get_head, raw=raw)
            return _message(served.reply), served.connection.name
        total = caller.config.retry.total_deadline if deadline is None else seconds_of(deadline, "a timeout")
        ends = (caller.loop.time() if began is None else began) + total
        stale: list[Address] = []
        if answer is not None:
            deadline = ends - caller.loop.time()
        while answer is None or deadline is None or deadline > 0:
            first = caller.home(path.shard)
            plan = Plan("get_value", path.shard, first=first, last=stale, deadline=deadline)
            try:
                served = await caller.call(plan, path.get_head_chain, raw=raw)
            except UnavailableError:
                if answer is None:
                    raise
                # No other node has one in that time, which may not be over: no further try would fit.
                break
            message = _message(served.reply)
            if sought.is_in(_tock_there(message), served.life):
                return message, served.connection.name
            answer = _newer(answer, (message, served.connection.name))
            caller.stats.reads.stale_answers += 1
            stop = min(ends, self._sought_until(sought))
            if served.address in stale:
                # All nodes were asked.
                stale.clear()
                await asyncio.sleep(min(LOOK_AGAIN, max(stop - caller.loop.time(), 0)))
            stale.append(served.address)
            deadline = stop - caller.loop.time()
        return self._taken(path, answer)

    def _taken(self, path: Path, answer: tuple[Any, str]) -> tuple[Any, str]:
        """An answer that counts though it lacks an own write."""
        caller = self._caller
        caller.stats.reads.stale_taken += 1
        # Where it was the read's own time that ended, others look further.
        now = caller.loop.time()
        if caller.own_writes.missing_since(path, now) + caller.config.own_write_patience <= now:
            caller.own_writes.give_up(path)
        return answer

    def _sought_until(self, sought: Sought) -> float:
        """Until when a read looks for an own write that an answer lacks."""
        return sought.ends(self._caller.loop.time(), self._caller.config.own_write_patience)

    def _any_live(self) -> Target | None:
        live = [target for target in self._caller.topology.routing.targets if target.is_live]
        return random.choice(live) if live else None

    async def _freshest(self, path: Path, deadline: float | None, raw: bool) -> tuple[Any, str]:
        """Asks all nodes until a majority of those in the view has answered. While no answer has this client's own
        write, nodes are asked again, as patiently as by any other read."""
        found = _Found(Sought(self._caller.own_writes, path))
        with observed(self._caller, "get_value") as tries:
            try:
                return await self._of_majority(path, deadline, raw, tries, found)
            finally:
                for task in found.open:
                    task.cancel()
                if found.open:
                    await asyncio.wait(found.open)

    async def _of_majority(
        self, path: Path, deadline: float | None, raw: bool, tries: Tries, found: _Found
    ) -> tuple[Any, str]:
        caller = self._caller
        policy = caller.policy_of(deadline)
        total = policy.total_deadline
        started = caller.loop.time()
        attempt = 0
        caller.stats.retry.calls += 1
        while True:
            if attempt == 0 or caller.pool.is_closed:
                caller.check_open(attempt)
            tries.attempts = attempt = attempt + 1
            routing = caller.topology.routing
            if routing.view.source is None:
                raise UsageError(
                    "this client does not know which nodes there are, so not what a majority of them is, which "
                    "read mode 'freshest' needs: nodes of old versions cannot tell it, and with only_seeds they are "
                    "not asked"
                )
            found.counted = {node.name for node in routing.view.nodes if node.counts}
            found.answered &= found.counted
            members = [target for target in routing.targets if target.name in found.counted]
            longest = started + total
            times = min(caller.loop.time() + policy.try_deadline, longest), longest
            await self._ask_all(members, path, found, times, raw, tries)
            if found.newest is not None and found.has_majority:
                goes_on = not found.is_enough and await self._waits(found, policy, started, tries)
                # Another read may have given it up.
                if found.is_enough or found.sought.is_over:
                    return found.newest
                if goes_on:
                    continue
                return self._taken(path, found.newest)
            if found.refusal is not None:
                # No other try would find a majority that allows it.
                raise final_error(found.refusal[1], Fate.NOT_DONE, found.refusal[0], attempt)
            missing = [target for target in members if target.name not in found.answered]
            elapsed = caller.loop.time() - started
            refused = found.refusals.verdict(missing)
            if refused is not None and found.answered and isinstance(refused[1], NotMetError):
                # Nobody knows whose those nodes are, and one lets the client in.
                refused = None
            if refused is not None and elapsed < total:
                caller.check_open(attempt)
                raise no_access(refused[1], Fate.NOT_DONE, refused[0], attempt)
            decision = policy.decide(ErrorClass.UNAVAILABLE, attempt, elapsed, Idempotency.READ, random.random())
            if not isinstance(decision, GiveUp):
                await caller.pool.pause(decision.delay)
            if isinstance(decision, GiveUp) or caller.loop.time() - started >= total:
                caller.stats.retry.deadlines += 1
                refused = found.refusals.refusal(missing)
                error = None if refused is None else refused[1]
                raise NoMajorityError(len(found.answered), found.needed, len(found.counted), attempt, error)

    async def _waits(self, found: _Found, policy: RetryPolicy, started: float, tries: Tries) -> bool:
        """Pauses before nodes are asked again, since a majority lacks the own write; those that were asked may answer
        meanwhile. Whether there is time for another round."""
        caller = self._caller
        now = caller.loop.time()
        stop = min(started + policy.total_deadline, self._sought_until(found.sought))
        decision = policy.decide(
            ErrorClass.UNAVAILABLE, tries.attempts, now - started, Idempotency.READ, random.random()
        )
        is_last = isinstance(decision, GiveUp)
        until = stop if isinstance(decision, GiveUp) else min(now + decision.delay, stop)
        while found.open and not found.is_enough and (left := until - caller.loop.time()) > 0:
            await self._listen(found, left, tries)
        if found.is_enough or is_last:
            return False
        if (left := until - caller.loop.time()) > 0:
            await caller.pool.pause(left)
        return caller.loop.time() < stop

    async def _ask_all(
        self,
        members: list[Target],
        path: Path,
        found: _Found,
        times: tuple[float, float],
        raw: bool,
        tries: Tries,
    ) -> None:
        """Asks nodes once, until enough of all have answered. `times`: as of :meth:`_ask`."""
        found.refusal = None
        for target in found.asked(members):
            tries.on_try(target.name)
            task = self._caller.loop.create_task(self._ask(target, path, times, raw))
            found.open[task] = target.name, tries.attempts
        while found.open and not found.has_majority:
            await self._listen(found, None, tries)

    async def _listen(self, found: _Found, timeout: float | None, tries: Tries) -> None:
        """Waits for the next answer, for at most so long."""
        caller = self._caller
        done, _ = await asyncio.wait(found.open, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            _, attempt = found.open.pop(task)
            target, life, message = task.result()
            caller.stats.router.to_others += 1
            if isinstance(message, TryError):
                kind = class_of(message)
                tries.on_failed(target.name, message, attempt)
                caller.stats.retry.count(kind)
                found.refusals.note(target, message)
                if kind is ErrorClass.FINAL:
                    found.refused.add(target.name)
                    found.refusal = found.refusal or (target.name, message)
            elif target.name in found.counted:
                found.answered.add(target.name)
                found.newest = _newer(found.newest, (message, target.name))
                if found.sought.is_in(_tock_there(message), life):
                    found.is_enough = True
                elif not found.is_enough:
                    # Its patience begins with the first answer that lacks the own write.
                    self._sought_until(found.sought)

    async def _ask(self, target: Target, path: Path, times: tuple[float, float], raw: bool) -> tuple[Target, Life, Any]:
        """One node's answer, or how it has failed. `times`: until when it is waited for, and until when while it is
        arriving."""
        caller = self._caller
        life: Life = (target.name, None)
        end, longest = times
        asked: tuple[Connection, float] | None = None
        try:
            connection = await caller.pool.get(target.address, end, target.expected)
            end = min(end + connection.line.delay, longest)
            check_time(caller.loop.time(), end, target.name)
            life = (connection.name, connection.incarnation)
            asked = (connection, caller.loop.time())
            return target, life, _message(await connection.request(path.get_head_chain, end, longest, raw=raw))
        except TryError as error:
            if isinstance(error, TimedOutError) and asked is not None:
                caller.pool.on_timeout(target.address, *asked)
            return target, life, error


def _message(reply: Any) -> Message:
    """A reply; one that is bytes was asked for so, for the sake of its value."""
    return with_raw_value(reply) if isinstance(reply, bytes) else reply


def _tock_there(message: Any) -> int | None:
    """The tock of the entry in an answer; none if the node has none."""
    is_there = "value" in message or message.get("chain") is not None
    return tock_of(message) if is_there else None


def _newer(known: tuple[Any, str] | None, other: tuple[Any, str]) -> tuple[Any, str]:
    """The newer of two nodes' answers. Nothing at all is older than anything."""
    if known is None:
        return other
    one, two = entry_of(*known).version, entry_of(*other).version
    if two is not None and (one is None or one < two):
        return other
    return known
