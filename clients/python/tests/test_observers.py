"""What an observer is told of calls that ask several nodes."""

import asyncio
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode, error
from test_rules import CONFIG, scene

from distkv_client import ErrorClass, Fate, NoMajorityError, UnavailableError
from distkv_client.codec import encode


class Observer:
    """Keeps what it is told of some actions."""

    def __init__(self):
        self.events = []

    def call_begins(self, action):
        self.events.append(("begin", action))
        return action

    def try_begins(self, token, node, attempt):
        self.events.append(("try", node, attempt))

    def try_failed(self, token, node, attempt, kind, text):
        self.events.append(("failed", node, attempt))

    def call_ends(self, token, end):
        self.events.append(("end", token, end.attempts, end.error and type(end.error)))


def conflicts(request):
    parts = ({"state": "start", "wseq": 1}, {"state": "end"})
    return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)


def refuses(request):
    return error("not_ready")


async def told(observer, client, call):
    """What it is told of a call, once the client itself has nothing to ask."""
    await until(lambda: ("end", "list_shards", 1, None) in observer.events)
    observer.events.clear()
    try:
        await call(client)
    except (NoMajorityError, UnavailableError):
        pass
    return observer.events


async def one_by_one(client):
    assert [conflict async for conflict in client.conflicts()] == []


async def as_a_list(client):
    await client.conflicts()


@pytest.mark.parametrize("ask", [as_a_list, one_by_one])
async def test_an_observer_is_told_of_conflicts(ask):
    observer = Observer()
    async with scene(
        ScriptedNode("s1", conflicts), ScriptedNode("s2", refuses), config=replace(CONFIG, observer=observer)
    ) as client:
        events = await told(observer, client, ask)
        assert events[0] == ("begin", "conflicts") and events[-1] == ("end", "conflicts", 1, None)
        assert sorted(events[1:-1]) == [("failed", "s2", 1), ("try", "s1", 1), ("try", "s2", 1)]
    async with scene(ScriptedNode("s1", refuses), config=replace(CONFIG, observer=(observer := Observer()))) as client:
        events = await told(observer, client, ask)
        assert events[-1] == ("end", "conflicts", 1, UnavailableError)


async def test_an_observer_is_told_of_each_node_that_a_read_of_a_majority_asks():
    observer = Observer()
    answers = iter([error("not_ready"), {"value": 1, "tock": 1}])
    one = ScriptedNode("s1", lambda request: next(answers))
    async with scene(one, config=replace(CONFIG, observer=observer)) as client:
        events = await told(observer, client, lambda client: client.get("a", read="freshest"))
        assert events == [
            ("begin", "get_value"),
            ("try", "s1", 1),
            ("failed", "s1", 1),
            ("try", "s1", 2),
            ("end", "get_value", 2, None),
        ]
    policy = replace(CONFIG.retry, attempts_max=2)
    observer = Observer()
    async with scene(ScriptedNode("s1", refuses), config=replace(CONFIG, observer=observer, retry=policy)) as client:
        events = await told(observer, client, lambda client: client.get("a", read="freshest"))
        assert events[-1] == ("end", "get_value", 2, NoMajorityError)


class Ends(Observer):
    """Keeps how calls about entries ended."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def try_failed(self, token, node, attempt, kind: ErrorClass, text):
        assert isinstance(kind, ErrorClass)

    def call_ends(self, token, end):
        if end.action not in ("list_shards",):
            self.ends.append((end.action, end.fate, end.error and type(end.error)))


async def test_a_call_that_succeeds_has_no_fate():
    observer = Ends()
    async with scene(ScriptedNode("s1", lambda request: WRITTEN), config=replace(CONFIG, observer=observer)) as client:
        await client.put("a", 1)
        await client.entry("a", read="freshest")
        assert observer.ends == [("set_value", None, None), ("get_value", None, None)]


@pytest.mark.parametrize(
    ("call", "fate"),
    [
        (lambda client: client.put("a", 1), Fate.UNKNOWN),
        (lambda client: client.get("a"), Fate.NOT_DONE),
        (lambda client: client.get("a", read="freshest"), Fate.NOT_DONE),
    ],
)
async def test_the_end_of_a_call_that_is_given_up_is_told(call, fate):
    observer = Ends()
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node, config=replace(CONFIG, observer=observer)) as client:
        task = asyncio.create_task(call(client))
        await until(lambda: node.actions("set_value") or node.actions("get_value"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ((_, told, kind),) = observer.ends
        assert told is fate and kind is asyncio.CancelledError


async def test_an_iteration_that_is_left_has_ended():
    observer = Ends()

    def one_conflict(request):
        side = {"chain": {"node": "x~7", "tick": 1, "prev": None}, "tock": 1, "value": 1}
        both = {"depth": 0, "path": ["a"], "conflict": {"winner": side, "loser": side}, "wseq": 2}
        parts = ({"state": "start", "wseq": 1}, both, {"state": "end"})
        return b"".join(encode({**part, "seq": request["seq"]}) for part in parts)

    async with scene(ScriptedNode("s1", one_conflict), config=replace(CONFIG, observer=observer)) as client:
        conflicts = aiter(client.conflicts())
        await anext(conflicts)
        await conflicts.aclose()
        assert observer.ends == [("conflicts", None, None)]
