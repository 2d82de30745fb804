"""Requests for actions that the client has no method for: what becomes of those that are not answered, and streams."""

import asyncio

import pytest
from conftest import until
from scripted import RESET, SILENCE, ScriptedNode
from test_rules import POLICY, scene

from distkv_client import Fate, FateUnknownError, UnavailableError, UsageError
from distkv_client.codec import encode
from distkv_client.request import READS, STREAMS


async def given_up(call, node, action, jump, tries=2):
    """Has the time of a try be over whenever the node is asked, until that of the call is."""
    calling, before = asyncio.create_task(call), len(node.actions(action))
    for asked in range(before, before + tries):
        await until(lambda asked=asked: len(node.actions(action)) > asked or calling.done())
        jump(POLICY.try_deadline)
    await calling


@pytest.mark.parametrize("silent", [SILENCE, RESET], ids=["silence", "reset"])
async def test_a_request_that_may_be_repeated_may_have_been_done(silent, jump):
    node = ScriptedNode("s1", lambda request: silent)
    async with scene(node) as client:
        for action in ("set_value", "delete_tree", "from_the_future"):
            with pytest.raises(FateUnknownError) as caught:
                await given_up(client.request(action, path="a", value=1, idempotent=True), node, action, jump)
            assert caught.value.fate is Fate.UNKNOWN and min(caught.value.attempts, len(node.actions(action))) > 1
        with pytest.raises(UnavailableError) as caught:
            await given_up(client.request("enum", path="a", idempotent=True), node, "enum", jump)
        assert caught.value.fate is Fate.NOT_DONE and min(caught.value.attempts, len(node.actions("enum"))) > 1
    # A node that has just failed is not asked at all, so this is a client of its own.
    async with scene(node := ScriptedNode("s1", lambda request: silent)) as client:
        with pytest.raises(FateUnknownError) as caught:
            once = client.request("set_value", path="b", value=1)
            await given_up(once, node, "set_value", jump, tries=1 if silent is SILENCE else 0)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == 1


async def test_an_action_that_is_answered_with_a_stream_is_not_sent(shared, client, base):
    before = client.stats().retry.calls
    for action in STREAMS:
        with pytest.raises(UsageError, match="stream"):
            await client.request(action, path=base)
    with pytest.raises(UsageError, match="stream"):
        await client.request("delete_tree", path=base, nchain=2)
    assert client.stats().retry.calls == before
    assert (await client.request("delete_tree", path=base, nchain=0))["changed"] == 0


async def test_a_stream_that_nobody_asked_for_is_stopped():
    node = ScriptedNode("s1", lambda request: encode({"seq": request["seq"], "state": "start", "wseq": 1}))
    async with scene(node) as client:
        with pytest.raises(FateUnknownError, match="stream"):
            await client.request("from_the_future")
        (asked,) = node.actions("from_the_future")
        await until(lambda: [stop["task"] for stop in node.actions("stop")] == [asked["seq"]])


async def test_actions_that_only_read_are_known_by_nodes_and_change_nothing(client, base):
    """What is no action is refused in other words than what lacks a field."""
    written = await client.put(base, 1)
    for action in READS:
        try:
            await client.request(action, path=base, idempotent=True)
        except Exception as error:
            assert getattr(error, "code", None) not in ("unknown_action", "usage"), action
    assert (await client.entry(base)).version == written.version
