"""A state of the original with authorisation on: an unmodified client is told why nobody is served, and one
that reads what this version does not enforce gets the original's answers."""

from pathlib import Path as FilePath

import msgpack_raw as mp
import pytest
from asyncscope import main_scope
from conftest import clients
from distkv.auth import gen_auth
from distkv.client import client_scope
from distkv.exceptions import ClientAuthMethodError, ClientAuthRequiredError, ServerError
from moat.util import P

SAVED = FilePath(__file__).resolve().parents[1] / "fixtures" / "distkv-files" / "password-auth.bin"


@pytest.mark.parametrize(
    "credentials, error, told",
    [
        (None, ClientAuthRequiredError, "password"),
        ("root", ClientAuthMethodError, "root"),
        ("password name=joe password=secret", ServerError, "authorisation is switched on.*--ignore"),
    ],
)
async def test_no_client_is_served_and_each_is_told_why(network, credentials, error, told):
    node = network.add("--load", str(SAVED))
    host, port = node.client.rsplit(":", 1)
    auth = gen_auth(credentials) if credentials else None
    with pytest.raises(error, match=told):
        async with main_scope(name="test"):
            connect = {"host": host, "port": int(port), "auth": auth, "name": None}
            client = await client_scope(connect=connect)
            await client.get(P("site.secret"))


async def test_where_it_is_ignored_the_client_works(network):
    node = network.add("--load", str(SAVED), "--ignore-auth")
    async with clients(node) as client:
        assert (await client.get(P("site.secret"))).value == "for joe only"
        with pytest.raises(ServerError, match="':n.acl'"):
            # pylint: disable-next=protected-access
            await client._request("set_internal", path=P("acl.new"), value="r")


def test_questions_about_authorisation_are_answered(connection):
    assert connection.ok("auth_info").order == ["seq", "tock"]
    reply = connection.ok("test_acl", path=mp.path("a", "b"), mode="w")
    assert reply.order == ["access", "seq", "tock"] and reply["access"] is True
