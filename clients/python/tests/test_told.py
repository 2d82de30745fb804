"""What errors say: of one node, what was done there, and what can be done about it."""

from dataclasses import replace

import pytest
from scripted import RESET, SILENCE, ScriptedNode, error
from test_rules import CONFIG, POLICY, SILENT, preferred_path, scene

from distkv_client import Fate, FateUnknownError, RefusedError, UnavailableError

SOME = replace(CONFIG, retry=replace(POLICY, attempts_max=3))


@pytest.mark.parametrize("answer", [SILENCE, RESET], ids=["silent", "broken off"])
async def test_a_try_that_was_sent_is_not_told_as_one_that_could_not_be(answer):
    """It is in doubt because of the first try; those that come after it reach nobody."""

    def script(request):
        if answer is RESET:
            one._server.close()
        return answer

    one, two = ScriptedNode("s1", script), ScriptedNode("s2")
    attempts = 2 if answer is SILENCE else 3
    async with scene(one, two, config=replace(SILENT, retry=replace(SILENT.retry, attempts_max=attempts))) as client:
        path = preferred_path(client, "s1")
        await two.stop()
        with pytest.raises(FateUnknownError) as caught:
            await client.put(path, 1)
        told = str(caught.value)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.attempts == attempts
        assert len(one.actions("set_value")) == 1
        assert "cannot connect" not in told and caught.value.node == "s1"
        assert ("no answer from s1 in time" in told) if answer is SILENCE else ("is lost" in told)
        assert type(caught.value.cause).__name__ == ("TimedOutError" if answer is SILENCE else "LostError")


async def test_what_a_node_has_told_last_is_told():
    answers = iter([RESET])
    async with scene(ScriptedNode("s1", lambda r: next(answers, error("not_ready", "not yet"))), config=SOME) as client:
        with pytest.raises(FateUnknownError, match="it may have been done: not yet") as caught:
            await client.put("a", 1)
        assert caught.value.code == "not_ready"


@pytest.mark.parametrize("code", ["data_mismatch", "denied", "read_by_nobody"])
@pytest.mark.parametrize(
    ("first", "fate", "told"),
    [
        (RESET, Fate.UNKNOWN, "may have been done"),
        (error("unknown_fate", "0 of 1 have it"), Fate.UNCONFIRMED, "done but not confirmed"),
        (None, Fate.NOT_DONE, ""),
    ],
    ids=["broken off", "not confirmed", "none"],
)
async def test_a_refusal_behind_a_try_that_may_have_been_made_promises_nothing_of_that_one(code, first, fate, told):
    answers = iter([first] if first else [])
    refusal = error(code, "Data is 2, not 0, at a; nothing was changed; try again")
    async with scene(ScriptedNode("s1", lambda r: next(answers, refusal)), config=SOME) as client:
        with pytest.raises(RefusedError) as caught:
            await client.put("a", 1, if_value=0)
        assert (caught.value.code, caught.value.fate) == (code, fate)
        words = "Data is 2, not 0, at a; nothing was changed; try again (at s1, 1 try)"
        if told:
            words = (
                "an earlier try may have done it; the last one was refused: Data is 2, not 0, at a; try again "
                f"(at s1, 2 tries, {told})"
            )
        assert str(caught.value) == words


@pytest.mark.parametrize("timeout", [0, 0.0, -1.5])
async def test_a_time_of_zero_is_told_as_that(timeout):
    async with scene(ScriptedNode("s1"), config=CONFIG) as client:
        for read in ("preferred", "any", "freshest"):
            with pytest.raises(UnavailableError) as caught:
                await client.get("a", read=read, timeout=timeout)
            assert str(caught.value) == f"there was no time to try it: the timeout is {timeout} s"
    async with scene(node := ScriptedNode("s1"), config=CONFIG) as client:
        before = len(node.requests)
        for call in (
            client.tree("a", timeout=timeout)._collect(),
            listed(client.tree("a", timeout=timeout)),
            client.put("a", 1, timeout=timeout),
            client.batch().get("a").run(timeout=timeout),
            client.request("enum", path="a", timeout=timeout),
        ):
            with pytest.raises(UnavailableError) as caught:
                await call
            assert str(caught.value) == f"there was no time to try it: the timeout is {timeout} s"
        assert {request["action"] for request in node.requests[before:]} <= {"watch_cluster", "list_shards"}


async def listed(things):
    return [thing async for thing in things]
