"""A node that refuses a change in its middle says that it has made a part of it: that is not "not done"."""

import pytest
from scripted import ScriptedNode, error
from test_rules import FINAL, pair, preferred_path, scene

from distkv_client import DeniedError, Fate, FateUnknownError, RefusedError


def in_part(code):
    return error(code, "you may not delete: 3 of 8 entries are deleted") | {"made": True}


@pytest.mark.parametrize("code", [*FINAL, "from_the_future", None])
@pytest.mark.parametrize("again", [False, True])
async def test_a_tree_that_is_deleted_in_part_and_then_refused_may_have_been_deleted(code, again):
    one, two = pair(lambda request: in_part(code))
    async with scene(one, two) as client:
        with pytest.raises(RefusedError, match="3 of 8 entries") as caught:
            await client.delete_tree(preferred_path(client, "s1"), again_if_unknown=again)
        assert caught.value.fate is Fate.UNKNOWN and "may have been done" in str(caught.value)
        assert caught.value.code == code and isinstance(caught.value, DeniedError) is (code in DENIED)
        assert caught.value.attempts == len(one.actions("delete_tree")) == 1
        assert not two.actions("delete_tree"), "the answer would be the same there"


DENIED = ("denied", "auth_required", "auth_failed")


@pytest.mark.parametrize("code", ["not_ready", "read_only", "no_event", "storage_failed", "too_many", "too_slow"])
async def test_a_tree_that_is_deleted_in_part_is_deleted_further_only_by_who_says_so(code):
    one, two = pair(lambda request: in_part(code), lambda request: {"changed": 5})
    async with scene(one, two) as client:
        path = preferred_path(client, "s1")
        with pytest.raises(FateUnknownError, match="3 of 8 entries") as caught:
            await client.delete_tree(path)
        assert caught.value.fate is Fate.UNKNOWN and caught.value.code == code and caught.value.attempts == 1
        assert not two.actions("delete_tree")
        assert await client.delete_tree(path, again_if_unknown=True) == 5


async def test_what_is_refused_and_nothing_is_made_of_is_not_done():
    async with scene(ScriptedNode("s1", lambda request: error("denied") | {"made": False})) as client:
        with pytest.raises(DeniedError) as caught:
            await client.delete_tree("a")
        assert caught.value.fate is Fate.NOT_DONE and "may have" not in str(caught.value)


async def test_any_other_change_of_which_a_part_is_made_and_no_read_is_in_doubt():
    async with scene(ScriptedNode("s1", lambda request: in_part("denied"))) as client:
        for call in (client.put("a", 1), client.request("delete_tree", path="a"), client.delete("a")):
            with pytest.raises(DeniedError) as caught:
                await call
            assert caught.value.fate is Fate.UNKNOWN
        with pytest.raises(DeniedError) as caught:
            await client.get("a")
        assert caught.value.fate is Fate.NOT_DONE, "it changes nothing"


async def test_an_operation_of_a_batch_that_is_made_in_part_is_in_doubt():
    results = [in_part("denied"), error("denied")]
    async with scene(ScriptedNode("s1", lambda request: {"results": results})) as client:
        first, second = await client.batch().put("a", 1).put("b", 1)
        assert (first.fate, second.fate) == (Fate.UNKNOWN, Fate.NOT_DONE)
