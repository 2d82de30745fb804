"""Conflicts, which are ours: as bytes, with the real client, and that whoever does not ask for
them sees nothing of them. And check_deleted, which the original's servers ask of each other."""

import time

import msgpack_raw as mp
import pytest
import raw
from conftest import clients
from moat.util import P

KEYS = 100


@pytest.fixture
def two(keeping_network):
    """Two nodes of one network."""
    return [keeping_network.add("--init", "null"), keeping_network.add()]


def meet(network, nodes, top="both"):
    """Writes to the same paths at both nodes at once, until both have found a conflict."""
    connections = [node.raw() for node in nodes]
    deadline = time.monotonic() + raw.PATIENCE
    try:
        while True:
            seqs = []
            for key in range(KEYS):
                for i, conn in enumerate(connections):
                    path = mp.path(top, key)
                    seqs.append((conn, conn.start("set_value", path=path, value=f"n{i + 1}")))
            for conn, seq in seqs:
                assert "error" not in conn.reply(seq)
            network.settle()
            counts = [conn.ok("get_state", conflicts=True)["conflicts"] for conn in connections]
            if all(count["found"] for count in counts):
                return counts
            assert time.monotonic() < deadline
    finally:
        for conn in connections:
            conn.sock.close()


def test_conflicts_are_listed_with_both_versions(keeping_network, two):
    counts = meet(keeping_network, two)
    for node, count in zip(two, counts):
        with node.raw() as conn:
            told = conn.stream("conflicts", path=mp.path("both"))
            numbers = [msg["conflict"]["number"] for msg in told]
            assert numbers == list(range(count["found"] - count["kept"] + 1, count["found"] + 1))
            assert told[0].order == ["conflict", "path", "depth", "seq", "tock"]
            order = [key for key, _ in mp.fields(told[0].field("conflict"))]
            assert order == ["number", "changed", "winner", "loser"]
            for msg in told:
                winner, loser = msg["conflict"]["winner"], msg["conflict"]["loser"]
                assert {winner["value"], loser["value"]} <= {"n1", "n2"}
                assert (winner["tock"], winner["chain"]["node"]) > (
                    loser["tock"],
                    loser["chain"]["node"],
                )
                # Nobody else writes, so what the node had was its own.
                assert msg["conflict"]["changed"] == (loser["chain"]["node"] == node.life())
            last = conn.stream("conflicts", path=mp.path("both"), since=numbers[-1] - 1, nchain=0)
            assert [msg["conflict"]["number"] for msg in last] == numbers[-1:]
            assert "chain" not in last[0]["conflict"]["winner"]
            assert conn.stream("conflicts", path=mp.path("elsewhere")) == []
            assert len(conn.stream("conflicts", limit=1)) == 1


def test_a_watch_tells_of_conflicts_only_if_it_is_asked_to(keeping_network, two):
    with two[0].raw() as conn:
        plain = conn.start("watch", path=mp.path("both"), nchain=1)
        asking = conn.start("watch", path=mp.path("both"), nchain=1, conflicts=True)
        only = conn.start("watch", path=mp.path("both"), nchain=1, conflicts="only")
        for seq in (plain, asking, only):
            assert conn.reply(seq)["state"] == "start"
        (count, _) = meet(keeping_network, two)
        conn.ok("set_value", path=mp.path("both", "end"), value="end")
        numbers = {plain: [], asking: []}
        for seq, found in numbers.items():
            msg = conn.reply(seq)
            while msg.get("value") != "end":
                if "conflict" in msg:
                    assert "value" not in msg and "chain" not in msg
                    found.append(msg["conflict"]["number"])
                else:
                    assert msg["value"] in ("n1", "n2")
                msg = conn.reply(seq)
        every = list(range(1, count["found"] + 1))
        assert numbers == {plain: [], asking: every}
        assert [conn.reply(only)["conflict"]["number"] for _ in every] == every
        conn.silence(only)


async def test_the_real_client_sees_what_it_asks_for(keeping_network, two):
    async with clients(two[0]) as client:
        async with client.watch(P("both"), fetch=True) as plain:
            assert (await plain.recv()).state == "uptodate"
            async with client.watch(P("both"), conflicts="only") as asking:
                (count, _) = meet(keeping_network, two)
                for number in range(1, count["found"] + 1):
                    msg = await asking.recv()
                    assert msg.conflict.number == number
                    assert "value" not in msg and msg.path[:-1] == P("both")
            told = []
            async with client._stream("conflicts", path=P("both")) as stream:
                async for msg in stream:
                    told.append(msg.conflict.number)
            assert told == list(range(1, count["found"] + 1))
            for _ in range(KEYS):
                assert (await plain.recv()).value in ("n1", "n2")


def test_get_state_has_conflicts_only_if_they_are_asked_for(connection):
    everything = {"nodes", "known", "superseded", "deleted", "missing", "remote_missing"}
    everything |= {"present", "node_drop"}
    msg = connection.ok("get_state", **{name: True for name in everything})
    assert "conflicts" not in msg
    msg = connection.ok("get_state", conflicts=True)
    assert msg.order == ["conflicts", "node", "tock", "seq"]


@pytest.mark.parametrize("wrong", [{"since": "x"}, {"limit": ()}, {"path": 5}, {"nchain": "x"}])
def test_wrong_fields_of_conflicts_are_errors(connection, wrong):
    assert connection.error("conflicts", **wrong)["code"] == "bad_request"


def test_a_watch_with_a_wrong_word_for_conflicts_is_an_error(connection, base):
    msg = connection.error("watch", path=mp.path(*base), conflicts="some")
    assert msg["code"] == "bad_request"


def test_check_deleted_tells_and_removes_nothing(fresh_node):
    with fresh_node.raw() as conn:
        for key in "abc":
            conn.ok("set_value", path=(key,), value=key)  # ticks 2 to 4, after the root's
        conn.ok("delete_value", path=("b",))  # 5
        n1 = conn.life()
        msg = conn.ok("check_deleted", nodes={n1: [(1, 5), 5, 7], "gone~7": [3]})
        assert msg.order == ["present", "known", "deleted", "missing", "seq", "tock"]
        assert msg["present"] == {n1: ((1, 3), (4, 6))}
        assert (msg["known"], msg["deleted"]) == ({n1: (3,)}, {n1: (5,)})
        assert msg["missing"] == {n1: (7,), "gone~7": (3,)}
        assert conn.ok("get_value", path=("a",))["value"] == "a"


async def test_the_real_clients_check_deleted_is_answered(node):
    """As the original's server asks it of another one."""
    async with clients(node) as client:
        request = client._request  # pylint: disable=protected-access
        msg = await request("check_deleted", iter=False, nchain=-1, nodes={"x~5": [[1, 4], 9]})
        assert msg.missing == {"x~5": ((1, 4), 9)}
