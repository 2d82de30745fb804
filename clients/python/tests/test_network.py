"""Nodes of another network: none is used, whatever it asks for, and a call goes on looking for those of its own."""

import asyncio
import base64
import hashlib
import ssl
import time
from dataclasses import replace

import msgpack
import pytest
from conftest import assert_nothing_left, until
from scripted import WRITTEN, ScriptedNode, start
from test_access import CA, FIXTURES
from test_no_access import answers

from distkv_client import (
    Client,
    Config,
    DeniedError,
    DistKVError,
    Fate,
    Login,
    NoMajorityError,
    PoolConfig,
    RetryPolicy,
    Tls,
    UnavailableError,
    UsageError,
)
from distkv_client.codec import encode
from distkv_client.config import Address
from distkv_client.connection import Connection
from distkv_client.errors import NoAccessError, NotMetError, OtherNetworkError
from distkv_client.login import Access, Greeting, identity_of
from distkv_client.network import Network
from distkv_client.pool import Pool

POLICY = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=20.0, total_deadline=40.0)
CONFIG = Config(retry=POLICY, pool=PoolConfig(failure_memory=0.01, failure_memory_max=0.05), connect_deadline=40.0)


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


def told(node, ours, source=None):
    text = f'cannot use {node.address}: it is a node of the network "{node.network}", and this client is of "{ours}"'
    return text + (f", as its {source} says" if source else "")


def certified(name):
    """What a node speaks TLS with; clients believe the certificate `node`, and `joe` is nobody's they know."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FIXTURES / f"{name}.pem", FIXTURES / f"{name}.key")
    return context


async def beside(one, other, kind):
    """Makes the other network's node such as refuses the client before it is known whose it is, if it can; the
    configuration of a client of the first one's network."""
    if kind == "it asks for a login":
        one.greets = other.greets = {"auth": ["password"]}
        other.lets_in = False
        return replace(CONFIG, login=Login.password("ann", "her secret"))
    if kind == "it is as good":
        return CONFIG
    one.tls = certified("node")
    other.tls = certified("joe") if kind == "its certificate is not believed" else None
    if kind == "it says no in plain text":
        other.greets = {"error": "nobody is let in", "code": "denied"}
    for node in (one, other):
        await node.stop()
        await node.start()
    return replace(CONFIG, tls=Tls(ca_file=CA))


KINDS = ["it is as good", "it asks for a login", "its certificate is not believed", "it says no in plain text"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_for_one_network_never_goes_to_another(two, kind):
    one, other = two
    config = await beside(one, other, kind)
    async with Client.connect(one.address, other.address, config=config) as client:
        assert (await client.put("p", 1)).node == "s1"
        async with client.watch("p") as watch, client.monitor("p") as monitor:
            assert type(await watch.next()).__name__ == "UpToDate"
            await one.stop()
            await until(lambda: client._pool.ready(Address.parse(one.address)) is None)
            going = [asyncio.create_task(stream.next()) for stream in (watch, monitor)]
            for call in (client.put("p", 2, timeout=3), client.put("p", 2, timeout=3, write_id=None)):
                started = time.monotonic()
                with pytest.raises(UnavailableError) as caught:
                    await call
                assert caught.value.code == "unavailable" and caught.value.fate is Fate.NOT_DONE
                assert time.monotonic() - started > 2 and caught.value.attempts > 2, "it was given up early"
                refused = told(other, "a") if config.tls is None else f"cannot get into {other.address}"
                said = (refused, f"cannot connect to {one.address}", "no connection to")
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
            expected = OtherNetworkError if config.tls is None else NotMetError
            assert isinstance(client._pool.failure(Address.parse(other.address)), expected), "it was tried"
            waiting = asyncio.create_task(client.put("p", 2, timeout=20))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await one.start()
            assert (await waiting).node == "s1"
            assert [type(await asyncio.wait_for(stream, 20)).__name__ for stream in going] == ["Resumed", "Gap"]
        assert await client.get("p") == 1
        assert (await client.put("p", 3)).node == "s1"
        assert not other.requests
        assert kind == "it says no in plain text" or not other.came, "it is left when it has greeted"


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
        assert client._pool.network.name == "a"
        with pytest.raises(UnavailableError):
            await client.get("p", timeout=0.5)
        # Another network's node is where its own was.
        one.network = "c"
        await one.start()
        with pytest.raises(UnavailableError, match="and this client is of|no connection to"):
            await client.get("p", timeout=3)
        assert not one.actions("get_value") and not other.requests


async def test_only_a_node_that_lets_the_client_in_says_of_which_network_it_is(two):
    one, other = two
    one.greets = other.greets = {"auth": ["password"]}
    other.lets_in, other.tock = False, 1 << 40
    config = replace(CONFIG, login=Login.password("ann", "her secret"))
    async with Client.connect(other.address, one.address, config=config) as client:
        assert client._pool.network.name == "a"
        before = len(other.actions("auth"))
        other.lets_in = True
        where = Address.parse(other.address)
        async with asyncio.timeout(20):
            while not isinstance(client._pool.failure(where), OtherNetworkError):
                with pytest.raises((OtherNetworkError, NoAccessError)):
                    await client._pool.get(where, float("inf"))
                await asyncio.sleep(0.01)
        assert len(other.actions("auth")) == before and not other.actions("cluster"), "nothing was sent to it"
        await client.put("p", 1)
        assert one.actions("set_value")[-1].get("above", 0) < 1 << 40, "what is no node of its network has no say"


async def test_two_nodes_that_are_met_at_once_are_not_both_used(two):
    one, other = two
    held = []

    def hold(request, writer):
        if request.get("action") == "cluster":
            held.append((request["seq"], writer))
        return True

    other._answer, other.tock = hold, 1 << 40
    pool = Pool(PoolConfig(), asyncio.get_running_loop(), Access(), Network(None, ""))
    late = asyncio.create_task(pool.get(Address.parse(other.address), float("inf")))
    await until(lambda: held)
    assert isinstance(await pool.get(Address.parse(one.address), float("inf")), Connection)
    ((seq, writer),) = held
    writer.write(encode({**other.view(), "tock": 1 << 40, "seq": seq}))
    with pytest.raises(OtherNetworkError) as caught:
        await asyncio.wait_for(late, 20)
    assert str(caught.value) == told(other, "a") and pool.clock.latest < 1 << 40
    await pool.close()


async def test_who_is_let_in_nowhere_by_tls_is_told_at_once(two):
    one, other = two
    for node in two:
        node.network = "a"
        await node.stop()
        node.tls, node.peers = certified("node"), two
        await node.start()
    config = Config(tls=Tls(ca_file=CA), pool=CONFIG.pool, retry=RetryPolicy(total_deadline=30))
    async with Client.connect(one.address, config=config) as client:
        await client.put("p", 1)
        async with client.watch("p") as watch, client.monitor("p") as monitor:
            assert type(await watch.next()).__name__ == "UpToDate"
            for node in two:
                await node.stop()
            one.tls = other.tls = certified("joe")
            await one.start()
            # One that nobody has met refuses the client, and the other one may be there again in a moment.
            for call in (client.get("p", timeout=0.3), client.put("p", 2, timeout=0.3)):
                with pytest.raises(UnavailableError):
                    await call
            await other.start()
            started = time.monotonic()
            for call in (client.get("p"), client.put("p", 2), watch.next(), monitor.next()):
                with pytest.raises(DeniedError, match="not believed") as caught:
                    await call
                assert caught.value.code == "no_access" and isinstance(caught.value.cause, NotMetError)
            assert time.monotonic() - started < 25, "no call has waited for its deadline"


async def test_freshest_lacks_a_majority_where_no_tls_comes_about_with_the_others():
    """A node whose certificate is over may be anybody's. One has let the client in."""
    nodes = [ScriptedNode(f"s{n + 1}", answers) for n in range(3)]
    for node, name in zip(nodes, ("node", "joe", "joe"), strict=True):
        node.tls = certified(name)
    await start(*nodes)
    config = replace(CONFIG, tls=Tls(ca_file=CA), retry=replace(POLICY, attempts_max=5))
    async with Client.connect(nodes[0].address, config=config) as client:
        with pytest.raises(NoMajorityError, match="1 of 3 nodes answered, 2 must; .*cannot get into") as caught:
            await client.get("p", read="freshest")
        assert isinstance(caught.value.cause, NotMetError)
        # Where nobody lets it in, that is told at once.
        await nodes[0].stop()
        nodes[0].tls = certified("joe")
        await nodes[0].start()
        with pytest.raises(DeniedError):
            await client.get("p", read="freshest")
    for node in nodes:
        await node.stop()
    assert_nothing_left()


async def test_who_is_of_no_seeds_network_is_told_at_once(two):
    config = Config(network="ours", connect_deadline=30)
    started = time.monotonic()
    with pytest.raises(DeniedError) as caught:
        await Client.connect(*(node.address for node in two), config=config)
    assert caught.value.code == "no_access" and caught.value.fate is Fate.NOT_DONE
    assert isinstance(caught.value.cause, OtherNetworkError)
    assert caught.value.text == str(caught.value.cause) == told(two[1], "ours", "configuration")
    # One refuses it, the other one is another network's.
    two[0].greets, two[0].lets_in = {"auth": ["password"]}, False
    config = Config(network="a", login=Login.password("ann", "x"), connect_deadline=30)
    with pytest.raises(DeniedError):
        await Client.connect(*(node.address for node in two), config=config)
    assert time.monotonic() - started < 25, "none has waited for its deadline"
    assert not two[1].came


async def test_a_seed_of_another_network_is_passed_over(two):
    config = replace(CONFIG, network="b")
    async with Client.connect(*(node.address for node in two), config=config) as client:
        await client.put("p", 1)
        assert client.cluster_view().source == "s2"
    assert not two[0].came
    # While its own cannot be reached, it looks for them until time is up.
    await two[1].stop()
    config = Config(network="b", connect_deadline=3.0)
    with pytest.raises(UnavailableError, match="and this client is of") as caught:
        await Client.connect(*(node.address for node in two), config=config)
    assert isinstance(caught.value.cause, OtherNetworkError)


@pytest.mark.parametrize("network", [None, "", 5])
async def test_a_node_that_does_not_tell_its_network_is_used(network):
    nodes = [ScriptedNode(f"s{n + 1}", lambda request: {**WRITTEN, "value": 1}) for n in range(2)]
    nodes[0].network, nodes[1].network, nodes[1].is_old = network, None, True
    for node in nodes:
        await start(node)
        for config in (CONFIG, Config(network="ours")):
            async with Client.connect(node.address, config=config) as client:
                await client.put("p", 1)
                assert await client.get("p") == 1
                assert client._pool.network.name == config.network
    for node in nodes:
        await node.stop()


def ticket_of(node, network, **more):
    content = msgpack.packb({"addresses": [node.address], "network": network, **more})
    data = base64.urlsafe_b64encode(content + hashlib.sha256(content).digest()[:4])
    return "distkv1." + data.decode().rstrip("=")


async def test_a_tickets_network_counts_unless_another_one_is_configured(two, monkeypatch):
    node = two[0]
    with pytest.raises(DeniedError) as caught:
        await Client.connect(config=Config(ticket=ticket_of(node, "of the ticket")))
    assert caught.value.text == told(node, "of the ticket", "ticket")
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
            assert client._pool.network.name == "a"
    with pytest.raises(DeniedError) as caught:
        await Client.connect(config=Config(ticket=ticket_of(node, "a"), network="ours"))
    assert caught.value.text == told(node, "ours", "configuration")


async def test_names_are_shown_in_one_line_and_checked(two):
    two[0].network = 'a "b"\n'
    with pytest.raises(DeniedError) as caught:
        await Client.connect(two[0].address, config=Config(network="übrig"))
    assert r'network "a \"b\"\n", and this client is of "übrig"' in caught.value.text
    with pytest.raises(UsageError, match="config.network must be a text"):
        await Client.connect(two[0].address, config=Config(network=5))


def test_what_a_node_tells_of_itself():
    for identity, known in (
        ({"name": "n1", "incarnation": 7, "network": "b"}, ("n1", 7)),
        ({"name": "n1"}, ("n1", None)),
        ({"incarnation": 7}, ("here", None)),
        (None, ("here", None)),
    ):
        assert identity_of({"id": identity}, "here") == known
    greeting = {"seq": 0, "version": [0, 65, 0], "node": "n1"}
    assert Greeting(greeting).network is None
    for network, known in (("a", "a"), ("", None), (5, None), (None, None)):
        assert Greeting({**greeting, "network": network}).network == known
