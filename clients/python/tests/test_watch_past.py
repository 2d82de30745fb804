"""What a node answers to a question is ahead of what still waits in its stream: a watch tells nothing twice, and no
past. The node is played: it says everything at once, and the watch reads at its own pace; nothing depends on time."""

import asyncio
from collections import deque
from dataclasses import replace

import pytest
from scripted import SILENCE, ScriptedNode
from test_rules import CONFIG, scene

from distkv_client import Change, Path, Restarted, Resumed, UpToDate, Version
from distkv_client.codec import encode
from distkv_client.memory import Look, Memory
from distkv_client.model import Entry

X = Path("x")


def entry(value, tock, node="a~1"):
    return Entry(value, value is None, Version(tock, node, tock), "told", tock)


# -- the memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_resuming", [False, True])
def test_what_is_older_is_the_streams_past_where_the_node_has_what_was_delivered(is_resuming):
    def look(memory, value, tock):
        return memory.look(X, entry(value, tock), is_resuming)

    memory = Memory(10, 10_000)
    memory.on_delivered(X, entry(1, 5))
    assert look(memory, 1, 3) is Look.KNOWN, "it came in this stream"
    memory.begin_feed()
    assert look(memory, 1, 3) is Look.OLDER, "another node has told the newer one"
    assert look(memory, 1, 5) is Look.KNOWN
    assert look(memory, 1, 3) is Look.KNOWN, "this one has shown it, too"
    memory.begin_feed()
    assert look(memory, 1, 3) is Look.OLDER
    memory.on_same(X)
    assert look(memory, 1, 3) is Look.KNOWN, "it has said so"
    memory.begin_feed()
    assert look(memory, 1, 4) is Look.OLDER
    memory.on_delivered(X, entry(2, 9), by_answer=True)
    assert look(memory, 1, 7) is look(memory, 2, 9) is Look.KNOWN
    assert look(memory, None, 10) is Look.NEW


def test_what_comes_behind_the_answer_that_nothing_is_there_may_be_the_past():
    memory = Memory(10, 10_000)
    memory.on_delivered(X, entry(1, 5))
    memory.begin_feed()
    assert memory.on_gone(X, Version(5, "a~1", 5), 20)
    assert list(memory.not_seen()) == []
    assert memory.look(X, entry(0, 4), False) is memory.look(X, entry(1, 5), False) is Look.KNOWN
    assert memory.look(X, entry(2, 6), False) is Look.DOUBTFUL
    assert not memory.on_gone(X, Version(6, "a~1", 6), 22), "its deletion was told"
    assert memory.look(X, entry(2, 6), False) is Look.KNOWN
    assert memory.look(X, entry(3, 21), False) is Look.DOUBTFUL, "the newer answer counts"
    assert memory.look(X, entry(None, 21), False) is Look.KNOWN
    assert memory.look(X, entry(2, 7), False) is Look.KNOWN
    assert memory.look(X, entry(3, 22), False) is Look.DOUBTFUL
    assert memory.look(X, entry(3, 23), False) is Look.NEW
    memory.begin_feed()
    assert memory.look(X, entry(2, 20), False) is Look.OLDER, "which version the deletion is, is known since"
    assert memory.look(X, entry(None, 21), False) is Look.KNOWN


def test_such_an_answer_says_nothing_of_what_another_node_sends():
    memory = Memory(10, 10_000)
    memory.on_delivered(X, entry(1, 5))
    memory.begin_feed()
    memory.on_gone(X, Version(5, "a~1", 5), 20)
    memory.begin_feed()
    assert memory.look(X, entry(2, 6), True) is memory.look(X, entry(2, 6), False) is Look.NEW


def test_such_answers_are_forgotten_as_deletions_are():
    memory = Memory(3, 10_000)
    memory.on_delivered(X, entry(1, 5))
    memory.begin_feed()
    memory.on_gone(X, Version(5, "a~1", 5), 20)
    for number in range(3):
        memory.on_delivered(Path(number), entry(None, 30 + number))
    assert memory.version(X) is None and memory.is_whole
    assert memory.look(X, entry(1, 20), True) is memory.look(X, entry(1, 20), False) is Look.DOUBTFUL
    assert memory.look(X, entry(1, 21), True) is memory.look(X, entry(1, 21), False) is Look.NEW


def test_a_forgotten_deletion_leaves_doubt_of_live_changes_where_the_stream_has_not_brought_it():
    memory = Memory(2, 10_000)
    for number in range(5):
        memory.on_delivered(Path(number), entry(None, 10 + number))
    assert memory.look(X, entry(1, 10), False) is Look.NEW, "all came in this stream: nothing older comes behind them"
    assert memory.look(X, entry(1, 10), True) is Look.DOUBTFUL
    memory.begin_feed()
    assert memory.look(X, entry(1, 12), False) is Look.DOUBTFUL
    assert memory.look(X, entry(None, 12), False) is Look.NEW
    assert memory.look(X, entry(1, 13), False) is Look.NEW
    for number in range(5):
        memory.on_delivered(Path(number), entry(None, 40 + number))
    assert memory.look(X, entry(1, 15), False) is Look.NEW, "of those of this stream, it knows nothing to doubt"
    for number in range(5):
        memory.on_delivered(Path(number), entry(None, 60 + number), by_answer=True)
    assert memory.look(X, entry(1, 62), False) is Look.DOUBTFUL
    memory.clear()
    assert memory.look(X, entry(1, 1), False) is memory.look(X, entry(1, 1), True) is Look.NEW


# -- a watch at a node that is played ------------------------------------------------------------


def version(value, tock):
    """What a node says of a version; None: it was deleted."""
    told = {"tock": tock, "chain": {"node": "a~1", "tick": tock, "prev": None}}
    return told if value is None else {**told, "value": value}


def gone(tock):
    """What it answers where nothing is any more: its own tock."""
    return {"tock": tock, "chain": None}


def at(name, value, tock):
    return {**version(value, tock), "path": [name], "depth": 0}


LOST = {"state": "end"}


def played(feeds, answers):
    """A node whose watches are these feeds, one after the other: the state, and what comes behind it."""
    feeds, answers = deque(feeds), deque(answers)

    def script(request):
        if request["action"] == "check_deleted":
            return {"missing": {}}
        if request["action"] == "get_value":
            return answers.popleft()
        if request["action"] != "watch" or not feeds:
            return SILENCE
        state, behind = feeds.popleft()
        parts = [{"state": "start"}, *state, {"state": "uptodate"}, *behind]
        return b"".join(encode({**part, "seq": request["seq"], "wseq": at + 1}) for at, part in enumerate(parts))

    return ScriptedNode("s1", script), answers


async def told_until(watch, last):
    """What a watch tells, up to the one with this tock: words, and (name, value, tock) of changes."""
    told = []
    while not told or told[-1][-1] != last:
        event = await asyncio.wait_for(watch.next(), 30)
        told.append(
            (event.path[-1], None if event.deleted else event.value, event.tock)
            if isinstance(event, Change)
            else type(event).__name__
        )
    return told


UP, RESUMED, RESTARTED = UpToDate.__name__, Resumed.__name__, Restarted.__name__

CASES = {
    "what an answer has told comes again in the stream, older ones first": (
        [([], [at("x", 1, 1), LOST]), ([], [at("x", 2, 5), at("x", 3, 6), at("x", None, 7), at("x", 5, 20)])],
        [version(3, 6), gone(15)],
        [UP, ("x", 1, 1), ("x", 3, 6), RESUMED, ("x", None, 7), ("x", 5, 20)],
        1,
    ),
    "it was gone when the node was asked, and its past comes": (
        [
            ([], [at("x", 1, 1), LOST]),
            ([], [at("x", 1, 1), at("x", 2, 5), at("x", 3, 6), at("x", None, 7), at("x", 5, 20)]),
        ],
        [gone(15), gone(16), gone(17)],
        [UP, ("x", 1, 1), ("x", None, 15), RESUMED, ("x", 5, 20)],
        0,
    ),
    "it was made again by a node whose clock is behind": (
        [([], [at("x", 1, 1), LOST]), ([], [at("x", 2, 5), at("x", 3, 6), at("x", 4, 8), at("y", 1, 20)])],
        [gone(15), version(3, 6), version(4, 8)],
        [UP, ("x", 1, 1), ("x", None, 15), RESUMED, ("x", 3, 6), ("x", 4, 8), ("y", 1, 20)],
        1,
    ),
    "it was made again, and is as it has come": (
        [([], [at("x", 1, 1), LOST]), ([], [at("x", 2, 5), at("y", 1, 20)])],
        [gone(15), version(2, 5)],
        [UP, ("x", 1, 1), ("x", None, 15), RESUMED, ("x", 2, 5), ("y", 1, 20)],
        0,
    ),
    "it was made and deleted once more": (
        [([], [at("x", 1, 1), LOST]), ([], [at("x", 2, 5), at("x", None, 8), at("y", 1, 20)])],
        [gone(15), version(None, 8)],
        [UP, ("x", 1, 1), ("x", None, 15), RESUMED, ("y", 1, 20)],
        0,
    ),
    "a deletion that was told is purged at the next node": (
        [([], [at("x", 1, 1), at("x", None, 5), LOST]), ([], [at("x", 1, 1), at("y", 1, 20)])],
        [gone(15)],
        [UP, ("x", 1, 1), ("x", None, 5), RESUMED, ("y", 1, 20)],
        0,
    ),
    "the next node shows a path older, twice": (
        [([], [at("x", 3, 6), LOST]), ([at("x", 1, 1), at("x", 2, 5)], [at("y", 1, 20)])],
        [version(4, 7), version(4, 7)],
        [UP, ("x", 3, 6), ("x", 4, 7), RESUMED, ("y", 1, 20)],
        1,
    ),
}


@pytest.mark.parametrize(("feeds", "answers", "expected", "unasked"), CASES.values(), ids=CASES)
async def test_nothing_is_told_twice_and_no_past_behind_an_answer(feeds, answers, expected, unasked):
    one, left = played(feeds, answers)
    async with scene(one) as client, client.watch("q") as watch:
        assert await told_until(watch, 20) == expected
        assert len(left) == unasked, "no question is asked that need not be"


async def test_a_live_change_that_may_be_older_than_a_forgotten_deletion_is_asked_about():
    deleted = [at(name, None, tock) for tock, name in enumerate("xabc", 9)]
    feeds = [
        ([at("x", 1, 1)], [*deleted, at("x", 2, 20), at("x", None, 21), *deleted, LOST]),
        ([], [at("x", 1, 1), at("y", 2, 8), at("z", 1, 30)]),
    ]
    one, left = played(feeds, [gone(15), version(2, 8)])
    async with scene(one, config=replace(CONFIG, watch_paths_max=2)) as client, client.watch("q") as watch:
        told = await told_until(watch, 30)
        assert told[:2] == [("x", 1, 1), UP]
        assert told[told.index(RESUMED) :] == [RESUMED, ("y", 2, 8), ("z", 1, 30)]
        assert RESTARTED not in told and not left
