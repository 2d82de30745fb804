"""Deviations, one rule broken each, that the scenarios must find: the driver plants the one that DISTKV_PLANTED
names. Their list, with the scenario that finds each, is `clients/conformance/deviations.toml`."""

from __future__ import annotations

from collections.abc import Callable

from distkv_client import (
    apart,
    batch,
    call,
    client,
    clock,
    line,
    memory,
    model,
    own_writes,
    retry,
    router,
    stream,
    view,
    watch,
    write_places,
    writes,
)


def plant(name: str) -> None:
    """Breaks one rule in this process."""
    PLANTS[name]()


def _decide_unguarded() -> None:
    decide = retry.RetryPolicy.decide

    def wrong(self, error, attempt, elapsed, idempotency, random):
        guarded = retry.Idempotency.GUARDED
        wrong_one = guarded if idempotency is retry.Idempotency.UNGUARDED else idempotency
        return decide(self, error, attempt, elapsed, wrong_one, random)

    retry.RetryPolicy.decide = wrong


def _no_ids() -> None:
    writes.WriteOptions.id = lambda self, automatic: None


def _rank() -> None:
    rank = router.rank
    router.rank = lambda name_hash, shard: rank(name_hash, shard) ^ (1 << 63)


def _not_ready() -> None:
    retry.CODES["not_ready"] = retry.ErrorClass.FINAL


def _elsewhere() -> None:
    retry.SAME_NODE = frozenset()


def _own_writes() -> None:
    own_writes.OwnWrites.covers = lambda self, path, own, tock, life: True


def _silent_restart() -> None:
    start_over = watch.Watch._start_over

    def wrong(self):
        start_over(self)
        self._events.pop()

    watch.Watch._start_over = wrong


def _never_maybe() -> None:
    written_of = model.written_of
    client.written_of = lambda message, node, attempts, maybe_twice: written_of(message, node, attempts, False)


def _majority() -> None:
    class Alone(view.Node):
        counts = property(lambda self: self.state == "self")

    decode = view.decode_node

    def wrong(told):
        node = decode(told)
        return node and Alone(*(getattr(node, name) for name in view.Node.__slots__))

    view.decode_node = wrong


def _batch() -> None:
    batch.class_of_server = lambda error: retry.ErrorClass.FINAL


def _again() -> None:
    memory.Memory.look = lambda self, path, entry, is_resuming: memory.Look.NEW


def _old() -> None:
    once = call.Caller._call

    async def wrong(self, plan, *rest):
        plan.needs_id = False
        return await once(self, plan, *rest)

    call.Caller._call = wrong


def _too_slow() -> None:
    retry.CODES["too_slow"] = retry.ErrorClass.FINAL


def _not_stopped() -> None:
    def wrong(self):
        self._is_done = True
        self._queue.clear()

    stream.Stream.close = wrong


def _own_order() -> None:
    clock.Clock.hear = lambda self, message: None


def _not_given_up() -> None:
    turn = write_places.Turn
    write_places.Turn = lambda generation, head, first, settled: turn(generation, head, first, 0)


def _no_time() -> None:
    call.counts_until = lambda is_change, end, now, longest: None


def _nothing_to_send() -> None:
    line.sending = lambda size: 0.0


def _cut_off() -> None:
    line.Line.is_arriving = lambda self, now: False


def _not_apart() -> None:
    apart.Apart.of = lambda self, path: None


PLANTS: dict[str, Callable[[], None]] = {
    "a write that may have been made is made again": _decide_unguarded,
    "no write has an id": _no_ids,
    "each try has another order of nodes": _rank,
    "a node that is not ready is believed": _not_ready,
    "unknown fate is asked elsewhere": _elsewhere,
    "own writes are not looked for": _own_writes,
    "a watch starts over in silence": _silent_restart,
    "another node's write is not told as perhaps repeated": _never_maybe,
    "one node is a majority": _majority,
    "a passing error in a batch is final": _batch,
    "what was delivered is delivered again": _again,
    "old servers are trusted with ids": _old,
    "a watch that its node gives up has ended": _too_slow,
    "a stream that is left goes on": _not_stopped,
    "a write does not say what the client knows": _own_order,
    "a write does not say what is given up": _not_given_up,
    "a try does not say until when it counts": _no_time,
    "what has to be sent takes no longer": _nothing_to_send,
    "what is still arriving is cut off": _cut_off,
    "a write with a condition goes elsewhere than the read": _not_apart,
}
