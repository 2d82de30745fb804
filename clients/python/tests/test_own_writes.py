"""What is read back of a client's own writes where several nodes took them."""

import time
from dataclasses import replace

import pytest
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


async def read_raw(client, path, mode):
    """As `get` with a default of None."""
    try:
        return decode(await client.get_raw(path, read=mode))
    except KeyNotFoundError as error:
        assert error.node is not None
        return None


READS = {"get": lambda client, path, mode: client.get(path, default=None, read=mode), "get_raw": read_raw}


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
        return own.is_enough(path, None, here), own.is_enough(path, None, there)

    assert after((path, 1, here)) == (True, False)
    assert after((other, 2, here)) == (True, False)
    assert after((path, 3, there)) == (False, True)
    assert after((other, 4, here)) == (False, False)
    assert after((other, 5, there)) == (False, False), "it may have ended and come back without it meanwhile"
    assert after((path, 6, here)) == (True, False)
    assert after((path, 2, there)) == (False, False), "an older one, of which the answer came late"
    assert after((path, 7, ("s2", None))) == (False, False), "it cannot be told which life it is"
