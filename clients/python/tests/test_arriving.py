"""An answer that is still arriving is not the node's silence: it is waited for, and the node counts as alive."""

import asyncio

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, error
from slow_node import ARRIVING, CALL, PAUSE, READS, TRY, Slow, connection_of, parts_of, quiet, tree_of, turns
from test_rules import pair, preferred_path

from distkv_client import UnavailableError, Version, connection, line, question
from distkv_client.codec import encode
from distkv_client.line import LONGEST_ARRIVAL, Line
from distkv_client.settle import Doubt, Settled, settle


@pytest.fixture(autouse=True)
def unhurried(monkeypatch):
    """Nothing is late, and nothing has stopped arriving, but for what :func:`jump` makes so."""
    monkeypatch.setattr(line, "ARRIVING", ARRIVING)


def test_a_message_arrives_as_long_as_some_of_it_comes(monkeypatch):
    monkeypatch.undo()
    one = Line()
    assert not one.is_arriving(0.0) and one.further(0.0, 9.0) is None
    one.on_read(5.0, is_part=True)
    assert one.is_arriving(5.0) and one.is_arriving(5.99) and not one.is_arriving(6.0)
    assert one.further(5.5, 9.0) == 5.6 and one.further(5.5, 5.55) == 5.55
    assert one.further(5.5, 5.5) is None and one.further(6.0, 9.0) is None
    one.on_read(5.1, is_part=False)
    assert not one.is_arriving(5.1)
    assert LONGEST_ARRIVAL == 135


HERE = {"value": "here", "tock": 5, "chain": {"node": "x~7", "tick": 1, "prev": None}}
ARRIVALS = {**READS, "put": ("set_value", lambda client: client.put("b", 1))}


def value_of(found):
    return getattr(found[0] if isinstance(found, list) and found else found, "value", found)


@pytest.mark.parametrize(("action", "call"), ARRIVALS.values(), ids=ARRIVALS)
async def test_an_answer_that_arrives_slowly_is_waited_for(action, call, jump):
    slow = Slow(action)
    async with quiet(slow.node) as client:
        calling = asyncio.ensure_future(call(client))
        seq = await slow.asked()
        reply = {**HERE, "results": [HERE], "result": ["here"], **(WRITTEN if action == "set_value" else {})}
        await slow.send_slowly(client, encode({**reply, "seq": seq}), jump)
        assert value_of(await calling) in ("here", ["here"], b"\xa4here") or action == "set_value"
        stats = client.stats()
        assert len(slow.node.actions(action)) == 1
        assert stats.retry.timed_out == stats.pool.probes == 0


async def test_so_is_one_behind_another_that_arrives(jump):
    slow = Slow("get_value")
    async with quiet(slow.node) as client:
        reading = asyncio.create_task(client.get("a"))
        first = await slow.asked()
        slow.action = "set_value"
        putting = asyncio.create_task(client.put("b", 1))
        second = await slow.asked()
        data = encode({**HERE, "seq": first}) + encode({**WRITTEN, "seq": second})
        await slow.send_slowly(client, data, jump)
        assert await reading == "here" and (await putting).attempts == 1


@pytest.mark.parametrize("how", ["get", "get, freshest", "tree"])
async def test_one_that_stops_arriving_is_not_waited_for(how, jump):
    one, two = pair(lambda request: SILENCE, tree_of("two"))
    async with quiet(one, two) as client:
        path = preferred_path(client, "s1")
        slow = Slow("get_tree" if how == "tree" else "get_value")
        slow.node = one
        if how == "tree":
            reading = asyncio.ensure_future(client.tree(path)._collect())
            data = encode({"state": "start", "wseq": 1, "seq": await slow.asked(), "more": "x" * 100})
        else:
            read = "freshest" if "freshest" in how else None
            reading = asyncio.ensure_future(client.get(path, read=read))
            data = encode({**HERE, "seq": await slow.asked()})
        await slow.send(client, data)
        jump(PAUSE)
        await turns()
        await slow.send(client, slow.rest, 2)
        jump(ARRIVING + 1)
        if how == "get, freshest":
            # There is no majority without it: it is asked again.
            await until(lambda: len(one.actions("get_value")) > 1)
            reading.cancel()
        else:
            assert value_of(await reading) == "two"
            assert sum(request["path"] == path for request in one.actions(slow.action)) == 1
            assert client.stats().pool.probes == 1


STREAMS = {
    "list": ("get_tree", lambda client: client.tree("a")),
    "list within a time": ("get_tree", lambda client: client.tree("a", timeout=CALL)),
    "iteration": ("get_tree", lambda client: aiter(client.tree("a"))),
    "conflicts": ("conflicts", lambda client: client.conflicts("a")),
    "iteration over conflicts": ("conflicts", lambda client: aiter(client.conflicts("a"))),
}


@pytest.mark.parametrize("which", [0, 1], ids=["its start", "an entry"])
@pytest.mark.parametrize(("action", "call"), STREAMS.values(), ids=STREAMS)
async def test_a_tree_that_arrives_slowly_is_waited_for(action, call, which, jump):
    slow = Slow(action)
    async with quiet(slow.node) as client:
        reading = asyncio.ensure_future(_gathered(call(client)))
        seq = await slow.asked()
        parts = list(parts_of("here" * 10))
        if action == "conflicts":
            parts[1] = {"path": ["e"], "depth": 0, "conflict": {"winner": HERE, "loser": HERE}, "wseq": 2}
        data = [encode({**part, "seq": seq}) for part in parts]
        if which:
            await slow.send(client, data[0], 1)
        await slow.send_slowly(client, data[which], jump)
        await slow.send(client, b"".join(data[which + 1 :]), 1)
        assert len(await reading) == 1 and len(slow.node.actions(action)) == 1
        assert client.stats().retry.timed_out == client.stats().pool.probes == 0


async def _gathered(tree):
    if not hasattr(tree, "__await__"):
        return [entry async for entry in tree]
    found = await tree
    return getattr(found, "conflicts", found)


async def test_an_entry_may_take_as_long_as_the_longest_message_and_no_longer(jump):
    one, two = pair(lambda request: SILENCE, tree_of("two"))
    async with quiet(one, two) as client:
        slow = Slow("get_tree")
        slow.node = one
        path = preferred_path(client, "s1")
        reading = asyncio.ensure_future(client.tree(path)._collect())
        await slow.send(client, encode({**parts_of("x" * 100)[0], "more": "x" * 100, "seq": await slow.asked()}), 5)
        for parts in (4, 3):
            jump(PAUSE)
            await turns()
            await slow.send(client, slow.rest, parts)
            assert not two.actions("get_tree")
        jump(PAUSE)
        assert TRY + LONGEST_ARRIVAL < 3 * PAUSE
        assert value_of(await reading) == "two"


async def test_an_answer_is_waited_for_no_longer_than_its_call_lasts(jump):
    slow = Slow("get_value")
    async with quiet(slow.node) as client:
        reading = asyncio.create_task(client.get("a", timeout=PAUSE + TRY))
        await slow.send(client, encode({**HERE, "seq": await slow.asked()}))
        jump(PAUSE)
        await turns()
        assert not reading.done()
        await slow.send(client, slow.rest)
        jump(PAUSE)
        with pytest.raises(UnavailableError):
            await reading
        # The node is heard, for all that.
        assert client.stats().pool.probes == 0
        assert not client._pool.is_failing(client._topology.routing.by_name["s1"].address)


async def test_what_a_watch_asks_is_waited_for(jump):
    """Its stream may be what arrives."""
    slow = Slow("check_deleted")
    slow.node.script = lambda request: SILENCE if request["action"] == "check_deleted" else HERE
    async with quiet(slow.node) as client:
        doubt = Doubt(client.batch().get("a")._ops[0][0], Version(5, "x~7", 1), is_arriving=False)
        settling = asyncio.create_task(settle(connection_of(client), [doubt], TRY))
        await slow.send_slowly(client, encode({"missing": {}, "more": "x" * 50, "seq": await slow.asked()}), jump)
        ((settled, _),) = await settling
        assert settled is Settled.SAME


# -- whether a node is alive ---------------------------------------------------------------------


async def test_a_connection_on_which_an_answer_arrives_is_not_closed(jump):
    slow = Slow("get_value")
    async with quiet(slow.node) as client:
        reading = asyncio.create_task(client.get("a"))
        seq = await slow.asked()
        await slow.send(client, encode({**HERE, "seq": seq}))
        client._pool.probe(client._topology.routing.by_name["s1"].address)
        await until(lambda: len(slow.node.actions("get_value")) == 2)
        probe = slow.node.actions("get_value")[1]["seq"]
        for parts in (2, 1):
            jump(PAUSE)
            await turns()
            await slow.send(client, slow.rest, parts)
        assert await reading == "here" and client.stats().pool.silent_closed == 0
        await slow.send(client, encode({**error("denied"), "seq": probe}), 1)
        await until(lambda: not connection_of(client).is_probed)
        assert connection_of(client).ended is None


async def test_one_on_which_it_stops_arriving_is_closed(jump):
    slow = Slow("get_value")
    async with quiet(slow.node) as client:
        reading = asyncio.create_task(client.get("a"))
        await slow.send(client, encode({**HERE, "seq": await slow.asked()}))
        its = connection_of(client)
        client._pool.probe(client._topology.routing.by_name["s1"].address)
        await until(lambda: len(slow.node.actions("get_value")) == 2)
        jump(PAUSE)
        await turns()
        assert client.stats().pool.silent_closed == 0
        jump(ARRIVING)
        await until(lambda: client.stats().pool.silent_closed == 1)
        assert its.ended is not None
        reading.cancel()


@pytest.mark.parametrize("may_be_asked", [True, False], ids=["asked", "not to be asked"])
async def test_a_tree_goes_on_being_deleted_while_an_answer_arrives(may_be_asked, jump, monkeypatch):
    slow = Slow("get_tree")
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        deleting = asyncio.create_task(client.delete_tree("a"))
        deletion = (await until(lambda: slow.node.actions("delete_tree")))[0]["seq"]
        listing = asyncio.ensure_future(client.tree("b")._collect())
        seq = await slow.asked()
        start, *rest = (encode({**part, "seq": seq}) for part in parts_of("here" * 10))
        await slow.send(client, start, 1)
        if not may_be_asked:
            monkeypatch.setattr(connection, "OPEN_MAX", 3)
            monkeypatch.setattr(question, "QUESTIONS_KEPT", 0)
        await slow.send_slowly(client, rest[0], jump)
        assert not deleting.done()
        await slow.send(client, rest[1] + encode({"changed": 9, "seq": deletion}), 1)
        assert len(await listing) == 1 and await deleting == 9
        assert len(slow.node.actions("delete_tree")) == 1


async def test_so_it_is_where_the_node_takes_no_question(jump):
    """It may take nothing while it sends."""
    slow = Slow("get_value")
    async with quiet(slow.node) as client:
        reading = asyncio.create_task(client.get("a"))
        seq = await slow.asked()
        await slow.send(client, encode({**HERE, "seq": seq}))
        its = connection_of(client)
        its.pause_writing()
        client._pool.probe(client._topology.routing.by_name["s1"].address)
        await until(lambda: its._writable is not None)
        jump(PAUSE)
        await until(lambda: not its.is_probed)
        assert its.ended is None and client.stats().pool.silent_closed == 0
        its.resume_writing()
        await slow.send(client, slow.rest, 1)
        assert await reading == "here"
