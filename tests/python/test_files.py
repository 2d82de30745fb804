"""save, log and update, as the original's client asks for them; its own server reads what comes of it."""

from __future__ import annotations

import time

import pytest
from conftest import clients
from distkv.exceptions import ServerError
from moat.util import MsgReader, P, PathLongener

import nodes
import python_server as ps
import raw


@pytest.fixture
def files(tmp_path):
    """The directory in which clients may have files."""
    path = tmp_path / "files"
    path.mkdir()
    return path


@pytest.fixture
def saving(network, files):  # pylint: disable=redefined-outer-name
    """A node whose clients may have files."""
    return network.add("--init", "null", "--client-files", str(files))


@pytest.fixture
def elsewhere():
    """A node of another network."""
    with nodes.Network() as other:
        yield other.add("--init", "null")


async def fill(client):
    """Some entries, one of them deleted."""
    for number in range(20):
        await client.set(P("a.b") | number, value={"n": number})
    await client.delete(P("a.b") | 7)


async def test_a_state_is_saved_and_the_original_loads_it(saving, files):
    async with clients(saving) as client:
        await fill(client)
        reply = await client._request("save", path="state", full=True)
        assert reply.result is True
    found = await ps.entries(await ps.load(files / "state"))
    assert {path: value for path, (value, _, _) in found.items() if path} == {
        ("a", "b", n): {"n": n} for n in range(20) if n != 7
    }


async def test_a_log_has_the_state_and_what_comes_and_ends_without_a_path(saving, files):
    async with clients(saving) as client:
        await fill(client)
        reply = await client._request("log", path="changes", fetch=True)
        assert reply.result is True
        await client.set(P("a.later"), value=1)
        await client.set(P("a.last"), value="the last")
        reply = await client._request("log")
        assert reply.result is True
        deadline = time.monotonic() + raw.PATIENCE
        while b"the last" not in (files / "changes").read_bytes():
            assert time.monotonic() < deadline
        await client.set(P("a.after"), value=2)
    found = await ps.entries(await ps.load(files / "changes"))
    assert found[("a", "later")][0] == 1
    assert found[("a", "last")][0] == "the last"
    assert ("a", "after") not in found
    assert found[("a", "b", 3)][0] == {"n": 3}


async def test_a_path_is_refused_with_a_word_about_it(saving, files):
    async with clients(saving) as client:
        for path in ("/tmp/evil", "../evil", "./state"):
            with pytest.raises(ServerError, match="cannot be a file's name"):
                await client._request("save", path=path, full=False)
    assert not [p for p in files.iterdir() if not p.name.startswith(".")]


async def test_without_a_directory_for_files_there_are_none(fresh_node):
    async with clients(fresh_node) as client:
        with pytest.raises(ServerError, match="--client-files"):
            await client._request("log", path="changes", fetch=True)


async def records(path):
    """The entries of a saved state, with whole paths."""
    longer = PathLongener(())
    async with MsgReader(path=str(path)) as reader:
        async for record in reader:
            if "value" in record:
                longer(record)
                yield record


async def test_records_of_a_state_can_be_fed_in_with_update(saving, files, elsewhere):
    async with clients(saving) as client:
        await fill(client)
        await client._request("save", path="state", full=True)
    async with clients(elsewhere) as client:
        for changed in (True, False):
            async for record in records(files / "state"):
                if len(record.path) == 0:
                    continue
                reply = await client._request(
                    "update",
                    path=record.path,
                    value=record.value,
                    tock=record.tock,
                    node=record.chain.node,
                    tick=record.chain.tick,
                )
                assert reply.changed is changed
        found = {r.path[-1]: r.value async for r in client.get_tree(P("a.b"), nchain=0)}
    assert found == {n: {"n": n} for n in range(20) if n != 7}
