"""Fixtures: running nodes, and clients connected to them; every test ends with nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
import scripted
from hypothesis import HealthCheck, settings

from distkv_client import Client, Config, Path, PoolConfig, RetryPolicy
from distkv_client.testing import Cluster

_numbers = itertools.count(1)

# How long an example takes says nothing on a machine that has much else to do.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


UNHURRIED = Config(
    retry=RetryPolicy(try_deadline=20.0, total_deadline=60.0),
    pool=PoolConfig(connect_timeout=20.0, probe_timeout=30.0),
    connect_deadline=60.0,
    own_write_patience=30.0,
    watch_patience=30.0,
)
"""For nodes that answer, on a machine that may have much else to do."""
LASTING = Config(
    retry=RetryPolicy(total_deadline=60.0), connect_deadline=60.0, own_write_patience=30.0, watch_patience=30.0
)
"""The same, for nodes of which some do not: they are left as soon as usually."""


@pytest.fixture(autouse=True)
def _ports():
    """A scripted node keeps its port while it is stopped, and no longer than its test."""
    yield
    scripted.let_go()


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
    async with Client.connect(*shared.seeds, config=UNHURRIED) as connected:
        yield connected
    assert_nothing_left()


@pytest.fixture
async def jump(monkeypatch):
    """Sets the loop's clock forward by some seconds: what waits for so long is late, whatever the machine does."""
    loop = asyncio.get_running_loop()
    clock, ahead = loop.time, 0.0

    def forward(seconds):
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(loop, "time", lambda: clock() + ahead)
    return forward


def tasks_left():
    """The client's tasks in this loop."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("distkv_client")]


def assert_nothing_left():
    """No task of the client is left in this loop."""
    left = tasks_left()
    assert not left, left


async def until(condition, seconds=60.0):
    """Waits until it holds; looks often, for at most so long."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"{condition} did not come true"
        await asyncio.sleep(0.02)


async def all_live(client, count):
    """Waits until the client sees so many live nodes."""
    await until(lambda: sum(node.is_live for node in client.cluster_view().nodes) == count)
