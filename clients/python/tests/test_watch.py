"""Watches: order, no gap and no repetition across deaths of nodes, cancelling, bounds."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from conftest import LASTING, all_live, assert_nothing_left, until

from distkv_client import Change, Client, ClosedError, Restarted, Resumed, UpToDate


async def collect(watch, until_event):
    """Events up to one for which this holds, that one included."""
    events = []
    async with asyncio.timeout(60):
        while not (events and until_event(events[-1])):
            events.append(await watch.next())
    return events


def assert_in_order(changes):
    """In order, and no version twice. A value may be: a write without an answer was made again elsewhere."""
    versions, values = [change.version for change in changes], [change.value for change in changes]
    assert all(one < two for one, two in pairwise(versions)) and values == sorted(values), changes


async def test_the_state_comes_first_then_changes(client, base):
    await client.put(base / "a", 1)
    async with client.watch(base) as watch:
        assert await collect(watch, lambda e: e == UpToDate()) == [
            Change(
                base / "a",
                1,
                False,
                (await client.entry(base / "a")).version,
                (await client.entry(base / "a")).tock,
            ),
            UpToDate(),
        ]
        await client.put(base / "b", None)
        await client.delete(base / "a")
        stored, gone = await watch.next(), await watch.next()
    assert (stored.path, stored.value, stored.deleted) == (base / "b", None, False)
    assert (gone.path, gone.value, gone.deleted) == (base / "a", None, True)
    match gone:
        case Change(path, None):
            assert path == base / "a"
        case _:
            pytest.fail("a change matches by path and value")


async def test_without_fetch_only_changes_come(client, base):
    await client.put(base / "a", 1)
    async with client.watch(base, fetch=False) as watch:
        assert await watch.next() == UpToDate()
        await client.put(base / "b", 2)
        assert (await watch.next()).path == base / "b"


async def test_a_wait_that_is_cancelled_again_and_again_misses_nothing(client, base):
    seen = []
    async with client.watch(base) as watch:

        async def write():
            for number in range(100):
                await client.put(base / "n", number)

        writing = asyncio.create_task(write())
        while 99 not in seen:
            try:
                async with asyncio.timeout(0.0005):
                    event = await watch.next()
            except TimeoutError:
                continue
            if isinstance(event, Change):
                seen.append(event.value)
        await writing
    assert seen == list(range(100))


async def test_a_watch_goes_on_when_its_node_is_killed_under_writes(cluster):
    async with Client.connect(*cluster.seeds, config=LASTING) as client:
        await all_live(client, 3)
        writes, stop = 0, False

        async def write(name):
            nonlocal writes
            number = 0
            while not stop:
                number += 1
                await client.put(("w", name), number, copies=1)
                writes += 1
            return number

        seen: dict[str, list[Change]] = {}
        async with client.watch("w") as watch:
            writers = [asyncio.create_task(write(f"k{i}")) for i in range(4)]
            events = []
            for _ in range(50):
                events.append(await watch.next())
            victim = cluster.by_name(watch.node)
            victim.kill()
            events += await collect(watch, lambda e: isinstance(e, (Resumed, Restarted)))
            for _ in range(50):
                events.append(await watch.next())
            stop = True
            last = dict(zip(("k0", "k1", "k2", "k3"), await asyncio.gather(*writers), strict=True))
            for event in events:
                if isinstance(event, Change):
                    seen.setdefault(event.path[1], []).append(event)
            while any(name not in seen or seen[name][-1].value != number for name, number in last.items()):
                event = await asyncio.wait_for(watch.next(), 30)
                if isinstance(event, Change):
                    seen.setdefault(event.path[1], []).append(event)
        assert any(isinstance(event, Resumed) for event in events), "it went on where it was"
        assert not any(isinstance(event, Restarted) for event in events)
        for changes in seen.values():
            assert_in_order(changes)
        stats = client.stats().watches
        assert stats.lost >= 1 and stats.resumed >= 1 and stats.restarted == 0
    assert_nothing_left()


async def test_what_was_deleted_meanwhile_is_told(cluster):
    async with (
        Client.connect(*cluster.seeds, config=LASTING) as client,
        Client.connect(*cluster.seeds, config=LASTING) as other,
    ):
        await all_live(client, 3)
        for name in "abc":
            await client.put(("d", name), 1, copies=2)
        async with client.watch("d") as watch:
            await collect(watch, lambda e: e == UpToDate())
            victim = cluster.by_name(watch.node)
            victim.freeze()
            try:
                # The watch hears nothing of it at its node, and goes on at either of the others, which both have it.
                await other.delete(("d", "b"), copies=1)
                await other.put(("d", "c"), 2, copies=1)
            finally:
                victim.kill()
            events = await collect(watch, lambda e: isinstance(e, Resumed))
        changes = {str(e.path): (e.value, e.deleted) for e in events if isinstance(e, Change)}
        assert changes == {"d.b": (None, True), "d.c": (2, False)}


async def test_a_watch_that_remembers_too_little_starts_over_and_says_so(cluster):
    config = replace(LASTING, watch_paths_max=2)
    async with Client.connect(*cluster.seeds, config=config) as client:
        await all_live(client, 3)
        for name in "abcd":
            await client.put(("m", name), 1, copies=2)
        async with client.watch("m") as watch:
            await collect(watch, lambda e: e == UpToDate())
            cluster.by_name(watch.node).kill()
            events = await collect(watch, lambda e: e == UpToDate())
        assert isinstance(events[0], Restarted)
        assert [str(e.path) for e in events if isinstance(e, Change)] == ["m.a", "m.b", "m.c", "m.d"]


async def test_an_unread_watch_is_bounded_and_stops_nobody(client, base):
    async with client.watch(base) as watch:
        await watch.next()
        for number in range(2000):
            await client.put(base / "n", number)
        stream = watch._opened.stream
        assert stream.queued <= (stream._window or 64) + 8
        assert await client.get(base / "n") == 1999
        changes = []
        while not changes or changes[-1].value != 1999:
            event = await asyncio.wait_for(watch.next(), 30)
            if isinstance(event, Change):
                changes.append(event)
        assert_in_order(changes)


async def test_a_watch_left_by_break_is_stopped_at_the_node(client, base):
    await client.put(base, 1)
    before = client.stats().pool.open_requests
    async for event in client.watch(base):
        assert isinstance(event, Change)
        break
    await until(lambda: client.stats().pool.open_requests == before)


async def test_a_watch_ends_with_its_client(shared, base):
    client = await Client.connect(*shared.seeds)
    watch = client.watch(base)
    await watch.begin()
    assert await watch.next() == UpToDate()
    waiting = asyncio.create_task(watch.next())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await client.get(base)
    assert_nothing_left()
