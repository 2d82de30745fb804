"""What the original's own test suite expects of a server, as far as it needs no authorisation: the same
expectations through the unmodified library, with nodes of ours.

| the original's | here |
|---|---|
| `test_basic` 01, 02 | `test_values_lists_trees_and_ticks_of_one_node`; `test_command_line.py` |
| `test_basic` 03 (three, lots), `test_load_save` 03 | `test_two_nodes_know_the_same_ticks`; `test_tree.py` (a thousand) |
| `test_basic_serf` | the same over Serf: nodes of ours need no broker |
| `test_kill` | `test_a_node_that_is_killed_leaves_the_chains` |
| `test_load_save` 21, 02 | `test_a_saved_state_is_loaded_and_watched`; `test_saved_state.py`, `test_files.py` |
| `test_feature_config` | `test_the_configuration_follows_the_tree` |
| `test_feature_code` | `test_code_and_modules_are_stored_and_run` |
| `test_feature_error` 81, 82 | `test_errors_are_recorded_here_and_resolved_there`, `test_an_error_that_many_clients_meet_is_one_record` |
| `test_feature_mirror` | `test_mirror.py` |
| `test_passthru` | `test_messages.py` |
| `test_feature_runner`, `…_allrunner`, `…_singlerunner` | `test_jobs_run_…` |
| `test_feature_convert` | refused: `test_types_are_checked_and_codecs_refused` |
| `test_multi`, `test_recover` | the Rust tests of clusters, splits and lost messages (`tests/nodes/cluster.rs`, `tests/program/netns.rs`, `crates/sim/tests/sim/seeds.rs`); that a deletion vanishes everywhere: `test_what_is_deleted_vanishes_everywhere` |
| `test_feature_auth`, `…_acl`, `…_typecheck` | `test_original_access.py`, `test_logins.py` |
| `test_feature_ssl` | it cannot work with any server |

Where an event's node is told, the original has a name and ours a life of that name."""

from __future__ import annotations

import time

import anyio
import pytest
from conftest import clients
from distkv.code import CodeRoot, ModuleRoot
from distkv.errors import ErrorRoot
from distkv.exceptions import ServerError
from distkv.runner import AllRunnerRoot, AnyRunnerRoot, SingleRunnerRoot
from moat.util import P, Path, PathLongener

import raw

STATE = {"nodes": True, "known": True, "present": True, "missing": True, "remote_missing": True}
# Jobs are begun by whoever is elected among the clients: often here, so that tests do not wait.
RUNNER = {"start_delay": 0.05, "actor": {"cycle": 1, "gap": 0.3}}


# pylint: disable=protected-access
async def state(client) -> dict:
    """What a node has accounted for."""
    reply = await client._request("get_state", **STATE)
    return {key: reply[key] for key in STATE}


async def settled_state(client) -> dict:
    """The same when the others have said that they have it all."""
    with anyio.fail_after(raw.PATIENCE):
        while (found := await state(client))["remote_missing"]:
            await anyio.sleep(0.02)
    return found


async def at_event(client, life: str, tick: int):
    """The value of an entry by its newest event."""
    return (await client._request("get_value", node=life, tick=tick)).value


async def tree(client, path, **limits):
    """Whole paths and values, in order."""
    async with client._stream("get_tree", path=path, **limits) as stream:
        lengthen, found = PathLongener(path), []
        async for message in stream:
            lengthen(message)
            found.append((tuple(message.path), message.value))
        return found


async def test_values_lists_trees_and_ticks_of_one_node(keeping_network):
    node = keeping_network.add("--init", "123")
    life = node.life()
    async with clients(node) as client:
        assert (await client.get(P(":"))).value == 123
        await client.set(P("foo"), value="hello", nchain=3)
        inner = await client.set(P("foo.bar"), value="baz", nchain=3)
        await client.set(P("foo.baz"), "quux", nchain=3)
        root = await client.get(P(":"))
        assert root.value == 123 and root.tock < await client.get_tock()
        assert (await client.get(P("foo"))).value == "hello"
        # The original lists what its servers keep below nil and `.distkv`; ours hides the first, and
        # nobody has written to the second.
        assert await client.list(P(":")) == ("foo",)
        assert await client.list(P("foo")) == ("bar", "baz")
        assert await client.list(P("foo"), with_data=True) == {"bar": "baz", "baz": "quux"}
        assert await client.list(P("foo.bar")) == ()
        whole = [((), 123), (("foo",), "hello"), (("foo", "bar"), "baz"), (("foo", "baz"), "quux")]
        assert await tree(client, Path(), max_depth=2) == whole
        assert await tree(client, Path(), min_depth=1) == whole[1:]
        assert await tree(client, Path(), max_depth=1) == whole[:2]
        assert await tree(client, Path(), max_depth=0) == whole[:1]
        again = await client.get(P("foo.bar"))
        assert (again.value, again.tock) == ("baz", inner.tock)
        none = {"missing": {}, "remote_missing": {}}
        assert await state(client) == {
            "nodes": {life: 4}, "known": {}, "present": {life: ((1, 5),)}, **none
        }
        assert [await at_event(client, life, tick) for tick in (1, 2, 3)] == [123, "hello", "baz"]
        changed = await client.set(P(":"), value=1234, nchain=3)
        assert (changed.prev, changed.chain.tick) == (123, 5)
        for tick in (8, 1):  # one that is not there yet, and one that was overwritten
            with pytest.raises(ServerError):
                await at_event(client, life, tick)
        assert await at_event(client, life, 5) == 1234
        newer = await client.set(P("foo.bar"), value="bazz")
        assert newer.tock > inner.tock
        assert await state(client) == {
            "nodes": {life: 6}, "known": {life: (1, 3)}, "present": {life: (2, (4, 7))}, **none
        }
        assert (await client.delete(P("foo"))).tock > newer.tock
        left = await client.get(P("foo.bar"))
        assert (left.value, left.tock) == ("bazz", newer.tock)


async def test_two_nodes_know_the_same_ticks(keeping_network):
    second, first = keeping_network.add("--init", "125"), keeping_network.add()
    lives = [first.life(), second.life()]
    async with clients(first, second) as (one, two):
        assert (await one.get(P(":"))).value == 125
        assert (await two._request("get_value", path=())).value == 125
        changed = await one.set(P(":"), value=126, nchain=3)
        chain = {"node": lives[0], "tick": 1, "prev": {"node": lives[1], "tick": 1, "prev": None}}
        assert (changed.prev, changed.chain) == (125, chain)
        await anyio.to_thread.run_sync(keeping_network.settle)
        for is_again in (False, True):
            changed = await two.set(P(":"), value=127, nchain=3, idem=True)
            assert changed.changed is not is_again
            assert changed.get("prev") == (None if is_again else 126)
            # Each node once: its former event is gone from the chain.
            chain = {"node": lives[1], "tick": 2, "prev": {"node": lives[0], "tick": 1, "prev": None}}
            assert changed.chain == chain
        await anyio.to_thread.run_sync(keeping_network.settle)
        for client in (one, two):
            with pytest.raises(ServerError):
                await at_event(client, lives[1], 1)
            assert await settled_state(client) == {
                "nodes": {lives[0]: 1, lives[1]: 2},
                "known": {lives[1]: (1,)},
                "present": {lives[0]: (1,), lives[1]: (2,)},
                "missing": {},
                "remote_missing": {},
            }


async def test_a_node_that_is_killed_leaves_the_chains(keeping_network):
    nodes = [keeping_network.add("--init", "234"), keeping_network.add(), keeping_network.add()]
    lives = [node.life() for node in nodes]
    async with clients(*nodes) as (one, two, three):
        for client, values in ((two, ("hello", "baz")), (three, ("super", "seded"))):
            await client.set(P("foo"), value=values[0])
            await client.set(P("foo.bar"), value=values[1])
            await anyio.to_thread.run_sync(keeping_network.settle)
        entry = await one.get(P("foo.bar"), nchain=3)
        older = {"node": lives[1], "tick": 2, "prev": None}
        assert entry.chain == {"node": lives[2], "tick": 2, "prev": older}

        async def ticks(life, current):
            return (await one._request("enum_node", node=life, current=current)).result

        assert await ticks(lives[1], True) == ()
        assert await ticks(lives[1], False) == (1, 2)
        assert await ticks(lives[2], True) == (1, 2)
        with pytest.raises(ServerError):  # it owns entries
            await one._request("kill_node", node=lives[2])
        with pytest.raises(ServerError):  # ours: it is up
            await one._request("kill_node", node=lives[1])
        nodes[1].stop()
        keeping_network.nodes.remove(nodes[1])
        with anyio.fail_after(raw.PATIENCE):
            while True:
                try:
                    await one._request("kill_node", node="n2")
                    break
                except ServerError as error:
                    assert "n2" in str(error)  # it is not seen to be gone yet
                    await anyio.sleep(0.05)
        for client in (one, three):
            with anyio.fail_after(raw.PATIENCE):
                while (entry := await client.get(P("foo.bar"), nchain=3)).chain.prev is not None:
                    await anyio.sleep(0.05)
            assert entry.chain == {"node": lives[2], "tick": 2, "prev": None}


async def watched(client, count):
    """The first so many values that a watch from the root tells, with their ticks."""
    found, lengthen = [], PathLongener(())
    async with client.watch(P(":"), nchain=3, fetch=True) as watch:
        async for message in watch:
            lengthen(message)
            if "value" in message:
                found.append((message.chain.tick, tuple(message.path), message.value))
            if len(found) == count:
                return sorted(found)


async def test_a_saved_state_is_loaded_and_watched(keeping_network, network, tmp_path):
    node = keeping_network.add("--init", "234", "--client-files", str(tmp_path))
    seen = []

    async def follow(client):
        seen.extend(await watched(client, 4))

    async with clients(node) as client:
        async with anyio.create_task_group() as tasks:
            async with client.watch(P(":"), fetch=True) as begun:
                async for message in begun:
                    if message.get("state") == "uptodate":
                        break
            tasks.start_soon(follow, client)
            await client.set(P("foo"), value="hello", nchain=3)
            await client.set(P("foo.bar"), value="baz", nchain=3)
            await client.set(P("last"), value=2345, nchain=3)
        await client._request("save", path="foo", full=True)
    kept = [(2, ("foo",), "hello"), (3, ("foo", "bar"), "baz"), (4, ("last",), 2345)]
    assert seen == [(1, (), 234), *kept]
    keeping_network.stop()
    node = network.add("--load", str(tmp_path / "foo"))
    async with clients(node) as client:
        tick = (await client.set(P("foof"), value="again", nchain=1)).chain.tick
        # A life of its own, whose first tick it is, unless it was alone for so long that it made an event: the original
        # goes on counting as the old node.
        assert tick <= 2
        assert (await client.get(P("foo.bar"))).value == "baz"
        assert await watched(client, 5) == sorted([(1, (), 234), *kept, (tick, ("foof",), "again")])


async def test_the_configuration_follows_the_tree(fresh_node):
    async with clients(fresh_node) as client:
        assert "hoo" not in client.config
        changed = await client.set(P(":.distkv.config.hoo"), value={"hello": "there"}, nchain=2)
        await client._config.wait_chain(changed.chain)
        assert client.config.hoo["hello"] == "there"


async def test_code_and_modules_are_stored_and_run(fresh_node):
    async with clients(fresh_node) as client:
        await ErrorRoot.as_handler(client)
        modules = await ModuleRoot.as_handler(client)
        await modules.add(P("answers.deep"), code="def answer():\n    return 42\n")
        code = await CodeRoot.as_handler(client)
        await code.add(P("forty.one"), code="return 41")
        await code.add(P("forty.two"), code="from answers.deep import answer\nreturn answer()")
        assert (code("forty.one"), code("forty.two")) == (41, 42)


async def test_errors_are_recorded_here_and_resolved_there(fresh_node):
    async with clients(fresh_node, fresh_node) as (one, two):
        here, there = await ErrorRoot.as_handler(one), await ErrorRoot.as_handler(two)
        try:
            raise ValueError("wrong")
        except ValueError as error:
            await there.record_error("tester", P("here.or.there"), exc=error)
        with anyio.fail_after(raw.PATIENCE):
            while not (found := list(here.all_errors("tester"))) or not list(found[0]):
                await anyio.sleep(0.02)
        (record,) = found
        (detail,) = record
        assert tuple(record.path) == ("here", "or", "there") and "wrong" in detail.trace
        await record.resolve()
        # What is resolved is not listed.
        with anyio.fail_after(raw.PATIENCE):
            while list(there.all_errors("tester")):
                await anyio.sleep(0.02)


async def test_an_error_that_many_clients_meet_is_one_record(fresh_node):
    """One after the other: the original's own test of this, all at once, is expected to fail."""
    async with clients(fresh_node, fresh_node, fresh_node) as three:
        roots = [await ErrorRoot.as_handler(client) for client in three]
        for count, root in enumerate(roots, 1):
            await root.record_error("tester", P("dup"), message="Ouch {n}", data={"n": count})
            # The detail is an entry of its own, written after its record. Who has only the record
            # would make the detail anew, which the node rightly refuses.
            with anyio.fail_after(raw.PATIENCE):
                for each in roots:
                    while [(record.count, [detail.data for detail in record])
                           for record in each.all_errors("tester")] != [(count, [{"n": count}])]:
                        await anyio.sleep(0.02)
        paths = {tuple(record.subpath) for root in roots for record in root.all_errors("tester")}
        assert len(paths) == 1


LATER = """\
    import anyio
    await _client._test_begin()
    await anyio.sleep(0.2)
    return 42
"""
ON_CHANGE = """\
    await _self.watch(_P("trigger"))
    await _client._test_begin()
    async for msg in _info:
        if isinstance(msg, _cls.TimerMsg):
            return 42
        elif isinstance(msg, _cls.ChangeMsg) and msg.msg.get("value") == 42:
            await _self.timer(0.1)
"""
ON_MESSAGE = """\
    await _self.monitor(_P("test.abcd"))
    await _client._test_begin()
    async for msg in _info:
        if isinstance(msg, _cls.TimerMsg):
            return 42
        elif isinstance(msg, _cls.MQTTmsg) and msg.value == 41:
            await _self.timer(0.1)
"""


async def run_job(client, root_type, path, code, trigger=None):
    """Runs a job to its end, and looks at what is stored of it."""
    begun = anyio.Event()

    async def begin():
        begun.set()

    client._test_begin = begin
    await ErrorRoot.as_handler(client)
    codes = await CodeRoot.as_handler(client)
    jobs = await root_type.as_handler(client, subpath=(), code=codes, cfg=RUNNER)
    await codes.add(P("the.code"), code=code, is_async=True)
    job = jobs.follow(path, create=True)
    job.code = P("the.code")
    await job.run_at(time.time())
    with anyio.fail_after(raw.PATIENCE):
        await begun.wait()
        if trigger is not None:
            await trigger(job.state)
        while not job.state.stopped:
            await anyio.sleep(0.05)
    assert job.state.stopped > job.state.started > 0
    assert (job.state.backoff, job.state.result) == (0, 42)
    # It is in the tree, too; the library sets it a moment later.
    with anyio.fail_after(raw.PATIENCE):
        while 42 not in [result async for result in results(client, jobs)]:
            await anyio.sleep(0.05)


class PatientRunnerRoot(AnyRunnerRoot):
    """The library fails where its turn does not come for 6.1 s: it comes after 3.5 s at best, with the times above."""

    max_age = raw.PATIENCE


async def results(client, jobs):
    """What is stored of all jobs' outcomes."""
    async for message in client.get_tree(jobs._cfg["state"]):
        if isinstance(message.value, dict):
            yield message.value.get("result")


async def test_jobs_run_on_all_nodes(fresh_node):
    async with clients(fresh_node) as client:
        await run_job(client, AllRunnerRoot, P("foo.test"), LATER)


async def test_jobs_run_on_one_node(fresh_node):
    async with clients(fresh_node) as client:
        await run_job(client, SingleRunnerRoot, P("testnode.foo.test"), LATER)


async def test_jobs_run_on_any_node_and_wait_for_changes(fresh_node):
    async def trigger(at):
        await client.set(P("trigger"), value=13)
        assert not at.stopped
        await client.set(P("trigger"), value=42)

    async with clients(fresh_node) as client:
        await run_job(client, PatientRunnerRoot, P("foo.test"), ON_CHANGE, trigger)


async def test_jobs_run_on_any_node_and_wait_for_messages(fresh_node):
    async def trigger(at):
        await client.msg_send(P("test.abcd"), data=13)
        assert not at.stopped
        await client.msg_send(P("test.abcd"), data=41)

    async with clients(fresh_node) as client:
        await run_job(client, PatientRunnerRoot, P("foo.test"), ON_MESSAGE, trigger)


async def test_types_are_checked_and_codecs_refused(node, base):
    codec = {"in": [("1", 1)], "out": [(1, "1")], "encode": "return str(value)", "decode": "return int(value)"}
    check = {"bad": [2.5, "x"], "good": [1, 2], "schema": {"type": "integer"}}
    async with clients(node) as client:
        for path, value in ((P("codec.int"), codec), (P("conv.foo.inty.#"), {"codec": "int"})):
            with pytest.raises(ServerError, match=f"':n.{path[0]}'.*nothing was changed"):
                await client._request("set_internal", path=path, value=value)
        await client._request("set_internal", path=P("type.int"), value=check)
        match = P("match") + base + P("inty.+")
        await client._request("set_internal", path=match, value={"type": ["int"]})
        await client.set(base + P("inty.ten"), value=10)
        with pytest.raises(ServerError, match="ValidationError: .*'hello' is not of type 'integer'"):
            await client.set(base + P("inty.ten"), value="hello")
        assert (await client.get(base + P("inty.ten"))).value == 10
        # Neither converted nor refused where no type is asked for.
        await client.set(base + P("other"), value="11")
        assert (await client.get(base + P("other"))).value == "11"
        await client._request("delete_internal", path=match)


async def test_what_is_deleted_vanishes_everywhere(network, tmp_path):
    """The original has three of its servers elected for it by hand; here it goes by itself."""
    nodes = [
        network.add(*(("--init", "420") if i == 0 else ()), "--data-dir", str(tmp_path / str(i)))
        for i in range(3)
    ]
    async with clients(*nodes) as all_clients:
        await all_clients[0].set(P("delete.me"), value="later")
        await anyio.to_thread.run_sync(network.settle)
        await all_clients[1].delete(P("delete.me"))
        await anyio.to_thread.run_sync(network.settle)
        for client in all_clients:
            entry = await client.get(P("delete.me"), nchain=2)
            assert "value" not in entry
            with anyio.fail_after(raw.PATIENCE):
                while (await client.get(P("delete.me"), nchain=2)).get("chain") is not None:
                    await anyio.sleep(0.1)
