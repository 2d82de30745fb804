"""msg_send and msg_monitor: messages through the network that leave nothing behind."""

import anyio
import msgpack_raw as mp
import pytest
import raw
from conftest import clients
from distkv.exceptions import ServerError


@pytest.fixture
def pair(network):
    """Two nodes of one network."""
    return network.add("--init", "null"), network.add()


async def test_messages_cross_the_network_both_ways(pair):
    async with clients(*pair) as (one, two):
        for sender, receiver in ((one, two), (two, one), (one, one)):
            async with receiver.msg_monitor(("here",)) as monitor:
                await sender.msg_send(("here",), {"x": (1, 2)})
                msg = await monitor.recv()
                assert (msg.topic, msg.data) == (("here",), {"x": (1, 2)})
                assert "raw" not in msg and "error" not in msg


async def test_raw_messages_are_not_decoded(pair):
    async with clients(*pair) as (one, two):
        async with two.msg_monitor(("here", "sub"), raw=True) as monitor:
            await one.msg_send(("here", "sub"), data=("Hello", 42))
            msg = await monitor.recv()
            assert (msg.topic, msg.raw) == (("here", "sub"), b"\x92\xa5Hello\x2a")
            assert "data" not in msg
            await one.msg_send(("here", "sub"), raw=b"\xc1 anything")
            assert (await monitor.recv()).raw == b"\xc1 anything"


def test_a_message_arrives_byte_for_byte(pair):
    one, two = pair
    with one.raw() as sender, two.raw() as receiver:
        seq = receiver.start("msg_monitor", topic=("t",))
        start = receiver.reply(seq)
        assert start.order == ["state", "seq", "tock"]
        for data in ("cd0005", "d603a16101c0", "c7037f010203", "82a16202a16101", "c0"):
            sent = mp.encode({"action": "msg_send", "seq": 1, "topic": ("t",)})
            sender.send_bytes(b"\x84" + sent[1:] + b"\xa4data" + bytes.fromhex(data))
            assert sender.reply(1).order == ["seq", "tock"]
            msg = receiver.reply(seq)
            assert msg.field("data") == bytes.fromhex(data)
            assert msg.order == ["topic", "data", "seq", "tock"]


# No value; and values that clients of the original cannot read.
UNREADABLE = [b"\xa2\xff\xfe", b"\x81\x80\x01", b"\xc7\x03\xff\x01\x02\x03", b"\xc7\x02\x03\xc1\xc1", b"\xc7\x00\x05"]
BAD = [b"\xc1\xff", b"", b"\x01\x02", b"\xa5abc", *UNREADABLE]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_what_cannot_be_decoded_comes_raw_with_an_error(pair, bad):
    one, two = pair
    with one.raw() as sender, two.raw() as receiver:
        seq = receiver.start("msg_monitor", topic=("t", "bad"))
        receiver.reply(seq)
        sender.ok("msg_send", topic=("t", "bad"), raw=bad)
        msg = receiver.reply(seq)
        assert msg.order == ["topic", "raw", "error", "seq", "tock"]
        assert (msg["raw"], msg["topic"]) == (bad, ("t", "bad")) and msg["error"]
        sender.ok("msg_send", topic=("t", "bad"), data=5)
        assert receiver.reply(seq)["data"] == 5


@pytest.mark.parametrize("bad", UNREADABLE, ids=repr)
async def test_a_monitor_goes_on_behind_a_message_that_it_cannot_read(node, base, bad):
    with anyio.fail_after(raw.PATIENCE):
        async with clients(node, node) as (one, two):
            async with two.msg_monitor(tuple(base)) as monitor:
                await one.msg_send(tuple(base), raw=bad)
                await one.msg_send(tuple(base), data="next")
                # As the client tells of every message with an `error`.
                with pytest.raises(ServerError, match="Python's clients cannot read"):
                    await monitor.recv()
                assert (await monitor.recv()).data == "next"
            assert "value" not in await two.get(base)


def test_topics_are_matched(connection, base):
    monitors = {
        name: connection.start("msg_monitor", topic=topic)
        for name, topic in {
            "exact": (*base, "q"),
            "extension": mp.path(*base, "q"),
            "below": (*base, "#"),
            "one": (*base, "+"),
            "other": (*base, "x"),
        }.items()
    }
    for seq in monitors.values():
        assert connection.reply(seq)["state"] == "start"
    connection.ok("msg_send", topic=(*base, "q"), data=1)
    connection.ok("msg_send", topic=mp.path(*base, "q", "r"), data=2)
    connection.ok("msg_send", topic=(*base, "x"), data=3)
    connection.ok("get_tock")
    seen = {}
    for name, seq in monitors.items():
        connection.ok("stop", task=seq)
        seen[name] = [(m["data"], m["topic"]) for m in connection.rest(seq)]
    q, r, x = (*base, "q"), (*base, "q", "r"), (*base, "x")
    assert seen == {
        "exact": [(1, q)],
        "extension": [(1, q)],
        "below": [(1, q), (2, r), (3, x)],
        "one": [(1, q), (3, x)],
        "other": [(3, x)],
    }


def test_messages_obey_flow_control(node, base):
    with node.raw(qlen=5) as receiver, node.raw() as sender:
        seq = receiver.start("msg_monitor", topic=tuple(base))
        assert receiver.reply(seq)["wseq"] == 1
        for i in range(10):
            sender.ok("msg_send", topic=tuple(base), data=i)
        for wseq in (2, 3, 4):
            msg = receiver.reply(seq)
            assert (msg["wseq"], msg["data"]) == (wseq, wseq - 2)
            assert msg.order == ["topic", "data", "seq", "wseq", "tock"]
        receiver.silence(seq)
        receiver.send(seq=seq, state="ack", ack=4)
        assert [receiver.reply(seq)["data"] for _ in range(4)] == [3, 4, 5, 6]


def test_messages_change_nothing(keeping_network):
    """Nor does a node make an event of its own meanwhile, in such a network."""
    one, _ = keeping_network.add("--init", "null"), keeping_network.add()
    with one.raw() as conn:
        before = conn.ok("get_state", nodes=True, known=True, present=True)
        for _ in range(10):
            conn.ok("msg_send", topic=("t",), data=1)
        after = conn.ok("get_state", nodes=True, known=True, present=True)
        for part in ("nodes", "known", "present"):
            assert before[part] == after[part]


def test_msg_send_needs_a_topic_and_something_to_send(connection):
    connection.error("msg_send", topic=("t",))
    connection.error("msg_send", data=1)
    connection.error("msg_send", topic=("t",), raw="no bytes")
    both = connection.error("msg_send", topic=("t",), raw=b"x", data=1)
    assert both["code"] == "bad_request" and "not both" in both["error"]
    for action in ("msg_send", "msg_monitor"):
        bad = connection.error(action, topic=("t", b"\xff"), data=1)
        assert bad["code"] == "bad_request" and "UTF-8" in bad["error"]
    connection.error("msg_send", topic=5, data=1)
    connection.error("msg_monitor")
    connection.error("msg_monitor", topic=5)
