"""The Python DistKV's own server: its model alone, or serving clients, with a broker in this process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Any, Dict, List, Optional, Tuple
from unittest import mock

import anyio
import distkv.mock.mqtt as mocked
from distkv.server import Server
from moat.util import NotGiven, Path

import raw
from nodes import free_ports

# The mock counts tocks to notice tests that never end; files have some already.
TOCKS_MAX = 1 << 62

Version = Tuple[Any, List[Tuple[str, int]], int]


async def load(path: FilePath, name: str = "nobody") -> Server:
    """A server that has loaded a file, and knows nobody."""
    server = Server(name)
    await server.load(path=str(path), local=True)
    return server


async def entries(server: Server) -> Dict[Tuple[Any, ...], Version]:
    """All that has a value: the value, who made it, when."""
    found: Dict[Tuple[Any, ...], Version] = {}

    async def look(entry):
        if entry.data is not NotGiven:
            chain = [(node.name, tick) for node, tick in entry.chain_links()]
            found[tuple(entry.path)] = (entry.data, chain, entry.tock)

    await server.root.walk(look, full=True)
    return found


def ticks(server: Server) -> Dict[str, Any]:
    """Per node: its last tick, and what the server misses before that."""
    nodes = server._nodes.values()  # pylint: disable=protected-access
    return {n.name: (n.tick, list(n.local_missing)) for n in nodes if n.tick}


@asynccontextmanager
async def _started(name: str, path: Optional[FilePath] = None, **args: Any):
    """A network of one server, which serves clients: with a file loaded, or as `args` say."""
    port = free_ports(2)
    broker = {
        **mocked.broker_cfg,
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
    }
    patches = [
        mock.patch.object(mocked, "PORT", port),
        mock.patch.object(mocked, "URI", f"mqtt://127.0.0.1:{port}/"),
        mock.patch.object(mocked, "broker_cfg", broker),
        mock.patch.object(mocked, "Server", lambda _name, **kw: Server(name, **{**kw, **args})),
    ]
    for patch in patches:
        patch.start()
    try:
        async with mocked.stdtest(n=1, run=False, tocks=TOCKS_MAX) as st:
            if path is not None:
                await st.s[0].load(path=str(path), local=True)
            ready = anyio.Event()
            await st.run_0(ready_evt=ready)
            await ready.wait()
            yield st
    finally:
        for patch in patches:
            patch.stop()


@asynccontextmanager
async def serving(path: FilePath, name: str):
    """A client of a server that has started with a file."""
    with anyio.fail_after(4 * raw.PATIENCE):
        async with _started(name, path) as st, st.client(0) as client:
            yield client


@asynccontextmanager
async def founded(name: str, value: Any):
    """The client port of a server that founds a network; the root has this value."""
    async with _started(name, init=value) as st:
        yield st.s[0].ports[0][1]


async def tree(client) -> Dict[Tuple[Any, ...], Version]:
    """As `entries`, asked for by a client: the system's own tree is not in it."""
    found = {}
    async for r in client.get_tree(Path(), nchain=-1):
        chain, link = [], r.chain
        while link is not None:
            chain.append((link["node"], link["tick"]))
            link = link.get("prev")
        found[tuple(r.path)] = (r.value, chain, r.tock)
    return found
