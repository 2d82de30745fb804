"""watch: changes as they happen, with or without the state before."""

import anyio
import msgpack_raw as mp
import pytest
from conftest import clients
from raw import long_paths

TREE = {(): 0, ("a",): 1, ("a", "b"): 2, ("a", "d"): 4, ("e", "f", "g"): 5, ("h",): 6}


async def _take(stream, count):
    return [await stream.recv() for _ in range(count)]


def _brief(msg):
    return (tuple(msg.path), msg.value if "value" in msg else "gone")


async def test_a_plain_watch_sees_only_what_comes(node, base):
    async with clients(node) as client:
        await client.set(base + ["old"], value=0)
        async with client.watch(base, long_path=True) as watch:
            await client.set(base + ["a"], value=1)
            await client.set(base + ["a", "b"], value=2)
            await client.delete(base + ["a"])
            await client.set(base[:0] + [base[0] + "elsewhere"], value=1)
            await client.set(base, value=3)
            seen = [(tuple(m.path[len(base) :]), m.get("value", "gone")) for m in await _take(watch, 4)]
        assert seen == [(("a",), 1), (("a", "b"), 2), (("a",), "gone"), ((), 3)]


async def test_a_fetching_watch_sends_the_state_then_says_so(node, base):
    async with clients(node) as client:
        for path, value in TREE.items():
            await client.set(base + path, value=value)
        await client.set(base + ["gone"], value=1)
        await client.delete(base + ["gone"])
        async with client.watch(base, fetch=True) as watch:
            first = await _take(watch, len(TREE))
            assert [(tuple(m.path[len(base) :]), m.value) for m in first] == list(TREE.items())
            assert (await watch.recv()).state == "uptodate"
            await client.set(base + ["new"], value=9)
            (last,) = await _take(watch, 1)
            assert (tuple(last.path[len(base) :]), last.value) == (("new",), 9)


async def test_a_watch_of_nothing_waits_for_something(node, base):
    async with clients(node) as client:
        path = base + ["x", "y"]
        async with client.watch(path, fetch=True) as watch:
            assert (await watch.recv()).state == "uptodate"
            await client.set(path, value=1)
            assert (await watch.recv()).value == 1


async def test_depths_and_chains(node, base):
    async with clients(node) as client:
        for path, value in TREE.items():
            await client.set(base + path, value=value)
        limits = {"min_depth": 1, "max_depth": 1, "nchain": 2}
        async with client.watch(base, fetch=True, **limits) as watch:
            first = await _take(watch, 2)
            assert [m.value for m in first] == [1, 6]
            assert [m.chain.node for m in first] == 2 * [node.life()]
            assert (await watch.recv()).state == "uptodate"
            await client.set(base, value="no")
            await client.set(base + ["a", "b"], value="no")
            res = await client.set(base + ["z"], value="yes", nchain=2)
            msg = await watch.recv()
            assert (msg.value, msg.chain, msg.tock) == ("yes", res.chain, res.tock)


async def test_two_watchers_see_every_change_in_the_same_order(node, base):
    async with clients(node, node) as (one, two):
        seen = {}

        async def watcher(name, client, task_status=None):
            async with client.watch(base) as watch:
                task_status.started()
                seen[name] = [m.value for m in await _take(watch, 50)]

        async with anyio.create_task_group() as tg:
            await tg.start(lambda task_status: watcher("one", one, task_status))
            await tg.start(lambda task_status: watcher("two", two, task_status))
            for i in range(50):
                await one.set(base + [i], value=i)
        assert seen == {"one": list(range(50)), "two": list(range(50))}


async def test_leaving_a_watch_stops_it(node, base):
    async with clients(node) as client:
        async with client.watch(base) as watch:
            seq = watch.seq
            await client.set(base, value=1)
            assert (await watch.recv()).value == 1
        # the client has sent its stop; soon there is nothing left to stop
        while (await client.stop(seq)).result:
            pass
        await client.set(base, value=2)


def test_the_fields_of_a_watch(node, connection, base):
    path = mp.path(*base)
    with node.raw() as writer:
        writer.ok("set_value", path=path, value="root")
        writer.ok("set_value", path=mp.path(*base, "k"), value="v")
        seq = connection.start("watch", path=path, fetch=True, nchain=1)
        start = connection.reply(seq)
        assert start.order == ["state", "seq", "tock"] and start["state"] == "start"
        first = [connection.reply(seq), connection.reply(seq)]
        uptodate = connection.reply(seq)
        assert uptodate.order == ["state", "seq", "tock"] and uptodate["state"] == "uptodate"
        writer.ok("set_value", path=mp.path(*base, "k"), value="w")
        changed = connection.reply(seq)
        tomb = writer.ok("delete_value", path=mp.path(*base, "k"))
        gone = connection.reply(seq)
    messages = [*first, changed, gone]
    assert long_paths(messages) == [(), ("k",), ("k",), ("k",)]
    assert [(m["path"], m["depth"]) for m in messages] == [((), 0), (("k",), 0), ((), 1), ((), 1)]
    order = ["value", "chain", "tock", "path", "depth", "seq"]
    assert [m.order for m in messages] == [order, order, order, order[1:]]
    assert (gone["chain"], gone["tock"]) == (tomb["chain"], tomb["tock"])


def test_stop_ends_the_stream(connection, base):
    watch = connection.start("watch", path=mp.path(*base))
    assert connection.reply(watch)["state"] == "start"
    reply = connection.ok("stop", task=watch)
    assert reply["result"] is True and reply.order == ["result", "seq", "tock"]
    assert connection.reply(watch)["state"] == "end"
    connection.ok("set_value", path=mp.path(*base), value=1)
    connection.silence(watch)
    assert connection.ok("stop", task=watch)["result"] is False


def test_stop_of_what_does_not_run_says_so(connection):
    assert connection.ok("stop", task=99999)["result"] is False
    done = connection.start("get_tock")
    connection.reply(done)
    assert connection.ok("stop", task=done)["result"] is False


def test_one_connection_has_many_watches(connection, base):
    seqs = [connection.start("watch", path=mp.path(*base, i % 5)) for i in range(25)]
    assert all(connection.reply(seq)["state"] == "start" for seq in seqs)
    for i in range(5):
        connection.ok("set_value", path=mp.path(*base, i), value=i)
    for i, seq in enumerate(seqs):
        assert connection.reply(seq)["value"] == i % 5
    for seq in seqs:
        assert connection.ok("stop", task=seq)["result"] is True
        assert connection.reply(seq)["state"] == "end"


def test_nothing_older_follows_something_newer(node, base):
    """Watches with fetch, started while others write, see each path's values only rise."""
    with node.raw() as writer, node.raw() as reader:
        for i in range(20):
            writer.ok("set_value", path=mp.path(*base, i), value=0)
        for turn in range(1, 11):
            started = [writer.start("set_value", path=mp.path(*base, i), value=turn) for i in range(20)]
            seq = reader.start("watch", path=mp.path(*base), fetch=True)
            for request in started:
                writer.reply(request)
            last, values, uptodate = (), {}, False
            assert reader.reply(seq)["state"] == "start"
            while not (uptodate and set(values.values()) == {turn}):
                msg = reader.reply(seq)
                if msg.get("state") == "uptodate":
                    assert len(values) == 20
                    uptodate = True
                    continue
                last = last[: msg["depth"]] + mp.elements(msg["path"])
                assert msg["value"] >= values.get(last, 0), (msg, values)
                values[last] = msg["value"]
            reader.ok("stop", task=seq)
            reader.rest(seq)


def test_internal_changes_are_not_seen_from_the_root(fresh_node):
    with fresh_node.raw() as conn:
        seq = conn.start("watch", path=())
        assert conn.reply(seq)["state"] == "start"
        conn.ok("set_internal", path=mp.path("hidden"), value=1)
        conn.ok("set_value", path=mp.path("seen"), value=2)
        assert conn.reply(seq)["value"] == 2


@pytest.mark.parametrize("fetch", [False, True])
def test_a_watch_of_the_root_sends_whole_paths(fresh_node, fetch):
    with fresh_node.raw() as conn:
        conn.ok("set_value", path=mp.path("a", "b"), value=1)
        seq = conn.start("watch", path=mp.path(), fetch=fetch)
        assert conn.reply(seq)["state"] == "start"
        if fetch:
            assert conn.reply(seq).field("path") == mp.encode(mp.path())
            assert conn.reply(seq).field("path") == mp.encode(mp.path("a", "b"))
            assert conn.reply(seq)["state"] == "uptodate"
        conn.ok("set_value", path=mp.path("c", "d"), value=2)
        assert conn.reply(seq).field("path") == mp.encode(mp.path("c", "d"))
        conn.ok("set_value", path=mp.path("c", "e"), value=3)
        msg = conn.reply(seq)
        assert msg.field("path") == mp.encode(("e",)) and msg["depth"] == 1
