"""Fixtures of all tests here: running nodes, and the real client connected to them."""

from __future__ import annotations

import itertools
import sys
from contextlib import asynccontextmanager
from pathlib import Path as FilePath

import anyio
import pytest

sys.path.insert(0, str(FilePath(__file__).parent))

# pylint: disable=wrong-import-position
from asyncscope import main_scope
from distkv.client import client_scope
from moat.util import Path

import nodes
import raw

pytest_plugins = ["page_browser", "page_entry"]
_counter = itertools.count(1)


@pytest.fixture(scope="session")
def absent_members():
    """One for the network that lasts, and one for all others: they need 5 s, at the same time."""
    both = nodes.Absent(), nodes.Absent()
    try:
        yield both
    finally:
        for each in both:
            each.stop()


@pytest.fixture(scope="session")
def shared_nodes(absent_members):  # pylint: disable=redefined-outer-name
    """Holds the one node for all tests that keep to paths of their own."""
    with nodes.Network(absent_members[0]) as network:
        yield network


@pytest.fixture
def node(shared_nodes):  # pylint: disable=redefined-outer-name
    """A running node that others use, too: keep below `base`. If a test kills it, that is the
    failure of that test alone; the next one gets a new node."""
    if not shared_nodes.nodes:
        shared_nodes.add("--init", "null")
    (running,) = shared_nodes.nodes
    yield running
    if running.process.poll() is not None:
        shared_nodes.stop()
        pytest.fail("the node died:\n" + running.log())


@pytest.fixture
def base():
    """A path that no other test uses."""
    return Path(f"t{next(_counter)}")


@pytest.fixture
def network():
    """An empty network; `network.add()` starts its nodes."""
    with nodes.Network() as net:
        yield net


@pytest.fixture
def keeping_network(absent_members):  # pylint: disable=redefined-outer-name
    """The same, where what is deleted is kept, and nodes make no events of their own."""
    with nodes.Network(absent_members[1]) as net:
        yield net


@pytest.fixture
def fresh_node(keeping_network):  # pylint: disable=redefined-outer-name
    """A node of its own for one test: the root's value has tick 1, nothing else is there."""
    return keeping_network.add("--init", "null")


@pytest.fixture
def connection(node):  # pylint: disable=redefined-outer-name
    """A connection in bytes, without flow control."""
    with node.raw() as conn:
        yield conn


def connect_to(host, port, **more):
    """How the real client connects. By itself it waits 5 s for a greeting and a login, less than a busy
    machine may take."""
    return {"host": host, "port": port, "name": None, "init_timeout": raw.PATIENCE, **more}


@asynccontextmanager
async def clients(*where: nodes.Node, patience: float = 2 * raw.PATIENCE):
    """Real clients, one connected to each node named, within a main scope as they need it."""
    with anyio.fail_after(patience):
        async with main_scope(name="test"):
            # Without name=None all connections of a scope are silently one.
            res = [await client_scope(connect=connect_to(n.host, n.port)) for n in where]
            yield res if len(res) > 1 else res[0]
