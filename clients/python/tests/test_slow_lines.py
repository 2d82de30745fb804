"""What has to be sent before a node can answer is not its silence: tries take longer, and count for longer."""

import asyncio
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN
from slow_node import (
    BIG,
    BIG_TAKES,
    CALL,
    CLOCK,
    CONFIG,
    LITTLE,
    READS,
    SLOW_BYTES_PER_S,
    TRY,
    Slow,
    connection_of,
    is_about,
    now,
    quiet,
    times_of,
    turns,
)

from distkv_client import FateUnknownError, connection, line, question, try_time
from distkv_client.codec import encode
from distkv_client.line import LONGEST_ARRIVAL, Line, sending
from distkv_client.try_time import ROUNDED


@pytest.fixture(autouse=True)
def slow_line(monkeypatch):
    """And the nodes' clocks stand still, as they are counted here."""
    monkeypatch.setattr(line, "LINE_BYTES_PER_S", SLOW_BYTES_PER_S)
    monkeypatch.setattr(try_time, "monotonic", lambda: 5_000.0)


# -- what is counted -----------------------------------------------------------------------------


def test_a_line_counts_what_is_under_way(monkeypatch):
    monkeypatch.undo()
    one = Line()
    assert (sending(0), sending(1_000_000), one.delay, one.delay_of(255)) == (0, 2.0, 0, 0)
    assert one.delay_of(256) == 256 / 500_000
    one.on_request(1_500_000)
    assert (one.unanswered_bytes, one.delay, one.delay_of(10), one.delay_of(500_000)) == (1_500_000, 3.0, 3.0, 4.0)
    one.on_request(500_000)
    one.on_answer(1_500_000)
    assert (one.unanswered_bytes, one.delay) == (500_000, 1.0)


# -- what has to be sent -------------------------------------------------------------------------

CHANGES = {
    "put": ("set_value", lambda client, path: client.put(path, BIG)),
    "put_raw": ("set_value", lambda client, path: client.put_raw(path, encode(BIG))),
    "put for copies": ("set_value", lambda client, path: client.put(path, BIG, copies=1)),
    "batch": ("batch", lambda client, path: client.batch().put(path, BIG).run()),
    "send": ("msg_send", lambda client, path: client.send(path, BIG)),
    "request": ("set_value", lambda client, path: client.request("set_value", path=path, value=BIG)),
}


@pytest.mark.parametrize(("action", "call"), CHANGES.values(), ids=CHANGES)
async def test_a_try_takes_longer_by_what_has_to_be_sent(action, call, jump):
    """And counts for so long."""
    slow = Slow(action)
    async with quiet(slow.node) as client:
        before = now()
        calling = asyncio.ensure_future(call(client, "a"))
        seq, after = await slow.asked(), now()
        deadline, longest = times_of(client, seq)
        assert is_about(deadline, before, after, TRY + BIG_TAKES) and is_about(longest, before, after, CALL)
        by = slow.node.actions(action)[0]["by"]
        assert CLOCK + (TRY + BIG_TAKES / 2) * 1000 < by <= CLOCK + (TRY + BIG_TAKES + LITTLE) * 1000 + ROUNDED
        jump(TRY + BIG_TAKES / 2)
        await turns()
        assert not calling.done() and len(slow.node.actions(action)) == 1
        reply = {"results": [WRITTEN]} if action == "batch" else WRITTEN
        await slow.send(client, encode({**reply, "seq": seq}), 1)
        await calling
        assert client.stats().retry.timed_out == 0


async def test_it_is_no_longer_than_its_call():
    slow = Slow("set_value")
    async with quiet(slow.node) as client:
        before = now()
        calling = asyncio.create_task(client.put("a", BIG, timeout=TRY + 1))
        seq = await slow.asked()
        assert is_about(times_of(client, seq)[0], before, now(), TRY + 1)
        assert slow.node.actions("set_value")[0]["by"] <= CLOCK + (TRY + 1) * 1000 + ROUNDED
        calling.cancel()


async def test_so_it_is_for_what_comes_behind_it():
    slow = Slow("get_value")
    slow.node.script = lambda request: SILENCE
    config = replace(CONFIG, retry=replace(CONFIG.retry, total_deadline=TRY + 1))
    async with quiet(slow.node, config=config) as client:
        before = now()
        calls = [asyncio.create_task(client.put("a", BIG))]
        await until(lambda: slow.node.actions("set_value"))
        calls.append(asyncio.create_task(client.get("b")))
        assert is_about(times_of(client, await slow.asked())[0], before, now(), TRY + 1)
        for call in calls:
            call.cancel()


async def test_the_time_in_which_it_is_sent_is_none_in_which_the_node_waits_for_copies():
    slow = Slow("set_value")
    async with quiet(slow.node) as client:
        calling = asyncio.create_task(client.put("a", BIG, copies=1))
        await slow.asked()
        assert TRY / 4 < slow.node.actions("set_value")[0]["timeout"] <= TRY * 3 / 4
        calling.cancel()


@pytest.mark.parametrize(("action", "call"), READS.values(), ids=READS)
async def test_others_wait_for_what_is_ahead_of_them(action, call):
    """Until that is answered, or nobody waits for it any more."""
    slow = Slow(action)
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        putting = asyncio.create_task(client.put("a", BIG))
        await until(lambda: slow.node.actions("set_value"))
        before = now()
        reading = asyncio.ensure_future(call(client))
        seq = await slow.asked()
        deadline, longest = times_of(client, seq)
        assert is_about(deadline, before, now(), TRY + BIG_TAKES) and is_about(longest, before, now(), CALL)
        under_way = connection_of(client).line
        assert len(BIG) < under_way.unanswered_bytes < len(BIG) + 1000
        putting.cancel()
        await until(lambda: under_way.unanswered_bytes == 0)
        assert under_way.delay == 0
        slow.node.requests.clear()
        before = now()
        again = asyncio.ensure_future(call(client))
        assert is_about(times_of(client, await slow.asked())[0], before, now(), TRY)
        reading.cancel()
        again.cancel()


async def test_what_is_answered_is_not_counted_any_more(jump):
    slow = Slow("set_value")
    async with quiet(slow.node) as client:
        under_way = connection_of(client).line
        puts = [asyncio.create_task(client.put(path, b"v" * 10_000)) for path in "abc"]
        await until(lambda: len(slow.node.actions("set_value")) == 3)
        assert 30_000 < under_way.unanswered_bytes < 33_000
        await slow.send(client, encode({**WRITTEN, "seq": slow.node.actions("set_value")[0]["seq"]}), 1)
        await until(lambda: 20_000 < under_way.unanswered_bytes < 22_000)
        # One that is given up since its time is over is not either.
        jump(TRY + BIG_TAKES)
        await until(lambda: len(slow.node.actions("set_value")) == 5)
        assert 20_000 < under_way.unanswered_bytes < 22_000
        slow.node.drop()
        await until(lambda: under_way.unanswered_bytes == 0)
        for put in puts:
            put.cancel()


async def test_the_deletion_of_a_tree_must_begin_in_the_time_of_a_try_and_of_what_is_ahead_of_it():
    slow = Slow("set_value")
    async with quiet(slow.node) as client:
        calls = [asyncio.create_task(client.put("a", BIG))]
        await slow.asked()
        slow.action = "delete_tree"
        calls.append(asyncio.create_task(client.delete_tree("b")))
        await slow.asked()
        by = slow.node.actions("delete_tree")[0]["by"]
        assert CLOCK + (TRY + BIG_TAKES / 2) * 1000 < by <= CLOCK + (TRY + BIG_TAKES + LITTLE) * 1000 + ROUNDED
        for call in calls:
            call.cancel()


async def test_a_request_waits_for_the_socket_as_long_as_what_has_to_be_sent_may_take(jump):
    slow = Slow("set_value")
    slow.node.script = lambda request: WRITTEN
    async with quiet(slow.node) as client:
        await client.put("a", 1)
        its = connection_of(client)
        its.pause_writing()
        first = asyncio.create_task(client.put("a", BIG))
        second = asyncio.create_task(client.put("b", BIG))
        await until(lambda: its.line.unanswered_bytes > 2 * len(BIG))
        jump(TRY + BIG_TAKES / 2)
        await turns()
        assert client.stats().retry.overload == 0
        # The first one's time is over; the second had what is ahead of it besides.
        jump(BIG_TAKES)
        await until(lambda: client.stats().retry.overload)
        await turns()
        assert client.stats().retry.overload == 1
        its.resume_writing()
        assert [(await put).attempts for put in (first, second)] == [2, 1]
        await until(lambda: its.line.unanswered_bytes == 0)


STREAMS = {
    "tree": ("get_tree", lambda client: client.tree("b")._collect()),
    "iteration": ("get_tree", lambda client: anext(aiter(client.tree("b")))),
    "conflicts": ("conflicts", lambda client: client.conflicts("b")._collect()),
    "watch": ("watch", lambda client: client.watch("b").begin()),
    "monitor": ("msg_monitor", lambda client: client.monitor("b").begin()),
}


@pytest.mark.parametrize(("action", "call"), STREAMS.values(), ids=STREAMS)
async def test_streams_wait_for_what_is_ahead_of_them(action, call, jump):
    slow = Slow(action)
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        putting = asyncio.create_task(client.put("a", BIG))
        await until(lambda: slow.node.actions("set_value"))
        opening = asyncio.ensure_future(call(client))
        await slow.asked()
        jump(TRY + BIG_TAKES / 2)
        await turns()
        assert not opening.done() and client.stats().retry.timed_out == 0
        assert len(slow.node.actions(action)) == 1
        jump(BIG_TAKES)
        await until(lambda: len(slow.node.actions(action)) == 2 or opening.done())
        opening.cancel()
        putting.cancel()


async def test_a_watch_that_goes_on_waits_for_what_is_ahead_of_it(jump):
    slow = Slow("watch")
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        watch = client.watch("b")
        opening = asyncio.create_task(watch.begin())
        seq = await slow.asked()
        await slow.send(client, encode({"state": "start", "wseq": 1, "seq": seq}), 1)
        await opening
        putting = asyncio.create_task(client.put("a", BIG))
        await until(lambda: slow.node.actions("set_value"))
        await slow.send(client, encode({"state": "end", "seq": seq}), 1)
        waiting = asyncio.create_task(watch.next())
        await until(lambda: len(slow.node.actions("watch")) == 2)
        jump(TRY + BIG_TAKES / 2)
        await turns()
        assert len(slow.node.actions("watch")) == 2 and client.stats().retry.timed_out == 0
        jump(BIG_TAKES)
        await until(lambda: len(slow.node.actions("watch")) == 3)
        waiting.cancel()
        putting.cancel()
        await watch.aclose()


async def test_a_node_may_take_as_long_to_say_that_it_is_alive_as_what_is_ahead_of_the_question(jump):
    slow = Slow("get_value")
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        putting = asyncio.create_task(client.put("a", BIG))
        await until(lambda: slow.node.actions("set_value"))
        before = now()
        client._pool.probe(client._topology.routing.by_name["s1"].address)
        deadline, longest = times_of(client, await slow.asked())
        assert is_about(deadline, before, now(), TRY + BIG_TAKES)
        assert is_about(longest, before, now(), TRY + BIG_TAKES + LONGEST_ARRIVAL)
        putting.cancel()


async def test_so_it_may_where_it_cannot_be_asked(jump, monkeypatch):
    """As many requests are open as may be: the deletion, what is ahead of it, and the view."""
    slow = Slow("delete_tree")
    slow.node.script = lambda request: SILENCE
    async with quiet(slow.node) as client:
        putting = asyncio.create_task(client.put("a", BIG))
        await until(lambda: slow.node.actions("set_value"))
        deleting = asyncio.create_task(client.delete_tree("b"))
        await slow.asked()
        monkeypatch.setattr(connection, "OPEN_MAX", 3)
        monkeypatch.setattr(question, "QUESTIONS_KEPT", 0)
        jump(TRY + BIG_TAKES / 2)
        await turns()
        assert not deleting.done()
        jump(BIG_TAKES)
        with pytest.raises(FateUnknownError):
            await deleting
        putting.cancel()
