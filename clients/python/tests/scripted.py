"""Nodes that do what a test says: they speak the protocol, and answer, stay silent, break off or send garbage."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable

from distkv_client.codec import Splitter, decode_message, encode
from distkv_client.errors import ProtocolError

SILENCE = object()
"""No answer comes."""
RESET = object()
"""The connection ends instead of an answer."""
_held: list[socket.socket] = []
"""The ports of this test's nodes."""


def let_go() -> None:
    """The test has ended: others may have the ports of its nodes."""
    while _held:
        _held.pop().close()


class ScriptedNode:
    """One node. `script` is asked for each request that the node does not answer by itself: a map is the reply,
    bytes are sent as they are, SILENCE and RESET do what they say."""

    def __init__(self, name: str, script: Callable[[dict], object] | None = None, *, is_old: bool = False) -> None:
        self.name = name
        self.script = script or (lambda request: {"value": name, "tock": 1})
        self.is_old = is_old
        self.peers: list[ScriptedNode] = [self]
        self.requests: list[dict] = []
        self.accepted = 0
        self.qlen = 10
        self.came = 0
        """Bytes that clients have sent."""
        self.network: str | None = None if is_old else f"scripted-{os.getpid()}"
        """Its network's name; older nodes tell none. A client of another test, whose node was killed and had this one's
        port, must not take this one for it."""
        self.tock: int | None = None
        """What its clock shows in all that it answers by itself; none: it is not told."""
        self.table: Callable[[dict], object] | None = None
        """What answers for the table of shards; none: that it is empty."""
        self.tls: ssl.SSLContext | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self.greets: dict[str, object] = {}
        """More of its greeting."""
        self.is_ready = True
        self.lets_in = True
        """Whether logins succeed, where the greeting asks for them."""
        self.refuses = "auth_failed"
        """The code with which they fail."""
        self.turns_away: str | None = None
        """The code that it says instead of a greeting, and closes."""
        self.hangs_up: str | None = None
        """The code that it says instead of an answer to a login, without its number, and closes."""
        self.is_full = False
        """Whoever has logged in may not even ask who it is: the connection ends, too."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._views: list[tuple[asyncio.StreamWriter, int]] = []
        self.states: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        """Where it says that others are, as far as that is wrong."""
        self.views_end = False
        """Each view that is watched ends after its first message."""
        self._tasks: set[asyncio.Future] = set()

    async def start(self) -> ScriptedNode:
        """Starts it; once more, where it was before."""
        if not self.port:
            # Nobody else gets the port, also while this node is stopped: whoever connects then is refused.
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind((self.host, 0))
            self.port = held.getsockname()[1]
            _held.append(held)
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls, reuse_address=True)
        self.address = f"{self.host}:{self.port}"
        return self

    async def stop(self) -> None:
        self._server.close()
        self.drop()
        await self._server.wait_closed()

    def drop(self) -> None:
        """Ends all connections."""
        self._views.clear()
        for writer in list(self._writers):
            writer.transport.abort()

    def close_with(self, code: str) -> None:
        """Ends all connections, and says why."""
        self._views.clear()
        for writer in list(self._writers):
            _say_last(writer, error(code))

    def actions(self, action: str) -> list[dict]:
        return [request for request in self.requests if request.get("action") == action]

    def view(self) -> dict:
        nodes = [
            {
                "name": peer.name,
                "incarnation": 7,
                "client": self.shown.get(peer.name, peer.address),
                "gossip": None,
                "state": "self" if peer is self else self.states.get(peer.name, "up"),
                "ready": peer.is_ready,
                "housekeeper": None,
            }
            for peer in self.peers
        ]
        return {"epoch": 1, "nodes": nodes, "id": {"name": self.name, "incarnation": 7}}

    def _shown(self) -> dict:
        return {} if self.tock is None else {"tock": self.tock}

    def tell_views(self) -> None:
        for writer, seq in self._views:
            writer.write(encode({"seq": seq, "cluster": self.view(), "wseq": 3}))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        if self.turns_away is not None:
            _say_last(writer, {"seq": 0, **error(self.turns_away)})
            await reader.read()
            self._writers.discard(writer)
            writer.close()
            return
        greeting = {"seq": 0, "version": [0, 65, 0], "node": self.name, "tick": 1, "tock": 1, "qlen": self.qlen}
        if self.network is not None:
            greeting["network"] = self.network
        greeting |= self.greets
        writer.write(encode(greeting))
        splitter = Splitter()
        try:
            while data := await reader.read(65536):
                self.came += len(data)
                for part in splitter.split(data):
                    if not self._answer(decode_message(part), writer):
                        writer.transport.abort()
                        return
        except (ConnectionError, ProtocolError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _answer(self, request: dict, writer: asyncio.StreamWriter) -> bool:
        action, seq = request.get("action"), request.get("seq")
        if action is None:
            return True
        self.requests.append(request)
        if action in ("cluster", "watch_cluster", "list_shards") and self.is_old:
            reply: object = {"error": f"unknown action {action}"}
        elif action == "auth" and self.hangs_up is not None:
            _say_last(writer, error(self.hangs_up))
            return True
        elif action == "auth":
            outcome = {"state": "end"} if self.lets_in else error(self.refuses)
            parts = ({"state": "start"}, outcome)
            reply = b"".join(encode({**part, **self._shown(), "seq": seq}) for part in parts)
        elif action == "cluster" and self.is_full:
            _say_last(writer, {**error("too_many"), "seq": seq}, error("too_many"))
            return True
        elif action == "cluster":
            reply = {**self.view(), **self._shown()}
        elif action == "watch_cluster":
            writer.write(encode({"seq": seq, "state": "start", "wseq": 1}))
            writer.write(encode({"seq": seq, "cluster": self.view(), "wseq": 2}))
            if self.views_end:
                writer.write(encode({"seq": seq, "state": "end", "wseq": 3}))
            else:
                self._views.append((writer, seq))
            return True
        elif action == "list_shards":
            reply = {"result": [], "next": None} if self.table is None else self.table(request)
        elif action == "auth_info":
            reply = self._shown()
        else:
            reply = self.script(request)
        if reply is RESET:
            return False
        if isinstance(reply, bytes) and hasattr(reply, "size"):
            task = asyncio.ensure_future(_piecemeal(writer, reply, reply.size))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(reply, bytes):
            writer.write(reply)
        elif reply is not SILENCE:
            writer.write(encode({**reply, "seq": seq}))
        return True


def _say_last(writer: asyncio.StreamWriter, *words: dict) -> None:
    """The connection ends after these, and not before they were read, whatever the client sends meanwhile."""
    if not writer.is_closing():
        writer.write(b"".join(encode(word) for word in words))
        writer.write_eof()


async def _piecemeal(writer: asyncio.StreamWriter, data: bytes, size: int) -> None:
    try:
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0.001)
    except ConnectionError:
        pass  # The client has left.


async def start(*nodes: ScriptedNode) -> list[str]:
    """Starts them as one network; their addresses."""
    for node in nodes:
        await node.start()
        node.peers = list(nodes)
    return [node.address for node in nodes]


def error(code: str | None, text: str = "no") -> dict:
    return {"error": text} if code is None else {"error": text, "code": code}


WRITTEN = {"changed": True, "chain": {"node": "x~7", "tick": 1, "prev": None}, "tock": 5}

__all__ = ["RESET", "SILENCE", "WRITTEN", "ScriptedNode", "error", "let_go", "start"]
