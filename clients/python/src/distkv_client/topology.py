"""The nodes of the network, kept up to date: from the seeds to a watch of the cluster view at one node, and to
the next node when that one is lost. Seeds always stay candidates.

Epochs of two nodes cannot be compared, so the client counts its own. Nodes that have no such view to watch
(older ones) leave the client with its seeds.
"""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import Callable, Mapping, Sequence

from .checks import callable_of
from .codec import Fields
from .config import Address, TopologyConfig
from .connection import Connection
from .errors import (
    LoginWaitError,
    NoAccessError,
    NoSocketError,
    OtherNetworkError,
    ServerError,
    TimedOutError,
    TryError,
    UsageError,
)
from .observer import log_failure
from .pool import Pool
from .shard import SHARD_COUNT
from .stats import TopologyStats
from .stream import Stream
from .view import ClusterView, Node, Routing, TopologyChange, by_name, compare, decode_view

LISTENERS_MAX = 1024
"""Most listeners of one client."""
ASK_ANEW_AFTER = 10.0
"""Seconds for which a view that has proved wrong is not asked for anew once more: it may be wrong at all nodes."""

Listener = Callable[[TopologyChange], None]


class Outcome(enum.Enum):
    """How watching one candidate ended."""

    FOLLOWED = "it sent at least one view"
    UNSUPPORTED = "it has no view to watch"
    NOT_READY = "it cannot know the others yet"


class Topology:
    """See the module."""

    def __init__(
        self,
        seeds: Sequence[Address],
        pool: Pool,
        config: TopologyConfig,
        connect_deadline: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.seeds = list(seeds)
        self.routing = Routing(ClusterView(0, (), None), self.seeds, {})
        self.stats = TopologyStats()
        self.failure: TryError | None = None
        """Why no node could be reached the last time that all were tried; none while one is watched."""
        self.failed_at: Address | None = None
        """The node that this was."""
        self.is_refused = False
        """All of them have refused this client, or are of another network."""
        self._config = config
        self._pool = pool
        self._loop = loop
        self._connect_ends = loop.time() + connect_deadline
        self._listeners: dict[int, Listener] = {}
        self._last_listener = 0
        self._changed: asyncio.Future[None] = loop.create_future()
        self._stream: Stream | None = None
        """The views of the node that is watched."""
        self._watched_since = 0.0
        """When the first view of that node came."""
        self._is_doubted = False
        """Another node is asked instead of it, because its view has proved wrong."""
        self._may_ask_anew = 0.0
        pool.on_other_node = self._ask_anew
        self._task = loop.create_task(self._follow_views(), name="distkv_client: cluster view")

    # -- for the client ----------------------------------------------------------------------

    async def first_view(self) -> None:
        """Waits until there is a view.

        Raises :class:`~distkv_client.errors.NoAccessError` or :class:`~distkv_client.errors.OtherNetworkError` as soon
        as all candidates refused this client, or are of another network; and at once
        :class:`~distkv_client.errors.NoSocketError`, which waiting does not mend.
        """
        while self.routing.view.epoch == 0:
            if self.failure is not None and (self.is_refused or isinstance(self.failure, NoSocketError)):
                raise self.failure
            await asyncio.wait({self._changed})

    def listen(self, call: Listener) -> Callable[[], None]:
        """Calls it for each change from now on; returns what takes it off again."""
        callable_of(call, "a listener to topology changes")
        if len(self._listeners) >= LISTENERS_MAX:
            raise UsageError("there are too many listeners")
        self._last_listener += 1
        number = self._last_listener
        self._listeners[number] = call

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def prefer(self, overrides: Mapping[int, str]) -> None:
        """New overrides of preferred nodes: listeners are told which shards moved."""
        if overrides != self.routing.overrides:
            old = self.routing
            self.routing = Routing(old.view, self.seeds, dict(overrides))
            self._tell(old, (), (), ())

    def fill_stats(self) -> TopologyStats:
        """The counters, and what there is now."""
        view = self.routing.view
        self.stats.epoch = view.epoch
        self.stats.nodes = len(view.nodes)
        self.stats.live = sum(1 for node in view.nodes if node.is_live)
        return self.stats

    async def close(self) -> None:
        """Ends the task. The view stays as it is."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._listeners.clear()

    def _ask_anew(self, name: str) -> None:
        """This node is not where the view has it: another one may know better than the one that is watched. Of a node
        that is not live, nobody says that it is there."""
        target = self.routing.by_name.get(name)
        now = self._loop.time()
        if self._stream is not None and target is not None and target.is_live and now >= self._may_ask_anew:
            self._may_ask_anew = now + ASK_ANEW_AFTER
            self._is_doubted = True
            self._stream.close()

    # -- views -------------------------------------------------------------------------------

    def _apply(self, nodes: tuple[Node, ...], source: str | None) -> None:
        self.stats.views += 1
        self.stats.seeds_only = source is None
        self.failure = None
        old = self.routing
        added, removed, changed = compare(old.view.nodes, nodes)
        if not (added or removed or changed) and old.view.epoch > 0:
            return
        view = ClusterView(old.view.epoch + 1, nodes, source)
        self.routing = new = Routing(view, self.seeds, old.overrides)
        self._notify()
        self._pool.retain(lambda address: address in new.addresses)
        for node in (*removed, *(after for _, after in changed)):
            if not node.is_live and node.client is not None:
                # Calls that wait there need not wait until the silence is noticed.
                self._pool.probe(node.client)
        self._tell(old, added, removed, changed)

    def _tell(
        self,
        old: Routing,
        added: tuple[Node, ...],
        removed: tuple[Node, ...],
        changed: tuple[tuple[Node, Node], ...],
    ) -> None:
        if not self._listeners:
            return
        moved = old.moves_to(self.routing, SHARD_COUNT)
        self.stats.moved += len(moved)
        if not (added or removed or changed or moved):
            return
        change = TopologyChange(old.view.epoch, self.routing.view.epoch, added, removed, changed, moved)
        for call in list(self._listeners.values()):
            try:
                call(change)
            except Exception as failure:
                log_failure(failure, "a listener to topology changes failed")

    def _notify(self) -> None:
        changed, self._changed = self._changed, self._loop.create_future()
        changed.set_result(None)

    def _apply_seeds(self) -> None:
        nodes: list[Node] = []
        for address in self.seeds:
            name, incarnation = self._pool.life_of(address) or (str(address), None)
            nodes.append(Node(name, incarnation, address, None, "seed", True, None))
        self._apply(by_name(nodes), None)

    # -- following ---------------------------------------------------------------------------

    async def _follow_views(self) -> None:
        delay = self._config.retry_delay
        last: Address | None = None
        # In the second round a view of a node that is not ready is better than none.
        takes_any = False
        while True:
            followed = is_old = not_ready = False
            failures: list[tuple[Address, TryError]] = []
            candidates = self._candidates(last)
            for number, candidate in enumerate(candidates):
                try:
                    patience = self._patience(len(candidates) - number)
                    outcome = await self._follow(candidate, takes_any, patience)
                except TryError as error:
                    failures.append((candidate, error))
                    continue
                finally:
                    self.stats.watching = None
                if outcome is Outcome.FOLLOWED:
                    self.stats.lost += 1
                    last, followed = candidate, True
                    break
                is_old |= outcome is Outcome.UNSUPPORTED
                not_ready |= outcome is Outcome.NOT_READY
            if followed:
                takes_any = False
                has_lasted = self._loop.time() - self._watched_since >= self._config.retry_delay_max
                if has_lasted:
                    delay = self._config.retry_delay
                # One that breaks again and again, as behind something that cuts it off, counts as a round in vain.
                if not has_lasted and not self._is_doubted:
                    delay = await self._pause(delay)
                continue
            takes_any = not_ready
            if is_old and not not_ready:
                self._apply_seeds()
                await asyncio.sleep(self._config.old_nodes_delay)
                continue
            if failures:
                refusals = [one for one in failures if isinstance(one[1], (NoAccessError, OtherNetworkError))]
                waits = [one for one in failures if isinstance(one[1], LoginWaitError)]
                unasked = [one for one in failures if isinstance(one[1], NoSocketError)]
                # A refusal says more than that somebody else cannot be reached; so does who makes the login wait. Who
                # could not even be asked says nothing of itself.
                self.failed_at, self.failure = (unasked or refusals or waits or failures)[-1]
                self.is_refused = len(refusals) == len(failures) and not not_ready
                self._notify()
            delay = await self._pause(delay)

    async def _pause(self, delay: float) -> float:
        """From half of a delay to all of it, so that many clients do not come at the same moment; the next delay."""
        await asyncio.sleep(delay * (0.5 + random.random() / 2))
        return min(delay * 2, self._config.retry_delay_max)

    def _candidates(self, last: Address | None) -> list[Address]:
        """Whom to ask, best first: live nodes from a random one on, so that clients spread."""
        targets = list(self.routing.targets)
        if self.routing.view.epoch > 0 and targets:
            first = random.randrange(len(targets))
            targets = targets[first:] + targets[:first]
        targets.sort(key=lambda t: (t.address == last or self._pool.is_failing(t.address), not t.is_live))
        return [target.address for target in targets]

    def _patience(self, not_asked: int) -> float:
        """How long the next of so many candidates may take to begin. One seed is enough, however many others are
        silent, so while the client has no view, they share the time that is left. The pool goes on with attempts."""
        left = self._connect_ends - self._loop.time()
        if self.routing.view.epoch > 0 or left <= 0:
            return self._config.first_view_timeout
        return min(self._config.first_view_timeout, left / not_asked)

    async def _follow(self, candidate: Address, takes_any: bool, patience: float) -> Outcome:
        """Watches the view of one node, until that ends."""
        deadline = self._loop.time() + patience
        connection = await self._pool.get(candidate, deadline)
        if self._config.only_seeds:
            return Outcome.UNSUPPORTED
        try:
            stream = await self._open(connection, deadline)
        except ServerError as error:
            if error.code in ("unknown_action", None):
                return Outcome.UNSUPPORTED
            raise
        try:
            told = await _next_view(stream, deadline)
            if told is None:
                raise TimedOutError(f"{candidate} does not tell which nodes there are")
            nodes, source = told
            if not takes_any and not any(node.state == "self" and node.is_ready for node in nodes):
                return Outcome.NOT_READY
            self.stats.watching = str(candidate)
            self._watched_since, self._is_doubted = self._loop.time(), False
            self._apply(nodes, source)
            self._stream = stream
            try:
                while (told := await _next_view(stream)) is not None:
                    self._apply(*told)
            except TryError:
                pass
            return Outcome.FOLLOWED
        finally:
            self._stream = None
            stream.close()

    @staticmethod
    async def _open(connection: Connection, deadline: float) -> Stream:
        return await connection.stream(Fields().head("watch_cluster"), deadline, is_own=True)


async def _next_view(stream: Stream, deadline: float = float("inf")) -> tuple[tuple[Node, ...], str | None] | None:
    """The next view of a stream; none at its end."""
    while (item := await stream.next(deadline)) is not None:
        if (told := decode_view(item.message.get("cluster"))) is not None:
            return told
    return None
