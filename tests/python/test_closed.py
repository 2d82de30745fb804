"""A state of the original with authorisation on: an unmodified client is told why it is not served, and one
that reads what this version does not enforce gets the original's answers."""

from pathlib import Path as FilePath

import msgpack_raw as mp
import pytest
from asyncscope import main_scope
from conftest import clients, connect_to
from distkv.auth import gen_auth
from distkv.client import client_scope
from distkv.exceptions import ClientAuthMethodError, ClientAuthRequiredError, ServerError
from moat.util import P

import python_server

SAVED = FilePath(__file__).resolve().parents[1] / "fixtures" / "distkv-files" / "password-auth.bin"


@pytest.mark.parametrize(
    "credentials, error, told",
    [
        (None, ClientAuthRequiredError, "password"),
        ("root", ClientAuthMethodError, "root"),
        # It logs in; but nothing says what it may do: in the original, that was everything.
        ("password name=joe password=secret", ServerError, "access list"),
        ("password name=joe password=wrong1", ServerError, "Password hashes do not match"),
    ],
)
async def test_each_client_is_told_why_it_is_not_served(network, credentials, error, told):
    node = network.add("--load", str(SAVED))
    host, port = node.client.rsplit(":", 1)
    auth = gen_auth(credentials) if credentials else None
    with pytest.raises(error, match=told):
        async with main_scope(name="test"):
            client = await client_scope(connect=connect_to(host, int(port), auth=auth))
            await client.get(P("site.secret"))


async def test_where_it_is_ignored_the_client_works(network):
    node = network.add("--load", str(SAVED), "--ignore-auth")
    async with clients(node) as client:
        assert (await client.get(P("site.secret"))).value == "for joe only"
        with pytest.raises(ServerError, match="':n.codec'"):
            # pylint: disable-next=protected-access
            await client._request("set_internal", path=P("codec.new"), value={})


def test_questions_about_authorisation_are_answered(connection):
    assert connection.ok("auth_info").order == ["seq", "tock"]
    reply = connection.ok("test_acl", path=mp.path("a", "b"), mode="w")
    assert reply.order == ["access", "seq", "tock"] and reply["access"] is True


LISTS = {
    "lim.pub": "rxe",
    "lim.pub.#": "rwdcxen",
    "lim.wild.+": "xe",
    "lim.wild.+.on": "rw",
    "lim.wild.#": "ren",
    "lim.wild.#.off": "x",
    "lim.shut.#": "",
    "top": "rx",
    "any.#": "xn",
    "any.#.+.b": "w",
}
VALUES = ["pub.a", "pub.b.c", "wild.lamp.on", "wild.lamp.off", "wild.lamp.deep.off", "shut.a", "free.q"]
ASKED = [*VALUES, "pub", "pub.new", "pub.b", "wild.lamp", "wild.new.on", "wild.lamp.on.more", "shut", "nowhere.a.b"]


async def test_what_an_access_list_would_allow_is_what_the_original_says(network, tmp_path):
    """No login is needed. The lists are the original's: ours takes no changes there."""
    saved = tmp_path / "lists.bin"
    questions = [
        {"path": P(path), "acl": acl, "mode": mode}
        for path in ASKED
        for acl in ("lim", "top", "any")
        for mode in ("r", "w", "x", "n", "a", "W", "q", "xe", None)
    ]

    async def answers(client):
        # pylint: disable-next=protected-access
        return [(await client._request("test_acl", **question)).access for question in questions]

    async with python_server.founded("n1", None) as port:
        client = await client_scope(connect=connect_to("127.0.0.1", port))
        for path in VALUES:
            await client.set(P(path), value=1)
        for path, flags in LISTS.items():
            # pylint: disable-next=protected-access
            await client._request("set_internal", path=P("acl") + P(path), value=flags)
        expected = await answers(client)
        # pylint: disable-next=protected-access
        await client._request("save", path=str(saved), full=True)
    assert set(expected) == {True, False}
    node = network.add("--load", str(saved))
    async with clients(node) as client:
        found = await answers(client)
        with pytest.raises(ServerError, match="no access list 'nobody'"):
            # pylint: disable-next=protected-access
            await client._request("test_acl", path=P("a"), acl="nobody")
    assert list(zip(questions, found)) == list(zip(questions, expected))
