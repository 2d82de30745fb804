"""Bad requests: a clear error for them, and nothing for anybody else."""

import msgpack_raw as mp
import pytest
from conftest import clients
from distkv.exceptions import ServerError
from raw import Closed, check_error

@pytest.mark.parametrize("action", ["save", "log"])
def test_no_file_is_written_unless_the_operator_has_allowed_a_place(connection, tmp_path, action):
    target = tmp_path / "file"
    msg = connection.error(action, path=str(target), fetch=True, full=True)
    assert msg["code"] == "denied" and "--client-files" in msg["error"], msg
    assert not target.exists()
    connection.ok("get_tock")


@pytest.mark.parametrize("kind", ["codec", "conv"])
def test_what_is_not_enforced_is_refused_by_name(connection, base, kind):
    """Stored and not obeyed would be worse than refused."""
    check = {"good": (0, 1), "bad": ("x", None), "code": "if not isinstance(value, int): raise"}
    for action, path in (("set_internal", (kind, *base)), ("set_value", (None, kind, *base))):
        msg = connection.error(action, path=mp.path(*path), value=check)
        assert msg["code"] == "not_implemented" and f":n.{kind}" in msg["error"], msg
    for action, path in (("delete_internal", (kind, *base)), ("delete_tree", (None, kind))):
        msg = connection.error(action, path=mp.path(*path))
        assert msg["code"] == "not_implemented" and f":n.{kind}" in msg["error"], msg


def test_python_in_a_type_is_refused_by_name(connection, base):
    check = {"good": (0, 1), "bad": ("x", None), "code": "if not isinstance(value, int): raise"}
    msg = connection.error("set_internal", path=mp.path("type", *base), value=check)
    assert msg["code"] == "type_mismatch" and "'code'" in msg["error"], msg


def test_an_unknown_action_is_an_error_of_its_request_only(connection):
    first = connection.start("no_such_action", path=("a",))
    second = connection.start("get_tock")
    msg = connection.reply(first)
    check_error(msg, first)
    assert "no_such_action" in msg["error"]
    assert msg.order == ["error", "code", "seq", "tock"]
    assert "tock" in connection.reply(second)
    connection.ok("get_tock")


async def test_the_client_survives_an_unknown_action(node):
    async with clients(node) as client:
        with pytest.raises(ServerError, match="no_such_action"):
            await client._request("no_such_action")  # pylint: disable=protected-access
        assert await client.get_tock()


@pytest.mark.parametrize(
    "action, field",
    [
        ("get_value", "path"),
        ("set_value", "path"),
        ("delete_value", "path"),
        ("delete_tree", "path"),
        ("get_tree", "path"),
        ("enum", "path"),
        ("watch", "path"),
        ("root", "path"),
        ("get_internal", "path"),
        ("set_internal", "path"),
        ("stop", "task"),
        ("enum_node", "node"),
        ("kill_node", "node"),
        ("check_deleted", "nodes"),
        ("msg_monitor", "topic"),
    ],
)
def test_a_missing_field_is_named(connection, action, field):
    params = {"value": 1} if action.startswith("set_") else {}
    assert field in connection.error(action, **params)["error"]
    connection.ok("get_tock")


async def test_the_clients_watch_sees_its_error(node):
    """The client waits for a start first: an error outside of the stream would hang it."""
    async with clients(node) as client:
        with pytest.raises(ServerError):
            async with client.watch((None, None)) as watch:
                await watch.recv()
        with pytest.raises(ServerError):
            async with client.msg_monitor(5) as monitor:
                await monitor.recv()
        assert await client.get_tock()


WRONG = {
    "nchain": ["x", 1.5, None, (), {}],
    "min_depth": ["x", 1.5, ()],
    "max_depth": ["x", 1.5, ()],
    "chain": [5, "x", (), {"node": 5, "tick": 1}, {"node": "n1~5", "tick": "x"}, {"node": "n1", "tick": 1}],
}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_a_wrong_type_is_an_error(connection, base, field):
    action = {"chain": "set_value", "nchain": "get_value"}.get(field, "get_tree")
    connection.ok("set_value", path=mp.path(*base), value=0)
    for wrong in WRONG[field]:
        params = {"value": 1} if action == "set_value" else {}
        msg = connection.error(action, path=mp.path(*base), **params, **{field: wrong})
        assert field in msg["error"], msg
    assert connection.ok("get_value", path=mp.path(*base))["value"] == 0


def test_events_that_cannot_be_are_not_found(connection):
    for tick in (0, -1, 2**62, 2**64 - 1, "x", None):
        connection.error("get_value", node=connection.life(), tick=tick)
    connection.error("get_value", node=5, tick=1)


def test_a_request_without_seq_is_an_error_without_seq(connection):
    connection.send(action="get_tock")
    msg = connection.receive()
    check_error(msg, None)
    assert msg.order == ["error", "code", "tock"]
    connection.ok("get_tock")


@pytest.mark.parametrize("seq", ["x", None, 1.5, (), -1, True], ids=repr)
def test_a_seq_that_is_no_positive_integer_is_an_error(connection, seq):
    connection.send(action="get_tock", seq=seq)
    msg = connection.receive()
    assert msg["error"] and msg["code"], msg
    connection.ok("get_tock")


def test_a_request_without_action_is_an_error(connection):
    connection.send(seq=5)
    check_error(connection.receive(), 5)
    connection.ok("get_tock")


@pytest.mark.parametrize("action", [5, None, b"get_tock", ("get_tock",), ""], ids=repr)
def test_an_action_of_a_wrong_type_is_an_error(connection, action):
    connection.send(seq=5, action=action)
    check_error(connection.receive(), 5)
    connection.ok("get_tock")


def test_unknown_fields_are_ignored(connection, base):
    reply = connection.ok("set_value", path=mp.path(*base), value=1, iter=True, extra={"a": (1,)})
    assert reply.order == ["changed", "chain", "tock", "seq"]
    connection.send_bytes(
        b"\x85\xa6action\xa8get_tock\xa3seq\x07\x01\x02\xc0\xc0\xa1x\xd4\x2a\x00"
    )
    assert "tock" in connection.reply(7)


GARBAGE = {
    "an integer": b"\x01",
    "nil": b"\xc0",
    "an array": b"\x92\x01\x02",
    "a string": b"\xa3abc",
    "an extension": b"\xd4\x2a\x00",
    "the byte that is never used": b"\xc1",
    "that byte within": b"\x82\xa3seq\x05\xa6action\xc1",
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a string of 4 GiB": b"\x81\xa3seq\xdb\xff\xff\xff\xff",
    "an array of 4 billion": b"\x81\xa3seq\xdd\xff\xff\xff\xff",
    "a map of 4 billion": b"\xdf\xff\xff\xff\xff",
    "bytes of 4 GiB": b"\x82\xa3seq\x05\xa5value\xc6\xff\xff\xff\xff",
}


@pytest.mark.parametrize("opener", [b"\x91", b"\x81\x01"])
def test_a_message_that_is_too_deep_is_an_error_of_its_request_only(connection, opener):
    connection.send_bytes(b"\x82\xa3seq\x05\xa5value" + opener * 100_000 + b"\xc0")
    msg = connection.reply(5)
    assert msg["error"] and msg["code"] == "too_large", msg
    connection.ok("get_tock")


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_message_ends_the_connection_with_a_reason(node, base, name):
    with node.raw() as bystander, node.raw() as conn:
        conn.send_bytes(GARBAGE[name])
        msg = conn.receive()
        assert msg["error"] and msg["code"] in ("bad_message", "too_large"), msg
        with pytest.raises(Closed):
            conn.receive()
        bystander.ok("set_value", path=mp.path(*base), value=1)


def test_requests_before_the_garbage_are_answered(connection, base):
    good = mp.encode({"action": "set_value", "seq": 1, "path": mp.path(*base), "value": 1})
    connection.send_bytes(good + b"\xc1")
    assert connection.reply(1)["changed"] is True
    assert connection.receive()["error"]
    with pytest.raises(Closed):
        connection.receive()


def test_a_client_that_never_reads_disturbs_nobody(node, base):
    with node.raw() as deaf, node.raw() as other:
        other.ok("set_value", path=mp.path(*base), value=b"x" * 100_000)
        deaf.start("watch", path=mp.path(*base))
        requests = b"".join(
            mp.encode({"action": "get_value", "seq": seq, "path": mp.path(*base)})
            for seq in range(2, 20_000)
        )
        deaf.sock.settimeout(2)
        try:
            deaf.sock.sendall(requests)
        except (TimeoutError, ConnectionError):
            pass  # the server stopped reading, or closed: both are fine
        for i in range(100):
            other.ok("set_value", path=mp.path(*base, "other"), value=i)


def test_a_client_that_never_acknowledges_disturbs_nobody(node, base):
    with node.raw(qlen=5) as deaf, node.raw() as other:
        seq = deaf.start("watch", path=mp.path(*base))
        for i in range(2000):
            other.ok("set_value", path=mp.path(*base, i % 7), value=i)
        # its other requests are answered, and it can still stop the stream
        assert deaf.ok("get_value", path=mp.path(*base, 0))["value"] is not None
        assert deaf.ok("stop", task=seq)["result"] is True


def test_copies_that_nobody_can_give_say_that_the_fate_is_unknown(node, base):
    with node.raw() as conn:
        msg = conn.error("set_value", path=mp.path(*base), value=1, copies=1, timeout=0.2)
        assert msg["code"] == "unknown_fate"
        assert conn.ok("get_value", path=mp.path(*base))["value"] == 1
