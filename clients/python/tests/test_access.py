"""Logins, denial, TLS, tickets, client certificates, and keys and secrets that change while a client runs."""

import asyncio
import hashlib
import os
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path as File

import pytest
from conftest import UNHURRIED, assert_nothing_left, until

from distkv_client import (
    Change,
    Client,
    Config,
    DeniedError,
    Login,
    PoolConfig,
    Ticket,
    Tls,
    TopologyConfig,
    UnavailableError,
    UpToDate,
    UsageError,
)
from distkv_client.codec import encode
from distkv_client.testing import Cluster, binary

FIXTURES = File(os.environ.get("DISTKV_FIXTURES", File(__file__).parents[3] / "tests/fixtures")) / "tls"
CA = FIXTURES / "ca.pem"
QUICK = Config(connect_deadline=3.0)


def run(*args, stdin=None):
    """A command of the node's program that must work; what it prints."""
    done = subprocess.run([binary(), *args], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout.strip()


def add_users(cluster, folder):
    """Clients must log in from now on: ann, an admin, and bob, who may read below `open`."""
    at = ("--connect", cluster[0].client, "--timeout", "60s")
    for name in ("ann", "bob"):
        (folder / name).write_text(f"{name}'s secret")
    run("user", "add", "ann", "--role", "admin", "--new-secret-file", str(folder / "ann"), *at)
    run("auth", "on", "password", *at)
    cluster.ann = ann = (*at, "--user", "ann", "--secret-file", str(folder / "ann"))
    for pattern in ("open", "open.#"):
        run("acl", "set", "readers", pattern, "rxe", *ann)
    run("user", "add", "bob", "--acl", "readers", "--new-secret-file", str(folder / "bob"), *ann)
    # Who has what was set last has all that was set before it at the same node.
    run("set", "known.everywhere", "1", "--copies", str(len(cluster) - 1), *ann)


def as_user(name, secret=None, **more):
    """The configuration of a client that logs in."""
    return replace(UNHURRIED, login=Login.password(name, secret or f"{name}'s secret"), **more)


@pytest.fixture
def users(tmp_path):
    """Nodes at which clients must log in, see :func:`add_users`."""
    with Cluster(2) as cluster:
        add_users(cluster, tmp_path)
        yield cluster


async def test_who_logs_in_may_do_what_its_role_allows(users):
    async with Client.connect(*users.seeds, config=as_user("ann")) as client:
        await client.put("open.x", 1, copies=1)
        await client.put("shut", 2, copies=1)
        async with Client.connect(*users.seeds, config=as_user("bob")) as other:
            assert await other.get("open.x") == 1
            for call in (other.get("shut"), other.put("open.x", 2), other.delete("open.x")):
                with pytest.raises(DeniedError) as caught:
                    await call
                assert caught.value.code == "denied" and caught.value.attempts == 1
            for stream in (other.watch("shut"), other.monitor(("shut", "#"))):
                with pytest.raises(DeniedError) as caught:
                    async with stream:
                        pytest.fail("it was refused, and has begun")
                assert caught.value.code == "denied" and caught.value.attempts == 1
            async with other.watch("open") as watch, client.monitor(("open", "#")) as monitor:
                assert (await watch.next()).value == 1
                await client.send(("open", "m"), 7)
                assert (await monitor.next()).data == 7


async def test_nobody_and_wrong_secrets_are_refused_at_once(users):
    for login in (None, Login.password("ann", "wrong"), Login.password("zoe", "x")):
        with pytest.raises(DeniedError) as caught:
            await Client.connect(*users.seeds, config=replace(UNHURRIED, login=login))
        assert caught.value.code == "no_access"
        assert "wrong" not in str(caught.value)
    assert_nothing_left()
    assert "secret" not in repr(Login.password("ann", "her secret")).replace("secret=", "")
    shown = f"{Config(ticket='her words', login=Login(key=b'her words'.ljust(32)))}"
    assert "her words" not in shown, "a ticket has a login"


async def test_a_user_that_is_removed_is_refused_from_then_on(users):
    async with Client.connect(users[0].client, config=as_user("bob")) as client:
        await client.get("open.x", default=None)
        run("user", "remove", "bob", *users.ann)

        async def refused():
            try:
                await client.get("open.x", default=None)
            except (DeniedError, UnavailableError):
                return True
            return False

        await until(refused)


async def test_a_user_that_is_removed_is_told_soon_and_its_watches_end(users):
    async with Client.connect(*users.seeds, config=as_user("bob")) as client:
        async with client.watch("open") as watch:
            while await watch.next() != UpToDate():
                pass
            run("user", "remove", "bob", *users.ann)
            async with asyncio.timeout(20):
                with pytest.raises(DeniedError) as caught:
                    await watch.next()
                assert caught.value.code == "no_access"
                for call in (client.get("open.x", default=None), client.entry("open.x", read="freshest")):
                    with pytest.raises(DeniedError) as caught:
                        await call
                    assert caught.value.code == "no_access"


async def test_a_mirror_is_right_after_a_right_was_taken_away_and_given_back(users):
    def change(*args):
        run(*args, *users.ann)

    for name in ("kept", "changed", "deleted"):
        change("set", f"open.{name}", "1")
    async with Client.connect(*users.seeds, config=as_user("bob")) as client, client.watch("open") as watch:
        mirror = {}

        async def until(is_last):
            while True:
                told = await watch.next()
                if isinstance(told, Change):
                    mirror.pop(str(told.path), None)
                    if not told.deleted:
                        mirror[str(told.path)] = told.value
                if is_last(told):
                    return
                assert isinstance(told, Change), told

        async def until_mark(number):
            change("set", "open.mark", str(number))
            await until(lambda _: mirror.get("open.mark") == number)

        await until(lambda told: told == UpToDate())
        assert mirror == {"open.kept": 1, "open.changed": 1, "open.deleted": 1}
        change("acl", "set", "readers", "open.mark", "r")
        change("acl", "set", "readers", "open.#", "xe")
        change("set", "open.changed", "2")
        change("delete", "open.deleted")
        change("set", "open.new", "1")
        await until_mark(1)
        assert mirror == {"open.kept": 1, "open.changed": 1, "open.deleted": 1, "open.mark": 1}
        change("acl", "set", "readers", "open.#", "rxe")
        # What was queued before the watch looked again comes before what it finds then.
        await until_mark(2)
        await until_mark(3)
        assert mirror == {"open.kept": 1, "open.changed": 2, "open.new": 1, "open.mark": 3}


async def test_a_secret_that_changes_keeps_the_connections_and_is_needed_for_new_ones(users, tmp_path):
    config = as_user("ann")
    async with Client.connect(users[0].client, config=config) as client:
        await client.put("a", 1)
        (tmp_path / "new").write_text("another secret")
        run("user", "password", "ann", "--new-secret-file", str(tmp_path / "new"), *users.ann)
        assert await client.get("a") == 1
        with pytest.raises(DeniedError):
            await Client.connect(users[0].client, config=config)
        async with Client.connect(users[0].client, config=as_user("ann", "another secret")) as other:
            assert await other.get("a") == 1


@pytest.fixture
def secured():
    """A node that speaks TLS only."""
    cert = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    with Cluster(1, *cert, "--client-plaintext", "none") as cluster:
        yield cluster


@pytest.fixture
def both():
    """A node that speaks TLS, and plain text on its own machine: it greets in plain text first."""
    cert = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    with Cluster(1, *cert) as cluster:
        yield cluster


async def test_who_does_not_use_tls_where_it_must_is_told_at_once(secured):
    with Cluster(1, *secured._args) as other:
        for seeds in ([secured[0].client], [secured[0].client, other[0].client]):
            with pytest.raises(DeniedError, match="by TLS only"):
                await Client.connect(*seeds, config=UNHURRIED)
    assert_nothing_left()


@pytest.mark.parametrize("kind", ["secured", "both"])
async def test_tls_by_a_file_and_by_a_hash(request, kind):
    cluster = request.getfixturevalue(kind)
    ticket = Ticket.read(run("ticket", "new", cluster[0].client, "--ca", str(CA)))
    for tls in (Tls(ca_file=CA), Tls(ca_hash=ticket.ca)):
        async with Client.connect(cluster[0].client, config=replace(UNHURRIED, tls=tls)) as client:
            value = bytes(range(256)) * 8192
            await client.put("big", value)
            assert await client.get("big") == value
            async with client.watch("big") as watch:
                assert (await watch.next()).value == value
    config = replace(UNHURRIED, ticket=run("ticket", "new", cluster[0].client, "--ca", str(CA)))
    async with Client.connect(config=config) as client:
        assert await client.get("big") == value
    assert_nothing_left()


async def test_another_ca_is_refused(secured, tmp_path):
    for tls in (Tls(ca_hash=b"x" * 32),):
        with pytest.raises(DeniedError, match="another CA|not believed"):
            await Client.connect(secured[0].client, config=replace(UNHURRIED, tls=tls))
    with pytest.raises((DeniedError, UnavailableError)):
        await Client.connect(secured[0].client, config=QUICK)
    with pytest.raises(UsageError):
        Tls(ca_file=tmp_path / "none")
    with pytest.raises(UsageError):
        Tls()


@pytest.mark.parametrize("ends", ["at once", "after the hello", "before its greeting"])
@pytest.mark.parametrize("kind", ["file", "hash"])
async def test_a_node_that_ends_in_the_handshake_refuses_nobody(ends, kind):
    async def meet(reader, writer):
        if ends == "after the hello":
            await reader.read(4096)
        writer.close()

    context = None
    if ends == "before its greeting":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(FIXTURES / "node.pem", FIXTURES / "node.key")
    tls = (
        Tls(ca_file=CA)
        if kind == "file"
        else Tls(ca_hash=hashlib.sha256(ssl.PEM_cert_to_DER_cert(CA.read_text())).digest())
    )
    async with await asyncio.start_server(meet, "127.0.0.1", 0, ssl=context) as server:
        where = server.sockets[0].getsockname()
        # Another node may serve it, so it is tried until the deadline.
        with pytest.raises(UnavailableError):
            await Client.connect(f"127.0.0.1:{where[1]}", config=Config(tls=tls, connect_deadline=0.3))


@pytest.mark.parametrize("kind", ["file", "hash"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("too_many", UnavailableError),
        ("auth_required", UnavailableError),
        ("denied", DeniedError),
        (None, DeniedError),
    ],
)
async def test_what_a_node_says_in_plain_text_before_tls_is_told(kind, code, expected):
    async def meet(reader, writer):
        told = {"seq": 0, "error": "there are 7 connections", **({"code": code} if code else {})}
        # In pieces.
        for byte in encode(told):
            writer.write(bytes((byte,)))
            await writer.drain()
        await reader.read(4096)
        writer.close()

    by_hash = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CA.read_text())).digest()
    tls = Tls(ca_file=CA) if kind == "file" else Tls(ca_hash=by_hash)
    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        where = server.sockets[0].getsockname()
        with pytest.raises(expected, match="there are 7 connections"):
            await Client.connect(f"127.0.0.1:{where[1]}", config=Config(tls=tls, connect_deadline=3.0))
    assert_nothing_left()


async def test_what_a_node_said_is_told_also_where_time_cuts_off_the_last_try():
    met = 0

    async def meet(reader, writer):
        nonlocal met
        met += 1
        if met == 1:
            writer.write(encode({"seq": 0, "error": "there are 7 connections", "code": "too_many"}))
        await reader.read(4096)
        # The second one is silent until the client has lost patience.
        await reader.read()
        writer.close()

    async with await asyncio.start_server(meet, "127.0.0.1", 0) as server:
        where = server.sockets[0].getsockname()
        topology = TopologyConfig(first_view_timeout=1.0)
        config = Config(tls=Tls(ca_file=CA), connect_deadline=2.0, topology=topology)
        with pytest.raises(UnavailableError, match="in time; before that: .*there are 7 connections"):
            await Client.connect(f"127.0.0.1:{where[1]}", config=config)
    assert met == 2
    assert_nothing_left()


@pytest.mark.parametrize("kind", ["file", "hash"])
async def test_a_node_that_is_full_says_so_also_where_tls_is_used(kind):
    cert = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    by_hash = hashlib.sha256(ssl.PEM_cert_to_DER_cert(CA.read_text())).digest()
    tls = Tls(ca_file=CA) if kind == "file" else Tls(ca_hash=by_hash)
    with Cluster(1, *cert, "--client-plaintext", "none", "--max-connections", "1") as cluster:
        async with Client.connect(cluster[0].client, config=replace(UNHURRIED, tls=Tls(ca_file=CA))) as only:
            await only.put("a", 1)
            with pytest.raises(UnavailableError, match="connections"):
                await Client.connect(cluster[0].client, config=Config(tls=tls, connect_deadline=3.0))
    assert_nothing_left()


async def test_a_node_without_tls_is_not_used_with_tls(shared):
    config = Config(tls=Tls(ca_file=CA), connect_deadline=3.0, pool=PoolConfig(connect_timeout=1.0))
    with pytest.raises((DeniedError, UnavailableError)):
        await Client.connect(shared.seeds[0], config=config)


async def test_a_ticket_from_the_environment_with_a_user(users, tmp_path, monkeypatch):
    text = run(
        "ticket",
        "new",
        *users.seeds,
        "--user",
        "ann",
        "--method",
        "password",
        "--secret",
        str(tmp_path / "ann"),
    )
    monkeypatch.setenv("DISTKV_TICKET", text)
    async with Client.connect(config=UNHURRIED) as client:
        await client.put("t", 1)
        assert (await client.request("auth_info"))["user"] == "ann"
    (tmp_path / "ticket").write_text(text + "\n")
    monkeypatch.setenv("DISTKV_TICKET", f"@{tmp_path / 'ticket'}")
    async with Client.connect(config=UNHURRIED) as client:
        assert await client.get("t") == 1


def test_damaged_tickets_are_told(secured):
    text = run("ticket", "new", "n1", "--ca", str(CA))
    assert Ticket.read(text).addresses == ("n1",) or Ticket.read(text).addresses == ("n1:27586",)
    for bad, told in (
        (text[:-1], "damaged"),
        ("distkv2.abc", "later version"),
        ("abc", "no ticket"),
        ("@/no/file", "file"),
        ("distkv1.", "damaged"),
    ):
        with pytest.raises(UsageError, match=told):
            Ticket.read(bad)


async def test_a_client_certificate_is_presented_where_the_node_asks_for_it(tmp_path):
    options = ("--cert", str(FIXTURES / "node.pem"), "--cert-key", str(FIXTURES / "node.key"))
    with Cluster(1, *options, "--client-ca", str(CA)) as cluster:
        tls = Tls(ca_file=CA, cert_file=FIXTURES / "joe.pem", key_file=FIXTURES / "joe.key")
        async with Client.connect(cluster[0].client, config=replace(UNHURRIED, tls=tls)) as client:
            await client.put("a", 1)
        made = ("--cert", str(FIXTURES / "joe.pem"), "--cert-key", str(FIXTURES / "joe.key"))
        text = run("ticket", "new", cluster[0].client, "--ca", str(CA), *made)
        async with Client.connect(config=replace(UNHURRIED, ticket=text)) as client:
            assert await client.get("a") == 1
    with pytest.raises(UsageError, match="cannot be used"):
        Tls(ca_file=CA, cert_file=FIXTURES / "joe.pem", key_file=FIXTURES / "node.key")
