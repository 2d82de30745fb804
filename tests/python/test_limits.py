"""What is too much: an error of its request, and the connection goes on."""

from contextlib import AsyncExitStack

import anyio
import pytest
from conftest import clients
from distkv.exceptions import ServerError
from moat.util import Path

LIMIT = 4096


async def test_a_stream_too_many_raises_and_the_others_go_on(network):
    """An error outside of a stream is not what the library waits for: it would hang."""
    node = network.add("--init", "null", "--max-requests", str(LIMIT))
    async with clients(node) as client, AsyncExitStack() as stack:
        first = await stack.enter_async_context(client.watch(Path("w", 0)))
        with anyio.fail_after(60):
            for number in range(1, LIMIT):
                last = await stack.enter_async_context(client.watch(Path("w", number)))
        # The library has a watch of its own, so this one is too many.
        with anyio.fail_after(10), pytest.raises(ServerError, match="no more are allowed"):
            async for _ in last:
                pass
        await client.set(Path("w", 0), value="heard")
        with anyio.fail_after(10):
            async for message in first:
                if "value" in message:
                    assert message.value == "heard"
                    break


async def test_ten_thousand_watches_and_monitors_and_five_thousand_trees_are_open_on_one_connection(network):
    """Plugins open one watch per entry."""
    node = network.add("--init", "null", "--max-requests", "30000")
    async with clients(node, patience=600) as client, AsyncExitStack() as stack:
        # More entries than the library takes ahead of its reader, so that the trees stay open.
        for number in range(200):
            await client.set(Path("tree", number), value=number)
        with anyio.fail_after(500):
            for number in range(10_000):
                watch = await stack.enter_async_context(client.watch(Path("w", number)))
            for number in range(10_000):
                monitor = await stack.enter_async_context(client.msg_monitor(Path("m", str(number))))
            for _ in range(5_000):
                tree = await stack.enter_async_context(
                    client._stream(action="get_tree", path=Path("tree"), nchain=0)
                )
        await client.set(Path("w", 9_999), value="heard")
        await client.msg_send(Path("m", "9999"), "told")
        with anyio.fail_after(60):
            async for message in watch:
                if "value" in message:
                    assert message.value == "heard"
                    break
            async for message in monitor:
                assert message.data == "told"
                break
            assert [message.value async for message in tree if "value" in message] == list(range(200))
        assert (await client.get(Path("tree", 1))).value == 1


@pytest.mark.parametrize("kind", ["deep", "long"])
async def test_a_message_that_is_too_much_raises_and_the_client_goes_on(node, base, kind):
    value = "x" * (12 << 20)
    if kind == "deep":
        value = None
        for _ in range(200):
            value = [value]
    async with clients(node) as client:
        with anyio.fail_after(30), pytest.raises(ServerError):
            await client.set(base, value=value)
        await client.set(base, value=1)
        assert (await client.get(base)).value == 1
