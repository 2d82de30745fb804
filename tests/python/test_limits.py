"""What is too much: an error of its request, and the connection goes on."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from conftest import clients
from distkv.exceptions import ServerError
from moat.util import Path

LIMIT = 4096
# Tasks that open streams at once.
OPENERS = 50


@asynccontextmanager
async def all_open(make, numbers, openers=OPENERS):
    """Opens a stream for each number, from several tasks: one after the other they would take minutes on a busy machine,
    since each waits for its answer."""
    streams, over, opened = {}, anyio.Event(), anyio.Event()

    async def hold(numbers_of_one):
        async with AsyncExitStack() as stack:
            for number in numbers_of_one:
                streams[number] = await stack.enter_async_context(make(number))
            if len(streams) == len(numbers):
                opened.set()
            await over.wait()

    async with anyio.create_task_group() as tasks:
        for first in range(openers):
            tasks.start_soon(hold, numbers[first::openers])
        await opened.wait()
        try:
            yield streams
        finally:
            over.set()


async def test_a_stream_too_many_raises_and_the_others_go_on(network):
    """An error outside of a stream is not what the library waits for: it would hang."""
    node = network.add("--init", "null", "--max-requests", str(LIMIT))
    async with clients(node, patience=600) as client:
        # The library has a watch of its own, so one more is as many as are allowed, and the next is too many.
        async with all_open(lambda number: client.watch(Path("w", number)), range(LIMIT - 2)) as watches:
            async with client.watch(Path("w", LIMIT)), client.watch(Path("w", LIMIT + 1)) as last:
                with anyio.fail_after(60), pytest.raises(ServerError, match="no more are allowed"):
                    async for _ in last:
                        pass
                await client.set(Path("w", 0), value="heard")
                with anyio.fail_after(60):
                    async for message in watches[0]:
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
        opening = (
            (lambda number: client.watch(Path("w", number)), 10_000, OPENERS),
            (lambda number: client.msg_monitor(Path("m", str(number))), 10_000, OPENERS),
            # One after the other: opened by many tasks at once, the library once stood still at trees that nobody read.
            (lambda _: client._stream(action="get_tree", path=Path("tree"), nchain=0), 5_000, 1),
        )
        streams = [
            await stack.enter_async_context(all_open(make, range(count), openers)) for make, count, openers in opening
        ]
        watch, monitor, tree = (each[len(each) - 1] for each in streams)
        await client.set(Path("w", 9_999), value="heard")
        await client.msg_send(Path("m", "9999"), "told")
        with anyio.fail_after(300):
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
        with anyio.fail_after(120), pytest.raises(ServerError):
            await client.set(base, value=value)
        await client.set(base, value=1)
        assert (await client.get(base)).value == 1
