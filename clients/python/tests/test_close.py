"""What is open when the client is closed: it may come to its end for a while, and then says what may have been done."""

import asyncio
import time
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, ScriptedNode, error
from test_patience import LASTING, listed, send, slow_tree
from test_rules import scene

from distkv_client import ClosedError, ClosedFateUnknownError, DeniedError, Fate, FateUnknownError
from distkv_client.codec import encode

CONFIG = replace(LASTING, own_writes_max=0)
SOON = 20.0
"""Far less than all else that is waited for."""


def asks(node, action):
    """The numbers of the requests that a silent node has got."""
    return [request["seq"] for request in node.actions(action)]


def answer(node, seq, reply):
    for writer in node._writers:
        writer.write(encode({**reply, "seq": seq}))


async def closing(client, grace):
    """The task that closes it, once nothing new begins."""
    task = asyncio.create_task(client.close(grace=grace))
    await until(lambda: client._caller.is_closing)
    return task


async def test_a_watch_that_is_not_read_does_not_hold_up_the_end_where_there_is_no_flow_control():
    def script(request):
        parts = [{"state": "start", "wseq": 1}]
        for number in range(100):
            chain = {"node": "x~7", "tick": number + 1, "prev": None}
            parts.append({"path": [number], "depth": 0, "value": 1, "tock": 1, "chain": chain, "wseq": number + 2})
        return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)

    node = ScriptedNode("s1", script)
    node.qlen = 0
    # What a node says of a watch at once is waited for no longer than a part of this, behind what nobody reads.
    config = replace(CONFIG, retry=replace(CONFIG.retry, try_deadline=1.0))
    async with scene(node, config=config) as client, client.watch("a"):
        (connection,) = client._pool.slot(client._topology.routing.targets[0].address).connections
        await until(lambda: connection._full)
        await asyncio.wait_for(client.close(), SOON)


@pytest.mark.parametrize("how", ["list", "iteration"])
async def test_a_tree_may_come_to_its_end_when_the_client_is_closed(how):
    node, asked = slow_tree()
    async with scene(node, config=CONFIG) as client:
        work = client.tree("a")._collect() if how == "list" else listed(client, "a")
        reading = asyncio.create_task(work)
        await until(lambda: asked)
        send(node, asked[0], 0)
        await until(lambda: client._caller.open_calls == 1)
        end = await closing(client, 1000)
        for number in (1, 2, None):
            assert not reading.done() and not end.done()
            send(node, asked[0], number)
            await asyncio.sleep(0)
        async with asyncio.timeout(SOON):
            assert len(await reading) == 3
            await end


async def test_a_tree_that_does_not_end_is_closed():
    node, asked = slow_tree()
    async with scene(node, config=CONFIG) as client:
        entries = aiter(client.tree("a"))
        first = asyncio.create_task(anext(entries))
        await until(lambda: asked)
        send(node, asked[0], 0)
        await first
        reading = asyncio.create_task(anext(entries))
        await (await closing(client, 0.1))
        with pytest.raises(ClosedError) as caught:
            await reading
        assert caught.value.attempts == 1 and caught.value.fate is Fate.NOT_DONE


def begins(request, *then):
    """A stream's start, and what follows at once."""
    parts = ({"state": "start", "wseq": 1}, *then)
    return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)


ITERATED = {"tree": lambda client: client.tree("a"), "conflicts": lambda client: client.conflicts("a")}


@pytest.mark.parametrize("end", ["its end", "an error", "aclose"])
@pytest.mark.parametrize("what", ITERATED)
async def test_what_was_iterated_to_its_end_does_not_hold_up_the_end_of_the_client(what, end):
    """Though the iterator is still in scope."""
    last = error("denied") if end == "an error" else {"state": "end"}
    async with scene(ScriptedNode("s1", lambda request: begins(request, last)), config=CONFIG) as client:
        things = aiter(ITERATED[what](client))
        if end == "aclose":
            await things.aclose()
        else:
            with pytest.raises(StopAsyncIteration if end == "its end" else DeniedError):
                await anext(things)
        async with asyncio.timeout(SOON):
            await client.close(grace=1000)
        with pytest.raises(StopAsyncIteration):
            await anext(things)


async def test_who_closes_the_client_while_it_iterates_waits_no_longer_than_it_says(client, base):
    for number in range(3):
        await client.put(base / number, number)
    started = time.monotonic()
    found = []
    async for entry in client.tree(base):
        found.append(entry.value)
        if len(found) == 1:
            async with asyncio.timeout(SOON):
                await client.close(grace=0.2)
            assert time.monotonic() - started >= 0.2
    # They had come before.
    assert found == [0, 1, 2]


@pytest.mark.parametrize("what", ["freshest", "conflicts"])
async def test_what_asks_several_nodes_may_come_to_its_end_when_the_client_is_closed(what):
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node, config=CONFIG) as client:
        action = "get_value" if what == "freshest" else "conflicts"

        async def ask():
            return await (client.get("a", read="freshest") if what == "freshest" else client.conflicts())

        asking = asyncio.create_task(ask())
        (seq,) = await until(lambda: asks(node, action))
        end = await closing(client, 1000)
        assert not end.done()
        if what == "freshest":
            answer(node, seq, {"value": "here", "tock": 1})
        else:
            answer(node, seq, {"state": "start", "wseq": 1})
            answer(node, seq, {"state": "end"})
        async with asyncio.timeout(SOON):
            found = await asking
            await end
        assert found == "here" if what == "freshest" else found.nodes == ["s1"]


async def test_of_several_that_close_a_client_the_least_patient_counts():
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node, config=CONFIG) as client:
        reading = asyncio.create_task(client.get("a"))
        await until(lambda: asks(node, "get_value"))
        patient = await closing(client, 1000)
        async with asyncio.timeout(SOON):
            await client.close(grace=0.05)
            await patient
            with pytest.raises(ClosedError):
                await reading


CHANGES = {
    "put": lambda client: client.put("a", 1),
    "put without an id": lambda client: client.put("a", 1, write_id=None),
    "delete": lambda client: client.delete("a"),
    "delete_tree": lambda client: client.delete_tree("a"),
    "batch": lambda client: client.batch().put("a", 1).run(),
    "send": lambda client: client.send("a", 1),
    "request": lambda client: client.request("set_value", path="a", value=1),
    "request that may be repeated": lambda client: client.request("set_value", path="a", value=1, idempotent=True),
}


async def test_what_the_end_of_the_client_cuts_off_may_have_been_done():
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node, config=CONFIG) as client:
        before = len(node.requests)
        changing = {name: asyncio.create_task(change(client)) for name, change in CHANGES.items()}
        reading = asyncio.create_task(client.get("b"))
        await until(lambda: len(node.requests) >= before + len(CHANGES) + 1)
        await client.close(grace=0)
        for name, task in changing.items():
            with pytest.raises(ClosedError) as caught:
                await task
            assert type(caught.value) is ClosedFateUnknownError and isinstance(caught.value, FateUnknownError), name
            assert caught.value.fate is Fate.UNKNOWN and caught.value.code == "closed" and caught.value.attempts, name
        with pytest.raises(ClosedError) as caught:
            await reading
        assert type(caught.value) is ClosedError and caught.value.fate is Fate.NOT_DONE


async def test_a_watch_ends_at_once_when_the_client_is_closed_though_a_call_is_open():
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node, config=CONFIG) as client:
        reading = asyncio.create_task(client.get("a"))
        watch = client.watch("a", fetch=False)
        waiting = asyncio.create_task(watch.next())
        for seq in await until(lambda: asks(node, "watch")):
            answer(node, seq, {"state": "start", "wseq": 1})
        await until(lambda: asks(node, "auth_info") or watch.node)
        end = await closing(client, 1000)
        async with asyncio.timeout(SOON):
            with pytest.raises(ClosedError):
                await waiting
        assert not end.done()
        answer(node, asks(node, "get_value")[-1], {"value": 1, "tock": 1})
        assert await reading == 1
        await end
