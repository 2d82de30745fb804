"""Nodes that die, freeze and come back; cancelling, closing, other loops; a small storm of kills."""

import asyncio
import multiprocessing
import os
import random
import time

import pytest
from conftest import LASTING, UNHURRIED, all_live, assert_nothing_left, tasks_left, until
from scripted import ScriptedNode, error
from test_rules import scene

from distkv_client import (
    Client,
    ClosedError,
    Config,
    Fate,
    FateUnknownError,
    NoMajorityError,
    PoolConfig,
    RetryPolicy,
    TopologyConfig,
    UnavailableError,
    UsageError,
)
from distkv_client.testing import Cluster


def sockets():
    """Open sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            pass
    return found


async def test_calls_go_on_when_a_node_is_killed(cluster):
    async with Client.connect(*cluster.seeds, config=LASTING) as client:
        await all_live(client, 3)
        for number in range(60):
            await client.put(("k", number), number, copies=2)
        preferred = client.preferred("k")
        cluster.by_name(preferred).kill()
        for number in range(60):
            assert await client.get(("k", number)) == number
            await client.put(("k", number), number + 1)
        await all_live(client, 2)
        assert client.preferred("k") != preferred
    assert_nothing_left()


async def test_a_node_that_joins_and_one_that_goes_are_told_in_one_event_each(cluster):
    async with Client.connect(cluster[0].client, config=LASTING) as client:
        await all_live(client, 3)
        events = []
        stop = client.on_topology_change(events.append)
        client.on_topology_change(lambda change: 1 // 0)
        cluster.add()
        await until(lambda: any(node.name == "n4" for event in events for node in event.added))
        await all_live(client, 4)
        cluster[3].kill()
        await all_live(client, 3)
        assert [event.epoch for event in events] == sorted({event.epoch for event in events})
        assert all(event.previous_epoch < event.epoch for event in events)
        moved = [move for event in events for move in event.moved]
        assert any(move.after == "n4" for move in moved) and any(move.before == "n4" for move in moved)
        stop()
        count = len(events)
        cluster.add(name="n5")
        await all_live(client, 4)
        assert len(events) == count


async def test_one_seed_learns_all_and_survives_its_end(cluster):
    async with Client.connect(cluster[0].client, config=LASTING) as client:
        await all_live(client, 3)
        cluster[0].kill()
        await client.put("a", 1)
        assert await client.get("a") == 1


async def test_a_frozen_node_loses_its_callers_and_gets_them_back(cluster):
    config = Config(
        pool=PoolConfig(probe_after=1.0, probe_timeout=0.5),
        retry=RetryPolicy(try_deadline=0.5, total_deadline=50.0),
    )
    async with Client.connect(*cluster.seeds, config=config) as client:
        await all_live(client, 3)
        await client.put("f", 1, copies=2)
        victim = cluster.by_name(client.preferred("f"))
        victim.freeze()
        try:
            started = time.monotonic()
            assert await client.get("f") == 1
            assert time.monotonic() - started < 25, "far less than the deadline"
            await asyncio.gather(*(client.put(("f", n), n) for n in range(64)))
            await until(lambda: client.stats().pool.silent_closed >= 1)
        finally:
            victim.thaw()
        await all_live(client, 3)
        await until(lambda: client.preferred("f") == victim.name)

        async def answers_again():
            return (await client.put("f", 2)).node == victim.name

        await until(answers_again)
    assert_nothing_left()


async def test_all_are_gone_then_one_returns(cluster):
    config = Config(retry=RetryPolicy(total_deadline=3.0))
    async with Client.connect(*cluster.seeds, config=config) as client:
        await all_live(client, 3)
        for node in cluster:
            node.kill()
        with pytest.raises((UnavailableError, FateUnknownError)) as caught:
            await client.put("a", 1)
        assert caught.value.attempts >= 1
        with pytest.raises(UnavailableError) as caught:
            await client.get("a")
        assert caught.value.fate is Fate.NOT_DONE and caught.value.attempts > 1 and caught.value.node
        cluster[0]._args = ("run", "--peer-wait", "0s", "--network", cluster.network)
        cluster[0].restart()
        await until(lambda: any(node.is_live for node in client.cluster_view().nodes))
        await client.put("a", 2, timeout=60)
        assert await client.get("a", timeout=60) == 2


async def test_freshest_needs_a_majority(cluster):
    config = Config(retry=RetryPolicy(total_deadline=5.0))
    async with Client.connect(*cluster.seeds, config=config) as client:
        await all_live(client, 3)
        await client.put("m", 1, copies=2, timeout=60)
        assert await client.get("m", read="freshest", timeout=60) == 1
        cluster[1].kill()
        assert await client.get("m", read="freshest", timeout=60) == 1
        cluster[2].kill()
        with pytest.raises(NoMajorityError) as caught:
            await client.get("m", read="freshest")
        assert (caught.value.answered, caught.value.needed, caught.value.code) == (1, 2, "no_majority")


async def test_a_write_waits_for_copies_or_says_that_it_is_not_confirmed(cluster):
    async with Client.connect(*cluster.seeds, config=LASTING) as client:
        await all_live(client, 3)
        with pytest.raises(FateUnknownError) as caught:
            # It is asked more than once, so one slow answer is not the end.
            await client.put("c", 1, copies=5, timeout=6)
        assert caught.value.fate is Fate.UNCONFIRMED and caught.value.attempts >= 1
        assert await client.get("c") == 1


async def test_a_thousand_first_calls_open_one_connection(shared, base):
    # One that is late would be asked elsewhere, by another connection.
    async with Client.connect(shared.seeds[0], config=UNHURRIED) as client:
        await all_live(client, 3)
        # Its table of shards is fetched by then: that opens a connection, too.
        await client.refresh_shards()
        opened = client.stats().pool.opened
        await asyncio.gather(*(client.get(base, default=None) for _ in range(60)))
        preferred = client.preferred(base)
        told = client.cluster_view().source == preferred
        assert client.stats().pool.opened - opened <= (0 if told else 1)
        await asyncio.gather(*(client.get(base, default=None) for _ in range(1000)))
        assert client.stats().pool.connections <= 3 * 2


async def test_every_operation_cancelled_at_every_await_leaves_nothing(shared, base):
    async with Client.connect(*shared.seeds) as client:
        await all_live(client, 3)
        await client.put(base, 1)

        async def watch():
            async with client.watch(base) as events:
                async for _ in events:
                    pass

        async def tree():
            return [entry async for entry in client.tree(":", max_depth=2)]

        operations = [
            lambda: client.get(base),
            lambda: client.put(base, 2, copies=1),
            lambda: client.delete(base),
            lambda: client.get(base, default=None, read="freshest"),
            lambda: client.batch().put(base, 1).get(base).run(),
            tree,
            watch,
            lambda: client.conflicts()._collect(),
            lambda: client.refresh_shards(),
        ]
        for operation in operations:
            for turns in range(25):
                task = asyncio.ensure_future(operation())
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await asyncio.wait_for(task, 30)
                except asyncio.CancelledError:
                    pass
        await client.put(base, "alive")
        assert await client.get(base) == "alive"
        # What stays open is the watch of the cluster view.
        kept = {"distkv_client: cluster view", "distkv_client: shards", asyncio.current_task().get_name()}
        left = lambda: {task.get_name() for task in asyncio.all_tasks()} - kept  # noqa: E731
        await until(lambda: client.stats().pool.open_requests == 1 and not left())
    assert_nothing_left()


async def test_connecting_can_be_cancelled_and_leaves_no_socket(shared):
    before = sockets()
    for delay in (0, 0.0005, 0.001, 0.002, 0.004, 0.008):

        async def connect():
            await (await Client.connect(*shared.seeds)).close()

        task = asyncio.create_task(connect())
        await asyncio.sleep(delay)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
    # A close that has begun is brought to its end, also where who waited for it was cancelled.
    await until(lambda: sockets() <= before and not tasks_left())


async def test_open_calls_may_end_when_the_client_is_closed(shared, base):
    client = await Client.connect(*shared.seeds, config=UNHURRIED)
    calls = [asyncio.create_task(client.put(base / n, n, copies=1)) for n in range(20)]
    await asyncio.sleep(0)
    await client.close(grace=60)
    assert all(written.changed for written in await asyncio.gather(*calls))
    with pytest.raises(ClosedError):
        await client.put(base, 1)
    await client.close()


async def test_calls_that_pause_are_closed_at_once():
    """Their next try would be in half a minute or a whole one."""
    policy = RetryPolicy(initial_delay=60.0, delay_max=60.0, total_deadline=300.0)
    node = ScriptedNode("s1", lambda request: error("not_ready"))
    async with scene(node, config=Config(retry=policy)) as client:
        calls = [client.get("a"), client.put("a", 1), client.get("a", read="freshest")]
        calls = [asyncio.create_task(call) for call in calls]
        await until(lambda: len(node.actions("get_value")) == 2 and len(node.actions("set_value")) == 1)
        await asyncio.sleep(0)
        await client.close(grace=0)
        async with asyncio.timeout(20):
            for call in calls:
                with pytest.raises(ClosedError):
                    await call


async def test_nobody_listens():
    config = Config(connect_deadline=0.3)
    with pytest.raises(UnavailableError, match="no node could be reached"):
        await Client.connect("127.0.0.1:1", config=config)
    assert_nothing_left()


async def test_another_event_loop_is_told_so(client, base):
    def other():
        async def use():
            with pytest.raises(UsageError, match="another event loop"):
                await client.get(base)
            with pytest.raises(UsageError):
                await client.watch(base).next()

        asyncio.run(use())

    await asyncio.to_thread(other)


async def test_a_forked_child_is_told_so(client, base):
    def child(pipe):
        async def use():
            try:
                await client.get(base)
            except UsageError as error:
                return str(error)
            return "no error"

        asyncio.events._set_running_loop(None)
        pipe.send(asyncio.new_event_loop().run_until_complete(use()))
        os._exit(0)

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    assert await asyncio.to_thread(ours.poll, 20)
    assert "fork" in ours.recv()
    process.join(10)


async def storm(cluster, seconds, every, tasks=64, at_random=False):
    """Tasks write and read while nodes are killed and come back. Returns kills, acknowledged writes, errors, paths
    whose last acknowledged write is missing, and conflicts. `at_random`: writes go to any node instead."""
    async with Client.connect(*cluster.seeds, config=LASTING) as client:
        await all_live(client, 3)
        if at_random:
            choose = client._caller.choose

            def anywhere(routing, plan, tries):
                live = [target for target in routing.targets if target.is_live and not tries.has(target)]
                if plan.action != "set_value" or not live:
                    return choose(routing, plan, tries)
                target = random.choice(live)
                tries.note(target)
                return target

            client._caller.choose = anywhere
        stop = False
        errors, acknowledged, writes = [], {}, 0

        async def work(task):
            nonlocal writes
            number = 0
            while not stop:
                number += 1
                path = ("storm", task, number % 8)
                try:
                    await client.put(path, [task, number], copies=1)
                    acknowledged[path] = number
                    # Where all tasks write, nobody's value is expected to stay.
                    await client.put(("shared", number % 8), [task, number])
                    writes += 2
                    if number % 3 == 0:
                        assert (await client.get(path)) == [task, number]
                except Exception as error:
                    errors.append(error)

        working = [asyncio.create_task(work(task)) for task in range(tasks)]
        loop = asyncio.get_running_loop()
        end, kills = loop.time() + seconds, 0
        try:
            while loop.time() < end or kills < 2:
                await asyncio.sleep(every / 2)
                index = random.randrange(3)
                cluster[index].kill()
                kills += 1
                await asyncio.sleep(every / 2)
                await asyncio.to_thread(cluster.rejoin, index)
                await all_live(client, 3)
        finally:
            # A client that is closed answers at once: who goes on then leaves no turn to anybody.
            stop = True
        await asyncio.gather(*working)
        missing = []
        for path, number in acknowledged.items():
            if (await client.get(path, default=None)) != [path[1], number]:
                missing.append(path)
        found = 0
        for node in cluster:
            async with Client.connect(node.client, config=Config(topology=TopologyConfig(only_seeds=True))) as one:
                state = await one.request("get_state", conflicts=True, idempotent=True)
                found = max(found, state["conflicts"]["found"])
        return kills, writes, errors, missing, found


async def test_a_small_storm_of_kills(cluster):
    kills, writes, errors, missing, _ = await storm(cluster, 6, 2)
    assert kills >= 2 and writes >= 64
    assert errors == [] and missing == []


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_storm_of_kills():
    told = []
    for at_random in (False, True):
        with Cluster(3) as cluster:
            kills, writes, errors, missing, conflicts = await storm(cluster, 30, 4, at_random=at_random)
        where = "at random nodes" if at_random else "at preferred nodes"
        print(f"{where}: {kills} kills, {writes} writes, {len(missing)} missing, {conflicts} conflicts at one node")
        told.append((writes, conflicts))
        if not at_random:
            assert errors == [] and missing == []
    (writes, few), (others, many) = told
    assert few / writes <= many / others / 100
