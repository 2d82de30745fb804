"""An error tells how often it was tried: 0 where nothing was."""

import pytest
from conftest import UNHURRIED

from distkv_client import Client, ClosedError


async def collected(listing):
    return await listing


CALLS = {
    "put": lambda client, path: client.put(path, 1),
    "get": lambda client, path: client.get(path),
    "any": lambda client, path: client.get(path, read="any"),
    "freshest": lambda client, path: client.get(path, read="freshest"),
    "delete": lambda client, path: client.delete(path),
    "delete_tree": lambda client, path: client.delete_tree(path),
    "send": lambda client, path: client.send(path, 1),
    "request": lambda client, path: client.request("auth_info"),
    "tree": lambda client, path: collected(client.tree(path)),
    "conflicts": lambda client, path: collected(client.conflicts(path)),
    "watch": lambda client, path: client.watch(path).__anext__(),
    "monitor": lambda client, path: client.monitor(path).__anext__(),
    "shards": lambda client, path: client.refresh_shards(),
}


async def test_what_nothing_was_tried_for_has_no_attempts(shared, base):
    client = await Client.connect(*shared.seeds, config=UNHURRIED)
    watch, monitor = client.watch(base), client.monitor(base)
    await watch.begin()
    await monitor.begin()
    await client.close()
    told = {}
    for name, call in CALLS.items():
        with pytest.raises(ClosedError) as refused:
            await call(client, base)
        told[name] = refused.value
    for name, stream in (("open watch", watch), ("open monitor", monitor)):
        with pytest.raises(ClosedError) as refused:
            while True:  # What had come before.
                await anext(stream)
        told[name] = refused.value
    assert {name: error.attempts for name, error in told.items()} == dict.fromkeys(told, 0)
    assert not [error for error in told.values() if "1 try" in str(error)]
