"""Starts and ends real nodes: `distkv-node` processes with ports of their own."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import raw

REPOSITORY = Path(__file__).resolve().parents[2]
# Seconds from the start of a process to its line on stdout.
START_PATIENCE = 30.0
# A node has to end within 3 s of SIGTERM; the rest is for a busy machine.
STOP_PATIENCE = 10.0

_numbers = itertools.count(1)


# Below all that the system gives to who asks for any port: what is free stays free until it is used.
_ports = itertools.cycle(range(10_000, 30_000))
for _ in range(os.getpid() % 1_000 * 20):
    next(_ports)


def free_ports(count: int = 1) -> int:
    """The first of so many ports in a row where nobody listens."""
    while True:
        ports = [next(_ports) for _ in range(count)]
        with ExitStack() as held:
            try:
                for port in ports:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                if ports[-1] - ports[0] == count - 1:
                    return ports[0]
            except OSError:
                continue


def free_address() -> str:
    """One that nobody listens at."""
    return f"127.0.0.1:{free_ports()}"


def binary() -> str:
    """The program under test: `DISTKV_NODE_BIN`, else the debug build."""
    path = os.environ.get("DISTKV_NODE_BIN") or str(REPOSITORY / "target/debug/distkv-node")
    if not os.access(path, os.X_OK):
        raise RuntimeError(f"{path} is not there: build it, or name one in DISTKV_NODE_BIN")
    return path


class Node:
    """One running node. Its addresses are known as soon as the object is there."""

    def __init__(self, *args: str, name: str, client: Optional[str] = None, prefix: Sequence[str] = ()):
        """`client`: its address, to be chosen before; then the node need not be ready. `prefix`: what starts it."""
        self.name = name
        if client:
            args = (*args, "--client", client)
        self._log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        command = [*prefix, binary(), *args, "--name", name, "--json"]
        for option in ("--client", "--gossip"):
            if option not in args:
                command += [option, "127.0.0.1:0"]
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        try:
            if client:
                self.client = client
                self._accepts()
                return
            line = self._first_line()
            info: Dict[str, str] = json.loads(line)
            assert info["name"] == name, info
            self.client = info["client"]
            self.gossip = info["gossip"]
            self.http = info.get("http")
        except BaseException:
            self.stop()
            raise

    def _first_line(self) -> str:
        """Waits for the one line that says that clients are served."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + START_PATIENCE
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([fd], [], [], max(left, 0))
            data = os.read(fd, 4096) if ready else b""
            if not data:
                why = "ended" if ready else "said nothing"
                raise RuntimeError(f"{self.process.args} {why}; its log:\n{self.log()}")
            line += data
        return line.decode()

    def _accepts(self) -> None:
        """Waits until its client port is open."""
        deadline = time.monotonic() + START_PATIENCE
        while True:
            try:
                self.raw().sock.close()
                return
            except ConnectionRefusedError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log()

    def log(self) -> str:
        """What the node wrote to stderr so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def raw(self, qlen: int = 0) -> raw.RawConnection:
        """A new connection in bytes."""
        return raw.RawConnection(self.client, qlen=qlen)

    def life(self) -> str:
        """The life that the node is in, as it is spelled in chains."""
        with self.raw() as connection:
            return connection.life()

    @property
    def host(self) -> str:
        """The client port's host."""
        return self.client.rsplit(":", 1)[0].strip("[]")

    @property
    def port(self) -> int:
        """The client port."""
        return int(self.client.rsplit(":", 1)[1])

    def stop(self) -> None:
        """Ends the process, in order if it can."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.wait()


class Network:
    """The nodes of one network, `n1` first.

    Its name is its own: a port that one test's node has freed may be another test's next one,
    and nodes call the addresses they have known for long."""

    def __init__(self) -> None:
        self.nodes: List[Node] = []
        self.name = f"test-{os.getpid()}-{next(_numbers)}"

    def add(self, *args: str, name: Optional[str] = None) -> Node:
        """Starts the next node; the first one founds the network."""
        name = name or f"n{len(self.nodes) + 1}"
        args = ("--network", self.name, *args)
        if self.nodes:
            node = Node("join", self.nodes[0].gossip, *args, name=name)
        else:
            # Nobody is there who could call it.
            node = Node("run", "--peer-wait", "0s", *args, name=name)
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        """Ends all nodes."""
        while self.nodes:
            self.nodes.pop().stop()

    def settle(self) -> None:
        """Waits until all nodes account for the same ticks."""
        connections = [node.raw() for node in self.nodes]
        deadline = time.monotonic() + raw.PATIENCE
        try:
            while True:
                states = [_accounted(connection) for connection in connections]
                if all(state == states[0] for state in states):
                    return
                assert time.monotonic() < deadline, states
        finally:
            for connection in connections:
                connection.sock.close()


def _accounted(connection: raw.RawConnection) -> Dict[str, Any]:
    state = connection.ok("get_state", nodes=True, known=True, present=True)
    ticks: Dict[str, Any] = {}
    for name in state["nodes"]:
        # A node without changes is nil to others and may be 0 to itself.
        if state["nodes"][name]:
            both = (state["known"].get(name, ()), state["present"].get(name, ()))
            ticks[name] = (state["nodes"][name], both)
    return ticks
