"""Final refusals end reads of a majority and lists of conflicts; calls without time, and calls with arguments of a
wrong type, are not sent."""

import asyncio
import math

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import pair, preferred_path, scene

from distkv_client import (
    ClosedError,
    Config,
    DeniedError,
    Fate,
    NoMajorityError,
    Path,
    RefusedError,
    RetryPolicy,
    UnavailableError,
)
from distkv_client.errors import NoAccessError

PATIENT = Config(retry=RetryPolicy(try_deadline=5.0, total_deadline=60.0))


def trio(first, others=None):
    return [ScriptedNode("s1", first), ScriptedNode("s2", others or first), ScriptedNode("s3", others or first)]


@pytest.mark.parametrize("code", ["denied", "bad_request", "from_the_future", None])
@pytest.mark.parametrize("is_one", [True, False], ids=["one of them", "all"])
async def test_a_final_refusal_ends_a_read_of_a_majority(code, is_one):
    nodes = trio(lambda request: error(code), (lambda request: error("not_ready")) if is_one else None)
    async with scene(*nodes, config=PATIENT) as client:
        for call in (client.get("a", read="freshest"), client.entry("a", read="freshest")):
            with pytest.raises(RefusedError) as caught:
                await asyncio.wait_for(call, 20)
            assert caught.value.code == code and caught.value.attempts == 1 and caught.value.fate is Fate.NOT_DONE
            assert caught.value.node == "s1" if is_one else caught.value.node in ("s1", "s2", "s3")
            assert isinstance(caught.value, DeniedError) is (code == "denied")
        assert len(nodes[0].actions("get_value")) == 2, "each time once"


async def test_a_majority_counts_whoever_refuses():
    async with scene(*trio(lambda request: error("denied"), lambda request: {"value": 1, "tock": 1})) as client:
        assert await client.get("a", read="freshest") == 1
    tries = Config(retry=RetryPolicy(initial_delay=0.001, attempts_max=3, total_deadline=60.0))
    async with scene(*trio(lambda request: error("not_ready")), config=tries) as client:
        with pytest.raises(NoMajorityError):
            await client.get("a", read="freshest")


async def no_access(address, deadline, name, for_stream=False):
    raise NoAccessError("cannot get in")


async def test_who_is_not_known_any_more_is_told_by_all_reads_and_by_conflicts(monkeypatch):
    async with scene(*trio(lambda request: {"value": 1, "tock": 1}), config=PATIENT) as client:
        monkeypatch.setattr(client._pool, "get", no_access)
        monkeypatch.setattr(client._pool, "ready", lambda *_: None)
        for call in (client.get("a", read="freshest"), client.conflicts()._collect(), conflicts_of(client)):
            with pytest.raises(DeniedError) as caught:
                await asyncio.wait_for(call, 20)
            assert caught.value.code == "no_access" and caught.value.node


async def conflicts_of(client):
    return [conflict async for conflict in client.conflicts()]


@pytest.mark.parametrize("code", ["denied", "bad_request", "not_ready"])
async def test_conflicts_that_no_node_lists(code):
    async with scene(*pair(lambda request: error("not_ready"), lambda request: error(code))) as client:
        for call in (client.conflicts()._collect(), conflicts_of(client)):
            kind = {"denied": DeniedError, "bad_request": RefusedError}.get(code, UnavailableError)
            with pytest.raises(kind) as caught:
                await call
            assert type(caught.value) is kind
            if kind is not UnavailableError:
                assert (caught.value.code, caught.value.node) == (code, "s2")


async def test_conflicts_of_a_closed_client():
    async with scene(*pair(lambda request: SILENCE, lambda request: SILENCE), config=PATIENT) as client:
        calls = [asyncio.create_task(call) for call in (client.conflicts()._collect(), conflicts_of(client))]
        await until(lambda: client._pool.open_replies() >= 3)
        await client.close(grace=0)
        for call in (*calls, client.conflicts()._collect(), conflicts_of(client), client.refresh_shards()):
            with pytest.raises(ClosedError):
                await asyncio.wait_for(call, 20)


NO_TIME = [0, 0.0, -1, -0.5, -math.inf]


def calls_in(client, path, timeout):
    """Each call that takes a timeout."""
    return {
        "get": lambda: client.get(path, timeout=timeout),
        "get freshest": lambda: client.get(path, read="freshest", timeout=timeout),
        "get any": lambda: client.get(path, read="any", timeout=timeout),
        "get_raw": lambda: client.get_raw(path, timeout=timeout),
        "entry": lambda: client.entry(path, timeout=timeout),
        "put": lambda: client.put(path, 1, timeout=timeout),
        "put without an id": lambda: client.put(path, 1, write_id=None, timeout=timeout),
        "put_raw": lambda: client.put_raw(path, b"\x01", timeout=timeout),
        "delete": lambda: client.delete(path, timeout=timeout),
        "batch": lambda: client.batch().put(path, 1).run(timeout=timeout),
        "request": lambda: client.request("delete_tree", path=path, timeout=timeout),
    }


@pytest.mark.parametrize("timeout", NO_TIME)
async def test_a_call_without_time_is_not_sent(timeout):
    one, two = pair(lambda request: WRITTEN)
    async with scene(one, two, config=PATIENT) as client:
        await settled(client, one, two)
        before = len(one.requests) + len(two.requests)
        for name, call in calls_in(client, "a", timeout).items():
            with pytest.raises(UnavailableError, match="no time") as caught:
                await call()
            assert caught.value.fate is Fate.NOT_DONE and caught.value.code == "unavailable", name
        # What would have been sent comes before this.
        await asyncio.gather(
            *(client.get(preferred_path(client, name)) for name in ("s1", "s2")), return_exceptions=True
        )
        assert len(one.requests) + len(two.requests) == before + 2


async def settled(client, *nodes):
    """All that a client asks on its own behalf has come, and both nodes have a connection."""
    await until(lambda: sum(len(node.actions("list_shards")) for node in nodes) >= 1)
    for node in nodes:
        await client.get(preferred_path(client, node.name), default=None)


async def test_no_try_begins_after_the_deadline(monkeypatch):
    """The pause before it was longer than planned, or the connection took all the time."""
    is_refusing = False

    def script(request):
        return error("not_ready") if is_refusing else WRITTEN

    def asked():
        """The clock that jumps lets the client ask of its own accord, too, but not about this path."""
        return sum(request.get("path") == Path("a") for request in one.requests + two.requests)

    one, two = pair(script, script)
    async with scene(one, two, config=PATIENT) as client:
        await settled(client, one, two)
        is_refusing = True
        with pytest.raises(UnavailableError, match="no time"):
            await client.put("a", 1, timeout=1e-12)
        clock, ahead = client._caller.loop.time, 0.0
        monkeypatch.setattr(client._caller.loop, "time", lambda: clock() + ahead)
        pause = client._pool.pause

        async def pause_long(delay):
            nonlocal ahead
            ahead += 100
            await asyncio.sleep(0)

        monkeypatch.setattr(client._pool, "pause", pause_long)
        for call in (client.put("a", 1), client.get("a", timeout=30)):
            before = asked()
            with pytest.raises(UnavailableError) as caught:
                await call
            assert caught.value.attempts == 1 and asked() == before + 1
        monkeypatch.setattr(client._pool, "pause", pause)
        get = client._pool.get

        async def get_late(address, deadline, name, for_stream=False):
            nonlocal ahead
            connection = await get(address, deadline, name)
            ahead += 100
            return connection

        monkeypatch.setattr(client._pool, "get", get_late)
        monkeypatch.setattr(client._pool, "ready", lambda *_: None)
        before = asked()
        for call in (client.put("a", 1, write_id=None), client.get("a", timeout=30), client.get("a", read="freshest")):
            with pytest.raises((UnavailableError, NoMajorityError)) as caught:
                await call
            assert caught.value.fate is Fate.NOT_DONE
        assert asked() == before


async def test_a_callers_timeout_may_be_longer_than_the_configured_one():
    count = 0

    def late(request):
        nonlocal count
        count += 1
        return error("not_ready") if count <= 6 else {"value": 1, "tock": 1}

    policy = RetryPolicy(initial_delay=0.05, factor=1, total_deadline=0.06)
    async with scene(ScriptedNode("s1", late), config=Config(retry=policy)) as client:
        assert await client.get("a", read="freshest", timeout=60) == 1
