"""Nodes that let nobody in: one is passed over, all of them are the end of a call, a watch or a monitor."""

import asyncio
import contextlib
import socket
import time
from dataclasses import replace

import pytest
from conftest import assert_nothing_left, until
from scripted import RESET, SILENCE, WRITTEN, ScriptedNode, error, start
from test_rules import preferred_path, scene

from distkv_client import (
    Client,
    ClosedError,
    Config,
    DeniedError,
    Login,
    NoMajorityError,
    Path,
    PoolConfig,
    RetryPolicy,
    UnavailableError,
    UpToDate,
)
from distkv_client.codec import encode
from distkv_client.config import Address
from distkv_client.errors import ConnectError, LateError, NoAccessError, NotMetError, TimedOutError
from distkv_client.pool import REFUSAL_MEMORY
from distkv_client.refusals import Refusals
from distkv_client.view import Target

RETRY = RetryPolicy(try_deadline=20.0, total_deadline=40.0)
POOL = PoolConfig(failure_memory=30, failure_memory_max=30, connect_timeout=20.0, probe_timeout=60.0)
CONFIG = Config(login=Login.password("ann", "her secret"), pool=POOL, retry=RETRY, connect_deadline=40.0)
POLICY = replace(RETRY, initial_delay=0.001, delay_max=0.01)
FORGETFUL = replace(POOL, failure_memory=0.001, failure_memory_max=0.001)


def with_policy(policy):
    return replace(CONFIG, retry=policy)


ANSWER = {**WRITTEN, "value": 1}


def answers(request):
    """Streams that go on, and an answer to anything else."""
    seq = request["seq"]
    parts = {
        "watch": [{"state": "start", "wseq": 1}, {"state": "uptodate", "wseq": 2}],
        "msg_monitor": [{"state": "start", "wseq": 1}],
        "get_tree": [{"state": "start", "wseq": 1}, {"path": ["a"], "depth": 0, **ANSWER, "wseq": 2}, {"state": "end"}],
        "conflicts": [{"state": "start", "wseq": 1}, {"state": "end"}],
    }.get(request["action"])
    return ANSWER if parts is None else b"".join(encode({**part, "seq": seq}) for part in parts)


def three(*scripts):
    """Three nodes at which clients log in; the script of the last ones is :func:`answers`."""
    nodes = [ScriptedNode(f"s{n + 1}", script) for n, script in enumerate([*scripts, answers, answers, answers][:3])]
    for node in nodes:
        node.greets = {"auth": ["password"]}
    return nodes


def logins(nodes):
    return [len(node.actions("auth")) for node in nodes]


async def first_at(client, node):
    """A path whose calls go to this node first; there is no connection to it any more."""
    path = preferred_path(client, node.name)
    await client.get(path)
    node.lets_in = False
    node.drop()
    await until(lambda: not client._pool.slot(client._topology.routing.by_name[node.name].address).connections)
    return path


async def test_one_node_that_lets_nobody_in_is_passed_over():
    nodes = three()
    async with scene(*nodes, config=CONFIG) as client:
        path = await first_at(client, nodes[0])
        before = logins(nodes)[0]
        assert await client.get(path) == 1
        assert (await client.put(path, 2)).node != "s1"
        assert await client.get(path, read="freshest") == 1
        assert [entry.value for entry in await client.tree(path)] == [1]
        assert set((await client.conflicts()).missing) == {"s1"}
        async with client.watch(path) as watch, client.monitor(path) as monitor:
            assert await watch.next() == UpToDate()
            assert "s1" not in (watch.node, monitor.node)
        assert logins(nodes)[0] <= before + 1, "the refusal is remembered"


async def test_a_stream_goes_on_past_a_node_that_lets_nobody_in():
    nodes = three()
    async with scene(*nodes, config=CONFIG) as client:
        order = client._topology.routing.router.order
        path = next(path for path in (Path(f"p{n}") for n in range(1000)) if list(order(path.shard)) == [0, 1, 2])
        async with client.watch(path) as watch, client.monitor(path) as monitor:
            assert await watch.next() == UpToDate()
            assert (watch.node, monitor.node) == ("s1", "s1")
            await first_at(client, nodes[1])
            nodes[0].lets_in = False
            nodes[0].drop()
            assert type(await asyncio.wait_for(watch.next(), 20)).__name__ == "Resumed"
            assert type(await asyncio.wait_for(monitor.next(), 20)).__name__ == "Gap"
            assert (watch.node, monitor.node) == ("s3", "s3")


async def test_who_is_let_in_nowhere_any_more_is_told_at_once():
    nodes = three()
    async with scene(*nodes, config=CONFIG) as client:
        path = preferred_path(client, "s1")
        for name in ("s1", "s2", "s3"):
            await client.get(preferred_path(client, name))
        async with client.watch(path) as watch, client.monitor(path) as monitor:
            assert await watch.next() == UpToDate()
            before = logins(nodes)
            for node in nodes:
                node.lets_in = False
                node.drop()
            started = time.monotonic()
            for call in (
                client.get(path),
                client.put(path, 1),
                client.get(path, read="freshest"),
                client.tree(path)._collect(),
                client.conflicts()._collect(),
                watch.next(),
                monitor.next(),
            ):
                with pytest.raises(DeniedError) as caught:
                    await asyncio.wait_for(call, 20)
                assert caught.value.code == "no_access" and isinstance(caught.value.cause, NoAccessError)
            assert time.monotonic() - started < 20, "no call has waited for its deadline"
            assert [now - then for then, now in zip(before, logins(nodes), strict=True)] == [1, 1, 1]


async def test_a_refusal_is_told_where_no_other_node_can_be_reached():
    nodes = three()
    async with scene(*nodes, config=CONFIG) as client:
        path = await first_at(client, nodes[0])
        async with client.watch(path) as watch:
            assert await watch.next() == UpToDate()
            for node in nodes[1:]:
                await node.stop()
            for call in (
                client.get(path),
                client.put(path, 1),
                client.get(path, read="freshest"),
                client.conflicts()._collect(),
                watch.next(),
            ):
                with pytest.raises(DeniedError) as caught:
                    await asyncio.wait_for(call, 20)
                assert caught.value.code == "no_access" and caught.value.node == "s1"


async def test_a_refusal_is_not_the_answer_while_another_node_may_do_it():
    is_ready = False

    def script(request):
        return answers(request) if is_ready else error("not_ready")

    nodes = three(answers, script, script)
    # So many tries are over soon, but not while a test looks.
    policy = replace(POLICY, attempts_max=200)
    async with scene(*nodes, config=with_policy(policy)) as client:
        path = await first_at(client, nodes[0])
        with pytest.raises(UnavailableError, match="no") as caught:
            await client.get(path)
        assert caught.value.code == "unavailable" and caught.value.node in ("s2", "s3")
        reading = asyncio.create_task(client.get(path, timeout=30))
        await until(lambda: len(nodes[1].actions("get_value")) > 3)
        is_ready = True
        assert await reading == 1


async def test_who_was_refused_too_often_is_still_refused():
    nodes = three()
    async with scene(*nodes, config=replace(with_policy(POLICY), pool=FORGETFUL)) as client:
        path = await first_at(client, nodes[0])
        for node in nodes[1:]:
            node.lets_in = False
            node.drop()
        for code in ("auth_failed", "too_many"):
            for node in nodes:
                node.refuses = code
            before = logins(nodes)[0]
            async with asyncio.timeout(20):
                while logins(nodes)[0] < before + 3:
                    with pytest.raises(DeniedError):
                        await asyncio.wait_for(client.get(path), 20)
        for node in nodes:
            node.lets_in = True
        with contextlib.suppress(DeniedError):
            # What is remembered of it ends in a millisecond.
            await client.get(path)
        assert await client.get(path) == 1


async def test_who_connects_is_refused_by_all_seeds_only():
    nodes = three()[:2]
    seeds = await start(*nodes)
    # Nobody listens there, and nobody else can.
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    dead = "{}:{}".format(*held.getsockname())
    for node in nodes:
        node.lets_in = False
    with pytest.raises(DeniedError):
        await asyncio.wait_for(Client.connect(*seeds, config=CONFIG), 20)
    # Where one cannot be reached, it is not final before time is up, and told all the same.
    brief = replace(CONFIG, connect_deadline=3.0)
    for some in ([seeds[0], dead], [dead, seeds[0]]):
        with pytest.raises(UnavailableError, match="cannot get into") as caught:
            await Client.connect(*some, config=brief)
        assert isinstance(caught.value.cause, NoAccessError)
    # A node that has not caught up lets it in: it is better than none.
    nodes[1].lets_in, nodes[1].is_ready = True, False
    for some in (seeds, seeds[::-1]):
        async with Client.connect(*some, config=CONFIG) as client:
            assert client.cluster_view().source == "s2"
    held.close()
    for node in nodes:
        await node.stop()
    assert_nothing_left()


@pytest.mark.parametrize(
    "policy",
    [replace(RETRY, attempts_max=1), replace(RETRY, initial_delay=100.0, delay_max=100.0)],
    ids=["tries", "time"],
)
async def test_a_refusal_is_not_final_where_nobody_else_could_be_asked(policy):
    nodes = three()
    async with scene(*nodes, config=with_policy(policy)) as client:
        path = await first_at(client, nodes[0])
        for call in (client.get(path), client.put(path, 1)):
            # It is as good as not known yet.
            client._pool.slot(client._topology.routing.by_name["s1"].address).failed_until = 0.0
            with pytest.raises(UnavailableError, match="cannot get into") as caught:
                await call
            assert caught.value.code == "unavailable" and caught.value.attempts == 1
            assert isinstance(caught.value.cause, NoAccessError)


@pytest.mark.parametrize("answer", [SILENCE, RESET], ids=["slow", "lost"])
async def test_a_node_that_is_slow_has_let_the_client_in_and_one_that_hangs_up_has_not(answer):
    nodes = three(answers, lambda request: answer)[:2]
    policy = replace(POLICY, try_deadline=0.1, attempts_max=5) if answer is SILENCE else POLICY
    async with scene(*nodes, config=with_policy(policy)) as client:
        path = await first_at(client, nodes[0])
        # It has let the client in.
        await client._pool.get(client._topology.routing.by_name["s2"].address, float("inf"))
        with pytest.raises(UnavailableError if answer is SILENCE else DeniedError) as caught:
            await client.get(path)
        assert caught.value.node == ("s2" if answer is SILENCE else "s1")


def test_only_what_present_nodes_say_counts():
    one, two, gone = (Target(name, 7, Address(name, 1), True) for name in ("s1", "s2", "s3"))
    refused, dead, slow = NoAccessError("no"), ConnectError("not there"), TimedOutError("slow")
    said = Refusals()
    said.note(gone, slow)
    said.note(one, refused)
    assert said.verdict([one, two]) is None, "one has not been asked"
    said.note(two, LateError("no time"))
    assert said.verdict([one, two]) is None, "it has let the client in"
    said.note(two, dead)
    assert said.verdict([one, two, gone]) is None
    assert said.verdict([one, two]) == ("s1", refused)
    assert said.verdict([two]) is None and said.verdict([]) is None
    said.note(gone, refused)
    said.note(one, dead)
    assert said.verdict([one, two]) is None, "who refuses is not there any more"
    # Who was not met may be of another network.
    strange = NotMetError("no TLS")
    said.note(two, strange)
    assert said.verdict([one, two]) is None
    assert said.verdict([two]) == ("s2", strange) and said.verdict([two, gone]) == ("s3", refused)
    said.note(one, strange)
    assert said.verdict([one, two]) == ("s1", strange)
    said.note(one, slow)
    assert said.verdict([one, two]) is None


@pytest.mark.parametrize("grace", [0, 25])
async def test_no_refusal_is_told_by_a_client_that_is_being_closed(grace):
    nodes = three()[:2]
    held = []

    def hold(request, writer):
        if request.get("action") == "auth":
            held.append((request["seq"], writer))
        return True

    policy = RetryPolicy(try_deadline=30, total_deadline=60)
    async with scene(*nodes, config=replace(with_policy(policy), pool=replace(POOL, connect_timeout=30))) as client:
        path = await first_at(client, nodes[0])
        nodes[1]._answer = hold
        nodes[1].drop()
        first, second = (client._pool.slot(client._topology.routing.by_name[name].address) for name in ("s1", "s2"))
        failures = client.stats().retry.unavailable
        await until(lambda: not second.connections and second.attempt is not None)
        first.failed_until = 0.0
        calls = [asyncio.create_task(call) for call in (client.get(path), client.put(path, 1))]
        if not grace:
            calls.append(asyncio.create_task(client.get(path, read="freshest")))
        await until(lambda: client.stats().retry.unavailable >= failures + len(calls))
        calls.append(asyncio.create_task(client.conflicts()._collect()))
        await until(lambda: held)
        closing = asyncio.create_task(client.close(grace=grace))
        await until(lambda: client._caller.is_closing)
        for seq, writer in held if grace else ():
            writer.write(encode({"seq": seq, "state": "start"}) + encode({**error("auth_failed"), "seq": seq}))
        for call in calls:
            with pytest.raises(ClosedError):
                await asyncio.wait_for(call, 20)
        await closing


async def test_a_majority_that_is_let_in_nowhere_is_given_up_at_once():
    nodes = three()
    async with scene(*nodes, config=CONFIG) as client:
        await client.get("a", read="freshest")
        for node in nodes[1:]:
            node.lets_in = False
            node.drop()
        started = time.monotonic()
        with pytest.raises(DeniedError) as caught:
            await client.get("a", read="freshest")
        assert caught.value.code == "no_access" and caught.value.node in ("s2", "s3")
        await nodes[2].stop()
        client._pool.slot(client._topology.routing.by_name["s3"].address).failed_until = 0.0
        with pytest.raises(DeniedError) as caught:
            await client.get("a", read="freshest")
        assert caught.value.node == "s2" and time.monotonic() - started < 20


async def test_who_lacks_a_majority_is_told_of_a_refusal():
    nodes = three(answers, answers, lambda request: error("not_ready"))
    async with scene(*nodes, config=with_policy(replace(POLICY, attempts_max=5))) as client:
        await client.get("a", read="freshest")
        nodes[1].lets_in = False
        nodes[1].drop()
        with pytest.raises(NoMajorityError, match="1 of 3 nodes answered, 2 must; .*cannot get into") as caught:
            await client.get("a", read="freshest")
        assert isinstance(caught.value.cause, NoAccessError) and caught.value.answered == 1


async def test_who_was_refused_long_ago_is_only_made_to_wait(jump):
    nodes = three()[:1]
    config = replace(with_policy(replace(POLICY, attempts_max=10)), pool=FORGETFUL)
    async with scene(*nodes, config=config) as client:
        path = await first_at(client, nodes[0])
        for refuses, seconds, kind in (
            ("auth_failed", 0, DeniedError),
            ("too_many", 30, DeniedError),
            ("too_many", 35, UnavailableError),
            ("auth_failed", 0, DeniedError),
            ("too_many", 0, DeniedError),
        ):
            nodes[0].refuses = refuses
            jump(seconds)
            tries = len(nodes[0].actions("auth"))
            async with asyncio.timeout(20):
                while len(nodes[0].actions("auth")) == tries:
                    with pytest.raises(kind) as caught:
                        await client.get(path)
            assert type(caught.value) is kind
        assert REFUSAL_MEMORY == 60.0


async def test_a_node_that_is_full_may_let_the_client_in():
    nodes = three()[:2]
    async with scene(*nodes, config=with_policy(replace(POLICY, attempts_max=10))) as client:
        path = await first_at(client, nodes[0])
        nodes[1].turns_away = "too_many"
        nodes[1].drop()
        with pytest.raises(UnavailableError) as caught:
            await client.get(path)
        assert caught.value.node == "s2" and caught.value.attempts > 2
