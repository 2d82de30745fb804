"""Streams without an end, which go on at another node when theirs is lost: how a node is found."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from .call import Caller, Plan, Round
from .config import Address
from .connection import Connection
from .errors import DistKVError, Fate, ServerError, TimedOutError, TryError, UsageError
from .outcome import final_error, no_access
from .refusals import Refusals
from .retry import ErrorClass, class_of
from .stream import Stream
from .try_time import TryTime

LET_IN_SHARE = 0.25
"""Part of a try's time that a node has to refuse a stream which it has begun; later, whoever reads it is told."""


@dataclass(slots=True)
class Opened:
    """A stream, and the node that sends it."""

    stream: Stream
    connection: Connection
    address: Address
    since: float
    """When it was opened, by the loop's clock."""


class Search:
    """Where the search for a node stands."""

    def __init__(self, caller: Caller, action: str, shard: int, head: bytes) -> None:
        self._caller = caller
        self._action = action
        self._shard = shard
        self._head = head
        self._round = Round()
        self._attempts = 0
        """Tries since a stream has lasted; the one that is open is among them until it has."""

    def on_lost(self, address: Address) -> None:
        """The stream from this node has ended: others come first."""
        self._round.leave_out(address)

    def on_end(self, opened: Opened) -> None:
        """A stream has ended, for whatever reason. If it has lasted, the next search begins without waiting, else it
        was a try that failed: what came on it does not count, since each new one begins with the whole state."""
        if self._caller.loop.time() - opened.since >= self._caller.config.retry.delay_max:
            self._attempts = 0

    async def first(self) -> Opened:
        """The first time: as any call, with its deadline."""
        caller = self._caller
        plan = Plan(self._action, self._shard, first=caller.home(self._shard), is_stream=True)

        async def once(connection: Connection, time: TryTime) -> Stream:
            stream = await connection.stream(self._head, time.end, time.longest)
            try:
                now = caller.loop.time()
                await stream.let_in(now + (time.end - now) * LET_IN_SHARE)
            except BaseException:
                stream.close()
                raise
            return stream

        served = await caller.call(plan, b"", once)
        stream: Stream = served.reply
        self._attempts = 1
        return Opened(stream, served.connection, served.address, caller.loop.time())

    async def again(self) -> Opened:
        """Later: as long as it takes.

        Raises :class:`~distkv_client.errors.DistKVError` if a node refused for good, or the client was closed.
        """
        caller = self._caller
        policy = caller.config.retry
        plan = Plan(self._action, self._shard)
        refusals = Refusals()
        while True:
            if self._attempts > 0:
                await asyncio.sleep(policy.delay(self._attempts, random.random()))
            caller.check_open(self._attempts)
            self._attempts += 1
            target = caller.choose(caller.topology.routing, plan, self._round)
            if target is None:
                raise UsageError("there is no node to ask")
            connection: Connection | None = None
            started = caller.loop.time()
            try:
                end = started + policy.try_deadline
                connection = await caller.pool.get(target.address, end, target.expected, for_stream=True)
                longest = max(end, started + policy.total_deadline)
                stream = await connection.stream(self._head, min(end + connection.line.delay, longest), longest)
                return Opened(stream, connection, target.address, caller.loop.time())
            except TryError as error:
                if isinstance(error, TimedOutError) and connection is not None:
                    caller.pool.on_timeout(target.address, connection, started)
                kind = class_of(error)
                caller.stats.retry.count(kind)
                if kind is ErrorClass.FINAL and isinstance(error, ServerError):
                    raise self.refusal(error, target.name) from error
                refusals.note(target, error)
                refused = refusals.verdict(caller.topology.routing.targets)
                if refused is not None:
                    caller.check_open(self._attempts)
                    raise no_access(refused[1], Fate.NOT_DONE, refused[0], self._attempts) from error

    def refusal(self, error: TryError, node: str) -> DistKVError:
        """The error of a stream that a node refused for good."""
        return final_error(error, Fate.NOT_DONE, node, max(self._attempts, 1))
