"""Replays the client's side of the transcripts in tests/wire against fresh nodes and compares
every answer, byte for byte, with what the original server answered.

Ticks and tocks start elsewhere in a fresh node, so they are mapped: the same tick (of a node) or
the same entry's tock in the transcript must be the same number in ours, in the same order, and
ticks must have the same gaps. Where the original tells a node's name, in a chain or beside a tick,
ours tells which life of it (`n1~e9001b2c3d4e`): that must be the same one everywhere. All the rest of a message, the order of its fields included, is
compared as bytes. What is not compared so, and why, is said in the tables below.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Set, Tuple

import msgpack_raw as mp
import pytest
import transcript
from nodes import Network
from raw import Closed, Message, RawConnection, check_error
from transcript import Connection, Event

EXCHANGES = transcript.exchanges()

# Exchanges and connections that cannot be replayed, with the reason.
NOT_REPLAYED: Dict[str, str] = {
    "92-repl-conflict-converges": "a race; test_cluster.py lets writes race and compares the trees",
    "95-auth-root": "connections without a login are closed when one is needed; test_logins.py",
    "96-auth-password": "its boxes are sealed with keys that were random; test_logins.py",
    "97-acl": "what no pattern says is refused; test_logins.py",
}
NOT_REPLAYED_CONNECTIONS: Dict[str, Set[int]] = {
}

# Words that clients look for in error texts; both sides must have the same ones.
WORDS = ["already exists", "Entry is new", "Chain is", "Data is", "AuthFailed"]

Check = Callable[[RawConnection, Any], None]


def _refused(conn: RawConnection, seq: Any) -> None:
    check_error(conn.reply(seq), seq)


def _fields(order: List[str], **values: Any) -> Check:
    def check(conn: RawConnection, seq: Any) -> None:
        msg = conn.reply(seq)
        assert msg.order == order, msg
        for name, value in values.items():
            assert msg[name] == value, msg

    return check


def _unknown_action(conn: RawConnection, _no_seq: Any) -> None:
    check_error(conn.reply(1), 1)
    conn.send(action="get_tock", seq=1000)  # the connection is still there
    assert "tock" in conn.reply(1000)


def _all_elements(conn: RawConnection, seq: Any) -> None:
    names = conn.reply(seq)["result"]
    want = ["a", "", "a b", "a.b", "a:b", "ü", 0, 1, -1, 2**40, 1.5, True, b"bytes", "0", "1"]
    want += [("t", 1)]
    # '' and b'' are one element, which may come back as either
    seen = ["" if name == b"" else name for name in names]
    assert sorted(map(repr, seen)) == sorted(map(repr, want))


def _tree_below_root(conn: RawConnection, seq: Any) -> None:
    messages = [conn.reply(seq) for _ in range(6)]
    assert messages[0]["state"] == "start" and messages[-1]["state"] == "end"
    assert [(m["path"], m["depth"], m["value"]) for m in messages[1:-1]] == [
        ((), 0, 1),
        (("b",), 0, 2),
        (("c",), 1, 3),
        (("d",), 0, 4),
    ]


def _empty_stream(conn: RawConnection, seq: Any) -> None:
    states = [conn.reply(seq) for _ in range(2)]
    assert [m["state"] for m in states] == ["start", "end"], states
    assert states[0].order == states[1].order == ["state", "seq", "wseq", "tock"]


# (exchange, connection, seq) -> (why ours is another answer, what it must be).
INTENDED: Dict[Tuple[str, int, Any], Tuple[str, Check]] = {
    ("13-path-elements", 1, 13): (
        "True is not 1: nothing was there before",
        _fields(["changed", "tock", "seq"], changed=True),
    ),
    ("13-path-elements", 1, 32): ("True besides 1, in a fixed order", _all_elements),
    ("14-path-true-is-1", 1, 3): (
        "True is not 1: nothing was there before",
        _fields(["changed", "tock", "seq"], changed=True),
    ),
    ("14-path-true-is-1", 1, 4): (
        "True is not 1: 1 still has its own value",
        _fields(["value", "tock", "seq"], value="one"),
    ),
    ("24-idem", 1, 6): (
        "1 and 1.0 are not the same value",
        _fields(["changed", "prev", "chain", "tock", "seq"], changed=True, prev=1),
    ),
    ("25-changed-and-prev", 1, 6): (
        "deleting what is not there makes no event; the tock is the tombstone's",
        _fields(["changed", "tock", "seq"], changed=False),
    ),
    ("30-delete", 1, 6): (
        "deleting what is not there makes no event",
        _fields(["changed", "chain", "tock", "seq"], changed=False, chain=None),
    ),
    ("40-get-tree", 1, 18): ("where nothing is, a tree is empty: a purge must not show", _empty_stream),
    ("43-enum", 1, 6): (
        "where nothing is, a list is empty: a purge must not show",
        _fields(["result", "seq", "tock"], result=()),
    ),
    ("75-root", 2, 3): ("a tree below a session's root works", _tree_below_root),
    ("80-save", 1, 9): ("save comes with a later issue", _refused),
    ("81-log", 1, 3): ("log comes with a later issue", _refused),
    ("81-log", 1, 7): ("log comes with a later issue", _refused),
    ("81-log", 1, 9): ("log comes with a later issue", _refused),
    ("85-unknown-action", 1, None): ("told with its seq, connection stays open", _unknown_action),
    ("89-dh", 1, 2): ("the numbers are random", _fields(["pubkey", "seq", "tock"])),
    ("94-type-check", 1, 2): ("type checks come with a later issue", _refused),
    ("94-type-check", 1, 3): ("type checks come with a later issue", _refused),
    ("94-type-check", 1, 4): ("type checks come with a later issue", _refused),
    ("94-type-check", 1, 6): (
        "nothing is checked yet",
        _fields(["changed", "prev", "tock", "seq"], changed=True, prev=1),
    ),
}

# Where the server's own history shows, only the fields' names and order are compared; what
# should be in them is in test_state.py.
HISTORY = {
    "get_state": {"nodes", "known", "present", "deleted", "missing", "remote_missing"},
    "enum_node": {"result"},
}
# An empty node's tock: the original tells the tock that the parent had when the node was made.
FREE_TOCK = {"42-get-tree-empty-nodes"}
# Here the original made events that ours refuses to make, so ticks have other gaps.
OTHER_GAPS = {"94-type-check"}
# Nodes that were killed are told, and so the absent member would be.
TELLS_OF_KILLED = {"60-get-state"}


class Numbers:
    """What the transcript's ticks and tocks are in ours."""

    def __init__(self, same_gaps: bool):
        self.same_gaps = same_gaps
        self.ticks: Dict[str, Dict[int, int]] = {}
        self.tocks: Dict[int, int] = {}

    def tick(self, node: str, theirs: Optional[int], ours: Optional[int]) -> Optional[int]:
        """Returns what `theirs` must be in ours, which is `ours` if that may be."""
        known = self.ticks.setdefault(node, {})
        if theirs is None or theirs == 0 or theirs in known:
            return known.get(theirs, theirs) if theirs else theirs
        assert isinstance(ours, int)
        for their_other, our_other in known.items():
            if self.same_gaps:
                assert ours - our_other == theirs - their_other, (node, theirs, ours, known)
            assert (theirs < their_other) == (ours < our_other) and ours != our_other
        known[theirs] = ours
        return ours

    def tock(self, theirs: int, ours: int) -> int:
        """As `tick`, for the tock of an entry."""
        assert isinstance(ours, int)
        for their_other, our_other in self.tocks.items():
            if their_other != theirs:
                assert (theirs < their_other) == (ours < our_other), (theirs, ours, self.tocks)
                assert ours != our_other, (theirs, ours, self.tocks)
        return self.tocks.setdefault(theirs, ours)


class Replay:
    """One exchange, being replayed."""

    def __init__(self, exchange: transcript.Exchange, network: Network):
        self.exchange = exchange
        self.network = network
        network.add("--init", "null")
        for _ in exchange.nodes[1:]:
            network.add()
        # By node: the life that stands in our chains where the original has the name.
        self.lives = {node.name: node.life() for node in network.nodes}
        self.numbers = Numbers(exchange.name not in OTHER_GAPS)
        self.connections: Dict[int, RawConnection] = {}
        self.requests: Dict[Tuple[int, Any], Dict[str, Any]] = {}
        self.done: Set[Tuple[int, Any]] = set()
        self.finished: Set[int] = set()

    def run(self) -> None:
        """Plays all events in order."""
        left_out = NOT_REPLAYED_CONNECTIONS.get(self.exchange.name, set())
        try:
            for conn, event in self.exchange.in_order():
                if conn.number in left_out:
                    continue
                if conn.number not in self.connections:
                    self.open(conn, event)
                elif event.from_client:
                    self.send(conn, event)
                else:
                    self.expect(conn, event)
            for conn in self.connections.values():
                assert not any(conn.waiting.values()), ("superfluous", conn.waiting)
        finally:
            for raw in self.connections.values():
                raw.sock.close()

    def open(self, conn: Connection, event: Event) -> None:
        """Connects; `event` is the greeting."""
        assert not event.from_client
        node = next(n for n in self.network.nodes if n.name == conn.node)
        raw = self.connections[conn.number] = node.raw()
        self.compare(conn, event, raw.hello, "greeting")

    def send(self, conn: Connection, event: Event) -> None:
        """Sends what the client sent."""
        raw = self.connections[conn.number]
        if event.is_eof:
            raw.finish()
            self.finished.add(conn.number)
            return
        if len(self.network.nodes) > 1:
            self.network.settle()
        assert event.complete
        data = event.raw
        if isinstance(event.message, dict):
            if "action" in event.message:
                self.requests[conn.number, event.message.get("seq")] = event.message
            data = self.with_our_numbers(event)
        raw.send_bytes(data)

    def with_our_numbers(self, event: Event) -> bytes:
        """A request may name an event: a chain that it expects, or a node's tick."""
        res = []
        for name, value in mp.fields(event.raw):
            if name == "chain":
                value = mp.encode(self.our_chain(mp.decode(value)))
            elif name == "tick":
                ours = self.numbers.ticks.get(event.message["node"], {})
                tick = mp.decode(value)
                value = mp.encode(ours.get(tick, tick))
            elif name == "node":
                value = self.want_life(value)
            res.append(mp.encode(name) + value)
        return bytes([0x80 | len(res)]) + b"".join(res)

    def our_chain(self, chain: Any) -> Any:
        """The transcript's chain in our numbers."""
        if not chain:
            return chain
        res = dict(chain)
        res["tick"] = self.numbers.ticks[chain["node"]][chain["tick"]]
        res["node"] = self.lives[chain["node"]]
        if "prev" in chain:
            res["prev"] = self.our_chain(chain["prev"])
        return res

    def expect(self, conn: Connection, event: Event) -> None:
        """Waits for what the original answered, or for what we answer in its place."""
        raw = self.connections[conn.number]
        if event.is_eof:
            if conn.number in self.finished:
                with pytest.raises(Closed):
                    extra = raw.receive()
                    raise AssertionError(f"superfluous: {extra}")
            return  # else the original had closed by itself: see INTENDED
        theirs = event.message if event.complete else {"seq": self.seq_of_cut(conn, event)}
        seq = theirs.get("seq")
        if (conn.number, seq) in self.done:
            return
        intended = INTENDED.get((self.exchange.name, conn.number, seq))
        if intended:
            self.done.add((conn.number, seq))
            intended[1](raw, seq)
            return
        action = self.requests.get((conn.number, seq), {}).get("action", "none")
        if action == "delete_tree" and list(theirs) == ["seq", "tock"]:
            return  # a reply after the stream's end; ours sends none
        self.compare(conn, event, raw.reply(seq), action)

    def seq_of_cut(self, conn: Connection, event: Event) -> Any:
        """The seq of an incomplete recording: its request is the latest one."""
        before = conn.events[: conn.events.index(event)]
        return [e.message["seq"] for e in before if e.from_client][-1]

    def compare(self, conn: Connection, event: Event, ours: Message, action: str) -> None:
        """Compares one message with the recorded one."""
        if not event.complete:
            assert action in HISTORY and ours.order == ["result", "seq", "tock"]
            return
        theirs = mp.fields(event.raw)
        got = mp.fields(ours.raw)
        if action == "greeting":
            # The original tells neither its clock nor its network, and its clients ignore these fields, the last ones.
            assert [name for name, _ in got[-2:]] == ["clock", "network"]
            assert [type(mp.decode(value)) for _, value in got[-2:]] == [int, str]
            theirs = theirs + got[-2:]
        if "error" in dict(theirs):
            self.compare_error(theirs, got)
            got = [(name, value) for name, value in got if name != "code"]
        where = (self.exchange.name, conn.number, event.message, ours)
        assert [name for name, _ in got] == [name for name, _ in theirs], where
        want = b""
        for (name, their_value), (_, our_value) in zip(theirs, got):
            if name == "tock":
                value = self.want_tock(ours, action, theirs, their_value)
            else:
                value = self.want(action, theirs, name, their_value, our_value)
            assert value == our_value, (name, *where)
            want += mp.encode(name) + value
        if "error" not in dict(theirs):
            assert bytes([0x80 | len(theirs)]) + want == ours.raw, where

    @staticmethod
    def compare_error(theirs: List[Tuple[str, bytes]], ours: List[Tuple[str, bytes]]) -> None:
        """Ours has a code besides, and the same words that clients look for."""
        text, our_text = mp.decode(dict(theirs)["error"]), mp.decode(dict(ours)["error"])
        assert "error" in dict(ours)
        assert [w for w in WORDS if w in text] == [w for w in WORDS if w in our_text], our_text
        if "raw" not in dict(theirs):  # in a message that could not be decoded: no code
            assert isinstance(mp.decode(dict(ours)["code"]), str)
            assert [name for name, _ in ours][:2] == ["error", "code"]

    def want(
        self,
        action: str,
        fields: List[Tuple[str, bytes]],
        name: str,
        theirs: bytes,
        ours: bytes,
    ) -> bytes:
        """The bytes that one field of ours must have."""
        if name == "chain":
            return self.want_chain(theirs, ours)
        if name == "node" and action != "greeting":
            return self.want_life(theirs)
        if name == "tick":
            node = mp.decode(dict(fields)["node"])
            return mp.encode(self.numbers.tick(node, mp.decode(theirs), mp.decode(ours)))
        if name == "version":
            assert [type(part) for part in mp.decode(ours)] == [int] * 3
            return ours
        if name == "error":
            assert mp.decode(ours)
            return ours
        if name in HISTORY.get(action, ()):
            if action == "enum_node" and mp.decode(theirs) == (1,):
                return theirs
            assert type(mp.decode(ours)) is type(mp.decode(theirs))
            return ours
        return theirs

    def want_life(self, theirs: bytes) -> bytes:
        """The life of ours that a name in the transcript stands for."""
        name = mp.decode(theirs)
        return mp.encode(self.lives.get(name, name))

    def want_chain(self, theirs: bytes, ours: bytes) -> bytes:
        """The chain's bytes, in our numbers."""
        if theirs == b"\xc0" or ours == b"\xc0":
            return theirs
        res = []
        our_fields = dict(mp.fields(ours))
        fields = mp.fields(theirs)
        node = mp.decode(dict(fields)["node"])
        for name, value in fields:
            if name == "tick":
                our_tick = mp.decode(our_fields.get("tick", b"\xc0"))
                value = mp.encode(self.numbers.tick(node, mp.decode(value), our_tick))
            elif name == "prev":
                value = self.want_chain(value, our_fields.get("prev", b"\xc0"))
            elif name == "node":
                value = self.want_life(value)
            res.append(mp.encode(name) + value)
        return bytes([0x80 | len(res)]) + b"".join(res)

    def want_tock(
        self, ours: Message, action: str, fields: List[Tuple[str, bytes]], theirs: bytes
    ) -> bytes:
        """An entry's tock must be the same wherever it is told; any other only never goes back."""
        tock = ours["tock"]
        assert isinstance(tock, int)
        if action == "get_tock" and "error" not in ours:
            assert tock > ours.tock_before
        elif action in ("greeting", "get_state") or fields[-1][0] == "tock":
            assert tock >= ours.tock_before
        elif not (self.exchange.name in FREE_TOCK and "value" not in dict(fields)):
            tock = self.numbers.tock(mp.decode(theirs), tock)
        return mp.encode(tock)


@pytest.mark.parametrize("name", sorted(set(EXCHANGES) - set(NOT_REPLAYED)))
def test_the_answers_are_the_originals(network, keeping_network, name):
    Replay(EXCHANGES[name], network if name in TELLS_OF_KILLED else keeping_network).run()


def test_every_exception_is_about_a_transcript():
    """No entry in the tables above outlives what it excuses."""
    assert set(NOT_REPLAYED) <= set(EXCHANGES)
    for name, number, seq in INTENDED:
        (conn,) = [c for c in EXCHANGES[name].connections if c.number == number]
        messages = [e.message for e in conn.events if e.raw and e.complete and not e.from_client]
        assert any(m.get("seq") == seq for m in messages), (name, number, seq)
    for name in FREE_TOCK | OTHER_GAPS | TELLS_OF_KILLED | set(NOT_REPLAYED_CONNECTIONS):
        assert name in EXCHANGES


def test_a_flipped_byte_would_be_noticed(keeping_network):
    """The comparison itself can fail: it is tried on answers that are wrong in one place."""
    replay = Replay(EXCHANGES["11-set-reply-fields"], keeping_network)
    conn = replay.exchange.connections[0]
    reply = next(e for e in conn.events if e.raw and not e.from_client and "changed" in e.message)
    replay.requests[1, 1] = {"action": "set_value", "seq": 1}
    name, life = mp.encode("n1"), mp.encode(replay.lives["n1"])
    good = reply.raw.replace(name, life)
    replay.compare(conn, reply, Message(good), "set_value")
    fields = mp.fields(good)
    wrong = {
        "order": [fields[-1], *fields[:-1]],
        "value": [("changed", b"\xc2") if n == "changed" else (n, v) for n, v in fields],
        "seq too long": [(n, b"\xcc" + v) if n == "seq" else (n, v) for n, v in fields],
        "tock too long": [(n, b"\xcf" + v[1:].rjust(8, b"\0")) if n == "tock" else (n, v) for n, v in fields],
        "missing": fields[:-1],
        "superfluous": [*fields, ("more", b"\xc0")],
        "a bare name": [(n, v.replace(life, name)) if n == "chain" else (n, v) for n, v in fields],
        "another tick": [(n, v.replace(b"\x67", b"\x68")) if n == "chain" else (n, v) for n, v in fields],
    }
    for what, changed in wrong.items():
        raw = bytes([0x80 | len(changed)]) + b"".join(mp.encode(n) + v for n, v in changed)
        assert raw != good, what
        with pytest.raises(AssertionError):
            replay.compare(conn, reply, Message(raw), "set_value")
            pytest.fail(what)
