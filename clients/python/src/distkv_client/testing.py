"""Real nodes for your own tests: each is a `distkv-node` process with ports of its own.

The program is the one that `DISTKV_NODE_BIN` names, else `distkv-node` on the PATH. Everything waits for
readiness; nothing is kept when a node has ended.

>>> with Cluster(1) as cluster:
...     cluster[0].name
'n1'
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import IO, Any

START_PATIENCE = 60.0
"""Seconds from the start of a process to its line on stdout."""
STOP_PATIENCE = 10.0
"""Seconds until a node that was asked to end is killed."""
LINE_BYTES_MAX = 64 << 10
"""Longest line that says where a node is."""
PORT_TAKEN = "is in use by another program"
"""What a node says at the end of its log if one of its ports is taken."""

_numbers = itertools.count(1)


def binary() -> str:
    """The program. Raises :class:`RuntimeError` where there is none."""
    path = os.environ.get("DISTKV_NODE_BIN") or shutil.which("distkv-node")
    if path is None or not os.access(path, os.X_OK):
        raise RuntimeError("there is no distkv-node: name one in DISTKV_NODE_BIN")
    return path


class Node:
    """One node. It runs when this returns."""

    def __init__(self, *args: str, name: str) -> None:
        self.name = name
        self._args = args
        self._log: IO[bytes] = tempfile.TemporaryFile()
        self.client = ""
        """The address for clients."""
        self.gossip = ""
        """The address for peers."""
        self._start()

    def _start(self, client: str = "127.0.0.1:0", gossip: str = "127.0.0.1:0") -> None:
        command = [binary(), *self._args, "--name", self.name, "--json"]
        for option, address in (("--client", client), ("--gossip", gossip)):
            if option not in self._args:
                command += [option, address]
        deadline = time.monotonic() + START_PATIENCE
        while (told := self._try_start(command, deadline)) is None:
            time.sleep(0.1)
        self.client = str(told["client"])
        self.gossip = str(told["gossip"])

    def _try_start(self, command: list[str], deadline: float) -> Any:
        """Where it listens. `None`: another program has taken the port of a node that had ended, as the system gives
        it to any connection for a while."""
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log)
        try:
            return json.loads(self._first_line(deadline))
        except BaseException as error:
            last = self.log().rstrip().rpartition("\n")[2]
            if isinstance(error, RuntimeError) and PORT_TAKEN in last and time.monotonic() < deadline:
                self._reap()
                return None
            self.stop()
            raise

    def _first_line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                data = os.read(descriptor, 4096) if ready else b""
                if not data or len(line) > LINE_BYTES_MAX:
                    raise RuntimeError(f"{self.process.args!r} did not start; its log:\n{self.log()}")
                line += data
        return line

    def log(self) -> str:
        """What the node wrote to stderr so far."""
        if self._log.closed:
            return ""
        # Where this file is read is where the node writes next, had one moved there.
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def kill(self) -> None:
        """Ends the process at once (SIGKILL)."""
        self.process.kill()
        self._reap()

    def freeze(self) -> None:
        """Stops the process without ending it (SIGSTOP), and waits until it stands still, if it has not ended."""
        self.process.send_signal(signal.SIGSTOP)
        # Threads go on for a moment after the signal.
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Lets a frozen one go on (SIGCONT)."""
        self.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Starts a node that has ended again, at its addresses."""
        self._start(self.client, self.gossip)

    def stop(self) -> None:
        """Ends the process, in order if it can."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._reap()
        self._log.close()

    def _reap(self) -> None:
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Cluster:
    """The nodes of one network of its own, `n1` first. `args` go to each node."""

    def __init__(self, nodes: int = 3, *args: str, network: str | None = None) -> None:
        self.network = network or f"py-{os.getpid()}-{next(_numbers)}"
        self.nodes: list[Node] = []
        self._args = args
        try:
            for _ in range(nodes):
                self.add()
        except BaseException:
            self.stop()
            raise

    def add(self, *args: str, name: str | None = None) -> Node:
        """Starts another node."""
        name = name or f"n{len(self.nodes) + 1}"
        every = ("--network", self.network, *self._args, *args)
        living = next((node for node in self.nodes if node.process.poll() is None), None)
        if living is not None:
            node = Node("join", living.gossip, *every, name=name)
        else:
            # Nobody is there who could call it.
            node = Node("run", "--peer-wait", "0s", *every, name=name)
        self.nodes.append(node)
        return node

    def rejoin(self, index: int, *args: str) -> Node:
        """Starts a node that was killed again, as one that joins, at its addresses for clients and peers."""
        old = self.nodes[index]
        living = next(node for node in self.nodes if node.process.poll() is None)
        every = (
            "--network",
            self.network,
            *self._args,
            *args,
            "--client",
            old.client,
            "--gossip",
            old.gossip,
        )
        self.nodes[index] = Node("join", living.gossip, *every, name=old.name)
        return self.nodes[index]

    @property
    def seeds(self) -> list[str]:
        """The client addresses of all nodes."""
        return [node.client for node in self.nodes]

    def by_name(self, name: str) -> Node:
        """The node of this name."""
        return next(node for node in self.nodes if node.name == name)

    def stop(self) -> None:
        """Ends all nodes."""
        while self.nodes:
            self.nodes.pop().stop()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)
