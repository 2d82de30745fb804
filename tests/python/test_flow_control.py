"""Flow control: a stream waits for acknowledgements if the client said qlen."""

import msgpack_raw as mp
import pytest
from conftest import clients


def _plant(connection, base, count):
    for i in range(count):
        connection.ok("set_value", path=mp.path(*base, i), value=i)


@pytest.mark.parametrize("qlen", [4, 5, 10])
def test_a_stream_pauses_one_short_of_qlen_and_goes_on_after_the_ack(node, base, qlen):
    with node.raw(qlen=qlen) as conn:
        _plant(conn, base, 40)
        seq = conn.start("get_tree", path=mp.path(*base))
        wseq = 0
        for _ in range(4):
            for _ in range(qlen - 1):
                wseq += 1
                assert conn.reply(seq)["wseq"] == wseq
            conn.silence(seq)
            conn.send(seq=seq, state="ack", ack=wseq)


def test_an_ack_opens_the_window_by_what_it_acknowledges(node, base):
    with node.raw(qlen=5) as conn:
        _plant(conn, base, 25)
        seq = conn.start("get_tree", path=mp.path(*base))
        for wseq in (1, 2, 3, 4):
            assert conn.reply(seq)["wseq"] == wseq
        conn.send(seq=seq, state="ack", ack=2)
        assert [conn.reply(seq)["wseq"] for _ in range(2)] == [5, 6]
        conn.silence(seq)
        conn.send(seq=seq, state="ack", ack=1)  # an old one opens nothing
        conn.silence(seq)
        conn.send(seq=seq, state="ack", ack=6)
        assert [conn.reply(seq)["wseq"] for _ in range(4)] == [7, 8, 9, 10]
        conn.silence(seq)


def test_without_qlen_a_stream_does_not_wait(connection, base):
    _plant(connection, base, 300)
    messages = connection.stream("get_tree", path=mp.path(*base))
    assert [m["value"] for m in messages] == list(range(300))
    assert all("wseq" not in m for m in messages)


def test_qlen_zero_means_none(node, base):
    with node.raw() as conn:
        conn.send(seq=0, qlen=0)
        _plant(conn, base, 50)
        assert len(conn.stream("get_tree", path=mp.path(*base))) == 50


def test_start_uptodate_and_end_are_counted_single_replies_are_not(node, base):
    with node.raw(qlen=10) as conn:
        reply = conn.ok("set_value", path=mp.path(*base), value=1)
        assert "wseq" not in reply
        seq = conn.start("watch", path=mp.path(*base), fetch=True)
        start, entry, uptodate = (conn.reply(seq) for _ in range(3))
        assert [m["wseq"] for m in (start, entry, uptodate)] == [1, 2, 3]
        assert start.order == ["state", "seq", "wseq", "tock"] == uptodate.order
        assert entry.order == ["value", "tock", "path", "depth", "seq", "wseq"]
        assert "wseq" not in conn.ok("stop", task=seq)
        end = conn.reply(seq)
        assert (end["state"], end["wseq"]) == ("end", 4)
        assert end.order == ["state", "seq", "wseq", "tock"]


def test_each_stream_has_a_window_of_its_own(node, base):
    with node.raw(qlen=5) as conn:
        _plant(conn, base, 25)
        one = conn.start("get_tree", path=mp.path(*base))
        two = conn.start("get_tree", path=mp.path(*base))
        assert [conn.reply(one)["wseq"] for _ in range(4)] == [1, 2, 3, 4]
        assert [conn.reply(two)["wseq"] for _ in range(4)] == [1, 2, 3, 4]
        conn.send(seq=two, state="ack", ack=4)
        assert [conn.reply(two)["wseq"] for _ in range(4)] == [5, 6, 7, 8]
        conn.silence(one)


def test_a_paused_watch_keeps_nobody_else_waiting_and_ends_up_current(node, base):
    with node.raw(qlen=5) as slow, node.raw() as writer:
        seq = slow.start("watch", path=mp.path(*base))
        assert slow.reply(seq)["wseq"] == 1
        for i in range(500):
            writer.ok("set_value", path=mp.path(*base), value=i)
        wseq, values = 1, []
        while not values or values[-1] != 499:
            msg = slow.reply(seq)
            wseq += 1
            assert msg["wseq"] == wseq
            if "value" in msg:  # a watch that starts over may say so in between
                values.append(msg["value"])
            slow.send(seq=seq, state="ack", ack=wseq)
        assert values == sorted(values)


def test_acks_for_what_has_ended_or_never_was_are_ignored(node, base):
    with node.raw(qlen=10) as conn:
        seq = conn.start("get_tree", path=mp.path(*base, "x"))
        while conn.reply(seq).get("state") != "end":
            pass
        for stray in (seq, 1000, conn.start("get_tock")):
            conn.send(seq=stray, state="ack", ack=3)
        conn.reply(seq + 1)
        conn.ok("get_tock")
        assert not any(conn.waiting.values()), conn.waiting


def test_a_paused_stream_can_be_stopped(node, base):
    with node.raw(qlen=5) as conn:
        _plant(conn, base, 25)
        seq = conn.start("get_tree", path=mp.path(*base))
        for _ in range(4):
            conn.reply(seq)
        assert conn.ok("stop", task=seq)["result"] is True
        conn.send(seq=seq, state="ack", ack=4)
        conn.ok("get_tock")
        assert [m.get("state") for m in conn.waiting[seq]][-1:] == ["end"]


async def test_the_client_reads_a_long_tree_under_flow_control(node, base):
    async with clients(node) as client:
        assert client.qlen >= 4
        for i in range(100):
            await client.set(base + [i], value=i)
        assert [r.value async for r in client.get_tree(base)] == list(range(100))
