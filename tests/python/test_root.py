"""root: a session moves to a part of the tree and stays there."""

import msgpack_raw as mp
import pytest
from raw import long_paths


@pytest.fixture
def moved(node, base):
    """A session at `base.rt.a`, and another at the real root."""
    with node.raw() as inside, node.raw() as outside:
        for path, value in ((("rt",), 0), (("rt", "a"), 1), (("rt", "a", "b"), 2), (("rt", "h"), 6)):
            outside.ok("set_value", path=mp.path(*base, *path), value=value)
        inside.hello = inside.ok("root", path=mp.path(*base, "rt", "a"))
        yield inside, outside


def test_root_answers_the_new_root(moved, base):
    inside, outside = moved
    reply = inside.hello
    assert reply.order == ["value", "chain", "tock", "path", "seq"]
    entry = outside.ok("get_value", path=mp.path(*base, "rt", "a"), nchain=-1)
    assert (reply["value"], reply["chain"], reply["tock"]) == (1, entry["chain"], entry["tock"])
    assert reply.field("path") == b"\x90"


def test_everything_counts_from_the_new_root(moved, base):
    inside, outside = moved
    assert inside.ok("get_value", path=())["value"] == 1
    assert inside.ok("get_value", path=mp.path("b"))["value"] == 2
    assert "value" not in inside.ok("get_value", path=mp.path(*base, "rt", "a"))
    assert inside.ok("set_value", path=("zz",), value=7)["changed"]
    assert outside.ok("get_value", path=mp.path(*base, "rt", "a", "zz"))["value"] == 7
    assert inside.ok("enum", path=())["result"] == ("b", "zz")
    assert inside.ok("delete_value", path=("zz",))["prev"] == 7
    assert "value" not in outside.ok("get_value", path=mp.path(*base, "rt", "a", "zz"))


def test_streams_work_below_the_new_root(moved, base):
    """The original fails here; it is one of the things that we do better."""
    inside, outside = moved
    messages = inside.stream("get_tree", path=())
    assert long_paths(messages) == [(), ("b",)]
    assert [m.field("path")[0] & 0xF0 for m in messages] == [0x90, 0x90]  # plain arrays
    watch = inside.start("watch", path=(), fetch=True)
    states = [inside.reply(watch) for _ in range(4)]
    assert [s.get("state", s.get("value")) for s in states] == ["start", 1, 2, "uptodate"]
    outside.ok("set_value", path=mp.path(*base, "rt", "a", "c"), value=3)
    outside.ok("set_value", path=mp.path(*base, "rt", "h"), value="not here")
    outside.ok("set_value", path=mp.path(*base, "rt", "a", "d"), value=4)
    changes = [inside.reply(watch), inside.reply(watch)]
    assert [(m["path"], m["value"]) for m in changes] == [(("c",), 3), (("d",), 4)]


def test_delete_tree_of_the_sessions_root_is_refused(moved, base):
    inside, outside = moved
    inside.error("delete_tree", path=())
    assert outside.ok("get_value", path=mp.path(*base, "rt", "a"))["value"] == 1


def test_root_moves_on_from_where_it_is(moved):
    inside, _ = moved
    assert inside.ok("root", path=("b",))["value"] == 2
    assert inside.ok("get_value", path=())["value"] == 2


def test_an_empty_path_stays_where_it_is(connection, moved):
    inside, _ = moved
    assert inside.ok("root", path=())["value"] == 1
    assert "chain" in connection.ok("root", path=())


def test_other_sessions_stay_at_the_real_root(moved, base):
    _, outside = moved
    assert outside.ok("get_value", path=mp.path(*base, "rt"))["value"] == 0


def test_a_read_by_event_tells_the_path_below_the_root(moved, base):
    inside, outside = moved
    chain = outside.ok("get_value", path=mp.path(*base, "rt", "a", "b"), nchain=1)["chain"]
    reply = inside.ok("get_value", node=chain["node"], tick=chain["tick"])
    assert (reply["value"], reply["path"]) == (2, ("b",))
