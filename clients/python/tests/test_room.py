"""How many streams there is room for, that they leave room for calls, and that a node can be asked whether it is alive
where there is no room."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import CONFIG, POOL, preferred_path, scene

from distkv_client import Fate, Path, UnavailableError, UpToDate, connection, pool, question
from distkv_client.codec import encode

OPEN, STREAMS = 8, 5
ONE_EACH = replace(CONFIG, pool=replace(POOL, connections_per_node=1))
FAR = CONFIG.retry.total_deadline / 2
"""Who is told within so many seconds has not tried until the deadline."""
STREAM_ACTIONS = ("watch", "msg_monitor", "get_tree")


@pytest.fixture(autouse=True)
def few_places(monkeypatch):
    monkeypatch.setattr(connection, "OPEN_MAX", OPEN)
    for module in (connection, pool):
        monkeypatch.setattr(module, "STREAMS_MAX", STREAMS, raising=False)


def script(request):
    """Streams begin, and go on; the rest is done."""
    if request["action"] not in STREAM_ACTIONS:
        return {**WRITTEN, "value": 1}
    seq = request["seq"]
    entry = {"seq": seq, "path": [], "depth": 0, "value": 1, "tock": 1, "wseq": 2}
    parts = ({"seq": seq, "state": "start", "wseq": 1}, entry, {"seq": seq, "state": "uptodate", "wseq": 3})
    return b"".join(map(encode, parts))


def nodes(*names):
    return [ScriptedNode(name, script) for name in names]


async def fill(client, path, stack):
    """Opens watches until there is no room: how many there are, and the error."""
    for count in range(100):
        try:
            async with asyncio.timeout(FAR):
                await stack.enter_async_context(client.watch(path))
        except UnavailableError as full:
            return count, full
    raise AssertionError("there is room without end")


async def after_its_view(client, one):
    """The client's view is a stream as well, and is there from now on."""
    await until(lambda: one.actions("list_shards") and client._pool.open_replies() == 1)


async def test_streams_leave_room_for_calls_and_who_finds_none_is_told_the_setting_at_once():
    (one,) = nodes("s1")
    async with scene(one) as client, AsyncExitStack() as stack:
        await after_its_view(client, one)
        count, full = await fill(client, "a", stack)
        assert count == 2 * STREAMS - 1, "the view is one of them"
        assert "10 watches" in full.text and "2 connections" in full.text and f"at most {STREAMS}" in full.text
        assert "`pool.connections_per_node` is 2, and may be up to 16" in full.text
        assert "in time" not in str(full) and full.code == "too_many_streams"
        assert full.attempts == 1 and full.fate is Fate.NOT_DONE
        for stream in (client.tree("a")._collect(), client.monitor("a").begin()):
            with pytest.raises(UnavailableError, match="connections_per_node") as caught:
                await stream
            assert caught.value.attempts == 1
        failures = client.stats().router.nodes["s1"].failures
        for _ in range(3):
            await client.put("a", 1)
        assert client.stats().router.nodes["s1"].failures == failures, "no try of a call has failed"
        assert one.accepted == 2


async def test_where_a_stream_ends_there_is_room_for_another():
    (one,) = nodes("s1")
    async with scene(one, config=ONE_EACH) as client, AsyncExitStack() as stack:
        await after_its_view(client, one)
        last = client.watch("b")
        await last.begin()
        await fill(client, "a", stack)
        await last.aclose()
        async with client.watch("b") as watch:
            while not isinstance(await watch.next(), UpToDate):
                pass


async def test_a_stream_goes_to_another_node_where_one_has_no_room():
    three = nodes("s1", "s2", "s3")
    async with scene(*three, config=ONE_EACH) as client, AsyncExitStack() as stack:
        await until(lambda: client._pool.open_replies() >= 1)
        path = preferred_path(client, "s1")
        count, full = await fill(client, path, stack)
        assert count == 3 * STREAMS - 1 and full.attempts == 3 and "connections_per_node" in full.text
        for one in three:
            assert len(one.actions("watch")) >= STREAMS - 1


async def test_who_cannot_be_reached_is_no_reason_to_wait_for_room():
    one, two = nodes("s1", "s2")
    async with scene(one, two, config=ONE_EACH) as client, AsyncExitStack() as stack:
        await until(lambda: client._pool.open_replies() >= 1)
        path = preferred_path(client, "s1")
        await two.stop()
        try:
            count, full = await fill(client, path, stack)
            assert STREAMS - 1 <= count <= STREAMS and "connections_per_node" in full.text
            assert full.node == "s1" and full.code == "too_many_streams"
        finally:
            await two.start()


async def test_who_may_have_room_is_asked_again():
    """A node that is not ready may be, soon."""
    one, two = nodes("s1", "s2")
    is_ready = False
    two.script = lambda request: script(request) if is_ready else error("not_ready")
    async with scene(one, two, config=ONE_EACH) as client, AsyncExitStack() as stack:
        await until(lambda: client._pool.open_replies() >= 1)
        path = preferred_path(client, "s1")
        for _ in range(STREAMS - 1):
            await stack.enter_async_context(client.watch(path))
        opening = [asyncio.ensure_future(stack.enter_async_context(client.watch(path))) for _ in range(2)]
        await until(lambda: len(two.actions("watch")) > 2)
        is_ready = True
        assert [watch.node for watch in await asyncio.gather(*opening)][-1] == "s2"


async def test_who_finds_a_connection_full_waits_for_the_next_one():
    """All at once, before there is a second connection: no try fails."""
    one = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(one) as client:
        await after_its_view(client, one)
        calls = [asyncio.ensure_future(client.get("a")) for _ in range(2 * OPEN - 1)]
        await until(lambda: len(one.actions("get_value")) == len(calls))
        assert client.stats().router.nodes["s1"].failures == 0 and one.accepted == 2
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_so_do_streams_for_each_connection_that_there_may_be():
    (one,) = nodes("s1")
    async with scene(one, config=replace(CONFIG, pool=replace(POOL, connections_per_node=4))) as client:
        await after_its_view(client, one)
        watches = [client.watch("a") for _ in range(4 * STREAMS - 1)]
        await asyncio.gather(*(watch.begin() for watch in watches))
        assert client.stats().router.nodes["s1"].failures == 0 and one.accepted == 4
        for watch in watches:
            await watch.aclose()


async def test_the_client_has_its_own_view_where_streams_have_no_room():
    (one,) = nodes("s1")
    async with scene(one, config=ONE_EACH) as client, AsyncExitStack() as stack:
        await after_its_view(client, one)
        await fill(client, "a", stack)
        views = len(one.actions("watch_cluster"))
        client._topology._stream.close()
        await stack.enter_async_context(client.watch("a"))
        await until(lambda: len(one.actions("watch_cluster")) > views)


def questions(node):
    """What the client asks of its own accord: the callers' requests are about other paths than the root."""
    return [request for request in node.actions("get_value") if is_question(request)]


def is_question(request):
    return request["action"] == "get_value" and request["path"] == Path()


@asynccontextmanager
async def full_of_calls(*others, answers=SILENCE, probe_timeout=30.0):
    """A node that answers questions so, and calls not at all, and a client with calls to it: they take all places."""
    one = ScriptedNode("s1", lambda request: answers if is_question(request) else SILENCE)
    config = replace(ONE_EACH, pool=replace(POOL, connections_per_node=1, probe_timeout=probe_timeout))
    async with scene(one, *others, config=config) as client:
        path, calls = preferred_path(client, "s1"), []
        slot = await until(lambda: client._pool.slot(client._topology.routing.by_name["s1"].address))
        while not (slot.connections and slot.connections[0].load == OPEN):
            calls.append(asyncio.ensure_future(client.get(path)))
            await until(lambda: len(one.actions("get_value")) == len(calls))
        client._pool.probe(slot.connections[0].address)
        yield client, one, slot.connections[0], calls
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_silent_node_is_given_up_though_its_connection_is_full():
    two = ScriptedNode("s2", lambda request: {"value": 2, "tock": 1})
    async with full_of_calls(two, probe_timeout=0.2) as (client, one, _, calls):
        assert await asyncio.gather(*calls) == [2] * len(calls)
        assert client.stats().pool.silent_closed == 1 and len(questions(one)) == 1


async def test_it_is_not_given_up_before_it_has_had_time_to_answer():
    async with full_of_calls() as (client, one, its, _):
        await until(lambda: questions(one))
        assert its.ended is None and its.is_probed and client.stats().pool.silent_closed == 0


async def test_nor_if_it_says_that_it_is_alive():
    async with full_of_calls(answers=error("denied")) as (client, one, its, _):
        await until(lambda: questions(one) and not its.is_probed)
        assert its.ended is None and client.stats().pool.silent_closed == 0


async def test_where_it_cannot_even_be_asked_it_is_given_up_as_late(monkeypatch):
    monkeypatch.setattr(question, "QUESTIONS_KEPT", 0)
    two = ScriptedNode("s2", lambda request: {"value": 2, "tock": 1})
    begun = asyncio.get_running_loop().time()
    async with full_of_calls(two, probe_timeout=0.5) as (client, one, _, calls):
        assert await asyncio.gather(*calls) == [2] * len(calls)
        assert client.stats().pool.silent_closed == 1 and not questions(one)
        assert asyncio.get_running_loop().time() - begun >= 0.5
