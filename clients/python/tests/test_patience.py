"""How long silent nodes are waited for: by listings of trees, deletions of trees, reads of a majority, and copies."""

import asyncio
import time
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import pair, preferred_path, scene

from distkv_client import (
    Config,
    Fate,
    FateUnknownError,
    PoolConfig,
    RetryPolicy,
    UnavailableError,
    UsageError,
    connection,
    question,
)
from distkv_client.codec import encode

QUICK = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=0.2, total_deadline=50.0)
CONFIG = Config(retry=QUICK, pool=PoolConfig(probe_timeout=30))
SOON = 20.0
"""Far less than the whole deadline."""


def tree(entries, is_whole=True):
    """A script that lists so many entries, and then ends or goes silent. It answers anything else at once."""

    def script(request):
        if request["action"] != "get_tree":
            return {"value": "here", "tock": 1}
        parts = [{"state": "start", "wseq": 1}]
        for number in range(entries):
            parts.append({"path": [number], "depth": 0, "value": number, "tock": 1, "wseq": number + 2})
        if is_whole:
            parts.append({"state": "end"})
        return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)

    return script


async def listed(client, path):
    return [entry.value async for entry in client.tree(path)]


async def in_time(call, least=0.0):
    """What a call gives, and it takes at least so long, but not the whole deadline."""
    started = time.monotonic()
    try:
        return await call
    finally:
        assert least <= time.monotonic() - started < SOON


SILENT = {
    "at once": lambda request: SILENCE,
    "after its start": tree(0, is_whole=False),
    "in its middle": tree(1, is_whole=False),
}


@pytest.mark.parametrize("silent", SILENT.values(), ids=SILENT)
async def test_a_listing_that_a_node_does_not_go_on_with_is_made_by_another(silent):
    one, two = pair(silent, tree(3))
    async with scene(one, two, config=CONFIG) as client:
        path = preferred_path(client, "s1")
        assert [entry.value for entry in await in_time(client.tree(path)._collect(), 0.2)] == [0, 1, 2]
        assert one.actions("get_tree") and two.actions("get_tree")


async def test_an_iteration_begins_at_another_node_and_is_given_up_behind_its_first_entry(jump):
    one, two = pair(SILENT["after its start"], tree(3))
    async with scene(one, two, config=CONFIG) as client:
        assert await in_time(listed(client, preferred_path(client, "s1")), 0.2) == [0, 1, 2]
    one, two = pair(SILENT["in its middle"], tree(3))
    async with scene(one, two, config=LATE) as client:
        entries = aiter(client.tree(preferred_path(client, "s1")))
        assert (await anext(entries)).value == 0
        reading = asyncio.create_task(anext(entries))
        stream = await stream_of(client, "get_tree", one)
        await until(lambda: stream._waiter is not None)
        jump(LATE.retry.try_deadline + 1)
        with pytest.raises(UnavailableError, match="sent nothing"):
            await reading


LATE = Config(
    retry=RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=30.0, total_deadline=40.0),
    pool=PoolConfig(probe_after=1000.0, idle_close=1000.0),
)
"""Nothing is late but for what :func:`jump` makes so."""
LASTING = replace(LATE, retry=replace(LATE.retry, total_deadline=1000.0))


async def stream_of(client, action, node):
    """The client's side of the stream that this node was asked for last."""
    request = (await until(lambda: node.actions(action)))[-1]
    slot = client._pool.slot(client._topology.routing.by_name[node.name].address)
    return next(c._streams[request["seq"]] for c in slot.connections if request["seq"] in c._streams)


async def test_the_time_in_which_a_program_does_not_read_does_not_count(jump):
    """Each entry is sent only after the program has begun to wait for it, and it pauses for longer than a try."""
    asked = []

    def script(request):
        if request["action"] == "get_tree":
            asked.append(request["seq"])
        return tree(1, is_whole=False)(request)

    async with scene(one := ScriptedNode("s1", script), config=LATE) as client:
        entries = aiter(client.tree("a"))
        assert (await anext(entries)).value == 0
        stream = await stream_of(client, "get_tree", one)
        later = [{"path": [n], "depth": 0, "value": n, "tock": 1, "wseq": n + 2} for n in (1, 2)] + [{"state": "end"}]
        found = []
        for message in later:
            jump(2 * LATE.retry.try_deadline)
            await asyncio.sleep(0.01)
            reading = asyncio.create_task(anext(entries, None))
            await until(lambda reading=reading: reading.done() or stream._waiter is not None)
            for writer in one._writers:
                writer.write(encode({**message, "seq": asked[0]}))
            found.append(await in_time(reading))
        assert [entry.value for entry in found[:2]] == [1, 2] and found[2] is None


def send(node, seq, number):
    """The entry of this number of a tree; without one, its end."""
    entry = {"path": [number], "depth": 0, "value": number, "tock": 1, "wseq": (number or 0) + 2}
    for writer in node._writers:
        writer.write(encode({**({"state": "end"} if number is None else entry), "seq": seq}))


def slow_tree():
    """A node that begins each tree, and the numbers of the requests for them."""
    asked = []

    def script(request):
        if request["action"] == "get_tree":
            asked.append(request["seq"])
        return tree(0, is_whole=False)(request)

    return ScriptedNode("s1", script), asked


@pytest.mark.parametrize("how", ["list", "iteration", "iteration with a timeout"])
async def test_a_tree_that_keeps_coming_may_take_longer_than_a_call(how, jump):
    node, asked = slow_tree()
    async with scene(node, config=LATE) as client:
        whole = client.tree("a", timeout=20) if "timeout" in how else client.tree("a")

        async def read():
            return await whole if how == "list" else [entry async for entry in whole]

        reading = asyncio.create_task(read())
        stream = await stream_of(client, "get_tree", node)
        for number in range(12):
            send(node, asked[0], number)
            await until(lambda taken=number + 2: stream._taken >= taken or reading.done())
            jump(LATE.retry.try_deadline / 2)
        send(node, asked[0], None)
        assert len(await reading) == 12 and len(asked) == 1


async def test_a_list_of_a_tree_must_be_whole_when_its_timeout_is_over():
    node, asked = slow_tree()
    async with scene(node, config=CONFIG) as client:
        reading = asyncio.ensure_future(client.tree("a", timeout=0.4)._collect())

        async def feed():
            await until(lambda: asked)
            number = 0
            while not reading.done():
                send(node, asked[-1], number)
                number += 1
                await asyncio.sleep(0.01)

        feeding = asyncio.create_task(feed())
        with pytest.raises(UnavailableError):
            await in_time(reading, 0.3)
        await feeding
        with pytest.raises(UnavailableError, match="no time"):
            await client.tree("a", timeout=0)
        with pytest.raises(UsageError):
            await client.tree("a", timeout="soon")


async def test_a_tree_is_not_deleted_at_a_silent_node():
    one, two = pair(lambda request: SILENCE, lambda request: {"changed": 7})
    async with scene(one, two, config=CONFIG) as client:
        path = preferred_path(client, "s1")
        with pytest.raises(FateUnknownError) as caught:
            await in_time(client.delete_tree(path), 0.2)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == len(one.actions("delete_tree")) == 1
        assert not two.actions("delete_tree")
        await until(lambda: not client._pool.is_failing(client._topology.routing.by_name["s1"].address))
        assert await in_time(client.delete_tree(path, again_if_unknown=True), 0.2) == 7
        assert len(one.actions("delete_tree")) > 1


async def test_a_tree_is_not_deleted_at_a_node_that_is_silent_and_cannot_be_asked(monkeypatch):
    one = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(one, config=CONFIG) as client:
        # The view, and the deletion.
        await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)
        monkeypatch.setattr(connection, "OPEN_MAX", 2)
        monkeypatch.setattr(question, "QUESTIONS_KEPT", 0)
        with pytest.raises(FateUnknownError, match="sent nothing") as caught:
            await in_time(client.delete_tree("a"), 0.2)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == 1
        assert not one.actions("get_value") and len(one.actions("delete_tree")) == 1


async def test_a_node_that_cannot_be_asked_is_alive_while_it_sends_to_others(monkeypatch, jump):
    asked = []

    def script(request):
        asked.append(request["seq"])
        return SILENCE

    async with scene(one := ScriptedNode("s1", script), config=LASTING) as client:
        await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)
        monkeypatch.setattr(connection, "OPEN_MAX", 2)
        monkeypatch.setattr(question, "QUESTIONS_KEPT", 0)
        deleting = asyncio.create_task(client.delete_tree("a"))
        await until(lambda: asked)
        (its,) = client._pool.slot(client._topology.routing.by_name["s1"].address).connections
        for _ in range(9):
            now = asyncio.get_running_loop().time()
            one.tell_views()
            await until(lambda now=now: its.heard_at >= now)
            jump(LATE.retry.try_deadline / 3)
        assert not deleting.done()
        for writer in one._writers:
            writer.write(encode({"seq": asked[0], "changed": 9}))
        assert await in_time(deleting) == 9 and len(asked) == 1


async def test_a_tree_may_take_long_to_delete_where_the_node_is_alive(jump):
    asked = []

    def script(request):
        if request["action"] == "delete_tree":
            asked.append(request["seq"])
            return SILENCE
        return error("denied")

    async with scene(one := ScriptedNode("s1", script), config=LASTING) as client:
        await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)
        deleting = asyncio.create_task(client.delete_tree("a"))
        for number in range(5):
            await until(lambda number=number: jump(1) or len(one.actions("get_value")) > number)
        (writer,) = one._writers
        writer.write(encode({"seq": asked[0], "changed": 9}))
        assert await deleting == 9 and len(asked) == 1
        assert client.stats().pool.open_requests == 1, "but for the view, nothing is open"


LONG = RetryPolicy(try_deadline=30.0, total_deadline=60.0)


def gone(request):
    """The entry was deleted, and purged since."""
    return WRITTEN if request["action"] == "set_value" else {}


@pytest.mark.parametrize("silent", ["s3", "s1"], ids=["another one", "the one that made it"])
async def test_an_own_write_that_is_purged_does_not_make_a_read_of_a_majority_wait_for_a_silent_node(silent):
    is_silent = False

    def of(name):
        return ScriptedNode(name, lambda request: SILENCE if is_silent and name == silent else gone(request))

    patience = 30.0 if silent == "s3" else 0.3
    config = Config(retry=LONG, pool=PoolConfig(probe_after=60), own_write_patience=patience)
    async with scene(*map(of, ("s1", "s2", "s3")), config=config) as client:
        path = preferred_path(client, "s1")
        await client.put(path, 1)
        is_silent = True
        assert await in_time(client.get(path, default=None, read="freshest"), 0 if silent == "s3" else 0.2) is None
        assert client.stats().reads.stale_taken == (silent == "s1")
        for _ in range(3):
            assert await in_time(client.entry(path, read="freshest")) is None
        assert client.stats().reads.stale_taken == (silent == "s1"), "it is not looked for again"


@pytest.mark.parametrize(("timeout", "least", "most"), [(None, 24, 30), (20.0, 9, 15), (200, 24, 30)])
async def test_a_node_waits_for_copies_for_a_part_of_the_time_that_is_left(timeout, least, most):
    one = ScriptedNode("s1", lambda request: WRITTEN)
    policy = RetryPolicy(try_deadline=40.0, total_deadline=80.0)
    async with scene(one, config=Config(retry=policy)) as client:
        for call in (
            client.put("a", 1, copies=2, timeout=timeout),
            client.put_raw("a", b"\x01", copies=2, timeout=timeout),
            client.delete("a", copies=2, timeout=timeout),
        ):
            await call
        requests = one.actions("set_value") + one.actions("delete_value")
        assert len(requests) == 3
        for request in requests:
            assert request["copies"] == 2 and least <= request["timeout"] <= most
        await client.put("a", 1)
        assert not {"copies", "timeout"} & one.actions("set_value")[-1].keys()


async def test_each_try_waits_for_copies_in_what_it_has_left():
    count = 0

    def script(request):
        nonlocal count
        count += 1
        return error("unknown_fate") if count < 4 else WRITTEN

    policy = RetryPolicy(initial_delay=0.2, factor=1, try_deadline=50.0, total_deadline=40.0)
    async with scene(one := ScriptedNode("s1", script), config=Config(retry=policy)) as client:
        await client.put("a", 1, copies=1)
        waits = [request["timeout"] for request in one.actions("set_value")]
        assert len(waits) == 4 and waits == sorted(waits, reverse=True) and waits[0] - waits[-1] >= 0.2


async def test_a_short_deadline_ends_as_not_confirmed(client, base):
    with pytest.raises(FateUnknownError, match="not confirmed in time; of the last try: the change is made") as caught:
        # A quarter of it is for the answer.
        await client.put(base, 1, copies=7, timeout=16.0)
    assert caught.value.fate is Fate.UNCONFIRMED and caught.value.code == "unknown_fate"
    assert await client.get(base) == 1
