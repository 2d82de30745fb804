"""Tickets in files: a secret that is replaced there is taken once a node refuses the one before."""

import asyncio
import base64
import hashlib
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import msgpack
import pytest
from conftest import assert_nothing_left, until
from scripted import ScriptedNode, error, start
from test_access import run
from test_login_waits import PATIENT
from test_rules import preferred_path, scene

from distkv_client import (
    Client,
    ClosedError,
    Config,
    DeniedError,
    Login,
    Resumed,
    UnavailableError,
    UpToDate,
    own_login,
)
from distkv_client.codec import encode
from distkv_client.testing import Cluster
from distkv_client.ticket import Ticket

OLD, NEW = "the old secret", "the new secret"


def ticket(secret, **more):
    told = {"addresses": ["n1:1"], "network": "", "method": "password", "user": "ann", "secret": secret, **more}
    content = msgpack.packb(told)
    data = base64.urlsafe_b64encode(content + hashlib.sha256(content).digest()[:4])
    return "distkv1." + data.decode().rstrip("=")


class Guarded(ScriptedNode):
    """It lets in who has the right secret, and makes wait who has the one of `waits`."""

    right, waits = OLD, None

    def __init__(self, name):
        super().__init__(name)
        self.greets = {"auth": ["password"]}

    @property
    def lets_in(self):
        secret = self.requests[-1].get("secret")
        self.refuses = "too_many" if secret == self.waits else "auth_failed"
        return secret == self.right

    @lets_in.setter
    def lets_in(self, _):
        pass

    def secrets(self):
        return [request.get("secret") for request in self.actions("auth")]


@pytest.fixture
def reads(monkeypatch):
    """How often tickets are read."""
    read, counted = Ticket.read, []

    def count(text):
        counted.append(text)
        return read(text)

    monkeypatch.setattr(Ticket, "read", count)
    return counted


@asynccontextmanager
async def in_use(file, *nodes, **more):
    """A client that all of these have let in with the old secret."""
    file.write_text(ticket(OLD))
    async with scene(*nodes, config=replace(PATIENT, login=None, ticket=f"@{file}", **more)) as client:
        for node in nodes:
            await client.get(preferred_path(client, node.name))
        yield client


def change(*nodes):
    """Only the new secret counts from now on, and all connections end."""
    for node in nodes:
        node.right = NEW
        node.drop()


def refused():
    return pytest.raises(DeniedError, match="its secret is another one")


async def test_a_program_goes_on_when_its_secret_is_replaced_and_the_node_restarts(tmp_path):
    file, secret = tmp_path / "tim.ticket", tmp_path / "secret"
    with Cluster(1, "--data-dir", str(tmp_path / "data")) as cluster:
        (node,) = cluster
        secret.write_text("the secret of ann")
        at = ("--connect", node.client, "--timeout", "60s")
        run("user", "add", "ann", "--role", "admin", "--new-secret-file", str(secret), *at)
        run("auth", "on", "password", *at)
        ann = (*at, "--user", "ann", "--secret-file", str(secret))
        run("user", "add", "tim", "--method", "token", "--role", "admin", *ann)
        run("user", "ticket", "tim", "--to", str(file), *ann)
        config = replace(PATIENT, login=None, ticket=f"@{file}")
        async with Client.connect(config=config) as client, client.watch("a") as watch:
            assert await watch.next() == UpToDate()
            await client.put("a", 1)
            run("user", "ticket", "tim", "--to", str(file), "--force", *ann)
            # What is open stays.
            await client.put("a", 2)
            restart(node)
            await client.put("a", 3)
            await until(lambda: _sees(watch, 3))
            # Of half a file nothing is taken.
            run("user", "ticket", "tim", "--to", str(file), "--force", *ann)
            whole = file.read_text()
            file.write_text(whole[: len(whole) // 2])
            restart(node)
            with refused():
                await client.get("a")
            file.write_text(whole)
            await until(lambda: _is_let_in(client))
    assert_nothing_left()


def restart(node):
    """In order, so that it knows what was changed last."""
    node.process.terminate()
    node.process.wait(60)
    node.restart()


async def _sees(watch, value):
    event = await watch.next()
    return getattr(event, "value", None) == value


async def _is_let_in(client):
    try:
        await client.get("a")
    except DeniedError:
        return False
    return True


async def test_all_calls_that_are_refused_at_once_read_the_file_once(tmp_path, reads):
    file, nodes = tmp_path / "ticket", [Guarded(f"s{number}") for number in (1, 2, 3)]
    async with in_use(file, *nodes) as client:
        reads.clear()
        file.write_text(ticket(NEW))
        change(*nodes)
        paths = [preferred_path(client, node.name) for node in nodes]
        assert await asyncio.gather(*(client.get(paths[number % 3]) for number in range(1000)))
        assert len(reads) == 1
        for node in nodes:
            assert node.secrets()[-1] == NEW
            assert node.secrets().count(OLD) <= 2
        before = nodes[0].secrets()
        nodes[0].drop()

        async def comes_again():
            await client.get(paths[0])
            return len(nodes[0].secrets()) > len(before)

        await until(comes_again)
        assert nodes[0].secrets() == [*before, NEW] and len(reads) == 1


async def test_a_file_that_is_damaged_or_for_something_else_is_passed_over_and_read_once_a_second(
    tmp_path, reads, jump
):
    file, node = tmp_path / "ticket", Guarded("s1")
    async with in_use(file, node) as client:
        path = preferred_path(client, "s1")
        change(node)
        with refused():
            await client.get(path)
        whole = ticket(NEW)
        for number, wrong in enumerate(
            (
                whole[: len(whole) // 2],
                "",
                "x" * (1 << 20),
                ticket(NEW, user="bob"),
                ticket(NEW, network="elsewhere"),
                ticket(NEW, ca=b"c" * 32),
                ticket(NEW, method=None, user=None),
                ticket("x" * 1025),
                ticket(OLD),
            )
        ):
            reads.clear()
            file.write_text(wrong)
            jump(1.0)
            for _ in range(3):
                with refused():
                    await client.get(path)
            assert len(reads) == 1, number
        assert set(node.secrets()) == {OLD}
        file.unlink()
        jump(1.0)
        with refused():
            await client.get(path)
        # Nobody writes into this: whoever opens it waits for ever.
        os.mkfifo(file)
        jump(1.0)
        with refused():
            await client.get(path)
        file.unlink()
        file.write_text(ticket(NEW, addresses=["elsewhere:1"]) + "\n")
        jump(1.0)
        assert await client.get(path) == "s1"


@pytest.fixture
def replaced_after(monkeypatch, reads):
    """Puts a ticket for the new secret into the file when it has been read so many times."""

    def replaces(file, count):
        read = Ticket.read
        reads.clear()

        def then(text):
            found = read(text)
            if len(reads) == count:
                file.write_text(ticket(NEW))
            return found

        monkeypatch.setattr(Ticket, "read", then)

    return replaces


def begins(request, name):
    if request["action"] != "watch":
        return {"value": name, "tock": 1}
    seq = request["seq"]
    return encode({"seq": seq, "state": "start", "wseq": 1}) + encode({"seq": seq, "state": "uptodate", "wseq": 2})


@pytest.mark.parametrize("waits", [None, OLD])
async def test_a_secret_that_is_replaced_just_after_the_connections_are_ended_is_taken(
    tmp_path, reads, replaced_after, waits
):
    file, nodes = tmp_path / "ticket", [Guarded("s1"), Guarded("s2")]
    for node in nodes:
        node.script = partial(begins, name=node.name)
    async with in_use(file, *nodes) as client, client.watch("a") as watch:
        assert await watch.next() == UpToDate()
        replaced_after(file, 2)
        for node in nodes:
            node.right, node.waits = NEW, waits
            node.close_with("auth_required")
        assert isinstance(await watch.next(), Resumed)
        for node in nodes:
            path = preferred_path(client, node.name)
            await until(lambda path=path, node=node: _answers(client, path, node))
        assert len(reads) == 3
        for node in nodes:
            # By one for all that are refused, and each asks with it on the connection that it has.
            assert node.secrets() in ([OLD, OLD, NEW], [OLD, NEW])


async def _answers(client, path, node):
    return await client.get(path) == node.name


async def test_a_secret_that_was_never_taken_is_refused_at_once(tmp_path, reads):
    file, node = tmp_path / "ticket", Guarded("s1")
    node.right = NEW
    file.write_text(ticket(OLD))
    seeds = await start(node)
    with refused():
        await Client.connect(*seeds, config=replace(PATIENT, login=None, ticket=f"@{file}"))
    await node.stop()
    # Once for the configuration.
    assert len(reads) == 2


async def test_a_secret_that_was_good_is_waited_for_once(tmp_path, reads, jump):
    file, node = tmp_path / "ticket", Guarded("s1")
    async with in_use(file, node) as client:
        path = preferred_path(client, "s1")
        for _ in range(2):
            reads.clear()
            change(node)
            with refused():
                await client.get(path)
            assert len(reads) == 1 + len(own_login.PAUSES)
            for _ in range(3):
                reads.clear()
                jump(1.0)
                with refused():
                    await client.get(path)
                assert len(reads) == 1
            # The node lets the client in after all.
            node.right = OLD
            await until(lambda: _is_let_in(client))
            jump(1.0)


@pytest.fixture
def long_pauses(monkeypatch):
    monkeypatch.setattr(own_login, "PAUSES", (3_600.0,))


async def test_the_wait_for_a_secret_is_a_part_of_the_time_to_connect(tmp_path, long_pauses):
    file, node = tmp_path / "ticket", Guarded("s1")
    pool = replace(PATIENT.pool, connect_timeout=1.0)
    async with in_use(file, node, pool=pool) as client:
        change(node)
        with refused():
            await client.get("a")


async def _ask_on(client, path):
    """Also where the connection is lost under a call, which another node answers."""
    while True:
        await client.get(path)


async def _is_let_in_again(client, path, node):
    try:
        # A call that loses its connection may go on to the node that is waited for.
        return await client.get(path, timeout=1) == node.name and len(node.secrets()) > 1
    except UnavailableError:
        return False


async def test_the_wait_for_a_secret_holds_up_neither_other_nodes_nor_the_end(tmp_path, reads, long_pauses):
    file, nodes = tmp_path / "ticket", [Guarded("s1"), Guarded("s2")]
    pool = replace(PATIENT.pool, connect_timeout=20_000.0)
    retry = replace(PATIENT.retry, try_deadline=3_600.0, total_deadline=3_600.0)
    async with in_use(file, *nodes, pool=pool, retry=retry) as client:
        paths = [preferred_path(client, node.name) for node in nodes]
        reads.clear()
        change(nodes[0])
        waiting = asyncio.create_task(_ask_on(client, paths[0]))
        await until(lambda: reads)
        nodes[1].drop()
        await until(lambda: _is_let_in_again(client, paths[1], nodes[1]))
        assert len(reads) == 1 and nodes[0].secrets() == [OLD, OLD]
        async with asyncio.timeout(60):
            await client.close(grace=0)
        with pytest.raises(ClosedError):
            await waiting


async def test_a_node_that_makes_the_old_secret_wait_is_asked_with_the_new_one(tmp_path, jump):
    file, nodes = tmp_path / "ticket", [Guarded("s1"), Guarded("s2")]
    async with in_use(file, *nodes) as client:
        path = preferred_path(client, "s1")
        for node in nodes:
            node.waits = OLD
        change(*nodes)
        with pytest.raises(UnavailableError, match="makes the login wait"):
            await client.get(path, timeout=3)
        file.write_text(ticket(NEW))
        jump(1.0)
        assert await client.get(path) == "s1"


async def test_a_refusal_of_the_old_secret_does_not_stand_against_the_new_one(tmp_path, jump):
    file, nodes = tmp_path / "ticket", [Guarded("s1")]
    async with in_use(file, *nodes) as client:
        path = preferred_path(client, "s1")
        change(*nodes)
        with refused():
            await client.get(path)
        file.write_text(ticket(NEW))
        nodes[0].waits, nodes[0].right = NEW, "another one"
        jump(1.0)
        with pytest.raises(UnavailableError, match="makes the login wait"):
            await client.get(path, timeout=1)


async def test_what_is_given_beside_the_ticket_is_not_replaced(tmp_path, reads):
    file, node = tmp_path / "ticket", Guarded("s1")
    async with in_use(file, node) as client:
        reads.clear()
        node.script = lambda _: error("denied")
        with pytest.raises(DeniedError):
            await client.get("a")
        assert not reads, "a refusal that says nothing of the secret"
    file.write_text(ticket(NEW))
    for config in (Config(login=Login.password("ann", OLD), ticket=f"@{file}"), Config(ticket=ticket(OLD))):
        node = Guarded("s1")
        async with scene(node, config=replace(PATIENT, login=config.login, ticket=config.ticket)) as client:
            path = preferred_path(client, "s1")
            await client.get(path)
            reads.clear()
            change(node)
            with refused():
                await client.get(path)
            assert not reads and set(node.secrets()) == {OLD}


async def test_a_file_is_found_again_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, node = tmp_path / "ticket", Guarded("s1")
    file.write_text(ticket(OLD))
    async with scene(node, config=replace(PATIENT, login=None, ticket="@ticket")) as client:
        path = preferred_path(client, "s1")
        await client.get(path)
        monkeypatch.chdir("/")
        file.write_text(ticket(NEW))
        change(node)
        assert await client.get(path) == "s1"
