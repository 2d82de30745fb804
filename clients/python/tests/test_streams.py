"""Watches and monitors whose streams break, soon or before their first state is whole, or that two tasks wait on."""

import asyncio
from typing import ClassVar

import pytest
from conftest import until
from scripted import ScriptedNode
from test_rules import pair, preferred_path, scene

from distkv_client import Change, ClosedError, Config, Restarted, Resumed, RetryPolicy, UpToDate, UsageError
from distkv_client.codec import encode


class Noted(RetryPolicy):
    """Notes after which try a pause was due, and makes none."""

    noted: ClassVar[list] = []

    def delay(self, attempt, random):
        self.noted.append(attempt)
        return 0.0


def short_streams():
    """A node whose streams end after their first message."""
    count = 0

    def script(request):
        nonlocal count
        count += 1
        seq = request["seq"]
        chain = {"node": "x~7", "tick": count, "prev": None}
        version = {"seq": seq, "path": [], "depth": 0, "value": count, "tock": count, "chain": chain, "wseq": 2}
        message = {"seq": seq, "topic": ["a"], "data": count, "wseq": 2}
        parts = (
            {"seq": seq, "state": "start", "wseq": 1},
            version if request["action"] == "watch" else message,
            {"seq": seq, "state": "end", "wseq": 3},
        )
        return b"".join(map(encode, parts))

    return ScriptedNode("s1", script)


@pytest.fixture(params=["watch", "monitor"])
def kind(request):
    return request.param


@pytest.mark.parametrize(("longest", "pauses"), [(60.0, [1, 2, 3, 4, 5, 6]), (1e-9, [])])
async def test_only_a_stream_that_has_lasted_is_followed_without_a_pause(monkeypatch, kind, longest, pauses):
    monkeypatch.setattr(Noted, "noted", [])
    one = short_streams()
    async with scene(one, config=Config(retry=Noted(delay_max=longest))) as client:
        subscription = getattr(client, kind)("a")

        async def read():
            async for _ in subscription:
                pass

        async with subscription:
            reading = asyncio.create_task(read())
            await until(lambda: len(one.actions({"watch": "watch", "monitor": "msg_monitor"}[kind])) >= 8)
            reading.cancel()
            assert Noted.noted[:6] == pauses
            await asyncio.wait({reading})


async def test_a_second_wait_is_refused_and_the_first_goes_on(client, base, kind):
    async with getattr(client, kind)(base) as subscription:
        if kind == "watch":
            await subscription.next()
        first = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(UsageError, match="waited for already"):
                await subscription.next()
        with pytest.raises(UsageError, match="waited for already"):
            await anext(subscription)
        await (client.put(base, 1) if kind == "watch" else client.send(base, 1))
        event = await asyncio.wait_for(first, 20)
        assert (event.value if kind == "watch" else event.data) == 1
        # A wait that is over, or was cancelled, is in nobody's way.
        second = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        last = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
    with pytest.raises(UsageError, match="was closed"):
        await asyncio.wait_for(last, 20)


def state(*values, is_whole):
    """A node that sends this state of entries `0`, `1` …, or a part of it, and then nothing."""

    def script(request):
        if request["action"] == "check_deleted":
            return {"missing": {}}
        if request["action"] != "watch":
            return {}
        parts = [{"state": "start", "wseq": 1}]
        for number, value in enumerate(values):
            chain = {"node": "x~7", "tick": value, "prev": None}
            entry = {"path": [number], "depth": 0, "value": value, "tock": value, "chain": chain}
            parts.append({**entry, "wseq": number + 2})
        if is_whole:
            parts.append({"state": "uptodate", "wseq": len(values) + 2})
        return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)

    return script


@pytest.mark.parametrize(
    ("before", "after"), [((1, 1), (1, 2)), ((1,), (1, 2)), ((), (1,)), ((1, 1), (1,)), ((1,), ())], ids=str
)
async def test_a_watch_without_the_state_says_that_it_was_lost_before_it_knew_the_state(before, after):
    one, two = pair(state(*before, is_whole=False), state(*after, is_whole=True))
    async with scene(one, two) as client:
        async with client.watch(preferred_path(client, "s1"), fetch=False) as watch:
            assert watch.node == "s1"
            one.drop()
            events = [await asyncio.wait_for(watch.next(), 20) for _ in range(len(after) + 2)]
        assert (events[0], events[-1]) == (Restarted(), UpToDate())
        assert [(event.path[1], event.value) for event in events[1:-1]] == list(enumerate(after))
        assert watch.node is None and client.stats().watches.restarted == 1


async def test_a_watch_without_the_state_goes_on_where_it_was_once_it_knew_the_state():
    one, two = pair(state(1, 1, is_whole=True), state(1, 2, is_whole=True))
    async with scene(one, two) as client:
        async with client.watch(preferred_path(client, "s1"), fetch=False) as watch:
            assert await watch.next() == UpToDate()
            one.drop()
            change, resumed = [await asyncio.wait_for(watch.next(), 20) for _ in range(2)]
        assert isinstance(change, Change) and change.value == 2 and resumed == Resumed("s2")
        assert client.stats().watches.restarted == 0


@pytest.mark.parametrize("how", ["ended", "dropped"])
async def test_a_watch_that_is_lost_while_the_client_is_closed_says_that_it_is_closed(monkeypatch, how):
    may_close = asyncio.Event()
    ask = []

    def script(request):
        if request["action"] == "watch":
            ask.append(request["seq"])
        return state(1, is_whole=False)(request)

    async with scene(one := ScriptedNode("s1", script)) as client:
        close = client._shards.close

        async def close_late():
            await may_close.wait()
            await close()

        monkeypatch.setattr(client._shards, "close", close_late)
        async with client.watch("a", fetch=False) as watch:
            waiting = asyncio.create_task(watch.next())
            await until(lambda: watch._opened.stream._waiter is not None)
            closing = asyncio.create_task(client.close())
            await until(lambda: client._caller.is_closing)
            if how == "ended":
                for writer in one._writers:
                    writer.write(encode({"seq": ask[0], "state": "end"}))
            else:
                one.drop()
            await asyncio.wait({waiting}, timeout=20)
            may_close.set()
            await closing
            for wait in (waiting, watch.next()):
                with pytest.raises(ClosedError):
                    await wait
            assert client.stats().watches.restarted == 0
