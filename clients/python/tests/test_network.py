"""Nodes of another network: none is used, and a call goes on looking for those of its own."""

import asyncio
import base64
import hashlib
import time

import msgpack
import pytest
from conftest import assert_nothing_left, until
from scripted import WRITTEN, ScriptedNode, start
from test_no_access import answers

from distkv_client import (
    Client,
    Config,
    DeniedError,
    DistKVError,
    Fate,
    Login,
    PoolConfig,
    RetryPolicy,
    UnavailableError,
    UsageError,
)
from distkv_client.config import Address
from distkv_client.errors import OtherNetworkError
from distkv_client.login import identity_of

POLICY = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=0.15, total_deadline=1.0)
CONFIG = Config(retry=POLICY, pool=PoolConfig(failure_memory=0.01, failure_memory_max=0.05))


@pytest.fixture
async def two():
    """A node each of the networks `a` and `b`."""
    nodes = [ScriptedNode(f"s{n + 1}", answers) for n in range(2)]
    for node, network in zip(nodes, "ab", strict=True):
        node.network = network
        await start(node)
    yield nodes
    for node in nodes:
        await node.stop()
    assert_nothing_left()


def told(node, ours):
    return f'cannot use {node.address}: it is a node of the network "{node.network}", and this client is of "{ours}"'


def asked(node):
    """What was asked of a node beside who it is."""
    return {request["action"] for request in node.requests} - {"cluster"}


async def test_what_is_for_one_network_never_goes_to_another(two):
    one, other = two
    async with Client.connect(one.address, other.address, config=CONFIG) as client:
        assert (await client.put("p", 1)).node == "s1"
        async with client.watch("p") as watch, client.monitor("p") as monitor:
            assert type(await watch.next()).__name__ == "UpToDate"
            await one.stop()
            await until(lambda: client._pool.ready(Address.parse(one.address)) is None)
            going = [asyncio.create_task(stream.next()) for stream in (watch, monitor)]
            for call in (client.put("p", 2, timeout=0.4), client.put("p", 2, timeout=0.4, write_id=None)):
                started = time.monotonic()
                with pytest.raises(UnavailableError) as caught:
                    await call
                assert caught.value.code == "unavailable" and caught.value.fate is Fate.NOT_DONE
                assert time.monotonic() - started > 0.2 and caught.value.attempts > 2, "it was given up early"
                said = (told(other, "a"), f"cannot connect to {one.address}", "no connection to")
                assert any(text in str(caught.value) for text in said), "of the last try, which may be cut off"
            for call in (
                client.get("p", timeout=0.2),
                client.get("p", read="any", timeout=0.2),
                client.get("p", read="freshest", timeout=0.2),
                client.tree("p", timeout=0.2)._collect(),
                client.conflicts()._collect(),
            ):
                with pytest.raises(DistKVError) as caught:
                    await call
                assert caught.value.code in ("unavailable", "no_majority"), caught.value
            assert not any(stream.done() for stream in going)
            assert other.accepted and not asked(other)
            await one.start()
            assert [type(await asyncio.wait_for(stream, 20)).__name__ for stream in going] == ["Resumed", "Gap"]
        assert await client.get("p") == 1
        assert (await client.put("p", 3)).node == "s1"
        assert not asked(other)


async def test_the_first_network_stays_the_clients(two):
    one, other = two
    async with Client.connect(one.address, other.address, config=CONFIG) as client:
        await one.stop()
        where = Address.parse(one.address)

        def is_forgotten():
            # Not while the topology's task tries to reach it.
            client._pool.retain(lambda _: False)
            return client._pool.slot(where) is None

        await until(is_forgotten)
        assert client._pool.network == "a"
        with pytest.raises(UnavailableError):
            await client.get("p", timeout=0.2)
        # Another network's node is where its own was.
        one.network = "c"
        await one.start()
        with pytest.raises(UnavailableError, match="and this client is of|no connection to"):
            await client.get("p", timeout=0.2)
        assert "get_value" not in asked(one) | asked(other)


async def test_who_is_of_no_seeds_network_is_told_at_once(two):
    config = Config(network="ours", connect_deadline=30)
    started = time.monotonic()
    with pytest.raises(DeniedError) as caught:
        await Client.connect(*(node.address for node in two), config=config)
    assert caught.value.code == "no_access" and caught.value.fate is Fate.NOT_DONE
    assert isinstance(caught.value.cause, OtherNetworkError)
    assert caught.value.text == str(caught.value.cause) == told(two[1], "ours")
    # One refuses it, the other one is another network's.
    two[0].greets, two[0].lets_in = {"auth": ["password"]}, False
    config = Config(network="a", login=Login.password("ann", "x"), connect_deadline=30)
    with pytest.raises(DeniedError):
        await Client.connect(*(node.address for node in two), config=config)
    assert time.monotonic() - started < 5
    assert not asked(two[1])


async def test_a_seed_of_another_network_is_passed_over(two):
    config = Config(network="b", retry=POLICY)
    async with Client.connect(*(node.address for node in two), config=config) as client:
        await client.put("p", 1)
        assert client.cluster_view().source == "s2"
    assert not asked(two[0])
    # While its own cannot be reached, it looks for them until time is up.
    await two[1].stop()
    config = Config(network="b", connect_deadline=0.3)
    with pytest.raises(UnavailableError, match="and this client is of") as caught:
        await Client.connect(*(node.address for node in two), config=config)
    assert isinstance(caught.value.cause, OtherNetworkError)


@pytest.mark.parametrize("network", [None, "", 5])
async def test_a_node_that_does_not_tell_its_network_is_used(network):
    nodes = [ScriptedNode(f"s{n + 1}", lambda request: {**WRITTEN, "value": 1}) for n in range(2)]
    nodes[0].network, nodes[1].is_old = network, True
    for node in nodes:
        await start(node)
        for config in (CONFIG, Config(network="ours"), Config(network="")):
            async with Client.connect(node.address, config=config) as client:
                await client.put("p", 1)
                assert await client.get("p") == 1
                assert client._pool.network == (config.network or None)
    for node in nodes:
        await node.stop()


def ticket_of(node, network):
    content = msgpack.packb({"addresses": [node.address], "network": network})
    data = base64.urlsafe_b64encode(content + hashlib.sha256(content).digest()[:4])
    return "distkv1." + data.decode().rstrip("=")


async def test_a_tickets_network_counts_unless_another_one_is_configured(two, monkeypatch):
    node = two[0]
    with pytest.raises(DeniedError) as caught:
        await Client.connect(config=Config(ticket=ticket_of(node, "of the ticket")))
    assert caught.value.text == told(node, "of the ticket")
    monkeypatch.setenv("DISTKV_TICKET", ticket_of(node, "of the ticket"))
    with pytest.raises(DeniedError, match="of the ticket"):
        await Client.connect()
    for config in (
        Config(ticket=ticket_of(node, "a")),
        Config(ticket=ticket_of(node, "")),
        Config(ticket=ticket_of(node, "of the ticket"), network="a"),
    ):
        async with Client.connect(config=config) as client:
            assert await client.get("p") == 1
            assert client._pool.network == "a"
    with pytest.raises(DeniedError) as caught:
        await Client.connect(config=Config(ticket=ticket_of(node, "a"), network="ours"))
    assert caught.value.text == told(node, "ours")


async def test_names_are_shown_in_one_line_and_checked(two):
    two[0].network = 'a "b"\n'
    with pytest.raises(DeniedError) as caught:
        await Client.connect(two[0].address, config=Config(network="übrig"))
    assert r'network "a \"b\"\n", and this client is of "übrig"' in caught.value.text
    with pytest.raises(UsageError, match="network's name must be a text"):
        await Client.connect(two[0].address, config=Config(network=5))


def test_what_a_node_tells_of_itself():
    for identity, known in (
        ({"name": "n1", "incarnation": 7, "network": "a"}, ("n1", 7, "a")),
        ({"name": "n1", "incarnation": 7}, ("n1", 7, None)),
        ({"name": "n1", "network": ""}, ("n1", None, None)),
        ({"name": "n1", "network": 5}, ("n1", None, None)),
        ({"network": "a"}, ("here", None, None)),
        (None, ("here", None, None)),
    ):
        assert identity_of({"id": identity}, "here") == known
