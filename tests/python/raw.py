"""A client connection in bytes, for what the real client hides or cannot do."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any, Deque, Dict, List

import msgpack_raw as mp

# Seconds to wait for a message that has to come. Generous: the machine may be busy.
PATIENCE = 60.0


class Closed(Exception):
    """The server closed the connection."""


class Message(dict):
    """A decoded message that remembers its bytes."""

    # The greatest tock that the connection had told before this message.
    tock_before = 0

    def __init__(self, raw: bytes):
        decoded = mp.decode(raw)
        assert isinstance(decoded, dict), decoded
        super().__init__(decoded)
        self.raw = raw

    def field(self, name: str) -> bytes:
        """The bytes of one field."""
        return dict(mp.fields(self.raw))[name]

    @property
    def order(self) -> List[str]:
        """The fields' names in the order they were sent in."""
        return [key for key, _ in mp.fields(self.raw)]


class RawConnection:
    """One TCP connection to a node's client port. `hello` is the server's greeting."""

    def __init__(self, address: str, qlen: int = 0):
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buf = b""
        self._seq = 0
        self._tock = 0
        self.waiting: Dict[Any, Deque[Message]] = {}
        self.hello = self.receive()
        if qlen:
            self.send(seq=0, qlen=qlen)

    def __enter__(self) -> "RawConnection":
        return self

    def __exit__(self, *_exc: Any) -> None:
        self.sock.close()

    # bytes

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes as they are."""
        self.sock.settimeout(PATIENCE)
        self.sock.sendall(data)

    def finish(self) -> None:
        """Says that this side sends nothing more, and goes on reading."""
        self.sock.shutdown(socket.SHUT_WR)

    def receive_bytes(self, timeout: float = PATIENCE) -> bytes:
        """The next message of any request, as bytes. Raises `Closed` at the end, `TimeoutError`
        after `timeout` seconds without one."""
        while True:
            try:
                end = mp.skip(self._buf)
            except mp.Incomplete:
                pass
            else:
                raw, self._buf = self._buf[:end], self._buf[end:]
                return raw
            self.sock.settimeout(timeout)
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed(f"closed by the server, {len(self._buf)} bytes left over")
            self._buf += data

    def receive(self, timeout: float = PATIENCE) -> Message:
        """As `receive_bytes`, decoded."""
        msg = Message(self.receive_bytes(timeout))
        msg.tock_before = self._tock
        if isinstance(msg.get("tock"), int):
            self._tock = max(self._tock, msg["tock"])
        return msg

    # requests

    def send(self, **msg: Any) -> None:
        """Sends one message."""
        self.send_bytes(mp.encode(msg))

    def start(self, action: str, **params: Any) -> int:
        """Sends a request without waiting; returns its seq."""
        self._seq += 1
        self.send(action=action, seq=self._seq, **params)
        return self._seq

    def start_bytes(self, action: str, **params: bytes) -> int:
        """As `start`, with each parameter's bytes as they are."""
        self._seq += 1
        own = {"action": mp.encode(action), "seq": mp.encode(self._seq)}
        pairs = [mp.encode(key) + value for key, value in {**own, **params}.items()]
        self.send_bytes(bytes([0x80 | len(pairs)]) + b"".join(pairs))
        return self._seq

    def reply(self, seq: Any, timeout: float = PATIENCE) -> Message:
        """The next message of request `seq`; others are kept for later."""
        queue = self.waiting.setdefault(seq, deque())
        while not queue:
            msg = self.receive(timeout)
            self.waiting.setdefault(msg.get("seq"), deque()).append(msg)
        return queue.popleft()

    def request(self, action: str, **params: Any) -> Message:
        """Sends a request and returns its (first) reply."""
        return self.reply(self.start(action, **params))

    def ok(self, action: str, **params: Any) -> Message:
        """As `request`, for one that must succeed."""
        msg = self.request(action, **params)
        assert "error" not in msg, msg
        return msg

    def error(self, action: str, **params: Any) -> Message:
        """As `request`, for one that must fail; a stream's error is taken out of its stream."""
        seq = self.start(action, **params)
        msg = self.reply(seq)
        if msg.get("state") == "start":
            msg = self.reply(seq)
            end = self.reply(seq)
            assert end.get("state") == "end", end
        check_error(msg, seq)
        return msg

    def life(self) -> str:
        """The life of the node, as it is spelled in chains."""
        life: str = self.ok("status")["life"]
        return life

    def stream(self, action: str, **params: Any) -> List[Message]:
        """Sends a request and returns its whole stream, without start and end."""
        seq = self.start(action, **params)
        msg = self.reply(seq)
        assert msg.get("state") == "start", msg
        return self.rest(seq)

    def rest(self, seq: int) -> List[Message]:
        """The messages of a stream until its end."""
        res = []
        while True:
            msg = self.reply(seq)
            if msg.get("state") == "end":
                return res
            res.append(msg)

    def silence(self, seq: Any) -> None:
        """Asserts that nothing of request `seq` has been sent: requests of one connection are
        read in order, so what was due before it comes before this request's reply."""
        self.ok("get_tock")
        assert not self.waiting.get(seq), self.waiting[seq]


def check_error(msg: Dict[str, Any], seq: Any) -> None:
    """Asserts that a message is an error as ours are: text, code, the request's seq, a tock."""
    assert isinstance(msg.get("error"), str) and msg["error"], msg
    assert isinstance(msg.get("code"), str) and msg["code"], msg
    assert "etype" not in msg, msg
    assert msg.get("seq") == seq, msg
    assert isinstance(msg.get("tock"), int), msg


def long_paths(messages: List[Dict[str, Any]]) -> List[tuple]:
    """The full paths (below the request's) of a stream's shortened ones."""
    res: List[tuple] = []
    last: tuple = ()
    for msg in messages:
        if "path" not in msg:
            continue
        last = last[: msg["depth"]] + mp.elements(msg["path"])
        res.append(last)
    return res
