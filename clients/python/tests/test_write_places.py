"""The ids of a client's writes say their order, and for which the client still waits."""

import asyncio
import random

import pytest
from conftest import until
from scripted import SILENCE, WRITTEN, ScriptedNode
from test_rules import scene

from distkv_client import FateUnknownError
from distkv_client.write_places import WritePlaces


def place(wid):
    """Client, number, and which writes are settled: all of a lesser number."""
    assert len(wid) == 16 and wid[:2] == b"\xd1\x5c", wid
    number, span = int.from_bytes(wid[9:13], "big"), int.from_bytes(wid[13:], "big")
    return wid[2:9], number, number - span


def test_writes_one_after_the_other_settle_all_before_them():
    places = WritePlaces()
    seen = []
    for _ in range(10):
        with places.begin() as turn:
            seen.append(place(turn.id()))
    assert [rest for _, *rest in seen] == [[number, number] for number in range(10)]
    assert len({client for client, *_ in seen}) == 1
    with WritePlaces().begin() as turn:
        assert place(turn.id())[0] != seen[0][0]


def test_nothing_is_settled_that_is_waited_for_and_all_is_in_the_end():
    places, chance, turns = WritePlaces(), random.Random(1), []
    for _ in range(5_000):
        if chance.random() < 0.5 and len(turns) < 20:
            writes = chance.randrange(4)
            turn = places.begin(writes).__enter__()
            turns.append((turn, [place(turn.id()) for _ in range(writes)]))
        elif turns:
            turns.pop(chance.randrange(len(turns)))[0].__exit__()
        waited = [number for _, ids in turns for _, number, _ in ids]
        with places.begin() as turn:
            _, number, settled = place(turn.id())
        assert settled <= min(waited, default=number)
    for turn, _ in turns:
        turn.__exit__()
    with places.begin() as turn:
        _, number, settled = place(turn.id())
    assert settled == number


def test_numbers_that_are_used_up_begin_anew_as_another_client():
    places = WritePlaces()
    places._next = (1 << 32) - 1
    with places.begin() as last, places.begin() as first:
        before, after = place(last.id()), place(first.id())
        assert before[1] == (1 << 32) - 1 and after[1:] == (0, 0) and before[0] != after[0]
    with places.begin() as turn:
        assert place(turn.id())[1:] == (1, 1)


def test_numbers_that_are_far_apart_settle_nothing():
    places = WritePlaces()
    with places.begin():
        places._next += 1 << 24
        with places.begin() as turn:
            assert turn.id()[13:] == b"\xff\xff\xff"


async def test_a_call_that_has_ended_however_it_ended_is_not_waited_for(jump):
    node = ScriptedNode("s1", lambda request: SILENCE)
    async with scene(node) as client:

        def placed(action):
            return [place(request["wid"]) for request in node.actions(action)]

        for call, action in [(client.put("a", 1), "set_value"), (client.delete("a"), "delete_value")]:
            task = asyncio.create_task(call)
            await until(lambda action=action: placed(action))
            task.cancel()
            await asyncio.wait({task})
        batch = client.batch().put("a", 3).get("b").put("b", 4)
        for call, action in [(client.put("a", 2, timeout=30), "set_value"), (batch.run(timeout=30), "batch")]:
            count = len(node.actions(action))
            task = asyncio.create_task(call)
            await until(lambda action=action, count=count: len(node.actions(action)) > count)
            jump(31)
            with pytest.raises(FateUnknownError):
                await task
        node.script = lambda request: WRITTEN
        await client.put("a", 5)
        _, number, settled = placed("set_value")[-1]
        assert (number, settled) == (6, 6)
        one, _, two = node.actions("batch")[0]["ops"]
        assert [place(op["wid"])[1:] for op in (one, two)] == [(3, 3), (4, 3)]
