"""The rules of docs/client-behaviour.md against scripted nodes: classes, tries, fates, deadlines, garbage."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import assert_nothing_left, until
from scripted import RESET, SILENCE, WRITTEN, ScriptedNode, error, start

from distkv_client import (
    Client,
    ClosedError,
    Config,
    DeniedError,
    Fate,
    FateUnknownError,
    NoMajorityError,
    Path,
    PoolConfig,
    RefusedError,
    Repeated,
    RetryPolicy,
    UnavailableError,
    UsageError,
)
from distkv_client.errors import REFUSALS
from distkv_client.retry import CODES, ErrorClass, GiveUp, Idempotency, Reason, Retry, backoff
from distkv_client.shards import ShardTable
from distkv_client.stats import ClientStats

POLICY = RetryPolicy(initial_delay=0.001, delay_max=0.01, try_deadline=30.0, total_deadline=50.0)
"""No answer that comes is late, however slow the machine is."""
POOL = PoolConfig(failure_memory=0.01, failure_memory_max=0.05, connect_timeout=30.0, probe_timeout=30.0)
CONFIG = Config(retry=POLICY, pool=POOL, connect_deadline=50.0)
SILENT = replace(CONFIG, retry=replace(POLICY, try_deadline=0.15))
"""Where a node that does not answer is soon left."""


@asynccontextmanager
async def scene(*nodes, config=CONFIG, seeds=None):
    addresses = await start(*nodes)
    try:
        async with Client.connect(*(seeds or addresses), config=config) as client:
            yield client
    finally:
        for node in nodes:
            await node.stop()
    assert_nothing_left()


def pair(first, second=None):
    """Two nodes; those calls about the path `p` that come first go to the first one."""
    return ScriptedNode("s1", first), ScriptedNode("s2", second or (lambda request: {**WRITTEN, "value": "two"}))


def preferred_path(client, name):
    return next(path for path in (Path(f"p{n}") for n in range(1000)) if client.preferred(path) == name)


def once(first, then):
    """The first request gets one answer, all others another one."""
    answers = iter([first])
    return lambda request: next(answers, then)


FINAL = [code for code, kind in CODES.items() if kind is ErrorClass.FINAL]


@pytest.mark.parametrize("code", [*FINAL, "from_the_future", None])
async def test_final_codes_are_told_after_one_try(code):
    one, two = pair(lambda request: error(code))
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        for call in (client.get(path), client.put(path, 1)):
            with pytest.raises(RefusedError) as caught:
                await call
            assert caught.value.code == code and caught.value.attempts == 1
            assert caught.value.node == "s1" and caught.value.fate is Fate.NOT_DONE
            assert type(caught.value) is REFUSALS.get(code, RefusedError)
        assert not two.actions("get_value") and not two.actions("set_value")


@pytest.mark.parametrize("code", ["not_ready", "read_only", "no_event", "too_many", "too_late", "too_slow"])
async def test_what_one_node_cannot_do_another_does(code):
    one, two = pair(lambda request: error(code))
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        assert await client.get(path) == "two"
        written = await client.put(path, 1, write_id=None)
        assert written.node == "s2" and written.attempts == 2


async def test_a_class_for_each_code_that_a_node_has():
    assert len(CODES) == 28
    policy = RetryPolicy()
    for kind in ErrorClass:
        for idempotency in Idempotency:
            decided = policy.decide(kind, 1, 0.0, idempotency, 0.5)
            uncertain = kind in (ErrorClass.TRY_DEADLINE, ErrorClass.FATE_UNKNOWN, ErrorClass.UNKNOWN_THERE)
            if kind is ErrorClass.FINAL:
                assert decided == GiveUp(Reason.FINAL)
            elif uncertain and idempotency is Idempotency.UNGUARDED:
                assert decided == GiveUp(Reason.FATE_UNKNOWN)
            else:
                other = kind not in (ErrorClass.UNKNOWN_THERE, ErrorClass.BUSY)
                assert decided == Retry(policy.delay(1, 0.5), other)
    assert policy.decide(ErrorClass.UNAVAILABLE, 1, 9.999, Idempotency.READ, 1.0) == GiveUp(Reason.DEADLINE)
    assert [backoff(0.01, 2, 1.0, n, 1.0) for n in (1, 2, 8, 99)] == [0.01, 0.02, 1.0, 1.0]
    assert backoff(0.01, 2, 1.0, 1, 0.0) == 0.005


async def test_unknown_fate_is_asked_again_at_the_same_node_then_unconfirmed():
    one, two = pair(lambda request: error("unknown_fate"))
    config = replace(CONFIG, retry=replace(POLICY, attempts_max=4))
    async with scene(one, two, config=config) as client:
        path = preferred_path(client, "s1")
        with pytest.raises(FateUnknownError) as caught:
            await client.put(path, 1, copies=1)
        assert caught.value.fate is Fate.UNCONFIRMED and caught.value.code == "unknown_fate"
        assert caught.value.attempts == 4 and not two.actions("set_value")
        ids = {request["wid"] for request in one.actions("set_value")}
        assert len(ids) == 1 and len(next(iter(ids))) == 16
        with pytest.raises(FateUnknownError) as caught:
            await client.put(path, 1, copies=1, write_id=None)
        assert caught.value.attempts == 1


@pytest.mark.parametrize(
    ("code", "more"), [("storage_failed", {"made": True}), ("not_ready", {"made": True}), ("internal", {})]
)
async def test_uncertain_codes_with_and_without_an_id(code, more):
    one, two = pair(lambda request: error(code) | more)
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        written = await client.put(path, 1)
        assert written.node == "s2" and written.repeated is Repeated.MAYBE
        with pytest.raises(FateUnknownError) as caught:
            await client.put(path, 1, write_id=None)
        assert caught.value.code == code and caught.value.fate is Fate.UNKNOWN and caught.value.attempts == 1


@pytest.mark.parametrize("answer", [SILENCE, RESET], ids=["silence", "reset"])
async def test_no_answer_to_a_read_a_guarded_and_an_unguarded_write(answer):
    one, two = pair(lambda request: answer)

    async def well():
        """The first node is not avoided any more."""
        await until(lambda: not client._pool.is_failing(client._topology.routing.by_name["s1"].address))

    async with scene(one, two, config=SILENT if answer is SILENCE else CONFIG) as client:
        path = preferred_path(client, "s1")
        assert await client.get(path) == "two"
        await well()
        written = await client.put(path, 1)
        assert written.repeated is Repeated.MAYBE
        await well()
        with pytest.raises(FateUnknownError) as caught:
            await client.put(path, 1, write_id=None)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.node == "s1"
        await well()
        with pytest.raises(FateUnknownError):
            await client.send(path, 1)


GARBAGE = {
    "no MessagePack": b"\xc1\xc1",
    "no map": b"\x93\x01\x02\x03",
    "a number": b"\x05",
    "deep nesting": b"\x91" * 5000 + b"\xc0",
    "cut off": b"\x82\xa3seq",
    "a stream": b"\x82\xa3seq\x03\xa5state\xa5start",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_ends_the_connection_and_another_node_answers(garbage):
    one, two = pair(lambda request: garbage)
    async with scene(one, two, config=SILENT) as client:
        path = preferred_path(client, "s1")
        assert await client.get(path) == "two"
        written = await client.put(path, 1)
        assert written.node == "s2"
        # Unless the first node was avoided just then.
        assert written.repeated is Repeated.MAYBE or not one.actions("set_value")


async def test_a_length_bomb_allocates_nothing_and_is_left():
    one, two = pair(lambda request: b"\x81\xa1x\xc6\xff\xff\xff\xff")
    config = replace(SILENT, pool=replace(POOL, probe_timeout=0.2))
    async with scene(one, two, config=config) as client:
        assert await client.get(preferred_path(client, "s1")) == "two"
        await until(lambda: client.stats().pool.silent_closed >= 1)


async def test_a_map_with_an_array_as_key_breaks_nothing():
    value = b"\x82\xa5value\x81\x92\x01\x02\x03\xa3seq"
    one = ScriptedNode("s1", lambda request: value + bytes((request["seq"],)))
    async with scene(one) as client:
        assert await client.get("a") == {(1, 2): 3}
        assert await client.get("a") == {(1, 2): 3}
        assert client.stats().pool.connections == 1


@pytest.mark.parametrize("what", ["conflicts", "a read of a majority"])
async def test_a_silent_node_is_asked_whether_it_is_alive(what):
    config = replace(SILENT, retry=replace(SILENT.retry, total_deadline=1.0))
    one, two = pair(lambda request: SILENCE, lambda request: SILENCE)
    async with scene(one, two, config=config) as client:
        # As after any other call: otherwise that is only asked once nothing has come for long. What the client asks by
        # itself may be answered meanwhile: then the nodes are not silent.
        for _ in range(20):
            with pytest.raises((UnavailableError, NoMajorityError)):
                await (client.conflicts() if what == "conflicts" else client.get("p", read="freshest"))
            if client.stats().pool.probes > 0:
                break
        else:
            pytest.fail("nobody was asked")


async def test_deadlines():
    one = ScriptedNode("s1", lambda request: SILENCE)
    for total, timeout, least in ((1.0, None, 0.8), (50.0, 0.1, 0.08)):
        config = replace(SILENT, retry=replace(SILENT.retry, total_deadline=total))
        async with scene(one, config=config) as client:
            started = time.monotonic()
            with pytest.raises(UnavailableError) as caught:
                await client.get("a", timeout=timeout)
            assert least < time.monotonic() - started < 25, "far less than the longer deadline"
            assert caught.value.code == "unavailable" and caught.value.fate is Fate.NOT_DONE
    async with scene(one, config=SILENT) as client:
        with pytest.raises(FateUnknownError) as caught:
            # Its first try has some time.
            await client.put("a", 1, timeout=3.0)
        assert caught.value.code == "fate_unknown" and caught.value.fate is Fate.UNKNOWN


async def test_attempts_max():
    one, two = pair(lambda request: error("not_ready"), lambda request: error("not_ready"))
    config = replace(CONFIG, retry=replace(POLICY, attempts_max=3))
    async with scene(one, two, config=config) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.get("a")
        assert caught.value.attempts == 3


async def test_a_passing_error_in_a_batch_moves_the_whole_batch():
    one, two = pair(
        lambda request: {"results": [WRITTEN, error("not_ready")]},
        lambda request: {"results": [WRITTEN, error("already_exists")]},
    )
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        written, refused = await client.batch().put(path, 1).put(path, 2, if_new=True)
        assert written.node == "s2" and refused.code == "already_exists"
        assert written.repeated is Repeated.MAYBE, "the first node has made it"


async def test_a_passing_error_in_a_batch_of_which_nothing_is_made_leaves_nothing_in_doubt():
    one, two = pair(
        lambda request: {"results": [error("not_ready"), error("already_exists")]},
        lambda request: {"results": [WRITTEN, error("already_exists")]},
    )
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        written, _ = await client.batch().put(path, 1).put(path, 2, if_new=True)
        assert written.node == "s2" and written.repeated is Repeated.NO


async def test_an_operation_of_a_batch_tells_whether_it_may_have_been_done():
    one, two = pair(lambda request: {"results": [error("storage_failed"), error("storage_failed") | {"made": True}]})
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        batch = client.batch().put(path, 1, write_id=None).put(path, 2, write_id=None)
        assert [reply.fate for reply in await batch] == [Fate.NOT_DONE, Fate.UNKNOWN]


async def test_a_server_of_the_original_leaves_the_seeds_and_its_ids_are_not_trusted():
    one = ScriptedNode("old", once(RESET, WRITTEN), is_old=True)
    async with scene(one) as client:
        assert client.stats().topology.seeds_only
        assert [node.name for node in client.cluster_view().nodes] == ["old"]
        with pytest.raises(FateUnknownError):
            await client.put("a", 1)
        assert (await client.put("a", 1)).changed
        with pytest.raises(UsageError, match="majority"):
            await client.get("a", read="freshest")


async def test_clients_take_a_path_to_one_node_also_with_one_dead():
    nodes = [ScriptedNode(f"s{n}", lambda request: WRITTEN) for n in range(3)]
    async with scene(*nodes) as one, Client.connect(nodes[1].address, config=CONFIG) as two:
        paths = [Path("x", n) for n in range(3)] + [Path(f"y{n}") for n in range(60)]
        assert [one.preferred(path) for path in paths] == [two.preferred(path) for path in paths]
        assert {one.preferred(path) for path in paths} == {"s0", "s1", "s2"}
        before = {path: one.preferred(path) for path in paths}
        for node in nodes:
            node.states["s2"] = "down"
            node.tell_views()
        await until(lambda: "s2" not in {client.preferred(path) for client in (one, two) for path in paths})
        assert [one.preferred(path) for path in paths] == [two.preferred(path) for path in paths]
        for path, name in before.items():
            assert name == "s2" or one.preferred(path) == name, "only the shards of the dead one move"


async def test_an_override_is_read_back_where_it_was_made():
    one, two = pair(lambda request: WRITTEN, lambda request: WRITTEN)
    async with scene(one, two) as client:
        for name, node in (("s1", one), ("s2", two)):
            asked = len(node.actions("list_shards"))
            await client.prefer_shard(preferred_path(client, name).shard, "s1")
            assert len(node.actions("list_shards")) == asked + 1, name


async def test_a_refresh_waits_for_a_table_that_was_asked_for_after_it():
    asked, answers, told = [], asyncio.Queue(), []

    async def call(plan, head):
        asked.append(plan.action)
        row = {"id": 1, "first": 0, "last": 0, "start": bytes(16), "end": bytes(16), "prefer": await answers.get()}
        return SimpleNamespace(reply={"result": [row]})

    class Referable(SimpleNamespace):
        """The table has only a weak reference."""

    caller = Referable(
        call=call,
        home=lambda shard: None,
        loop=asyncio.get_running_loop(),
        stats=ClientStats(),
        topology=SimpleNamespace(prefer=told.append),
    )
    table = ShardTable(caller, 30)
    await until(lambda: len(asked) == 1)
    refreshing = asyncio.ensure_future(table.refresh())
    await asyncio.sleep(0)
    answers.put_nowait("before")
    await until(lambda: len(asked) == 2)
    assert not refreshing.done()
    answers.put_nowait("after")
    await refreshing
    assert told == [{0: "before"}, {0: "after"}]
    # Closing it ends waits, too.
    waits = [asyncio.ensure_future(table.refresh())]
    await until(lambda: len(asked) == 3)
    waits.append(asyncio.ensure_future(table.refresh()))
    await asyncio.sleep(0)
    await table.close()
    await asyncio.wait_for(asyncio.gather(*waits), 20)


async def test_the_table_of_shards_is_not_fetched_all_the_time():
    one = ScriptedNode("s1")
    async with scene(one, config=replace(CONFIG, shard_table_age=0.1)) as client:
        started = time.monotonic()
        for _ in range(100):
            await client.get("a", read="any")
        await until(lambda: len(one.actions("list_shards")) >= 2)
        assert len(one.actions("list_shards")) <= 2 + (time.monotonic() - started) / 0.1


async def test_own_writes_are_read_where_they_were_made():
    stale = {"value": "old", "tock": 1, "chain": {"node": "x~1", "tick": 1, "prev": None}}
    one, two = pair(once({**WRITTEN, "tock": 9}, error("not_ready")), lambda request: stale)
    async with scene(one, two, config=replace(CONFIG, own_write_patience=0.2)) as client:
        path = preferred_path(client, "s1")
        await client.put(path, "new")
        started = time.monotonic()
        assert await client.get(path) == "old", "in the end, what there is counts"
        assert time.monotonic() - started >= 0.2
        stats = client.stats().reads
        assert stats.stale_taken == 1 and stats.stale_answers >= 1


async def test_a_busy_connection_gets_a_second_and_no_third():
    one = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(one, config=replace(CONFIG, pool=replace(POOL, busy_at=4))) as client:
        calls = [asyncio.ensure_future(client.get("a")) for _ in range(40)]

        def more():
            calls.append(asyncio.ensure_future(client.get("a")))
            return client.stats().pool.connections

        await until(lambda: more() == 2)
        # Both are busy, or soon are.
        last = len(calls) + 20
        await until(lambda: more() and len(calls) >= last)
        await until(lambda: len(one.actions("get_value")) == len(calls))
        assert client.stats().pool.connections == 2 == one.accepted
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def test_an_unused_connection_is_closed_but_not_under_a_stream():
    one, two = pair(None)
    one.script = lambda request: {"value": 1}
    async with scene(one, two, config=replace(CONFIG, pool=replace(POOL, idle_close=0.1))) as client:
        await until(lambda: one.actions("list_shards") or two.actions("list_shards"))
        for name in ("s1", "s2"):
            await client.get(preferred_path(client, name))
        await until(lambda: client.stats().pool.connections == 1)
        closed = client.stats().pool.idle_closed
        await asyncio.sleep(0.3)
        stats = client.stats().pool
        assert closed >= 1 and (stats.connections, stats.idle_closed) == (1, closed), "that of the cluster view"


async def test_the_observer_is_told_and_may_fail():
    events = []

    class Observer:
        def call_begins(self, action):
            events.append(("begin", action))
            return "token"

        def try_begins(self, token, node, attempt):
            events.append(("try", node, attempt))
            raise RuntimeError("an observer's own")

        def try_failed(self, token, node, attempt, kind, text):
            events.append(("failed", node, attempt, kind))

        def call_ends(self, token, end):
            events.append(("end", end.action, end.attempts, end.error and end.error.code, token))

    one, two = pair(lambda request: error("not_ready"))
    async with scene(one, two, config=replace(CONFIG, observer=Observer())) as client:
        path = preferred_path(client, "s1")
        await until(lambda: ("end", "list_shards", 1, None, "token") in events)
        events.clear()
        await client.get(path)
        assert events == [
            ("begin", "get_value"),
            ("try", "s1", 1),
            ("failed", "s1", 1, ErrorClass.UNAVAILABLE),
            ("try", "s2", 2),
            ("end", "get_value", 2, None, "token"),
        ]


async def test_a_reply_that_comes_late_is_nobody_elses():
    answers = []
    one = ScriptedNode("s1", lambda request: (answers.append(request["seq"]), SILENCE)[1])
    async with scene(one) as client:
        first = asyncio.ensure_future(client.get("a"))
        await until(lambda: answers)
        first.cancel()
        second = asyncio.ensure_future(client.get("b"))
        await until(lambda: len(answers) >= 2)
        (writer,) = one._writers
        from distkv_client.codec import encode

        writer.write(encode({"seq": answers[0], "value": "for a"}) + encode({"seq": answers[1], "value": "for b"}))
        assert await second == "for b"


async def test_a_login_that_is_asked_for_in_the_middle_is_told():
    one = ScriptedNode("s1", lambda request: error("auth_required"))
    async with scene(one) as client:
        with pytest.raises(DeniedError):
            await client.get("a")
    with pytest.raises(ClosedError):
        await client.get("a")
