"""Clients that nobody closes: what of them runs by itself ends once nobody has them any more, and they say so."""

import asyncio
import gc
import threading
import warnings
import weakref

import pytest
from conftest import assert_nothing_left, tasks_left, until
from scripted import RESET, ScriptedNode, start
from test_patience import tree
from test_rules import CONFIG
from test_sync import run_alone

from distkv_client import Client, Config, FateUnknownError, UnavailableError, sync


async def read(client):
    assert await client.get("a") == "here"


async def begin_to_iterate(client):
    entries = aiter(client.tree("a"))
    assert (await anext(entries)).value == 0


async def fail(client):
    with pytest.raises(FateUnknownError):
        await client.put("a", 1, write_id=None)


async def watch(client):
    watch = client.watch("a")
    await watch.begin()


async def do_nothing(client):
    pass


USES = (do_nothing, read, begin_to_iterate, fail, watch)


def script(request):
    """Writes fail, watches never come to their state, and trees have three entries."""
    match request["action"]:
        case "set_value":
            return RESET
        case "watch":
            return {"state": "start", "wseq": 1}
    return tree(3)(request)


async def connected():
    """A node, and a client of it."""
    node = ScriptedNode("s1", script)
    (address,) = await start(node)
    return node, await Client.connect(address, config=CONFIG)


def collected(held):
    """Whether nobody has it any more, wherever the collector has to look for it."""
    gc.collect()
    return held() is None


def about_clients(told):
    """Not about sockets of tests that were cut off."""
    return [one for one in told if "a client" in str(one.message)]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
async def test_a_client_that_nobody_has_any_more_says_so_and_ends(use):
    node, client = await connected()
    await use(client)
    held = weakref.ref(client)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del client
        await until(lambda: collected(held) and not tasks_left() and not node._writers)
    await node.stop()


async def test_a_client_that_was_closed_says_nothing():
    node, client = await connected()
    await read(client)
    await client.close()
    held = weakref.ref(client)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del client
        assert collected(held)
    assert not about_clients(told)
    assert_nothing_left()
    await node.stop()


async def test_what_a_program_has_of_a_client_keeps_it():
    node, client = await connected()
    batch = client.batch().get("a")
    entries = client.tree("a")
    held = weakref.ref(client)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del client
        assert collected(held)
        assert len(await entries) == 3
        assert not about_clients(told)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del entries, batch
        await until(lambda: not gc.collect() and not tasks_left() and not node._writers)
    await node.stop()


def test_a_client_whose_loop_has_ended_says_so_too(shared):
    async def connect():
        return await Client.connect(shared.seeds[0])

    client = asyncio.run(connect())
    with pytest.warns(ResourceWarning, match="a client was not closed"):
        del client
        gc.collect()


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "distkv_client"]


def test_a_synchronous_client_that_nobody_has_any_more_says_so_and_ends_its_thread(shared, base):
    client = sync.Client(*shared.seeds)
    client.put(base, 1)
    (thread,) = threads()
    with pytest.warns(ResourceWarning, match="was not closed") as told:
        del client
        gc.collect()
        thread.join(30)
        assert not thread.is_alive()
        gc.collect()
    assert len(about_clients(told)) == 1


def test_a_synchronous_watch_keeps_its_client(shared, base):
    client = sync.Client(*shared.seeds)
    client.put(base, 1)
    events = client.watch(base)
    del client
    gc.collect()
    assert next(events).value == 1
    (thread,) = threads()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del events
        gc.collect()
        thread.join(30)
    assert not thread.is_alive()


def test_a_synchronous_client_that_could_not_connect_says_nothing():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(UnavailableError):
            sync.Client("127.0.0.1:1", config=Config(connect_deadline=0.2))
        gc.collect()
    assert not about_clients(told) and not threads()


def test_behind_a_fork_nothing_is_said_or_ended(shared):
    program = """
import gc, os, warnings

child = os.fork()
if not child:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        del client
        gc.collect()
    os._exit(len(told))
print(os.waitpid(child, 0)[1], client.put("sync.forked", 1).changed)
client.close()
"""
    assert run_alone(shared.seeds[0], program) == "0 True\n"
