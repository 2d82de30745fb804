"""How long silent nodes are waited for: by listings of trees, deletions of trees, reads of a majority, and copies."""

import asyncio
import time

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
)
from distkv_client.codec import encode

QUICK = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=0.2, total_deadline=30.0)
CONFIG = Config(retry=QUICK, pool=PoolConfig(probe_timeout=30))
SOON = 8.0
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


async def test_an_iteration_begins_at_another_node_and_is_given_up_behind_its_first_entry():
    one, two = pair(SILENT["after its start"], tree(3))
    async with scene(one, two, config=CONFIG) as client:
        assert await in_time(listed(client, preferred_path(client, "s1")), 0.2) == [0, 1, 2]
    one, two = pair(SILENT["in its middle"], tree(3))
    async with scene(one, two, config=CONFIG) as client:
        with pytest.raises(UnavailableError, match="sent nothing"):
            await in_time(listed(client, preferred_path(client, "s1")), 0.2)


async def test_the_time_in_which_a_program_does_not_read_does_not_count():
    """Each entry is sent only after the program has begun to wait for it, and it pauses for longer than a try."""
    asked = []

    def script(request):
        if request["action"] == "get_tree":
            asked.append(request["seq"])
        return tree(1, is_whole=False)(request)

    async with scene(one := ScriptedNode("s1", script), config=CONFIG) as client:
        entries = aiter(client.tree("a"))
        assert (await anext(entries)).value == 0
        (slot,) = client._pool._slots.values()
        (stream,) = (c._streams[asked[0]] for c in slot.connections if asked[0] in c._streams)
        later = [{"path": [n], "depth": 0, "value": n, "tock": 1, "wseq": n + 2} for n in (1, 2)] + [{"state": "end"}]
        found = []
        for message in later:
            await asyncio.sleep(2 * QUICK.try_deadline)
            reading = asyncio.create_task(anext(entries, None))
            await until(lambda reading=reading: reading.done() or stream._waiter is not None)
            for writer in one._writers:
                writer.write(encode({**message, "seq": asked[0]}))
            found.append(await in_time(reading))
        assert [entry.value for entry in found[:2]] == [1, 2] and found[2] is None


BRIEF = Config(retry=RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=0.3, total_deadline=0.5))


async def fed(node, asked, reading, longer):
    """Sends entry after entry of the tree that was asked for, then its end; it takes so many seconds, or longer."""
    await until(lambda: asked)
    started = time.monotonic()
    number = 0
    while not reading.done():
        is_over = time.monotonic() - started > longer
        entry = {"path": [number], "depth": 0, "value": number, "tock": 1, "wseq": number + 2}
        for writer in node._writers:
            writer.write(encode({**({"state": "end"} if is_over else entry), "seq": asked[-1]}))
        number += not is_over
        await asyncio.sleep(0.01)
    return number


def slow_tree():
    """A node that begins each tree, and the numbers of the requests for them."""
    asked = []

    def script(request):
        if request["action"] == "get_tree":
            asked.append(request["seq"])
        return tree(0, is_whole=False)(request)

    return ScriptedNode("s1", script), asked


@pytest.mark.parametrize("how", ["list", "iteration", "iteration with a timeout"])
async def test_a_tree_that_keeps_coming_may_take_longer_than_a_call(how):
    node, asked = slow_tree()
    async with scene(node, config=BRIEF) as client:
        whole = client.tree("a", timeout=0.4) if "timeout" in how else client.tree("a")

        async def read():
            return await whole if how == "list" else [entry async for entry in whole]

        reading = asyncio.create_task(read())
        sent = await fed(node, asked, reading, 3 * BRIEF.retry.total_deadline)
        assert len(await reading) == sent > 10 and len(asked) == 1


async def test_a_list_of_a_tree_must_be_whole_when_its_timeout_is_over():
    node, asked = slow_tree()
    async with scene(node, config=CONFIG) as client:
        reading = asyncio.ensure_future(client.tree("a", timeout=0.4)._collect())
        feeding = asyncio.create_task(fed(node, asked, reading, 60))
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
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == 1
        await until(lambda: not client._pool.is_failing(client._topology.routing.by_name["s1"].address))
        assert await in_time(client.delete_tree(path, again_if_unknown=True), 0.2) == 7
        assert len(one.actions("delete_tree")) == 2


async def test_a_tree_is_not_deleted_at_a_node_that_is_silent_and_cannot_be_asked(monkeypatch):
    one = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(one, config=CONFIG) as client:
        # The view, and the deletion.
        await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)
        monkeypatch.setattr(connection, "OPEN_MAX", 2)
        with pytest.raises(FateUnknownError, match="sent nothing") as caught:
            await in_time(client.delete_tree("a"), 0.2)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == 1
        assert not one.actions("get_value") and len(one.actions("delete_tree")) == 1


async def test_a_node_that_cannot_be_asked_is_alive_while_it_sends_to_others(monkeypatch):
    asked = []

    def script(request):
        asked.append(request["seq"])
        return SILENCE

    async with scene(one := ScriptedNode("s1", script), config=CONFIG) as client:
        await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)
        monkeypatch.setattr(connection, "OPEN_MAX", 2)
        started = time.monotonic()
        deleting = asyncio.create_task(client.delete_tree("a"))
        await until(lambda: one.tell_views() or time.monotonic() - started > 3 * QUICK.try_deadline)
        assert not deleting.done()
        for writer in one._writers:
            writer.write(encode({"seq": asked[0], "changed": 9}))
        assert await in_time(deleting) == 9 and len(asked) == 1


async def test_a_tree_may_take_long_to_delete_where_the_node_is_alive():
    asked = []

    def script(request):
        if request["action"] == "delete_tree":
            asked.append(request["seq"])
            return SILENCE
        return error("denied")

    async with scene(one := ScriptedNode("s1", script), config=CONFIG) as client:
        deleting = asyncio.create_task(client.delete_tree("a"))
        await until(lambda: len(one.actions("get_value")) >= 5)
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


@pytest.mark.parametrize(("timeout", "least", "most"), [(None, 1.0, 1.5), (1.0, 0.4, 0.75), (60, 1.0, 1.5)])
async def test_a_node_waits_for_copies_for_a_part_of_the_time_that_is_left(timeout, least, most):
    one = ScriptedNode("s1", lambda request: WRITTEN)
    async with scene(one, config=Config()) as client:
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

    policy = RetryPolicy(initial_delay=0.2, factor=1, total_deadline=1.9)
    async with scene(one := ScriptedNode("s1", script), config=Config(retry=policy)) as client:
        await client.put("a", 1, copies=1)
        waits = [request["timeout"] for request in one.actions("set_value")]
        assert len(waits) == 4 and waits == sorted(waits, reverse=True) and waits[0] - waits[-1] >= 0.2


async def test_a_short_deadline_ends_as_not_confirmed(client, base):
    with pytest.raises(FateUnknownError) as caught:
        await client.put(base, 1, copies=7, timeout=0.5)
    assert caught.value.fate is Fate.UNCONFIRMED and caught.value.code == "unknown_fate"
    assert await client.get(base) == 1
