"""Starts and ends real nodes: `distkv-node` processes with ports of their own."""

from __future__ import annotations

import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import raw

REPOSITORY = Path(__file__).resolve().parents[2]
# Seconds from the start of a process to its line on stdout.
START_PATIENCE = 60.0
# A node has to end within 3 s of SIGTERM; the rest is for a busy machine.
STOP_PATIENCE = 30.0

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
        # Where this file is read is where the node writes next, had one moved there.
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

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

    def freeze(self) -> None:
        """Stops the process without ending it, and waits until it stands still, if it has not ended."""
        self.process.send_signal(signal.SIGSTOP)
        # Threads go on for a moment after the signal.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Lets a frozen one go on."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.wait()


class Network:
    """The nodes of one network, `n1` first.

    Its name is its own: a port that one test's node has freed may be another test's next one,
    and nodes call the addresses they have known for long."""

    def __init__(self, absent: Optional[Absent] = None) -> None:
        """`absent`: nothing is purged here. Of the networks that have the same one, one is there at a time."""
        self.nodes: List[Node] = []
        self.absent = absent
        self.name = absent.network if absent else f"test-{os.getpid()}-{next(_numbers)}"

    def add(self, *args: str, name: Optional[str] = None) -> Node:
        """Starts the next node; the first one founds the network."""
        name = name or f"n{len(self.nodes) + 1}"
        args = ("--network", self.name, *args)
        if self.nodes:
            node = Node("join", self.nodes[0].gossip, *args, name=name)
        elif self.absent:
            node = self.absent.leave_behind(*args, name=name)
        else:
            # Nobody is there who could call it.
            node = Node("run", "--peer-wait", "0s", *args, name=name)
        self.nodes.append(node)
        return node

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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


class Absent:
    """A member of the Delete group that is away for ever, so that no other member can purge anything.

    A node that has been alone for 5 s makes an event, the first list of the Delete group, and purges what is deleted
    every 10 s. A test that counts ticks or reads what is deleted would have to be done by then, on a busy machine, too.
    In a network with an absent member a node makes no such event and purges nothing, however long it takes; clients see
    nothing else of it."""

    def __init__(self) -> None:
        """Has it begin; `leave_behind` waits until it is the Delete group."""
        self._dir = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self._network: Optional[Network] = Network()
        self.network = self._network.name
        self._network.add("--data-dir", f"{self._dir.name}/made", name="absent")

    def _made(self) -> str:
        """The directory of a node that knows of the group and of no peer."""
        if self._network:
            (node,) = self._network.nodes
            with node.raw() as connection:
                _until(lambda: connection.ok("get_state", delete_group=True)["delete_group"], node.log)
            self.stop()
        return f"{self._dir.name}/made"

    def leave_behind(self, *args: str, name: str) -> Node:
        """Starts a node that has learned of the group from the absent member, which is killed then."""
        own = tempfile.mkdtemp(dir=self._dir.name)
        shutil.copytree(self._made(), own, dirs_exist_ok=True)
        options = ("--peer-wait", "0s", "--data-dir", own, "--network", self.network)
        with ExitStack() as after:
            after.callback(shutil.rmtree, own)
            absent = Node("run", *options, name="absent")
            after.callback(absent.stop)
            # It joins the other one, but may have a value for the root.
            node = Node("run", "--peer", absent.gossip, "--peer-wait", f"{START_PATIENCE}s", *args, name=name)
            try:
                self._forget(absent, node)
            except BaseException:
                node.stop()
                raise
            return node

    @staticmethod
    def _forget(absent: Node, node: Node) -> None:
        """Ends the absent member, of which no client of the node is told any more."""
        life = absent.life()
        with node.raw() as connection:
            group = connection.ok("get_state", delete_group=True)["delete_group"]
            assert [member["name"] for member in group["members"]] == ["absent"], group
            absent.kill()
            # Its first list was an event of its own. It is not seen to be gone at once.
            _until(lambda: "error" not in connection.request("kill_node", node=life), node.log)

    def stop(self) -> None:
        """Ends what has not been made yet."""
        if self._network:
            self._network.stop()
            self._network = None


def _until(holds: Callable[[], Any], log: Callable[[], str]) -> None:
    """Waits until something holds; `log` says more if it never does."""
    deadline = time.monotonic() + raw.PATIENCE
    while not holds():
        assert time.monotonic() < deadline, log()
        time.sleep(0.01)


def _accounted(connection: raw.RawConnection) -> Dict[str, Any]:
    state = connection.ok("get_state", nodes=True, known=True, present=True)
    ticks: Dict[str, Any] = {}
    for name in state["nodes"]:
        # A node without changes is nil to others and may be 0 to itself.
        if state["nodes"][name]:
            both = (state["known"].get(name, ()), state["present"].get(name, ()))
            ticks[name] = (state["nodes"][name], both)
    return ticks
