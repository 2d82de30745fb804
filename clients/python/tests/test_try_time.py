"""Each try of what may change something says until when it counts, by the clock of the node that it goes to (`by`)."""

import asyncio
import math
from dataclasses import replace

import msgpack
import pytest
from conftest import until
from scripted import WRITTEN, ScriptedNode, error
from test_rules import CONFIG, POLICY, pair, preferred_path, scene

from distkv_client import Client, Fate, Repeated, RetryPolicy, UnavailableError, Version, try_time
from distkv_client.codec import Fields
from distkv_client.try_time import CLOCK_END, ROUNDED, NodeClock, timed

CLOCK = 1_000_000
"""What the nodes here say in their greetings."""
TRY = 30_000 + ROUNDED
"""How long a try may take here, in milliseconds; no machine is so slow that it takes most of that."""
ODD = [None, -1, -(1 << 63), 1 << 63, (1 << 64) - 1, True, 1.5, "1000", b"1", [1], {}]
"""What is no clock."""
WAYS = {
    "set_value": WRITTEN,
    "delete_value": WRITTEN,
    "delete_tree": {"changed": 1, "tock": 7},
    "set_internal": WRITTEN,
    "batch": {"results": [{"value": 1, "tock": 1}, {**WRITTEN}], "tock": 6},
}


class Stopped:
    """A clock of this process that stands still until it is set forward."""

    def __init__(self):
        self.now = 5_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def stopped(monkeypatch):
    clock = Stopped()
    monkeypatch.setattr(try_time, "monotonic", clock)
    return clock


def node_of(name="s1", script=None, clock=CLOCK):
    node = ScriptedNode(name, script or (lambda request: WAYS.get(request["action"], {"value": 1, "tock": 1})))
    node.greets = {"clock": clock}
    return node


def bys(node, action="set_value"):
    return [request.get("by") for request in node.actions(action)]


def connections(client):
    return [one for slot in client._pool._slots.values() for one in slot.connections]


def too_late(clock):
    return {**error("too_late", "it came too late"), "clock": clock}


# -- what is counted -----------------------------------------------------------------------------


def test_a_nodes_clock_is_counted_on_and_never_ahead_of_it(stopped):
    clock, begun = NodeClock(CLOCK), stopped.now
    counts = {0: 0, 0.5: 0, 1: 0, 2: 1, 4096: 4095, 4097: 4095, 4098: 4096, 4_096_000: 4_095_000}
    for since, counted in counts.items():
        # A float has no place for the half of its last digit.
        stopped.now = begun + since / 1000 + 1e-9
        assert clock.after(0) == CLOCK + counted + ROUNDED, since
        assert clock.after(0.0101) == CLOCK + counted + 11 + ROUNDED
    stopped.now = begun - 1
    assert clock.after(0) == clock.after(-1) == CLOCK + ROUNDED, "never back"


def test_only_what_is_ahead_of_what_was_counted_is_heard(stopped):
    clock = NodeClock(CLOCK)
    stopped.now += 100
    counted = clock.after(0) - ROUNDED
    assert CLOCK + 99_000 < counted < CLOCK + 100_000
    for told in (0, CLOCK, counted - 1, counted, *ODD):
        assert not clock.hear(told)
        assert clock.after(0) == counted + ROUNDED, told
    assert clock.hear(counted + 1)
    assert clock.after(0) == counted + 1 + ROUNDED
    stopped.now += 100
    assert counted + 99_000 < clock.after(0) < counted + 100_000


@pytest.mark.parametrize("told", ODD)
def test_what_is_no_clock_counts_as_none(told):
    clock = NodeClock(told)
    clock.hear(CLOCK)
    assert clock.after(1.0) is None


def test_no_time_is_too_long():
    for told in (CLOCK, CLOCK_END - 1):
        for seconds in (1e15, 1e300, math.inf):
            assert NodeClock(told).after(seconds) <= CLOCK_END - 1
    assert NodeClock(CLOCK_END - 1).after(2.0) == CLOCK_END - 1


@pytest.mark.parametrize("count", [2, 3, 13, 14, 15, 16, 17, 255, 65_534, 65_535, 65_536])
def test_a_request_has_as_many_fields_as_its_head_says(count):
    """The count is that without the time."""
    fields, more = Fields(), {f"f{number}": number for number in range(count - 2)}
    for name, number in more.items():
        fields.add(name, number)
    data = timed(fields.head("act"), 7, CLOCK)
    assert msgpack.unpackb(data) == {"action": "act", **more, "seq": 7, "by": CLOCK}


# -- what is sent --------------------------------------------------------------------------------

VERSION = Version(5, "x~7", 1)
CHANGES = {
    "put": ("set_value", lambda client: client.put("a", 1)),
    "put, raw": ("set_value", lambda client: client.put_raw("a", b"\x01")),
    "put for copies": ("set_value", lambda client: client.put("a", 1, copies=1)),
    "put without an id": ("set_value", lambda client: client.put("a", 1, write_id=None)),
    "put with an id of one's own": ("set_value", lambda client: client.put("a", 1, write_id="order 17")),
    "put if": ("set_value", lambda client: client.put("a", 1, if_new=True)),
    "delete": ("delete_value", lambda client: client.delete("a")),
    "delete for copies": ("delete_value", lambda client: client.delete("a", copies=1)),
    "delete_tree": ("delete_tree", lambda client: client.delete_tree("a")),
    "delete_tree again": ("delete_tree", lambda client: client.delete_tree("a", again_if_unknown=True)),
    "batch": ("batch", lambda client: client.batch().get("a").put("a", 1).run()),
    "send": ("msg_send", lambda client: client.send("a", 1)),
    "prefer_shard": ("set_internal", lambda client: client.prefer_shard(1, "s1")),
    "request": ("set_value", lambda client: client.request("set_value", path="a", value=1)),
    "request, repeated": ("set_auth", lambda client: client.request("set_auth", idempotent=True)),
    "request of whatever it is": ("brew", lambda client: client.request("brew")),
}


@pytest.mark.parametrize(("action", "call"), CHANGES.values(), ids=CHANGES)
async def test_each_try_of_a_change_says_until_when_it_counts(action, call, stopped):
    async with scene(node := node_of()) as client:
        await call(client)
        stopped.now += 1_000
        await call(client)
        first, second = bys(node, action)
        assert CLOCK < first <= CLOCK + TRY < CLOCK + 999_000 < second <= CLOCK + 1_000_000 + TRY


@pytest.mark.parametrize(("action", "call"), CHANGES.values(), ids=CHANGES)
async def test_a_node_that_tells_no_clock_is_sent_no_time(action, call):
    node = node_of()
    node.greets = {}
    async with scene(node) as client:
        await call(client)
        assert bys(node, action) == [None] and "by" not in node.actions(action)[0]


@pytest.mark.parametrize("told", ODD)
async def test_a_clock_that_is_none_harms_nothing(told):
    async with scene(node := node_of(clock=told)) as client:
        assert (await client.put("a", 1)).changed
        assert "by" not in node.actions("set_value")[0]


async def test_reads_count_whenever_they_come():
    async with scene(node := node_of()) as client:
        await client.get("a")
        await client.get_raw("a")
        await client.entry("a")
        for read in ("any", "freshest"):
            await client.get("a", read=read)
        await client.children("a")
        await client.list_shards()
        node.script = lambda request: {"results": [{"value": 1, "tock": 1}]}
        await client.batch().get("a").run()
        node.script = lambda request: {}
        for is_again in (False, True):
            await client.request("get_value", path="a", idempotent=is_again)
            await client.request("status", idempotent=is_again)
        assert node.requests and not [request for request in node.requests if "by" in request]


async def test_the_time_of_a_try_is_no_longer_than_that_of_its_call(stopped):
    async with scene(node := node_of()) as client:
        for call in (client.put("a", 1, timeout=7), client.put("a", 1, copies=1, timeout=7)):
            await call
        for copies in (0, 1):
            await client.delete("a", copies=copies, timeout=7)
        await client.batch().get("a").put("a", 1).run(timeout=7)
        await client.request("set_value", path="a", timeout=7)
        found = [by for action in ("set_value", "delete_value", "batch") for by in bys(node, action)]
        assert len(found) == 6 and all(CLOCK < by <= CLOCK + 7_000 + ROUNDED for by in found), found


async def test_the_time_in_which_nothing_could_be_sent_is_gone(stopped, jump):
    async with scene(node := node_of()) as client:
        await client.put("a", 1)
        (connection,) = connections(client)
        connection.pause_writing()
        put = asyncio.create_task(client.put("a", 2))
        await until(lambda: connection._writable is not None)
        jump(10.0)
        connection.resume_writing()
        await put
        first, second = bys(node)
        assert CLOCK + TRY - 10_000 < first <= CLOCK + TRY and CLOCK < second <= CLOCK + TRY - 10_000


async def test_a_time_without_end_is_a_number(stopped):
    endless = RetryPolicy(try_deadline=math.inf, total_deadline=math.inf)
    async with scene(node := node_of(), config=replace(CONFIG, retry=endless)) as client:
        await client.put("a", 1)
        await client.delete_tree("a")
        assert bys(node) == bys(node, "delete_tree") == [CLOCK + 10**18 + ROUNDED]


async def test_a_write_with_all_fields_says_it_too(stopped):
    async with scene(node := node_of()) as client:
        await client.put("a", 1)
        written = await client.put(
            "a", 2, if_version=VERSION, if_value=1, write_id="w", copies=1, idempotent=True, timeout=20
        )
        assert written.changed
        sent = node.actions("set_value")[1]
        names = "action path value chain deleted prev wid idem nchain above own copies timeout seq by"
        assert set(sent) == set(names.split()) and CLOCK < sent["by"] <= CLOCK + 20_000 + ROUNDED


async def test_a_time_of_the_callers_own_counts():
    async with scene(node := node_of()) as client:
        await client.request("set_value", path="a", value=1, by=5)
        assert bys(node) == [5]


async def test_long_values_are_sent_whole():
    async with scene(node := node_of()) as client:
        for size in (0, 70_000, 4_000_000):
            await client.put("a", b"v" * size)
            assert node.actions("set_value")[-1]["value"] == b"v" * size
        await asyncio.gather(*(client.put("a", number) for number in range(100)))
        sent = node.actions("set_value")
        assert sorted(request["value"] for request in sent[3:]) == list(range(100))
        assert len({request["seq"] for request in sent}) == 103 and None not in bys(node)


# -- tries ---------------------------------------------------------------------------------------


async def test_each_try_has_the_clock_of_its_own_node(stopped):
    one, two = pair(lambda request: error("not_ready"))
    one.greets, two.greets = {"clock": CLOCK}, {"clock": 77_000_000}
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        assert (await client.put(path, 1)).attempts == 2
        assert CLOCK < bys(one)[0] <= CLOCK + TRY and 77_000_000 < bys(two)[0] <= 77_000_000 + TRY
        # It comes back as a node that tells none, or another one.
        for told in (None, 3):
            two.greets, before = {"clock": told}, connections(client)
            two.drop()
            await until(lambda before=before: all(one.ended is not None for one in before if one.name == "s2"))
            await client.put(preferred_path(client, "s2"), 1)
        assert bys(two)[1] is None and 3 < bys(two)[2] <= 3 + TRY


REPLIES = {**CHANGES}
for _name in ("put, raw", "request of whatever it is", "request, repeated"):
    del REPLIES[_name]


@pytest.mark.parametrize(("action", "call"), REPLIES.values(), ids=REPLIES)
async def test_what_came_too_late_is_sent_again_and_nobody_is_told(action, call, stopped):
    """To the same node, which has told its clock with the refusal, and within the same try."""
    node = node_of()
    answers, script = iter([too_late(5_000_000)]), node.script
    node.script = lambda request: next(answers, None) or script(request)
    async with scene(node) as client:
        result = await call(client)
        first, second = bys(node, action)
        assert CLOCK < first <= CLOCK + TRY and 5_000_000 < second <= 5_000_000 + TRY
        if action in ("set_value", "delete_value") and not isinstance(result, dict):
            assert (result.attempts, result.repeated, result.changed) == (1, Repeated.NO, True)
        await call(client)
        assert 5_000_000 < bys(node, action)[2] <= 5_000_000 + TRY, "that is known further on"


@pytest.mark.parametrize("clock", [0, 1_000, CLOCK - 1, CLOCK, *ODD, "missing"])
async def test_a_clock_that_is_behind_or_none_is_not_taken(clock, stopped):
    told = too_late(clock)
    if clock == "missing":
        del told["clock"]
    answers = iter([told])
    async with scene(node := node_of(script=lambda request: next(answers, WRITTEN))) as client:
        assert (await client.put("a", 1)).attempts == 2
        assert all(CLOCK < by <= CLOCK + TRY for by in bys(node)) and len(bys(node)) == 2


async def test_a_node_that_told_no_clock_is_sent_no_time_afterwards_either():
    answers = iter([too_late(5_000_000)])
    node = node_of(script=lambda request: next(answers, WRITTEN), clock=None)
    async with scene(node) as client:
        assert (await client.put("a", 1)).attempts == 2
        assert bys(node) == [None, None]


async def test_what_came_too_late_was_not_done():
    """Also where that is all that the nodes say; and another node is asked first."""
    one, two = node_of("s1", lambda request: too_late(5)), node_of("s2", lambda request: too_late(5))
    config = replace(CONFIG, retry=replace(POLICY, attempts_max=4))
    async with scene(one, two, config=config) as client:
        for call in (client.put("a", 1, write_id=None), client.delete_tree("a"), client.send("a", 1)):
            with pytest.raises(UnavailableError, match="it came too late") as caught:
                await call
            assert caught.value.fate is Fate.NOT_DONE and caught.value.attempts == 4
            assert caught.value.cause.code == "too_late"
        assert [len(bys(node)) for node in (one, two)] == [2, 2]


async def test_an_operation_of_a_batch_that_came_too_late_is_tried_again():
    answers = iter([{"results": [WRITTEN, too_late(5_000_000)]}])
    node = node_of(script=lambda request: next(answers, {"results": [WRITTEN, WRITTEN]}))
    async with scene(node) as client:
        results = await client.batch().put("a", 1).put("b", 1).run()
        assert [result.changed for result in results] == [True, True] and len(bys(node, "batch")) == 2


async def test_nodes_that_run_take_what_is_sent(client: Client, base):
    """Those of this version tell their clock; others are sent none."""
    for number in range(3):
        await client.put(base, number, copies=2)
    assert await client.batch().put(base / "a", 1).get(base).run()
    await client.delete(base)
    assert await client.delete_tree(base) == 1
