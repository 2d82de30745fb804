"""Where a write with a condition goes when what it builds on is at a node that the others call down, and that clients
reach all the same."""

from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import CONFIG, SILENT, preferred_path, scene

from distkv_client import Fate, Path, PreconditionError, Version
from distkv_client.apart import Apart
from distkv_client.config import Address
from distkv_client.view import Target

OLD = {**WRITTEN, "value": "old", "tock": 1}
NEW = {**WRITTEN, "value": "new", "tock": 9}
PATIENT = replace(CONFIG, own_write_patience=30.0)
THERE = Version(9, "x~7", 1)


@asynccontextmanager
async def split(config=PATIENT):
    """Two live nodes, and one that they call down and that alone has this client's change. What nodes answer may be
    changed; the live ones take no condition."""
    answers = {"s1": OLD, "s2": OLD, "s3": NEW}

    def script(name):
        def answer(request):
            told = answers[name]
            has_condition = "chain" in request or "prev" in request
            return error("chain_mismatch") if told is OLD and has_condition else told

        return answer

    nodes = [ScriptedNode(name, script(name)) for name in answers]
    async with scene(*nodes, config=config) as client:
        path = preferred_path(client, "s3")
        assert (await client.put(path, "new")).node == "s3"
        for node in nodes[:2]:
            node.states["s3"] = "down"
            node.tell_views()
        await until(lambda: client.preferred(path) != "s3")
        yield client, path, answers, nodes


async def change(client, path, read):
    """Changes what is read now, if nobody has changed it meanwhile."""
    entry = await client.entry(path, read=read)
    return await client.put(path, "newer", if_version=entry.version)


@pytest.mark.parametrize("read", ["preferred", "freshest"])
async def test_what_was_read_at_a_node_that_is_called_down_is_changed_there(read):
    async with split() as (client, path, answers, nodes):
        for _ in range(2):
            written = await change(client, path, read)
            assert (written.node, written.attempts) == ("s3", 1)
        # So is what this client has changed there, whatever the condition is.
        for condition in ({"if_new": True}, {"if_value": "new"}, {"if_version": THERE}):
            assert (await client.put(path, 1, **condition)).node == "s3"
        for condition in ({"if_value": "new"}, {"if_version": THERE}):
            assert (await client.delete(path, **condition)).node == "s3"
        answers["s3"] = {"results": [NEW, NEW], "tock": 9}
        await client.batch().put("other", 1).put(path, 1, if_new=True)
        assert len(nodes[2].actions("batch")) == 1
        # Without a condition, and with that of another path, a live node takes it.
        answers.update(s1=NEW, s2=NEW, s3=NEW)
        assert (await client.put("third", 1, if_new=True)).node != "s3"
        assert (await client.put(path, 1)).node != "s3"
        assert (await client.put(path, 1, if_new=True)).node != "s3"


@pytest.mark.parametrize("how", ["get", "get_raw", "entry", "freshest", "any"])
async def test_once_a_live_node_has_it_or_something_later_it_is_changed_there(how):
    async with split() as (client, path, answers, _):
        assert (await change(client, path, "preferred")).node == "s3"
        answers.update(s1=NEW, s2=NEW, s3=SILENCE if how == "freshest" else NEW)
        if how in ("get", "get_raw"):
            await getattr(client, how)(path)
        else:
            await client.entry(path, read="preferred" if how == "entry" else how)
        written = await client.put(path, 1, if_version=THERE)
        assert (written.node != "s3", written.attempts) == (True, 1)


async def test_where_that_node_does_not_answer_the_next_one_is_asked_and_the_fate_is_told():
    async with split(SILENT) as (client, path, answers, nodes):
        entry = await client.entry(path)
        answers["s3"] = SILENCE
        with pytest.raises(PreconditionError) as caught:
            await client.put(path, 1, if_version=entry.version)
        assert (caught.value.fate, caught.value.attempts) == (Fate.UNKNOWN, 2)
        assert len(nodes[2].actions("set_value")) == 2


async def test_once_it_is_live_again_the_preferred_node_is_asked():
    async with split() as (client, path, _, nodes):
        await client.entry(path)
        nodes[0].states["s3"] = nodes[1].states["s3"] = "up"
        nodes[0].states["s1"] = nodes[1].states["s2"] = "joining"
        for node in nodes[:2]:
            node.tell_views()
        await until(lambda: client.preferred(path) == "s3")
        assert client._caller.apart.of(path) is None
        assert (await client.put(path, 1, if_new=True)).node == "s3"


def test_the_node_of_the_last_answer_is_remembered_while_it_is_not_live():
    targets = {name: Target(name, 1, Address("127.0.0.1", 1), name == "live", name) for name in ("n1", "n2", "live")}
    targets["seed"] = Target("seed", None, Address("127.0.0.1", 2), False)
    topology = SimpleNamespace(routing=SimpleNamespace(by_name=targets))
    apart = Apart(topology, 2)
    paths = [Path(name) for name in "abc"]
    apart.note(paths[0], "n2")
    apart.note(paths[1], "n2")
    apart.note(paths[0], "n1")
    assert [apart.of(path) for path in paths] == [targets["n1"], targets["n2"], None]
    for other in ("live", "seed", "unknown"):
        apart.note(paths[0], "n1")
        apart.note(paths[0], other)
        assert apart.names == {paths[1]: "n2"}, other
    for path in paths:
        apart.note(path, "n1")
        assert 0 < len(apart.names) <= 2 and apart.of(path) is targets["n1"]
    none = Apart(topology, 0)
    none.note(paths[0], "n1")
    assert not none.names
