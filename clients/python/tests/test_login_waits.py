"""Nodes that make logins wait, since too many have failed: no refusal, and no hope either; and nodes that are full."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import count

import pytest
from conftest import assert_nothing_left, until
from scripted import start
from test_access import add_users, as_user, run
from test_no_access import first_at, logins, three
from test_rules import preferred_path, scene

from distkv_client import (
    Client,
    Config,
    DeniedError,
    Login,
    NoMajorityError,
    PoolConfig,
    RetryPolicy,
    UnavailableError,
    UpToDate,
)
from distkv_client.config import Address
from distkv_client.connection import Connection
from distkv_client.errors import LoginWaitError, NoAccessError, TryError
from distkv_client.login import Access
from distkv_client.network import Network
from distkv_client.pool import REFUSAL_MEMORY
from distkv_client.testing import Cluster

PATIENT = Config(
    login=Login.password("ann", "her secret"),
    pool=PoolConfig(failure_memory=0.001, failure_memory_max=0.001, connect_timeout=20.0),
    retry=RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=20.0, total_deadline=40.0),
    connect_deadline=40.0,
)
"""Nothing is cut off by its time, and what failed is soon tried again."""
TRIES = replace(PATIENT, retry=replace(PATIENT.retry, attempts_max=30))
"""The same, for so many tries."""


async def connected_to_all(client, nodes):
    for node in nodes:
        await client.get(preferred_path(client, node.name))


def make_wait(*nodes):
    for node in nodes:
        node.lets_in, node.refuses = False, "too_many"


def slot_of(client, node):
    return client._pool.slot(client._topology.routing.by_name[node.name].address)


async def test_a_refusal_is_told_at_once_where_the_others_make_the_login_wait():
    nodes = three()
    async with scene(*nodes, config=PATIENT) as client:
        await connected_to_all(client, nodes)
        path = preferred_path(client, "s1")
        async with client.watch(path) as watch, client.monitor(path) as monitor:
            assert await watch.next() == UpToDate()
            nodes[0].lets_in = False
            make_wait(*nodes[1:])
            for node in nodes:
                node.drop()
            for call in (
                client.get(path),
                client.put(path, 1),
                client.get(path, read="freshest"),
                client.conflicts()._collect(),
                watch.next(),
                monitor.next(),
            ):
                with pytest.raises(DeniedError) as caught:
                    await asyncio.wait_for(call, 20)
                assert caught.value.code == "no_access" and caught.value.node == "s1"
                assert isinstance(caught.value.cause, NoAccessError)


async def test_who_is_only_made_to_wait_is_not_refused():
    nodes = three()
    async with scene(*nodes, config=TRIES) as client:
        await connected_to_all(client, nodes)
        path = preferred_path(client, "s1")
        async with client.watch(path) as watch:
            assert await watch.next() == UpToDate()
            make_wait(*nodes[:2])
            await nodes[2].stop()
            for node in nodes[:2]:
                node.drop()
            for call in (client.get(path), client.put(path, 1)):
                with pytest.raises(UnavailableError, match="makes the login wait") as caught:
                    await call
                assert isinstance(caught.value.cause, LoginWaitError)
            with pytest.raises(NoMajorityError, match="makes the login wait"):
                await client.get(path, read="freshest")
            with pytest.raises(UnavailableError, match="makes the login wait"):
                await client.conflicts()
            waiting = asyncio.create_task(watch.next())
            before = logins(nodes[:2])
            await until(lambda: all(now > then + 3 for then, now in zip(before, logins(nodes[:2]), strict=True)))
            assert not waiting.done()
            for node in nodes[:2]:
                node.lets_in = True
            assert type(await asyncio.wait_for(waiting, 20)).__name__ == "Resumed"
            assert await client.get(path, timeout=20) == 1


async def test_who_connects_first_is_not_refused_by_seeds_that_make_it_wait():
    nodes = three()
    seeds = await start(*nodes)
    make_wait(*nodes)
    brief = replace(PATIENT, connect_deadline=3.0)
    with pytest.raises(UnavailableError, match="makes the login wait") as caught:
        await Client.connect(*seeds, config=brief)
    assert isinstance(caught.value.cause, LoginWaitError)
    nodes[0].refuses = "auth_failed"
    with pytest.raises(UnavailableError, match="cannot get into") as caught:
        await Client.connect(*seeds, config=brief)
    assert isinstance(caught.value.cause, NoAccessError)
    nodes[0].refuses = "too_many"
    before = logins(nodes)
    connecting = asyncio.create_task(_connect(seeds, PATIENT))
    await until(lambda: all(now > then + 1 for then, now in zip(before, logins(nodes), strict=True)))
    for node in nodes:
        node.lets_in = True
    client = await connecting
    assert await client.get("a") == 1
    await client.close()
    for node in nodes:
        await node.stop()
    assert_nothing_left()


async def _connect(seeds, config):
    return await Client.connect(*seeds, config=config)


@pytest.mark.parametrize("code", ["auth_required", "denied", "auth_failed"])
async def test_who_was_shut_out_and_is_made_to_wait_is_refused(code):
    nodes = three()
    async with scene(*nodes, config=PATIENT) as client:
        await connected_to_all(client, nodes)
        path = preferred_path(client, "s1")
        async with client.watch(path) as watch:
            assert await watch.next() == UpToDate()
            make_wait(*nodes)
            for node in nodes[1:]:
                node.drop()
            nodes[0].close_with(code)
            for call in (client.get(path), client.put(path, 1), client.get(path, read="freshest"), watch.next()):
                with pytest.raises(DeniedError, match="makes the next login wait") as caught:
                    await asyncio.wait_for(call, 20)
                assert caught.value.code == "no_access" and caught.value.node == "s1"


async def test_who_was_shut_out_by_one_connection_is_let_in_by_the_next():
    nodes = three()[:1]
    async with scene(*nodes, config=TRIES) as client:
        assert await client.get("a") == 1
        nodes[0].close_with("auth_required")
        # What a node says as it closes is no refusal yet: it may know the user again.
        assert await client.get("a", timeout=20) == 1
        # Whom it has let in since, it does not refuse by making it wait.
        make_wait(*nodes)
        nodes[0].drop()
        with pytest.raises(UnavailableError, match="makes the login wait"):
            await client.get("a")
        assert slot_of(client, nodes[0]).word is None


async def test_who_was_shut_out_long_ago_is_only_made_to_wait(monkeypatch):
    nodes = three()[:1]
    async with scene(*nodes, config=TRIES) as client:
        assert await client.get("a") == 1
        clock, ahead = client._caller.loop.time, 0.0
        monkeypatch.setattr(client._caller.loop, "time", lambda: clock() + ahead)
        make_wait(*nodes)
        nodes[0].close_with("auth_required")
        with pytest.raises(DeniedError):
            await client.get("a", timeout=20)
        ahead += REFUSAL_MEMORY
        with pytest.raises(UnavailableError, match="cannot log in"):
            await client.get("a")


async def test_a_node_that_hangs_up_on_a_slow_login_has_not_shut_the_client_out():
    nodes = three()[:1]
    async with scene(*nodes, config=TRIES) as client:
        assert await client.get("a") == 1
        # As it does after ten seconds.
        nodes[0].hangs_up = "auth_required"
        nodes[0].drop()
        with pytest.raises(UnavailableError):
            await client.get("a")
        nodes[0].hangs_up = None
        make_wait(*nodes)
        with pytest.raises(UnavailableError, match="makes the login wait"):
            await client.get("a")


def fill(node, how):
    """The node has no room any more: it says so in this way, or does not."""
    node.turns_away = "too_many" if how == "instead of a greeting" else None
    node.hangs_up = "too_many" if how == "instead of an answer" else None
    # As to a client of its own machine: it may log in and look, and nothing else.
    node.is_full = how == "behind the login"


WAYS = ["instead of a greeting", "instead of an answer", "behind the login"]


async def refused_by_both(client, nodes):
    """A path; both nodes have refused the client just now, and do so no longer; the first one is gone."""
    await connected_to_all(client, nodes)
    path = await first_at(client, nodes[0])
    nodes[1].lets_in = False
    nodes[1].drop()
    with pytest.raises(DeniedError):
        await client.get(path)
    nodes[1].lets_in = True
    return path


@pytest.mark.parametrize("how", WAYS)
async def test_a_node_that_is_full_is_hope_also_just_after_a_refusal(how):
    nodes = three()[:2]
    async with scene(*nodes, config=TRIES) as client:
        path = await refused_by_both(client, nodes)
        fill(nodes[1], how)
        for call in (client.get(path), client.put(path, 1)):
            with pytest.raises(UnavailableError, match="no") as caught:
                await call
            assert caught.value.node == "s2" and caught.value.attempts == TRIES.retry.attempts_max


@pytest.mark.parametrize("how", WAYS)
async def test_a_node_that_is_full_is_waited_for(how):
    nodes = three()[:2]
    async with scene(*nodes, config=PATIENT) as client:
        path = await refused_by_both(client, nodes)
        fill(nodes[1], how)
        reading = asyncio.create_task(client.get(path))
        accepted = nodes[1].accepted
        await until(lambda: nodes[1].accepted > accepted + 3)
        assert not reading.done()
        fill(nodes[1], None)
        assert await reading == 1


@pytest.fixture
def many(tmp_path):
    """Three nodes with the users of test_access.py."""
    with Cluster(3) as cluster:
        add_users(cluster, tmp_path)
        yield cluster


CLIENTS = 12
TOLD = 20.0
"""Seconds in which all must be told; it takes one or two."""


async def test_all_clients_of_a_removed_user_are_told_soon(many):
    config = Config(login=Login.password("bob", "bob's secret"), retry=RetryPolicy(total_deadline=50.0))
    async with AsyncExitStack() as stack:
        clients, watches = [], []
        for number in range(CLIENTS):
            seeds = many.seeds[number % 3 :] + many.seeds[: number % 3]
            clients.append(client := await stack.enter_async_context(Client.connect(*seeds, config=config)))
            watches.append(watch := await stack.enter_async_context(client.watch(f"open.x{number}")))
            while await watch.next() != UpToDate():
                pass
            assert await client.get(f"open.y{number}", default=None) is None
        run("user", "remove", "bob", *many.ann)

        async def told(call):
            with pytest.raises(DeniedError) as caught:
                while True:
                    # A node that has not heard of it yet still answers.
                    await call()
            assert caught.value.code == "no_access"

        async def ends(watch):
            with pytest.raises(DeniedError) as caught:
                while await watch.next():
                    pass
            assert caught.value.code == "no_access"

        async with asyncio.timeout(TOLD):
            await asyncio.gather(
                *(ends(watch) for watch in watches),
                *(told(lambda one=client: one.get("open.z", default=None)) for client in clients),
            )
    assert_nothing_left()


@pytest.mark.timeout(240)
async def test_those_with_a_wrong_secret_do_not_refuse_who_has_the_right_one(many, tmp_path):
    (tmp_path / "new").write_text("another secret")
    run("user", "password", "bob", "--new-secret-file", str(tmp_path / "new"), *many.ann)
    right, numbers = Login.password("bob", "another secret"), count()
    caught, is_over = [], asyncio.Event()

    def wrong():
        """Another one each time: the same again would be no further guess."""
        return Login.password("bob", f"guess {next(numbers)}")

    async def hammer():
        while not is_over.is_set():
            with pytest.raises((DeniedError, UnavailableError)) as error:
                await Client.connect(*many.seeds, config=Config(login=wrong(), connect_deadline=2.0))
            caught.append(error.value.cause)

    async def is_made_to_wait(seed):
        """At this node, who has the wrong secret. It asks once, and as long as it takes."""
        try:
            address, pool = Address.parse(seed), PoolConfig(connect_timeout=50.0)
            await Connection.open(address, pool, Access(wrong()), Network(None, ""))
        except TryError as error:
            return isinstance(error, LoginWaitError)

    # A node that has much to do is not left.
    config = Config(login=right, pool=PoolConfig(probe_timeout=60.0))
    async with Client.connect(*many.seeds, config=config) as client:
        async with client.watch("open") as watch:
            while await watch.next() != UpToDate():
                pass
            assert await client.get("open.x", default=None) is None
            hammering = [asyncio.create_task(hammer()) for _ in range(CLIENTS)]
            for seed in many.seeds:
                await until(lambda seed=seed: is_made_to_wait(seed))
            anew = asyncio.create_task(_connect(many.seeds, Config(login=right, connect_deadline=100)))
            made_to_wait = len(caught)
            await until(lambda: len(caught) > made_to_wait + CLIENTS)
            is_over.set()
            await asyncio.gather(*hammering)
            async with await anew as other:
                assert await other.get("open.x", default=None) is None
            # It has kept its connections, and what it waits for.
            # Nodes may make all logins wait for a while.
            async with Client.connect(*many.seeds, config=as_user("ann", connect_deadline=100)) as other:
                await other.put("open.x", 1)
            assert (await asyncio.wait_for(watch.next(), 20)).value == 1
            assert client.stats().pool.lost == client.stats().watches.lost == 0
    assert_nothing_left()
