#!/usr/bin/env python3
"""Follows one value from the socket of the client that sets it to a watcher at another node: the files of this project
that it comes through, in order, as the processor went through them and not as somebody describes it.

    benches/follow-value.py [NODE]

NODE is a program with symbols and lines that was built from this folder: debug/distkv-node in CARGO_TARGET_DIR, which is
target unless it is set, if none is named. Two nodes run under valgrind's
`lackey`, which tells of each block of instructions. What they do while nothing happens is left out, and so are blocks that
the start-up and twenty values before it went through last. For each node, a line per file: when it was first come to
(1, 2, ...), in how many stretches (a file that calls others goes on afterwards), how many functions of it, and its name. The files of
crates/model are counted and not listed: all others use them. Needs valgrind, and addr2line and readelf (of binutils).
Takes about half a minute.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IDLE_SECONDS = 8.0
"""Longer than the interval of anything that a node does by itself."""
FLUSH_SECONDS = 2.0
"""Within this time what was traced has come through the pipe."""
PATIENCE = 120.0
OURS = re.compile(re.escape(str(ROOT)) + r"/((?:crates|src)/[^:]*\.rs):")
EVERYWHERE = "crates/model/"
"""Values, paths and entries are read and written at each place."""


class Traced:
    """A node under valgrind. Of its trace, what comes while a window is open is kept."""

    def __init__(self, program: str, name: str, *args: str) -> None:
        reading, writing = os.pipe()
        self._pipe = os.fdopen(reading, "rb")
        self.window: bytearray | None = None
        threading.Thread(target=self._read, daemon=True).start()
        options = ["--network", "followed", "--threads", "1", "--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--json"]
        self.process = subprocess.Popen(
            ["valgrind", "--tool=lackey", "--basic-counts=no", "--trace-superblocks=yes", f"--log-fd={writing}", program]
            + [*args, "--name", name, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            pass_fds=[writing],
        )
        os.close(writing)
        try:
            self._learn(program, name)
        except BaseException:
            self.process.kill()
            self.process.wait(PATIENCE)
            raise

    def _learn(self, program: str, name: str) -> None:
        """Where it listens, and where its program is in its memory."""
        ready = self.process.stdout.readline() if self.process.stdout else ""
        self.client = self._address(ready, "client")
        self.gossip = self._address(ready, "gossip")
        maps = Path(f"/proc/{self.process.pid}/maps").read_text()
        first = next((line for line in maps.splitlines() if line.endswith(program)), None)
        if first is None:
            raise SystemExit(f"{program} is not among the files that {name} has mapped")
        self.base = int(first.split("-")[0], 16)

    @staticmethod
    def _address(ready: str, kind: str) -> str:
        found = re.search(f'"{kind}":"([^"]*)"', ready)
        if found is None:
            raise SystemExit(f"a node has not started: {ready!r}")
        return found[1]

    def _read(self) -> None:
        while piece := os.read(self._pipe.fileno(), 1 << 20):
            window = self.window
            if window is not None:
                window += piece

    def close_window(self) -> list[int]:
        """Addresses of blocks, in order, as in the file; the window is closed."""
        window, self.window = self.window or bytearray(), None
        # The first and the last line may be cut.
        lines = bytes(window).split(b"\n")[1:-1]
        return [int(line[3:], 16) - self.base for line in lines if line.startswith(b"SB ")]


def message(**fields: object) -> bytes:
    """A small map in MessagePack: of short texts, lists of them, and small numbers."""

    def one(value: object) -> bytes:
        if isinstance(value, str):
            return bytes([0xA0 | len(value)]) + value.encode()
        if isinstance(value, list):
            return bytes([0x90 | len(value)]) + b"".join(map(one, value))
        assert isinstance(value, int) and value < 128
        return bytes([value])

    return bytes([0x80 | len(fields)]) + b"".join(one(part) for field in fields.items() for part in field)


def places(program: str, addresses: set[int]) -> dict[int, tuple[str, str] | None]:
    """For each address, the function that it is in and that function's file, where the file is ours."""
    listed = sorted(address for address in addresses if address > 0)
    told = subprocess.run(
        ["addr2line", "-f", "-i", "-C", "-a", "-e", program],
        input="\n".join(map(hex, listed)),
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[int, tuple[str, str] | None] = {}
    at = 0
    lines = iter(told.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            at = int(line, 16)
            continue
        # The last pair of an address is the function that the others were inlined into.
        where = OURS.search(next(lines, ""))
        # The library's root has no code of its own: what is put down to it is of the standard library.
        found[at] = (line, where[1]) if where and where[1] != "src/lib.rs" else None
    return found


def show(name: str, visited: list[tuple[str, str]]) -> None:
    """The files, in the order in which they were first come to."""
    functions: dict[str, int] = {}
    stretches: dict[str, int] = {}
    used = {file for _, file in visited if file.startswith(EVERYWHERE)}
    last = ""
    for _, file in visited:
        if file in used:
            continue
        functions[file] = functions.get(file, 0) + 1
        if file != last:
            stretches[file] = stretches.get(file, 0) + 1
        last = file
    once = sum(count == 1 for count in stretches.values())
    print(f"\n{name}: {len(functions)} files, {once} of them in one stretch; and {len(used)} of {EVERYWHERE}")
    print("ORDER STRETCHES FUNCTIONS FILE")
    for order, file in enumerate(functions, 1):
        print(f"{order:5} {stretches[file]:9} {functions[file]:9} {file}")


def program_of(arguments: list[str]) -> str:
    """The node's program, of which all is known that must be before it is traced."""
    # Relative to this folder, as for cargo, that builds here.
    target = ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")
    program = str(Path(arguments[0] if arguments else target / "debug/distkv-node").resolve())
    for needed in ("valgrind", "addr2line", "readelf"):
        if shutil.which(needed) is None:
            raise SystemExit(f"{needed} is not there")
    if shutil.which(program) is None:
        raise SystemExit(f"{program} is no program; build it (cargo build), or name another one")
    sections = subprocess.run(["readelf", "--sections", "--wide", program], capture_output=True, text=True)
    if ".debug_line" not in sections.stdout:
        raise SystemExit(f"{program} does not know the lines of its source; name one that cargo build has made")
    told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    if not told.stdout.startswith("distkv-node "):
        raise SystemExit(f"{program} is no distkv-node: asked for its version it says {told.stdout[:80]!r}")
    return program


def main() -> None:
    """The command."""
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print(__doc__)
        return
    if len(sys.argv) > 2:
        raise SystemExit(__doc__)
    program = program_of(sys.argv[1:])
    nodes: list[Traced] = []
    watcher = None
    with tempfile.TemporaryFile() as watched:
        try:
            nodes.append(Traced(program, "n1", "run", "--peer-wait", "0s"))
            nodes.append(Traced(program, "n2", "join", nodes[0].gossip))
            for node in nodes:
                wait = [program, "wait", "--members", "2", "--timeout", f"{PATIENCE}s", "--connect", node.client]
                subprocess.run(wait, check=True, stdout=subprocess.DEVNULL)
            watch = [program, "watch", "a", "--fetch", "--json", "--connect", nodes[1].client]
            watcher = subprocess.Popen(watch, stdout=watched)

            def wait_for(what: str, why: str) -> None:
                """Until the watcher has printed it."""
                end = time.monotonic() + PATIENCE
                while what.encode() not in os.pread(watched.fileno(), 1 << 20, 0):
                    if watcher.poll() is not None or time.monotonic() > end:
                        raise SystemExit(why)
                    time.sleep(0.02)

            # What is written before is no event of it.
            wait_for('"uptodate"', f"the watch at {nodes[1].client} has not begun")
            host, port = nodes[0].client.rsplit(":", 1)
            with socket.create_connection((host, int(port)), PATIENCE) as client:

                def put(value: str) -> None:
                    client.sendall(message(seq=1, action="set_value", path=["a", "b"], value=value))
                    while b"changed" not in client.recv(65536):
                        pass
                    wait_for(value, f"{value} has not come to the watcher")

                for number in range(20):
                    put(f"value {number} before")
                idle: set[int] = set()
                time.sleep(FLUSH_SECONDS)
                for node in nodes:
                    node.window = bytearray()
                time.sleep(IDLE_SECONDS)
                for node in nodes:
                    idle.update(node.close_window())
                    node.window = bytearray()
                put("the value")
                time.sleep(FLUSH_SECONDS)
                ways = [node.close_window() for node in nodes]
        finally:
            for process in [watcher, *(node.process for node in nodes)]:
                if process is not None:
                    process.terminate()
                    process.wait(PATIENCE)
    found = places(program, idle.union(*ways))
    usual = {found.get(address) for address in idle}
    if not any(found.values()):
        raise SystemExit(f"{program} was not built from {ROOT}: none of what it did is known there")
    for name, way in zip(("n1", "n2"), ways, strict=True):
        visited: dict[tuple[str, str], None] = {}
        for address in way:
            place = found.get(address)
            if place is not None and place not in usual:
                visited.setdefault(place)
        if not visited:
            raise SystemExit(f"nothing of {name}'s own way was traced; try again")
        show(name, list(visited))


if __name__ == "__main__":
    main()
