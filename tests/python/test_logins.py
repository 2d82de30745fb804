"""Logins, users and access lists as unmodified clients of the original use them, and its command line."""

from contextlib import asynccontextmanager

import anyio
import pytest
import raw
from asyncscope import main_scope
from command_line import CommandLine
from conftest import clients, connect_to
from distkv.auth import gen_auth
from distkv.client import client_scope
from distkv.exceptions import ClientAuthMethodError, ClientAuthRequiredError, ServerError
from moat.util import P

JOE = "password name=joe password=test123"


@asynccontextmanager
async def as_user(node, credentials):
    """A client that logs in."""
    auth = gen_auth(credentials) if credentials else None
    connect = connect_to(node.host, node.port, auth=auth)
    with anyio.fail_after(2 * raw.PATIENCE):
        async with main_scope(name="test"):
            yield await client_scope(connect=connect)


async def refused(node, credentials, error, told=None):
    with pytest.raises(error, match=told):
        async with as_user(node, credentials) as client:
            await client.get(P("a"))


def commands(node):
    """Runs commands that must work; what they print."""
    line = CommandLine(node.client)

    def run(*args, code=0):
        done = line.run(list(args))
        assert done.code == code, (args, done)
        return done.out + done.err if code else done.out

    return run


async def test_root_logs_in_without_a_secret_and_others_do_not(fresh_node):
    async with clients(fresh_node) as client:
        await client.set(P("a"), value=1)
        # pylint: disable=protected-access
        await client._request("auth_set", typ="root", kind="user", ident="*", chain=None, data={})
        reply = await client._request("set_auth_typ", typ="root")
        assert reply.changed
    await refused(fresh_node, None, ClientAuthRequiredError, "root")
    await refused(fresh_node, JOE, ClientAuthMethodError)
    async with as_user(fresh_node, "root") as client:
        assert (await client.get(P("a"))).value == 1
        await client.set(P("a"), value=2)
        # pylint: disable-next=protected-access
        await client._request("set_auth_typ", typ=None)
    async with clients(fresh_node) as client:
        assert (await client.get(P("a"))).value == 2


def test_its_command_line_makes_users_and_logs_in(fresh_node):
    run = commands(fresh_node)
    run("data", "foo", "set", "-e", ":", "42")
    assert run("auth", "-m", "root", "user", "add") == "*\n"
    assert "switched to root" in run("auth", "-m", "root", "init")
    assert "root" in run("auth", "-m", "root", "init", code=1)
    root = ("-a", "root")
    assert run(*root, "data", "foo", "get") == "42\n"
    assert run(*root, "auth", "list").split() == ["root", "root"]
    assert "*" in run(*root, "auth", "-m", "root", "user", "list")
    auth = (*root, "auth", "-m", "password")
    assert run(*auth, "user", "add", "name=joe", "password=test123") == "joe\n"
    assert run(*auth, "user", "add", "name=amy", "password=abcdef") == "amy\n"
    assert run(*auth, "user", "list").split() == ["amy", "joe"]
    assert run(*auth, "user", "param", "amy", "acl", "lim").split() == ["amy", "acl", "lim"]
    assert "OK" in run(*auth, "user", "auth", "-a", JOE)
    wrong = "password name=joe password=wrong1"
    assert "Password hashes do not match" in run(*auth, "user", "auth", "-a", wrong, code=1)
    assert "switched to password" in run(*auth, "init", "-s")
    assert run("-a", JOE, "data", "foo", "get") == "42\n"
    assert "Password hashes do not match" in run("-a", wrong, "data", "foo", "get", code=1)
    run("data", "foo", "get", code=1)
    assert "turned off" in run("-a", JOE, "auth", "-m", "-", "init", "-s")
    assert run("data", "foo", "get") == "42\n"


async def test_an_access_list_that_its_tools_set_limits_a_user(fresh_node):
    async with clients(fresh_node) as client:
        # pylint: disable=protected-access
        for path, letters in (("pub", "rxe"), ("pub.#", "rwdcxen"), ("sec", "x"), ("sec.#", "")):
            await client._request("set_internal", path=P("acl.lim") + P(path), value=letters)
        await client.set(P("pub.a"), value=1)
        await client.set(P("sec.a"), value=2)
    run = commands(fresh_node)

    def with_tools():
        auth = ("auth", "-m", "password")
        run(*auth, "user", "add", "name=boss", "password=test321")
        run(*auth, "user", "add", "name=joe", "password=test123")
        run(*auth, "user", "param", "joe", "acl", "lim")
        run(*auth, "init", "-s")

    await anyio.to_thread.run_sync(with_tools)
    async with as_user(fresh_node, JOE) as client:
        assert (await client.get(P("pub.a"))).value == 1
        await client.set(P("pub.a"), value=3)
        for path in ("sec.a", "other"):
            with pytest.raises(ServerError, match="access list"):
                await client.get(P(path))
        # Hashes are for nobody, and users are for admins.
        with pytest.raises(ServerError, match="role 'admin'"):
            # pylint: disable-next=protected-access
            await client._request("get_internal", path=P("auth.password.user.joe"))
    async with as_user(fresh_node, "password name=boss password=test321") as client:
        # pylint: disable-next=protected-access
        reply = await client._request("get_internal", path=P("auth.password.user.joe"))
        assert reply.value == {}
        assert (await client.get(P("pub.a"))).value == 3
