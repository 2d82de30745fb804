"""One call: which node, which connection, how long, and what then. All operations go through here."""

from __future__ import annotations

import asyncio
import os
import random
import warnings
import weakref
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any, Protocol

from .abandoned import NOT_CLOSED, Part, abandon
from .apart import Apart
from .checks import seconds_of
from .config import Address, Config
from .connection import Connection
from .errors import DistKVError, Fate, FullError, TimedOutError, TryError, UnavailableError, UsageError
from .model import Written
from .observer import Watched
from .outcome import Doubt, check_time, fate_of, final_error, no_access
from .own_writes import Life, OwnWrites
from .path import Path
from .pool import Pool, Slot, closed_error
from .refusals import Refusals
from .retry import Idempotency, Reason, Retry, RetryPolicy, class_of
from .stats import ClientStats, NodeStats
from .topology import Topology
from .try_time import TryTime, counts_until
from .view import Place, Routing, Target
from .write_places import WritePlaces

NODE_STATS_MAX = 4096
"""Nodes of which there are counters; those of further ones are not kept."""

Once = Callable[[Connection, TryTime], Awaitable[Any]]
"""One try on a connection, that long."""


@dataclass(slots=True)
class Plan:
    """What a call wants."""

    action: str
    shard: int
    idempotency: Idempotency = Idempotency.READ
    needs_id: bool = False
    """A second one counts once only because of a write id, which old nodes ignore."""
    first: Target | None = None
    """A node that comes before the preferred one."""
    last: Sequence[Address] = ()
    """Nodes that come last."""
    try_deadline: float | None = None
    """For one try, instead of what the policy says; a connection must be there as soon as usually."""
    deadline: float | None = None
    """For all tries, instead of what the policy says."""
    goes_on: bool = False
    """A try keeps to its time by itself until something has come, and may go on beyond it."""
    counts_always: bool = False
    """Whenever it comes to the node, like all that changes nothing."""
    is_own: bool = False
    """It is the client's own, and not in the counters."""
    is_stream: bool = False
    """It is answered with a stream, for which not every connection has room."""
    failed: Failed | None = None
    """The first try was made already, and failed."""


@dataclass(slots=True)
class Failed:
    """A try that failed."""

    target: Target
    connection: Connection
    sent: float
    error: TryError


@dataclass(slots=True)
class Served:
    """The reply, and the node that sent it."""

    reply: Any
    connection: Connection
    address: Address
    attempts: int
    maybe_twice: bool
    """An earlier try, at another node, may have done it, too."""
    earlier: Fate
    """What the tries before have left in doubt."""

    @property
    def life(self) -> Life:
        """The life of the node."""
        return self.connection.name, self.connection.incarnation


@dataclass(slots=True)
class Route:
    """Where reads of a shard go first."""

    target: Target
    slot: Slot
    node: NodeStats
    is_preferred: bool
    home: Life | None
    """Of the last own write, when this was found."""


class Endless(Protocol):
    """A watch or a monitor."""

    async def client_closed(self) -> None:
        """The client is closed."""

    def __hash__(self) -> int: ...


class Round:
    """The nodes that were tried since all were."""

    __slots__ = ("again", "tried")

    def __init__(self) -> None:
        self.tried: list[Place] = []
        self.again: Place | None = None
        """The next try goes here."""

    def note(self, target: Target) -> None:
        """It is tried now."""
        self.tried.append(target.place)

    def has(self, target: Target) -> bool:
        """Whether it was tried. A seed may have become a node of a view meanwhile."""
        return target.place in self.tried or (target.address, None) in self.tried

    def leave_out(self, address: Address) -> None:
        """Others come before this one."""
        self.tried = [(address, None)]


class Caller:
    """Carries calls out. Belongs to one event loop.

    All that a program has of a client keeps this: the client itself, watches, batches. What runs by itself does not.
    """

    def __init__(
        self,
        config: Config,
        pool: Pool,
        topology: Topology,
        own_writes: OwnWrites,
        stats: ClientStats,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.config = config
        self.pool = pool
        self.topology = topology
        self.own_writes = own_writes
        self.apart = Apart(topology, config.own_writes_max)
        self.write_places = WritePlaces()
        self.stats = stats
        self.loop = loop
        self.parts: list[Part] = [topology, pool]
        """What runs by itself, in the order in which it is ended."""
        self.thread: int | None = get_ident()
        """Where the loop runs; none behind a fork. asyncio itself asks the system for the process's id each time that
        it is asked for the running loop, which costs a read 5 % of its time."""
        _callers.add(self)
        self.open_calls = 0
        self.idle: asyncio.Future[None] | None = None
        """Is done when there are no open calls, if somebody waits for that."""
        self.is_closing = False
        self.busy_at = config.pool.busy_at
        self._total = config.retry.total_deadline
        self._patience = min(config.retry.try_deadline, self._total)
        self._routes: dict[int, Route] = {}
        """By shard; of one routing."""
        self._routes_of: Routing | None = None
        self.endless: weakref.WeakSet[Endless] = weakref.WeakSet()
        """Watches and monitors."""

    def __del__(self) -> None:
        if not self.is_open or self.thread is None:
            return
        warnings.warn(NOT_CLOSED, ResourceWarning, stacklevel=2, source=self)
        abandon(self.parts, self.loop)

    def check_loop(self) -> None:
        """Raises :class:`~distkv_client.errors.UsageError` in another event loop, or behind a fork."""
        if asyncio.get_running_loop() is not self.loop:
            raise UsageError(
                "this client belongs to another event loop (a client is for one loop, and does not survive "
                "fork): make one in each loop and process, or use distkv_client.sync from threads"
            )

    def check_open(self, attempts: int = 0) -> None:
        """Raises :class:`~distkv_client.errors.ClosedError` once the client is closed, or about to be."""
        if not self.is_open:
            raise closed_error(attempts)

    @property
    def is_open(self) -> bool:
        """Whether the client is neither closed nor about to be."""
        return not (self.pool.is_closed or self.is_closing)

    def policy_of(self, timeout: float | None) -> RetryPolicy:
        """That of a call; `timeout`: for all of its tries, instead of what the configuration says.

        Raises :class:`~distkv_client.errors.UnavailableError` if no try could begin in time.
        """
        policy = self.config.retry
        if timeout is not None:
            policy = replace(policy, total_deadline=seconds_of(timeout, "a timeout"))
        if policy.total_deadline <= 0:
            raise UnavailableError(f"there was no time to try it: the timeout is {policy.total_deadline} s")
        return policy

    def home(self, shard: int) -> Target | None:
        """The node that acknowledged the last own write of a shard, while that life of it lives."""
        life = self.own_writes.homes.get(shard)
        if life is None:
            return None
        target = self.topology.routing.by_name.get(life[0])
        if target is None or not target.is_live:
            return None
        if None not in (target.incarnation, life[1]) and target.incarnation != life[1]:
            return None
        return target

    def note_write(self, path: Path, written: Written, life: Life) -> Written:
        """A node has acknowledged a write."""
        if written.version is not None:
            self.own_writes.on_written(path, written.tock, life)
            self.apart.note(path, life[0])
        return written

    async def call(self, plan: Plan, head: bytes, once: Once | None = None, raw: bool = False) -> Served:
        """Carries a call out: `head` as one request with one reply, or `once` for one try. It is tried again,
        as the policy decides, at the next node each time.

        Raises :class:`~distkv_client.errors.DistKVError`.
        """
        self.check_loop()
        observer = self.config.observer
        watched = None if observer is None else Watched(observer, plan.action, self.loop.time())
        self.open_calls += 1
        try:
            served = await self._call(plan, head, once, raw, watched)
            if watched is not None:
                watched.on_end(self.loop.time(), served.attempts, None)
            return served
        except DistKVError as error:
            if watched is not None:
                watched.on_end(self.loop.time(), error.attempts, error)
            raise
        except asyncio.CancelledError as error:
            if watched is not None:
                watched.on_cancelled(self.loop.time(), error, plan.idempotency is Idempotency.READ)
            raise
        finally:
            self.end_call()

    def end_call(self) -> None:
        """A call has ended."""
        self.open_calls -= 1
        if self.idle is not None:
            self.tell_idle()

    def tell_idle(self, is_over: bool = False) -> None:
        """Wakes whoever waits for the end of all calls; `is_over`: though there are some still."""
        if self.idle is not None and (is_over or not self.open_calls) and not self.idle.done():
            self.idle.set_result(None)

    async def _call(self, plan: Plan, head: bytes, once: Once | None, raw: bool, watched: Watched | None) -> Served:
        policy = self.policy_of(plan.deadline)
        time = self.loop.time
        started = now = time()
        total = policy.total_deadline
        patience = policy.try_deadline if plan.try_deadline is None else plan.try_deadline
        tries = Round()
        refusals = Refusals()
        attempts = 0
        doubt = Doubt()
        stats = self.stats.retry
        if not plan.is_own and plan.failed is None:
            stats.calls += 1
        while True:
            routing = self.topology.routing
            made, plan.failed = plan.failed, None
            if made is not None:
                started = made.sent
                tries.note(made.target)
            target = self.choose(routing, plan, tries) if made is None else made.target
            if target is None:
                raise UsageError("there is no node to ask")
            if self.pool.is_closed or (self.is_closing and attempts == 0):
                # None but one that was made before has been begun.
                raise closed_error(attempts if made is None else 1, doubt.fate)
            attempts += 1
            node = self._count_try(routing, plan, target, attempts, made is not None)
            if watched is not None:
                watched.on_try(target.name, attempts)
            address = target.address
            longest = started + total
            end = min(now + patience, longest)
            sent: float | None = None
            connection: Connection | None = None
            failure: TryError
            try:
                if made is not None:
                    connection, sent = made.connection, made.sent
                    raise made.error
                connection = self.pool.ready(address, target.expected, plan.is_stream)
                if connection is None:
                    soon = min(end, now + policy.try_deadline)
                    connection = await self.pool.get(address, soon, target.expected, plan.is_stream)
                delay = connection.line.delay_of(len(head))
                end = min(now + patience + delay, longest)
                check_time(time(), end, target.name)
                sent = time()
                is_change = not plan.counts_always and plan.idempotency is not Idempotency.READ
                until = counts_until(is_change, end, sent, policy.try_deadline + delay)
                if once is None:
                    reply = await connection.request(head, end, longest, until, raw)
                else:
                    async with asyncio.timeout_at(None if plan.goes_on else longest):
                        reply = await once(connection, TryTime(end, longest, until))
                node.note(time() - sent)
                return Served(reply, connection, address, attempts, doubt.is_elsewhere(address), doubt.fate)
            except TryError as error:
                failure = error
            except TimeoutError:
                failure = TimedOutError(f"no answer from {target.name} in time")
            if isinstance(failure, TimedOutError) and connection is not None and sent is not None:
                self.pool.on_timeout(address, connection, sent)
            node.failures += 1
            kind = class_of(failure, sent is not None)
            idempotency = plan.idempotency
            if plan.needs_id and connection is not None and connection.incarnation is None:
                # Old nodes heed no write ids.
                idempotency = Idempotency.UNGUARDED
            doubt.note(fate_of(failure, kind, idempotency), address, target.name, failure)
            if watched is not None:
                watched.on_failed(target.name, attempts, kind, str(failure))
            if not plan.is_own:
                stats.count(kind)
            refusals.note(target, failure)
            now = time()
            refused = refusals.verdict(self.topology.routing.targets)
            if refused is None and isinstance(failure, FullError):
                refused = refusals.full(self.topology.routing.targets)
            # What the deadline has cut off may have let the client in.
            if refused is not None and now - started < total:
                if not self.is_open:
                    raise closed_error(attempts, doubt.fate)
                name, failure = doubt.told(*refused)
                raise no_access(failure, doubt.fate, name, attempts)
            decision = policy.decide(kind, attempts, now - started, idempotency, random.random())
            if isinstance(decision, Retry):
                if not decision.other_node:
                    tries.again = target.place
                # Where there was no room, no node was asked, and the next one may be at once.
                await self.pool.pause(0 if isinstance(failure, FullError) else decision.delay)
                now = time()
                if now - started < total:
                    continue
                # It was a longer pause than planned.
            elif decision.reason is not Reason.DEADLINE:
                if decision.reason is Reason.FATE_UNKNOWN:
                    stats.unsafe_to_retry += 1
                    if self.pool.is_closed:
                        raise closed_error(attempts, doubt.fate)
                name, failure = doubt.told(target.name, failure)
                raise final_error(failure, doubt.fate, name, attempts)
            stats.deadlines += 1
            name, failure = doubt.told(*refusals.most_telling())
            raise final_error(failure, doubt.fate, name, attempts)

    def quick(self, path: Path) -> tuple[asyncio.Future[Any], Route, Connection, float] | None:
        """Sends a read to the node that it goes to first, if nothing stands in the way: what :meth:`call` does,
        in fewer steps."""
        routing = self.topology.routing
        if self._routes_of is not routing:
            self._routes_of = routing
            self._routes.clear()
        shard = path.shard
        route = self._routes.get(shard)
        if route is None or route.home != self.own_writes.homes.get(shard):
            route = self._find_route(routing, shard)
            if route is None:
                return None
        now = self.loop.time()
        slot, expected = route.slot, route.target.expected
        if now < slot.failed_until or self.is_closing or self.config.observer is not None:
            return None
        for connection in slot.connections:
            if connection.ended is None and not connection.is_paused and connection.load < self.busy_at:
                if expected is None or connection.name == expected:
                    break
        else:
            # It may be forgotten, and found anew.
            del self._routes[shard]
            return None
        if get_ident() != self.thread or not self.loop.is_running():
            self.check_loop()
        end, longest = now + self._patience, now + self._total
        if connection.line.delay:
            end = min(end + connection.line.delay, longest)
        try:
            future = connection.send_request(path.get_head, end, longest)
        except TryError:
            return None
        self.stats.retry.calls += 1
        if route.is_preferred:
            self.stats.router.to_preferred += 1
        else:
            self.stats.router.to_others += 1
        route.node.tries += 1
        return future, route, connection, now

    def _find_route(self, routing: Routing, shard: int) -> Route | None:
        """Where reads of a shard go first; remembered while the routing and the own writes stay as they are."""
        preferred = routing.preferred(shard)
        target = self.home(shard) or preferred
        slot = None if target is None else self.pool.slot(target.address)
        if target is None or slot is None or self._patience <= 0:
            return None
        home = self.own_writes.homes.get(shard)
        route = Route(target, slot, self._node(target.name), target is preferred, home)
        self._routes[shard] = route
        return route

    def _node(self, name: str) -> NodeStats:
        nodes = self.stats.router.nodes
        node = nodes.get(name)
        if node is None:
            node = NodeStats()
            if len(nodes) < NODE_STATS_MAX:
                nodes[name] = node
        return node

    def _count_try(self, routing: Routing, plan: Plan, target: Target, attempts: int, is_counted: bool) -> NodeStats:
        router = self.stats.router
        node = self._node(target.name)
        if is_counted:
            return node
        node.tries += 1
        if not plan.is_own:
            if routing.preferred(plan.shard) is target:
                router.to_preferred += 1
            else:
                router.to_others += 1
            if attempts > 1:
                self.stats.retry.retries += 1
        return node

    def choose(self, routing: Routing, plan: Plan, tries: Round) -> Target | None:
        """The next node to try: in the router's order, each once, those that fail just now last; when all were
        tried, from the beginning."""
        if not tries.tried and not plan.last and tries.again is None:
            best = plan.first or routing.preferred(plan.shard)
            if best is not None and not self.pool.is_failing(best.address, best.expected):
                tries.note(best)
                return best
        if tries.again is not None:
            again, tries.again = tries.again, None
            for target in routing.targets:
                if target.place == again:
                    return target
        order = [routing.targets[index] for index in routing.router.order(plan.shard)]
        if plan.first is not None:
            order.insert(0, plan.first)
        for _ in range(2):
            untried = [target for target in order if not tries.has(target)]
            wanted = [target for target in untried if target.address not in plan.last]
            good = (target for target in wanted if not self.pool.is_failing(target.address, target.expected))
            chosen = next(good, None) or next(iter(wanted), None) or next(iter(untried), None)
            if chosen is not None:
                tries.note(chosen)
                return chosen
            tries.tried.clear()
        return None


_callers: weakref.WeakSet[Caller] = weakref.WeakSet()


def _on_fork() -> None:
    """In the child, no caller's loop runs, whatever it says of itself."""
    for caller in _callers:
        caller.thread = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
