"""Reads the transcripts in tests/wire: who sent which bytes, in which order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import msgpack
import msgpack_raw as mp

WIRE = Path(__file__).resolve().parents[1] / "wire"

_EVENT = re.compile(r"\s+(\d+\.\d+) c\d+ (C->S|S->C) (.*)$")
_BYTES = re.compile(r"\s+\[(\d+) bytes\] ([0-9a-f]+)(…?)$")
_MORE = re.compile(r"\.\.\. \d+ more messages$")
_TITLE = re.compile(r"# (\S+) \(connection \d+, (main|peer-)\)$")
_NAME = re.compile(r"(?P<exchange>.*?)(\.(peer-)?(?P<number>\d+))?$")


def _path(*elements: Any) -> msgpack.ExtType:
    return mp.path(*elements)


def _bignum(value: int) -> msgpack.ExtType:
    return msgpack.ExtType(mp.BIGNUM_EXT, value.to_bytes((value.bit_length() + 7) // 8, "big"))


_NAMES = {"__builtins__": {}, "Path": _path, "bignum": _bignum, "inf": float("inf")}

# Where the recorder cut both the text and the bytes: what the message must have been. Each is
# checked against the recorded beginning and length.
_CUT: Dict[Tuple[str, str, int], Dict[str, Any]] = {
    ("12-value-types", "C->S", 70064): {
        "path": mp.path("h0d799665", "vt", 26),
        "value": "z" * 70000,
        "nchain": 0,
        "action": "set_value",
        "seq": 54,
    },
    ("12-value-types", "S->C", 70025): {"value": "z" * 70000, "tock": 448, "seq": 55},
    ("12-value-types", "S->C", 70045): {
        "value": "z" * 70000,
        "tock": 448,
        "path": (26,),
        "depth": 0,
        "seq": 84,
        "wseq": 28,
    },
}


@dataclass
class Event:
    """One message, or one side's end of file (`raw` is then empty)."""

    from_client: bool
    raw: bytes
    # False where the recording was cut and could not be completed: `raw` is then a beginning.
    complete: bool = True
    # Set by `Exchange`: an order over all connections.
    key: float = 0.0

    @property
    def is_eof(self) -> bool:
        """Whether this is the end of file."""
        return not self.raw

    @property
    def message(self) -> Any:
        """The decoded message."""
        return mp.decode(self.raw)


@dataclass
class Connection:
    """One connection of an exchange."""

    number: int
    node: str
    events: List[Event] = field(default_factory=list)
    # The recorder left messages out at the end.
    cut_short: bool = False


def _complete(exchange: str, direction: str, text: str, raw: bytes, size: int) -> Optional[bytes]:
    """The bytes of a message of which only the beginning was recorded, if its text was."""
    message = _CUT.get((exchange, direction, size))
    if message is None:
        if text.endswith("…"):
            return None
        source = re.sub(r"Ext3:Path\(", "Path(", text)
        source = re.sub(r"Ext2:bignum\(", "bignum(", source)
        message = eval(source, dict(_NAMES))  # pylint: disable=eval-used
    full = mp.encode(message)
    assert len(full) == size and full.startswith(raw), (exchange, text[:80])
    return full


def read(path: Path) -> Connection:
    """Reads one transcript."""
    lines = path.read_text(encoding="utf-8").splitlines()
    title = _TITLE.match(lines[0])
    name = _NAME.match(path.name[: -len(".txt")])
    assert title and name, path
    node = "n2" if title[2] == "peer-" else "n1"
    conn = Connection(number=int(name["number"] or 1), node=node)
    pending: Optional[Tuple[str, str]] = None
    for line in lines[1:]:
        event, data = _EVENT.match(line), _BYTES.match(line)
        if event:
            pending = (event[2], event[3])
            if event[3] == "EOF":
                conn.events.append(Event(event[2] == "C->S", b""))
        elif data:
            assert pending, (path, line)
            direction, text = pending
            raw, size = bytes.fromhex(data[2]), int(data[1])
            full = _complete(title[1], direction, text, raw, size) if data[3] else raw
            conn.events.append(Event(direction == "C->S", full or raw, full is not None))
        elif _MORE.match(line):
            conn.cut_short = True
        else:
            assert not line.strip(), (path, line)
    return conn


@dataclass
class Exchange:
    """One numbered exchange: one or several connections, and one order of all their events."""

    name: str
    connections: List[Connection]

    @property
    def nodes(self) -> List[str]:
        """The nodes that take part."""
        return sorted({conn.node for conn in self.connections})

    def in_order(self) -> List[Tuple[Connection, Event]]:
        """All events, in an order in which they can have happened.

        Each connection's times count from its own beginning, so times tell nothing across
        connections; the tocks in the replies do. A request comes just before what it brought
        about (a change, a new tock), or just after the change whose tock it read."""
        for conn in self.connections:
            _set_keys(conn)
        self._messages_after_their_sending()
        events = [
            (event.key, index, number, conn, event)
            for index, conn in enumerate(self.connections)
            for number, event in enumerate(conn.events)
        ]
        events.sort(key=lambda e: e[:3])
        return [(conn, event) for *_, conn, event in events]

    def _messages_after_their_sending(self) -> None:
        """A message through the network carries no tock from node to node: it comes after its
        `msg_send`, whatever the tocks say."""
        sent = sorted(
            event.key
            for conn in self.connections
            for event in conn.events
            if event.from_client and event.raw and _is(event, "action", "msg_send")
        )
        for conn in self.connections:
            seen, latest = 0, 0.0
            for event in conn.events:
                if event.raw and not event.from_client and _is(event, "topic"):
                    latest = max(latest, sent[seen] + 0.1)
                    seen += 1
                latest = max(latest, event.key)
                event.key = latest


def _is(event: Event, field_name: str, value: Any = None) -> bool:
    message = event.message if event.complete else None
    if not isinstance(message, dict) or field_name not in message:
        return False
    return value is None or message[field_name] == value


def _set_keys(conn: Connection) -> None:
    latest = 0.0
    for i, event in enumerate(conn.events):
        if not event.from_client:
            if not event.is_eof and event.complete and isinstance(event.message, dict):
                latest = max(latest, event.message["tock"])
        elif event.is_eof:
            # Before the streams' ends that it brings about, if there are any.
            later = [e.message["tock"] for e in conn.events[i:] if e.raw and not e.from_client]
            latest = max(latest, min(later, default=latest + 1) - 0.5)
        else:
            latest = max(latest, _request_key(conn, i))
        event.key = latest


def _request_key(conn: Connection, index: int) -> float:
    request = conn.events[index].message
    if not isinstance(request, dict) or "action" not in request:
        return 0.0
    for event in conn.events[index:]:
        if event.from_client or event.is_eof or not event.complete:
            continue
        reply = event.message
        if reply.get("seq") == request.get("seq"):
            old = ("value" in reply or request["action"] == "get_value") and "path" not in request
            old = old or (request["action"] == "get_value" and event_is_read(reply))
            if old:
                return reply["tock"] + 0.25
            # Two nodes may use a tock twice; what is no change then came before what is one.
            return reply["tock"] - (0.5 if "changed" in reply else 0.6)
    return 0.0


def event_is_read(reply: Dict[str, Any]) -> bool:
    """Whether the reply's tock is that of an entry, not a new one: it comes before `seq`."""
    return list(reply)[-1] == "seq"


def exchanges() -> Dict[str, Exchange]:
    """All exchanges with a server's client port, by name."""
    found: Dict[str, Exchange] = {}
    for path in sorted(WIRE.glob("[0-9]*.txt")):
        if ".file." in path.name:
            continue  # what the server wrote to disk
        name = _NAME.match(path.name[: -len(".txt")])
        assert name
        exchange = found.setdefault(name["exchange"], Exchange(name["exchange"], []))
        exchange.connections.append(read(path))
    return found
