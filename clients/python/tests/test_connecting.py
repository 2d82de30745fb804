"""How connecting fails: of which seed that is told, and what is this machine's own fault, at once."""

import asyncio
import errno
import gc
import os
import resource
import socket
from contextlib import contextmanager
from dataclasses import replace

import pytest
from conftest import assert_nothing_left, until
from scripted import ScriptedNode, start
from test_rules import CONFIG, preferred_path, scene

from distkv_client import Client, Config, DeniedError, Login, RetryPolicy, Tls, UnavailableError
from distkv_client.errors import NoSocketError
from distkv_client.ticket import Ticket, with_ticket

PATIENT = replace(CONFIG, connect_deadline=1000.0)
SOON = 20.0
"""Far less than connecting may take."""


@contextmanager
def no_files(free=0):
    """As if all files that this process may open were open, but so many."""
    # What was left to the collector is not closed meanwhile.
    gc.collect()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The lowest numbers that are free.
    lowest = [os.dup(0) for _ in range(free + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest[-1], hard))
    try:
        with pytest.raises(OSError) as caught:
            socket.socket()
        assert caught.value.errno == errno.EMFILE
        for one in lowest:
            os.close(one)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("config", [PATIENT, replace(PATIENT, tls=Tls(ca_hash=b"h" * 32))], ids=["plain", "TLS"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_who_may_open_no_more_files_is_told_so_at_once(host, config):
    await start(node := ScriptedNode("s1"))
    try:
        # The thread that looks names up is there.
        await asyncio.get_running_loop().getaddrinfo("127.0.0.1", node.port)
        with no_files():
            async with asyncio.timeout(SOON):
                with pytest.raises(UnavailableError, match="no more files may be opened here: Too many open") as caught:
                    await Client.connect(f"{host}:{node.port}", "127.0.0.1:9", config=config)
            error = caught.value
            assert isinstance(error.cause, NoSocketError) and error.node is None and "reached" not in str(error)
        async with Client.connect(f"{host}:{node.port}", config=PATIENT):
            pass
    finally:
        await node.stop()
    assert_nothing_left()


async def test_a_call_that_may_open_no_file_says_so():
    once = replace(PATIENT, retry=RetryPolicy(attempts_max=1))
    async with scene(*(ScriptedNode(f"s{number}") for number in range(4)), config=once) as client:
        await until(lambda: client.stats().shards.rows == 0 and client._pool.open_replies() == 1)
        slots = {target.name: client._pool.slot(target.address) for target in client._topology.routing.targets}
        name = next(name for name, slot in slots.items() if slot is None or not slot.connections)
        with no_files(), pytest.raises(UnavailableError, match="Too many open files") as caught:
            await client.get(preferred_path(client, name))
        assert caught.value.node == name


@pytest.mark.parametrize("count", [1, 3])
async def test_who_is_refused_is_told_by_one_seed_which(count):
    nodes = [ScriptedNode(f"s{number}") for number in range(count)]
    for node in nodes:
        node.greets, node.lets_in = {"auth": ["password"]}, False
    seeds = await start(*nodes)
    config = replace(PATIENT, login=Login.password("fred", "wrong"))
    try:
        with pytest.raises(DeniedError) as caught:
            await asyncio.wait_for(Client.connect(*seeds, config=config), SOON)
        assert [seed for seed in seeds if seed in str(caught.value)] == [caught.value.node]
    finally:
        for node in nodes:
            await node.stop()


async def test_who_reaches_no_seed_is_told_of_the_one_that_the_text_is_about():
    with socket.socket() as one, socket.socket() as two:
        for sock in (one, two):
            sock.bind(("127.0.0.1", 0))
        seeds = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in (one, two)]
        with pytest.raises(UnavailableError, match="Connection refused") as caught:
            await Client.connect(*seeds, config=Config(connect_deadline=0.3))
        assert [seed for seed in seeds if seed in str(caught.value)] == [caught.value.node]


@pytest.mark.parametrize("is_told", [False, True])
def test_what_is_given_beside_a_ticket_counts_instead_of_what_it_has(is_told, monkeypatch):
    ticket = Ticket(("n1:1", "n2:2"), "home", "password", "fred", "his secret", b"c" * 32, (), None)
    monkeypatch.setattr(Ticket, "read", lambda text: ticket)
    login, tls = Login.token("jane", "hers"), Tls(ca_hash=b"o" * 32)
    told = Config(login=login, tls=tls, network="other", ticket="a") if is_told else Config(ticket="a")
    seeds, config, _ = with_ticket(("n3",) if is_told else (), told)
    assert seeds == (("n3",) if is_told else ("n1:1", "n2:2"))
    assert config.login == (login if is_told else Login("fred", "his secret", "password"))
    assert config.network == ("other" if is_told else "home") and (config.tls is tls) is is_told
