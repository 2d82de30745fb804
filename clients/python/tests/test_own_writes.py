"""What is read back of a client's own writes where several nodes took them."""

import asyncio
import time
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import once, preferred_path, scene

from distkv_client import Config, KeyNotFoundError, Path, PoolConfig, RetryPolicy, UsageError
from distkv_client.codec import decode
from distkv_client.own_writes import OwnWrites

NOTHING = {}
HERE = {**WRITTEN, "value": "here"}
CONFIG = Config(
    retry=RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=30.0, total_deadline=60.0),
    pool=PoolConfig(probe_after=60, failure_memory=0.001, failure_memory_max=0.001),
    own_write_patience=0.3,
)


def beside(path):
    """Another path of the same shard."""
    return next(other for other in (Path(f"q{n}") for n in range(100_000)) if other.shard == path.shard)


def by_action(written, read):
    return lambda request: read(request) if request["action"] == "get_value" else written(request)


async def read_raw(client, path, mode, timeout=None):
    """As `get` with a default of None."""
    try:
        return decode(await client.get_raw(path, read=mode, timeout=timeout))
    except KeyNotFoundError as error:
        assert error.node is not None
        return None


async def read_value(client, path, mode, timeout=None):
    return await client.get(path, default=None, read=mode, timeout=timeout)


READS = {"get": read_value, "get_raw": read_raw}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_a_home_that_did_not_take_the_write_of_a_path_may_lack_it(mode, read):
    """The path is written at `s2`, and another one of its shard at `s1`, which has not heard of the first yet."""
    one = ScriptedNode("s1", by_action(once_then_written(), lambda request: NOTHING))
    late = (lambda request: HERE) if mode == "preferred" else (lambda request: SILENCE)
    two = ScriptedNode("s2", by_action(lambda request: WRITTEN, late))
    nodes = [one, two] if mode == "preferred" else [one, two, ScriptedNode("s3", lambda request: NOTHING)]
    config = replace(CONFIG, own_write_patience=30.0) if mode == "preferred" else CONFIG
    async with scene(*nodes, config=config) as client:
        order = client._topology.routing.router.order
        path = next(path for path in (Path(f"p{n}") for n in range(1000)) if list(order(path.shard))[:2] == [0, 1])
        assert (await client.put(path, "here")).node == "s2"
        assert (await client.put(beside(path), 1)).node == "s1"
        started = time.monotonic()
        found = await read(client, path, mode)
        if mode == "preferred":
            assert found == "here"
        else:
            assert found is None and time.monotonic() - started >= CONFIG.own_write_patience
            assert client.stats().reads.stale_taken == 1


def once_then_written():
    """The first write is not taken, all others are."""
    return once(error("not_ready"), WRITTEN)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_a_home_that_took_the_write_of_a_path_knows_that_it_is_gone(mode, read):
    nodes = [ScriptedNode(name, by_action(lambda request: WRITTEN, lambda request: NOTHING)) for name in ("s1", "s2")]
    async with scene(*nodes, config=CONFIG) as client:
        path = preferred_path(client, "s1")
        await client.put(beside(path), 1)
        await client.put(path, 1)
        await client.put(beside(path), 2)
        assert await read(client, path, mode) is None
        assert client.stats().reads.stale_taken == client.stats().reads.stale_answers == 0


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_reads_take_the_mode_of_the_call_or_of_the_configuration(read):
    nodes = [
        ScriptedNode(name, lambda request, tock=tock: {**WRITTEN, "value": tock, "tock": tock})
        for name, tock in (("s1", 5), ("s2", 9))
    ]
    async with scene(*nodes, config=replace(CONFIG, read_mode="freshest")) as client:
        for name in ("s1", "s2"):
            path = preferred_path(client, name)
            assert await read(client, path, None) == await read(client, path, "freshest") == 9
        assert await read(client, preferred_path(client, "s1"), "preferred") == 5
        assert len({await read(client, path, "any") for _ in range(64)}) == 2
        with pytest.raises(UsageError, match="linearizable"):
            await read(client, path, "linearizable")


def test_nothing_counts_of_a_home_that_has_taken_the_newest_write_of_the_path():
    path, other = Path("p"), beside(Path("p"))
    here, there = ("s1", 7), ("s2", 7)
    own = OwnWrites(10)

    def after(*writes):
        for which, tock, life in writes:
            own.on_written(which, tock, life)
        return own.covers(path, own.tocks[path], None, here), own.covers(path, own.tocks[path], None, there)

    assert after((path, 1, here)) == (True, False)
    assert after((other, 2, here)) == (True, False)
    assert after((path, 3, there)) == (False, True)
    assert after((other, 4, here)) == (False, False)
    assert after((other, 5, there)) == (False, False), "it may have ended and come back without it meanwhile"
    assert after((path, 6, here)) == (True, False)
    assert after((path, 2, there)) == (False, False), "an older one, of which the answer came late"
    assert after((path, 7, ("s2", None))) == (False, False), "it cannot be told which life it is"


OLD = {**WRITTEN, "value": "old", "tock": 1}
PATIENT = replace(CONFIG, own_write_patience=30.0)
"""Nobody waits for so long here: the clock is set forward."""


def forgetful(mode):
    """Nodes of which none has the write of `s1` any more, and what they answer from now on. A majority waits for the
    last one."""
    answer = {"all": OLD}

    def read(request):
        return answer["all"]

    nodes = [ScriptedNode(name, by_action(lambda request: WRITTEN, read)) for name in ("s1", "s2")]
    return nodes + [ScriptedNode("s3", lambda request: SILENCE)] * (mode == "freshest"), answer


async def give_up_reading(client, path, mode):
    """A read that is cancelled once it knows that the own write is not there."""
    reading = asyncio.create_task(client.get(path, read=mode))
    await until(lambda: client._caller.own_writes.missed)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_the_patience_for_an_own_write_is_that_of_all_reads_of_it(mode, jump):
    nodes, _ = forgetful(mode)
    async with scene(*nodes, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        await give_up_reading(client, path, mode)
        jump(20)
        await give_up_reading(client, path, mode)
        assert client.stats().reads.stale_taken == 0
        jump(11)
        async with asyncio.timeout(20):
            assert await client.get(path, read=mode) == "old"
        assert client.stats().reads.stale_taken == 1 and path not in client._caller.own_writes.tocks


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("mode", ["preferred", "freshest"])
async def test_a_read_takes_the_answer_that_it_has_when_its_own_time_ends(mode, read):
    nodes, answer = forgetful(mode)
    async with scene(*nodes, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        started = time.monotonic()
        assert await read(client, path, mode, timeout=0.3) == "old"
        assert 0.3 <= time.monotonic() - started < 20
        assert path in client._caller.own_writes.tocks, "it is looked for further on"
        answer["all"] = HERE
        assert await read(client, path, mode) == "here"
    async with scene(*nodes, config=replace(PATIENT, retry=replace(CONFIG.retry, total_deadline=0.3))) as client:
        await client.put(path, "here")
        answer["all"] = OLD
        assert await read(client, path, mode) == "old"


async def test_a_silent_node_does_not_hold_up_a_read_that_has_an_answer():
    """`s2` might have the write, but for longer than the patience nobody knows."""
    one = ScriptedNode("s1", by_action(lambda request: WRITTEN, lambda request: OLD))
    async with scene(one, ScriptedNode("s2", lambda request: SILENCE), config=CONFIG) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        started = time.monotonic()
        assert await client.get(path) == "old"
        assert CONFIG.own_write_patience <= time.monotonic() - started < 20


@pytest.mark.parametrize("again", ["found", "written"])
async def test_an_own_write_that_is_there_after_all_is_looked_for_anew(again, jump):
    nodes, answer = forgetful("preferred")
    async with scene(*nodes, config=PATIENT) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "here")
        await give_up_reading(client, path, "preferred")
        if again == "found":
            answer["all"] = HERE
            assert await client.get(path) == "here"
            answer["all"] = OLD
        else:
            await client.put(path, "here")
        jump(31)
        await give_up_reading(client, path, "preferred")
        assert client.stats().reads.stale_taken == 0
