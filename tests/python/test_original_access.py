"""What the original's own tests of logins, access lists and types expect of a server, step by step: `test_feature_auth`
22 to 24, `test_feature_acl` 81, `test_feature_typecheck` 71 and 72, with the same client and command line. Where those
store Python code as a type, here it is a JSON Schema that says the same, because ours takes no code, and says so."""

from __future__ import annotations

import anyio
import pytest
from conftest import clients
from distkv.auth import gen_auth, loader
from distkv.exceptions import ClientAuthMethodError, ClientAuthRequiredError, ServerError
from moat.util import P
from test_logins import as_user, commands, refused

INT = {"type": "integer"}



async def in_thread(work):
    return await anyio.to_thread.run_sync(work)


async def test_22_root(network):
    node = network.add("--init", "123")
    run = commands(node)
    async with clients(node) as client:
        assert (await client.get(P(":"))).value == 123
    assert await in_thread(lambda: run("data", ":", "get")) == "123\n"
    await in_thread(lambda: run("auth", "-m", "root", "user", "add"))
    assert await in_thread(lambda: run("data", ":", "get")) == "123\n"
    await in_thread(lambda: run("auth", "-m", "root", "init"))
    assert "ClientAuthRequiredError" in await in_thread(lambda: run("data", ":", "get", code=1))
    await refused(node, None, ClientAuthRequiredError)
    assert await in_thread(lambda: run("-a", "root", "data", ":", "get")) == "123\n"
    async with as_user(node, "root") as client:
        assert (await client.get(P(":"))).value == 123
    # It prints the method, too, past what the original's own test captures.
    assert await in_thread(lambda: run("-a", "root", "auth", "user", "list")) == "root\n*\n"
    told = await in_thread(lambda: run("-a", "root", "auth", "user", "list", "-v"))
    for line in ("ident: '*'", "kind: user", "typ: root"):
        assert line in told.splitlines()


def test_23_users_of_the_test_method(network):
    run = commands(network.add("--init", "123"))
    run("data", "hello", "set", "-v", ":", "there")
    run("auth", "-m", "root", "user", "add")
    run("auth", "-m", "root", "init")
    of_test = ("-a", "root", "auth", "-m", "_test")
    run(*of_test, "user", "add", "name=fubar")
    assert run(*of_test, "user", "list") == "fubar\n"
    told = run(*of_test, "user", "list", "-v")
    for line in ("ident: fubar", "kind: user", "typ: _test"):
        assert line in told.splitlines()
    run("-a", "root", "auth", "-m", "_test", "init", "-s")
    assert "ClientAuthMethodError" in run("-a", "root", "data", "hello", code=1)
    assert "ClientAuthRequiredError" in run("data", "hello", code=1)
    assert "ValidationError" in run("-a", "_test", "data", "hello", code=1)
    assert run("-a", "_test name=fubar", "data", "hello") == "'there'\n"


def test_24_passwords(network):
    run = commands(network.add("--init", "123"))
    answer = ("data", "answers.life etc:.")
    run(*answer, "set", "-e", ":", "42")
    run("auth", "-m", "root", "user", "add")
    run("auth", "-m", "root", "init")
    of_passwords = ("-a", "root", "auth", "-m", "password")
    run(*of_passwords, "user", "add", "name=joe", "password=test123")
    assert run(*of_passwords, "user", "list") == "joe\n"
    told = run(*of_passwords, "user", "list", "-v")
    for line in ("ident: joe", "kind: user", "typ: password"):
        assert line in told.splitlines()
    joe = ("-a", "password name=joe password=test123")
    run("-a", "root", *answer, "set", "-e", ":", "42")
    assert "ClientAuthMethodError" in run(*joe, *answer, code=1)
    run("-a", "root", "auth", "-m", "password", "init", "-s")
    assert run(*joe, *answer) == "42\n"
    wrong = run("-a", "password name=joe password=test1234", *answer, code=1)
    assert "AuthFailedError(" in wrong and "hashes do not match" in wrong


# pylint: disable=protected-access
async def test_81_an_access_list(network):
    node = network.add("--init", "123")
    async with clients(node) as client:
        await client._request("set_internal", path=("acl", "foo", "one"), value="rxnc")
        await client._request("set_internal", path=P("acl.foo.one.two"), value="rc")
        maker = loader("_test", "user", make=True, server=False)
        for name in ("std", "aclix"):
            await maker.build({"name": name}).send(client)
        acl = P("auth._test.user.aclix.acl")
        await client._request("set_internal", path=acl, value={"key": "foo"}, iter=False)
        await client._request("set_auth_typ", typ="_test")
    await refused(node, "root", ClientAuthMethodError)
    async with as_user(node, "_test name=aclix") as client:
        await client.set(P("one"), value=10)
        await client.set(P("one.two"), value=11)
        with pytest.raises(ServerError):
            await client.set(P("one.two.three"), value=12)
        with pytest.raises(ServerError):
            await client.set(P("one.two"), value=22)
    async with as_user(node, "_test name=std") as client:
        assert (await client.get(P("one.two"))).value == 11
    assert gen_auth("_test name=std").ident == "std"


async def test_71_types(fresh_node):
    async with clients(fresh_node) as client:

        async def store(path, value):
            await client._request("set_internal", path=path, value=value)

        async def fails(path, value, told):
            with pytest.raises(ServerError, match=told):
                await store(path, value)

        code = "if not isinstance(value,int): raise ValueError('not an int')"
        await fails(P("type.int"), {"bad": ["foo", None], "good": [0, 1, 2], "code": code}, "JSON Schema only")
        for bad, good, told in (
            (["foo", None], [0, 1, "dud"], "failed on good value"),
            (["foo", 4], [0, 1, 2], "did not fail on 4"),
            ([], [0, 1, 2], "Must have check-bad values"),
            (["foo", None], [1], "Must have check-good values"),
        ):
            await fails(P("type.int"), {"bad": bad, "good": good, "schema": INT}, told)
        await fails(P("type.int"), {"bad": ["foo"], "good": [0, 1], "schema": {"type": "rise"}}, "")
        await store(P("type.int"), {"bad": ["foo", None], "good": [0, 1, 2], "schema": INT})
        limits = {"minimum": 0, "maximum": 100}
        percent = P("type.int.percent")
        # An example that the type above does not take is no example.
        await fails(percent, {"bad": ["fuf", 101], "good": [0, 55, 100], "schema": limits}, "")
        await fails(percent, {"bad": [-1, 101], "good": [0, 5.5, 100], "schema": limits}, "")
        await store(percent, {"bad": [-1, 101], "good": [0, 55, 100], "schema": limits})
        await fails(P("match.one.+.two"), {"tope": P("int.percent")}, "")
        await store(P("match.one.+.two"), {"type": P("int.percent")})
        await client.set(P("one.x.two"), value=99)
        for value in (9.9, "zoz"):
            with pytest.raises(ServerError):
                await client.set(P("one.y.two"), value=value)
        await client.set(P("one.y"), value="zoz")


async def test_72_types_by_its_command_line(fresh_node, tmp_path):
    run = commands(fresh_node)
    file, schema = tmp_path / "type", tmp_path / "schema"

    def with_tools():
        file.write_text('good:\n- 0\n- 2\nbad:\n- none\n- "Foo"\ncode: "return"\n')
        assert "JSON Schema only" in run("type", "set", "-d", str(file), "int", code=1)
        file.write_text('good:\n- 0\n- 2\nbad:\n- none\n- "Foo"\n')
        schema.write_text('{"type": "integer"}')
        run("type", "set", "-d", str(file), "-S", str(schema), "int")
        schema.write_text('{"minimum": 0, "maximum": 100}')
        good = ("-S", str(schema), "-g", "0", "-g", "100", "-g", "50", "-b", "-1")
        run("type", "set", *good, "-b", "5.5", "int.percent", code=1)
        run("type", "set", *good, "-b", "555", "int.percent")
        run("type", "match", "-t", "int.percent", "foo.+.bar")
        for how, value in (("-v", "123"), ("-e", "123"), ("-e", "5.5")):
            assert "ServerError" in run("data", "foo.dud.bar", "set", how, ":", value, code=1)
        run("data", "foo.dud.bar", "set", "-e", ":", "55")

    await in_thread(with_tools)
    async with clients(fresh_node) as client:
        assert (await client.get(P("foo.dud.bar"))).value == 55
