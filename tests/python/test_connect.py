"""Connecting: the greeting, several connections, pieces of messages, many open requests."""

import anyio
import msgpack_raw as mp
import pytest
from asyncscope import main_scope
from conftest import clients, connect_to
from distkv.client import open_client
from raw import Closed


def test_the_server_speaks_first(node):
    with node.raw() as conn:
        assert conn.hello.order == ["seq", "version", "node", "tick", "tock", "qlen", "clock", "network"]
        assert conn.hello["seq"] == 0
        assert conn.hello["node"] == "n1"
        assert [type(part) for part in conn.hello["version"]] == [int, int, int]
        assert conn.hello["tick"] >= 1  # not nil: the node can work
        assert conn.hello["tock"] >= 1
        assert conn.hello["qlen"] >= 4  # clients refuse less
        # Clients of the original ignore both.
        assert isinstance(conn.hello["clock"], int) and conn.hello["clock"] >= 0
        assert isinstance(conn.hello["network"], str) and conn.hello["network"]


def test_the_greeting_counts_the_nodes_own_changes(fresh_node):
    with fresh_node.raw() as conn:
        assert conn.hello["tick"] == 1  # the root's initial value
        conn.ok("set_value", path=mp.path("a"), value=1)
    with fresh_node.raw() as conn:
        assert conn.hello["tick"] == 2


async def test_open_client_works_unmodified(node, base):
    async with main_scope(name="test"):
        async with open_client(connect=connect_to(node.host, node.port)) as c:
            assert c.node == "n1"
            await c.set(base, value="hello")
            assert (await c.get(base)).value == "hello"


async def test_tocks_that_are_asked_for_rise(node):
    async with clients(node) as client:
        tocks = [await client.get_tock() for _ in range(5)]
        assert tocks == sorted(set(tocks))


async def test_two_clients_see_each_others_changes_at_once(node, base):
    async with clients(node, node) as (one, two):
        assert one is not two
        for i in range(20):
            await one.set(base, value=i)
            assert (await two.get(base)).value == i


async def test_many_requests_of_one_client_are_open_at_once(node, base):
    results = {}
    async with clients(node) as client:

        async def one(i):
            await client.set(base + [i], value=i)
            results[i] = (await client.get(base + [i])).value

        async with anyio.create_task_group() as tg:
            for i in range(100):
                tg.start_soon(one, i)
    assert results == {i: i for i in range(100)}


def test_pipelined_requests_are_all_answered_in_order_of_effect(connection, base):
    path = mp.path(*base)
    batch = b""
    for seq in range(1, 501):
        batch += mp.encode({"action": "set_value", "seq": seq, "path": path, "value": seq})
    batch += mp.encode({"action": "get_value", "seq": 501, "path": path})
    connection.send_bytes(batch)
    ticks = [connection.reply(seq)["chain"]["tick"] for seq in range(1, 501)]
    assert ticks == sorted(set(ticks))
    assert connection.reply(501)["value"] == 500


def test_a_message_may_come_byte_by_byte(connection, base):
    data = mp.encode({"action": "set_value", "seq": 7, "path": mp.path(*base), "value": "v" * 40})
    for i in range(len(data)):
        connection.send_bytes(data[i : i + 1])
    assert connection.reply(7)["changed"] is True
    # and two in one piece, cut within the second
    first = mp.encode({"action": "get_value", "seq": 8, "path": mp.path(*base)})
    second = mp.encode({"action": "get_value", "seq": 9, "path": tuple(base)})
    connection.send_bytes(first + second[:5])
    assert connection.reply(8)["value"] == "v" * 40
    connection.send_bytes(second[5:])
    assert connection.reply(9)["value"] == "v" * 40


def test_requests_already_sent_are_answered_after_half_close(connection, base):
    for i in range(50):
        connection.start("set_value", path=mp.path(*base, i), value=i)
    connection.finish()
    assert all(connection.reply(seq)["changed"] for seq in range(1, 51))
    with pytest.raises(Closed):
        connection.receive()


def test_open_streams_are_ended_when_the_client_goes(node, base):
    with node.raw(qlen=10) as conn:
        seq = conn.start("watch", path=mp.path(*base))
        assert conn.reply(seq)["state"] == "start"
        conn.finish()
        end = conn.reply(seq)
        assert (end["state"], end["wseq"]) == ("end", 2)
        with pytest.raises(Closed):
            conn.receive()


def test_a_client_that_vanishes_disturbs_nobody(node, connection, base):
    for _ in range(20):
        with node.raw(qlen=10) as conn:
            conn.start("watch", path=mp.path(*base), fetch=True)
            conn.start("set_value", path=mp.path(*base), value=1)
    # Whether the last requests of those were carried out, and when, is nobody's promise.
    connection.ok("set_value", path=mp.path(*base, "other"), value=2)
    assert connection.ok("get_value", path=mp.path(*base, "other"))["value"] == 2
