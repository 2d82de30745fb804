"""Fixtures: running nodes, and clients connected to them; every test ends with nothing left behind."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from distkv_client import Client, Path
from distkv_client.testing import Cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def _shared():
    """Holds the cluster for all tests that kill nothing and keep to paths of their own."""
    held = []
    yield held
    for cluster in held:
        cluster.stop()


@pytest.fixture
def shared(_shared):
    if not _shared:
        _shared.append(Cluster(3))
    (cluster,) = _shared
    yield cluster
    if any(node.process.poll() is not None for node in cluster):
        _shared.clear()
        cluster.stop()
        pytest.fail("a node died")


@pytest.fixture
def cluster():
    """Three nodes of the test's own."""
    with Cluster(3) as nodes:
        yield nodes


@pytest.fixture
def base():
    """A path that no other test uses."""
    return Path(f"t{next(_numbers)}")


@pytest.fixture
async def client(shared):
    async with Client.connect(*shared.seeds) as connected:
        yield connected
    assert_nothing_left()


def tasks_left():
    """The client's tasks in this loop."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("distkv_client")]


def assert_nothing_left():
    """No task of the client is left in this loop."""
    left = tasks_left()
    assert not left, left


async def until(condition, seconds=20.0):
    """Waits until it holds; looks often, for at most so long."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert loop.time() < deadline, f"{condition} did not come true"
        await asyncio.sleep(0.02)


async def all_live(client, count):
    """Waits until the client sees so many live nodes."""
    await until(lambda: sum(node.is_live for node in client.cluster_view().nodes) == count)
