"""How long a read waits for an own write: no longer than its own time, and never without the answer that it has."""

import asyncio
import time
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_own_writes import HERE, NOTHING, OLD, PATIENT, READS, by_action
from test_rules import once, preferred_path, scene

from distkv_client import Config, KeyNotFoundError, PoolConfig, RetryPolicy

DEFAULTS = Config(own_write_patience=30.0)
"""With the pauses, and the memory of failures, that a client has by itself."""
SOON = 20.0
"""Far less than the patience."""


def trio(answer=OLD):
    """The first takes the write, and is killed; the other two have not heard of it."""
    others = (ScriptedNode(name, lambda request: answer) for name in ("s2", "s3"))
    return ScriptedNode("s1", lambda request: WRITTEN), *others


async def written_and_killed(client, one):
    path = preferred_path(client, "s1")
    await client.put(path, "here")
    await one.stop()
    return path


@pytest.fixture
async def unhurried(monkeypatch):
    """The loop's clock moves on only where the loop waits, and nothing comes: what the machine takes for all else,
    however slow it is, takes no time."""
    loop = asyncio.get_running_loop()
    now, select = loop.time(), loop._selector.select

    def wait(timeout):
        nonlocal now
        events = select(timeout)
        if not events and timeout:
            now += timeout
        return events

    monkeypatch.setattr(loop._selector, "select", wait)
    monkeypatch.setattr(loop, "time", lambda: now)


@pytest.mark.parametrize("answer", [OLD, NOTHING], ids=["old", "nothing"])
@pytest.mark.parametrize("mode", ["preferred", "freshest"])
@pytest.mark.parametrize("timeout", [0.02, 0.05, 0.1, 0.3, 1.0])
async def test_a_read_whose_own_time_ends_takes_the_answer_that_it_has(timeout, mode, answer, unhurried):
    one, *others = trio(answer)
    async with scene(one, *others, config=DEFAULTS) as client:
        path = await written_and_killed(client, one)
        # The others are connected: connecting is no part of what is measured.
        for node in others:
            await client.get(preferred_path(client, node.name), default=None)
        expected = answer.get("value")
        for read in (*READS.values(), as_entry):
            for _ in range(5 if timeout < 0.1 else 1):
                started, taken = time.monotonic(), client.stats().reads.stale_taken
                assert await read(client, path, mode, timeout=timeout) == expected
                assert time.monotonic() - started < SOON
                assert client.stats().reads.stale_taken == taken + 1
        assert path in client._caller.own_writes.tocks, "it is looked for further on"


async def as_entry(client, path, mode, timeout=None):
    entry = await client.entry(path, read=mode, timeout=timeout)
    return None if entry is None else entry.value


@pytest.mark.parametrize("mode", ["preferred", "freshest"])
@pytest.mark.parametrize("read", [*READS.values(), as_entry])
@pytest.mark.parametrize("total", [0.2, 0.5])
async def test_without_a_time_of_its_own_it_is_bounded_by_the_configured_one(total, read, mode, unhurried):
    one, *others = trio()
    config = replace(DEFAULTS, retry=RetryPolicy(total_deadline=total))
    async with scene(one, *others, config=config) as client:
        path = await written_and_killed(client, one)
        for _ in range(3):
            started = time.monotonic()
            assert await read(client, path, mode) == "old"
            assert time.monotonic() - started < SOON
        assert client.stats().reads.stale_taken == 3


class Late:
    """An old answer that takes most of the time of a read: the clock is set forward before it is sent."""

    def __init__(self, jump, seconds):
        self.jump, self.seconds, self.is_late = jump, seconds, False

    def __call__(self, request):
        if self.is_late:
            self.jump(self.seconds)
        return OLD


@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_an_old_answer_that_comes_late_leaves_a_read_no_second_time(mode, jump):
    """One read has one time, also where it has begun in the quick way."""
    late = Late(jump, 7.0)
    retry = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=10.0, total_deadline=10.0)
    config = replace(PATIENT, retry=retry, pool=PoolConfig(probe_after=1000.0, idle_close=1000.0))
    async with scene(one := ScriptedNode("s1", by_action(lambda request: WRITTEN, late)), config=config) as client:
        await client.put("a", "here")
        late.is_late = True
        started = client._caller.loop.time()
        assert await client.get("a", read=mode) == "old"
        assert client._caller.loop.time() - started < 2 * 10.0, "7 s of the first answer, and the rest of its time"
        assert client.stats().reads.stale_taken == 1 and len(one.actions("get_value")) <= 2


async def test_a_deletion_that_is_newer_than_the_own_write_is_found_in_the_rest_of_the_time():
    """Without its version, that there is nothing does not say whether the own write is known there."""
    gone = {"chain": WRITTEN["chain"], "tock": 9}
    async with scene(ScriptedNode("s1", by_action(lambda request: WRITTEN, lambda request: gone))) as client:
        await client.put("a", 1)
        with pytest.raises(KeyNotFoundError):
            await client.get("a")
        assert client.stats().reads.stale_taken == client.stats().reads.stale_answers == 0


def counted(node):
    return len(node.actions("get_value"))


async def test_freshest_asks_who_has_failed_again_while_the_own_write_is_missing():
    """The majority that answers first has not heard of the write."""
    answers = iter([error("not_ready")] * 3)
    one, *others = trio()
    one.script = by_action(lambda request: WRITTEN, lambda request: next(answers, HERE))
    async with scene(one, *others, config=DEFAULTS) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        for read in (*READS.values(), as_entry):
            assert await read(client, path, "freshest") == "here"
        assert counted(one) == 3 + 3 and all(counted(node) >= 3 for node in others)
        assert client.stats().reads.stale_taken == 0


async def test_freshest_waits_for_a_node_that_comes_back_with_the_own_write():
    one, *others = trio()
    one.script = by_action(lambda request: WRITTEN, lambda request: HERE)
    async with scene(one, *others, config=DEFAULTS) as client:
        path = await written_and_killed(client, one)
        reading = asyncio.create_task(client.get(path, read="freshest"))
        await until(lambda: client._caller.own_writes.missed and client.stats().router.nodes["s1"].tries)
        await until(lambda: client.stats().pool.failures_remembered or reading.done())
        await one.start()
        async with asyncio.timeout(SOON):
            assert await reading == "here"
        assert client.stats().reads.stale_taken == 0


async def test_freshest_looks_for_the_own_write_as_long_as_all_reads_of_it(jump):
    one, *others = trio()
    async with scene(one, *others, config=PATIENT) as client:
        path = await written_and_killed(client, one)
        reading = asyncio.create_task(client.get(path, read="freshest"))
        await until(lambda: client._caller.own_writes.missed)
        assert not reading.done()
        jump(PATIENT.own_write_patience + 1)
        async with asyncio.timeout(SOON):
            assert await reading == "old"
        assert client.stats().reads.stale_taken == 1 and path not in client._caller.own_writes.tocks
        assert await client.get(path, read="freshest") == "old"
        assert client.stats().reads.stale_taken == 1, "it is not looked for again"


async def test_freshest_asks_all_again_where_all_have_answered_without_the_own_write():
    answers = iter([OLD] * 3)
    one, *others = trio()
    one.script = by_action(lambda request: WRITTEN, lambda request: OLD)
    others[1].script = lambda request: next(answers, HERE)
    async with scene(one, *others, config=DEFAULTS) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        async with asyncio.timeout(SOON):
            assert await client.get(path, read="freshest") == "here"
        assert client.stats().reads.stale_taken == 0 and counted(others[1]) == 4


async def test_freshest_asks_nobody_again_who_refuses_for_good(jump):
    one, *others = trio()
    one.script = by_action(lambda request: WRITTEN, lambda request: error("denied"))
    async with scene(one, *others, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        reading = asyncio.create_task(client.get(path, read="freshest"))
        await until(lambda: counted(others[0]) > 3 and counted(others[1]) > 3)
        jump(PATIENT.own_write_patience + 1)
        async with asyncio.timeout(SOON):
            assert await reading == "old"
        assert client.stats().reads.stale_taken == counted(one) == 1


async def test_of_the_answers_that_lack_the_own_write_the_newest_counts(jump):
    """`s2` has an older one, and is asked last."""
    answers = {"s1": {**OLD, "value": "newer", "tock": 3}, "s2": OLD}
    nodes = [ScriptedNode(name, by_action(lambda request: WRITTEN, lambda r, a=a: a)) for name, a in answers.items()]
    async with scene(*nodes, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        reading = asyncio.create_task(client.get_raw(path))
        await until(lambda: client._caller.own_writes.missed and counted(nodes[1]))
        # What comes behind this is of `s2`.
        answers["s1"].clear()
        answers["s1"].update(error("not_ready"))
        count = counted(nodes[1])
        await until(lambda: counted(nodes[1]) > count)
        jump(PATIENT.own_write_patience + 1)
        async with asyncio.timeout(SOON):
            assert await reading == b"\xa5newer"


@pytest.mark.parametrize("read", [*READS.values(), as_entry])
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "silent"])
async def test_freshest_asks_those_again_that_have_answered_without_the_own_write(is_killed, read):
    """The node that took the write is away; the others hear of it a moment later."""
    one, *others = trio()
    one.script = by_action(lambda request: WRITTEN, lambda request: SILENCE)
    for node in others:
        node.script = once(OLD, HERE)
    async with scene(one, *others, config=replace(PATIENT, retry=DEFAULTS.retry)) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        if is_killed:
            await one.stop()
        async with asyncio.timeout(SOON):
            assert await read(client, path, "freshest", 60.0) == "here"
        assert client.stats().reads.stale_taken == 0


@pytest.mark.parametrize("mode", ["preferred", "freshest"])
@pytest.mark.parametrize("read", [*READS.values(), as_entry])
async def test_what_is_written_while_a_read_is_under_way_does_not_hold_it_up(read, mode):
    """Each time that nodes are asked, another write of the path was just acknowledged: they have those before it."""
    one, *others = trio()
    async with scene(one, *others, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        own, tock = client._caller.own_writes, WRITTEN["tock"]

        def answer(request):
            nonlocal tock
            tock += 1
            own.on_written(path, tock, ("s1", 7))
            return {**HERE, "tock": tock - 1}

        if mode == "freshest":
            await one.stop()
        for node in (one, *others):
            node.script = answer
        async with asyncio.timeout(SOON):
            assert await read(client, path, mode) == "here"
        assert client.stats().reads.stale_taken == client.stats().reads.stale_answers == 0


@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_who_finds_the_own_write_gives_other_reads_no_more_time(mode, jump):
    one, *others = trio()
    async with scene(one, *others, config=PATIENT) as client:
        path = await written_and_killed(client, one)
        reading = asyncio.create_task(client.get(path, read=mode))
        own = client._caller.own_writes
        await until(lambda: own.missed)
        own.found(path, own.tocks[path])
        jump(PATIENT.own_write_patience + 1)
        async with asyncio.timeout(SOON):
            assert await reading == "old"
        assert client.stats().reads.stale_taken == 1 and path in own.tocks, "the others look further"


async def test_the_time_in_which_freshest_looks_begins_with_the_first_answer_that_lacks_the_own_write():
    """Not when enough have answered: one of those may be slow."""
    one, old = ScriptedNode("s1", lambda request: WRITTEN), ScriptedNode("s2", lambda request: OLD)
    silent = ScriptedNode("s3", lambda request: SILENCE)
    async with scene(one, old, silent, config=DEFAULTS) as client:
        path = await written_and_killed(client, one)
        reading = asyncio.create_task(client.get(path, read="freshest"))
        await until(lambda: client._caller.own_writes.missed)
        assert not reading.done()
        reading.cancel()
        await asyncio.wait([reading])
