"""A password or token does not leave the machine in plain text, whoever asks for it, unless the client was told so."""

import asyncio
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import assert_nothing_left, until
from scripted import start
from test_access import CA
from test_login_waits import PATIENT, TRIES, connected_to_all, make_wait
from test_network import certified, ticket_of
from test_no_access import logins, three
from test_rules import preferred_path, scene

from distkv_client import Client, Config, DeniedError, Login, Tls, TopologyConfig, UnavailableError, UpToDate, sync
from distkv_client.codec import encode
from distkv_client.config import Address
from distkv_client.dial import is_own_machine
from distkv_client.errors import NoAccessError

SECRET = "her secret"
PLAIN = replace(PATIENT, login=Login.password("ann", SECRET))
SETTINGS = encode({"seq": 0, "qlen": 10})
"""All that a client sends that does not log in, to a node whose window is this one."""


@pytest.mark.parametrize("host", "127.0.0.1 127.0.0.0 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:127.9.9.9".split())
def test_what_is_sent_to_a_loopback_address_stays_on_the_machine(host):
    assert is_own_machine(host)


@pytest.mark.parametrize(
    "host",
    "10.0.0.7 126.255.255.255 128.0.0.1 0.0.0.0 169.254.0.1 192.168.1.1 255.255.255.255 :: ::2 ::127.0.0.1 "
    "::ffff:10.0.0.7 ::ffff:128.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 fe80::1 fe80::1%lo fd00::1 2001:db8::1 "
    "7f00::1".split(),
)
def test_what_is_sent_to_any_other_address_does_not(host):
    assert not is_own_machine(host)


@pytest.mark.parametrize("peer", [None, "", (), "/run/a.sock", "localhost", "127.0.0.1.example.org"])
def test_nor_does_what_is_sent_who_knows_where(peer):
    assert not is_own_machine(peer)


def own_address():
    """An address of this machine that is no loopback address; none where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # Nothing is sent.
        except OSError:
            return None
        host = sock.getsockname()[0]
        return None if host.startswith(("127.", "0.")) else host


@pytest.fixture
def far(monkeypatch):
    """The ports at which the client's sockets say that they are connected to another machine."""
    ports = set()

    class Socket(socket.socket):
        def getpeername(self):
            host, port = super().getpeername()[:2]
            return ("10.0.0.7" if port in ports else host), port

    # The client's alone: everybody else's are as they are.
    monkeypatch.setattr("distkv_client.dial.socket", SimpleNamespace(**{**vars(socket), "socket": Socket}))
    return ports


@pytest.fixture(params=["it says that it is far", "it has another address of this machine"])
async def node(request, far):
    """A node that asks for a login, at no loopback address."""
    (one,) = three()[:1]
    if request.param == "it says that it is far":
        await one.start()
        far.add(one.port)
    else:
        one.host = own_address()
        if one.host is None:
            pytest.skip("this machine has no network")
        await one.start()
    yield one
    await one.stop()
    assert_nothing_left()


def heard_nothing(*nodes):
    """No client has said anything to these of the login that it has."""
    for node in nodes:
        assert node.accepted, "it was not tried"
        assert not node.requests and node.came <= node.accepted * len(SETTINGS)


WAYS = ["password", "token", "as it asks", "in a way that it made up", "by a ticket", "threads"]


@pytest.mark.parametrize("way", WAYS)
async def test_no_secret_goes_to_another_machine_in_plain_text(node, way):
    login = {"token": Login.token("ann", SECRET), "as it asks": Login("ann", SECRET)}.get(way, PLAIN.login)
    config = replace(PLAIN, login=login)
    if way == "in a way that it made up":
        node.greets, config = {"auth": ["made up"]}, replace(config, login=Login("ann", SECRET))
    if way == "by a ticket":
        ticket = ticket_of(node, node.network, method="password", user="ann", secret=SECRET)
        config = replace(config, login=None, ticket=ticket)
    with pytest.raises(DeniedError) as caught:
        if way == "threads":
            await asyncio.to_thread(sync.Client, node.address, config=config)
        else:
            await Client.connect(node.address, config=config)
    assert caught.value.code == "plaintext_login" and isinstance(caught.value.cause, NoAccessError)
    what = {"token": "token", "in a way that it made up": "secret"}.get(way, "password")
    for told in (f"into {node.address}: it asks for a login", f"the {what} would", "tls=", "plaintext_login=True"):
        assert told in str(caught.value)
    assert SECRET not in str(caught.value)
    heard_nothing(node)


async def test_who_was_told_to_sends_it(node):
    async with Client.connect(node.address, config=replace(PLAIN, plaintext_login=True)) as client:
        assert await client.get("a") == 1
    assert [one["secret"] for one in node.actions("auth")] == [SECRET]


@pytest.mark.parametrize("method", ["root", "_test"])
@pytest.mark.parametrize("is_said", [False, True])
async def test_a_method_without_a_secret_gets_none(node, method, is_said):
    node.greets = {"auth": [method]}
    login = Login("ann", SECRET, method if is_said else None)
    async with Client.connect(node.address, config=replace(PLAIN, login=login)) as client:
        assert await client.get("a") == 1
    (told,) = node.actions("auth")
    assert told["typ"] == method and told["ident"] == "ann" and "secret" not in told


@pytest.mark.parametrize("method", ["password", "token"])
@pytest.mark.parametrize("is_said", [False, True])
async def test_who_needs_a_secret_and_has_none_is_told_at_once(node, method, is_said):
    node.greets = {"auth": [method]}
    config = replace(PLAIN, login=Login("ann", None, method if is_said else None))
    text = f"cannot get into {node.address}: who logs in as 'ann' needs the user's secret, and none was given"
    with pytest.raises(DeniedError, match=text) as caught:
        await asyncio.wait_for(Client.connect(node.address, config=config), 20)
    assert caught.value.code == "no_access"
    assert not node.actions("auth"), "there is nothing to look at"


async def test_who_has_no_secret_or_needs_none_goes_on(node):
    # Of a method that this client does not know, it cannot say whether it needs one.
    node.greets = {"auth": ["another"]}
    async with Client.connect(node.address, config=replace(PLAIN, login=Login("ann"))) as client:
        assert await client.get("a") == 1
    assert "secret" not in node.actions("auth")[0]
    node.greets = {}
    async with Client.connect(node.address, config=PLAIN) as client:
        assert await client.get("a") == 1
    assert len(node.actions("auth")) == 1
    # What proves that one has the key is of no use to anybody else.
    node.greets = {"auth": ["password"], "nonce": bytes(32)}
    with pytest.raises(DeniedError, match="does not prove") as caught:
        await Client.connect(node.address, config=replace(PLAIN, login=Login(key=b"k" * 32)))
    assert caught.value.code == "no_access"
    assert node.actions("auth")[-1]["typ"] == "key"


async def test_by_tls_it_goes_anywhere(far):
    (one,) = three()[:1]
    one.tls = certified("node")
    await one.start()
    far.add(one.port)
    async with Client.connect(one.address, config=replace(PLAIN, tls=Tls(ca_file=CA))) as client:
        assert await client.get("a") == 1
    assert [told["secret"] for told in one.actions("auth")] == [SECRET]
    await one.stop()
    assert_nothing_left()


async def test_a_name_counts_by_the_address_that_it_has(far):
    (one,) = three()[:1]
    await one.start()
    # The node says that it is at its IP address.
    config = replace(PLAIN, topology=TopologyConfig(only_seeds=True))
    async with Client.connect(f"localhost:{one.port}", config=config) as client:
        assert client.stats().pool.connections
    assert len(one.actions("auth")) == 1
    far.add(one.port)
    with pytest.raises(DeniedError, match=f"cannot get into localhost:{one.port}"):
        await Client.connect(f"localhost:{one.port}", config=config)
    assert len(one.actions("auth")) == 1
    await one.stop()
    assert_nothing_left()


async def test_a_node_that_would_get_it_in_plain_text_is_passed_over(far):
    nodes = three()
    async with scene(*nodes, config=PLAIN) as client:
        await connected_to_all(client, nodes)
        path = preferred_path(client, "s1")
        far.add(nodes[0].port)
        before = logins(nodes)
        nodes[0].drop()
        async with client.watch(path) as watch:
            assert await watch.next() == UpToDate()
            assert (await client.put(path, 1)).node != "s1"
            far.update(node.port for node in nodes)
            for node in nodes:
                node.drop()
            for call in (
                client.get(path),
                client.put(path, 1),
                client.get(path, read="freshest"),
                client.conflicts()._collect(),
                watch.next(),
            ):
                with pytest.raises(DeniedError, match="in plain text") as caught:
                    await asyncio.wait_for(call, 20)
                assert caught.value.code == "plaintext_login"
        assert logins(nodes) == before


async def test_so_is_such_a_seed(far):
    nodes = three()
    seeds = await start(*nodes)
    far.update(node.port for node in nodes[:2])
    async with Client.connect(*seeds, config=PLAIN) as client:
        await until(lambda: client.stats().topology.watching == seeds[2])
        assert (await client.put(preferred_path(client, "s1"), 1)).node == "s3"
    heard_nothing(nodes[0])
    for node in nodes:
        await node.stop()
    assert_nothing_left()


async def test_what_the_client_refuses_itself_is_no_word_of_the_node(far):
    nodes = three()[:1]
    async with scene(*nodes, config=TRIES) as client:
        assert await client.get("a") == 1
        far.add(nodes[0].port)
        nodes[0].drop()
        with pytest.raises(DeniedError) as caught:
            await client.get("a")
        assert caught.value.code == "plaintext_login"
        # Its name has another address now.
        far.clear()
        make_wait(*nodes)
        await until(lambda: not client._pool.is_failing(Address.parse(nodes[0].address)))
        with pytest.raises(UnavailableError, match="makes the login wait"):
            await client.get("a")


def test_it_is_off_unless_it_is_asked_for():
    assert Config().plaintext_login is False
