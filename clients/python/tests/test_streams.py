"""Watches and monitors whose streams break soon, or that two tasks wait on."""

import asyncio
from typing import ClassVar

import pytest
from conftest import until
from scripted import ScriptedNode
from test_rules import scene

from distkv_client import Config, RetryPolicy, UsageError
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


@pytest.mark.parametrize(("longest", "pauses"), [(60.0, [1, 2, 3, 4, 5, 6]), (0.0, [])])
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
