"""Several hosts on one machine: network namespaces, joined by two switches and a cable between them that can be cut, as in
tests/program/hosts.rs. A browser runs on the first host, and asks the node there over loopback, which is never cut."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import List, Sequence

import nodes
from page_browser import chromium

HOLD = ["sh", "-c", "echo made && exec cat"]


class _Space:
    """A network namespace, held by a process that ends when its standard input does: with the test."""

    def __init__(self, command: Sequence[str], options: Sequence[str]):
        # pylint: disable-next=consider-using-with
        self._holder = subprocess.Popen([*command, *HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout and self._holder.stdin
        made = self._holder.stdout.readline()
        assert made == b"made\n", f"no network namespace: {' '.join(command)}"
        self.pid = self._holder.pid
        # The holder may be a child's child: where a user namespace was made, it is the same process all the same.
        self.prefix = ["nsenter", *[option.format(pid=self.pid) for option in options], "--"]

    def ip(self, lines: str) -> None:
        """Runs lines of `ip` commands there."""
        subprocess.run([*self.prefix, "ip", "-batch", "-"], input=lines.encode(), check=True)

    def end(self) -> None:
        """Ends it."""
        assert self._holder.stdout and self._holder.stdin
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


class Hosts:
    """As many hosts as `switches` has numbers, each with a node: plugged into that switch, 0 or 1."""

    def __init__(self, *switches: int):
        self._folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.nodes: List[nodes.Node] = []
        self.hosts: List[_Space] = []
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        enter = [f"--{kind}=/proc/{{pid}}/ns/{kind}" for kind in (["user", "net"] if user else ["net"])]
        if user:
            enter.append("--preserve-credentials")
        self._switches = _Space(["unshare", *user, "--net"], enter)
        self._switches.ip(
            "link set lo up\nlink add s0 type bridge\nlink add s1 type bridge\n"
            "link add cable0 type veth peer name cable1\nlink set cable0 master s0 up\n"
            "link set cable1 master s1 up\nlink set s0 up\nlink set s1 up\n"
        )
        for number, switch in enumerate(switches):
            host = _Space([*self._switches.prefix, "unshare", "--net"], enter)
            self.hosts.append(host)
            self._switches.ip(
                f"link add d{number} type veth peer name eth0 netns {host.pid}\nlink set d{number} master s{switch} up\n"
            )
            host.ip(
                "link set lo up\n"
                # An IPv6 address that comes a second later is a change of the network, for which the browser gives up
                # all requests under way.
                "link set eth0 addrgenmode none\n"
                f"addr add 10.77.0.{number + 1}/24 dev eth0\nlink set eth0 up\n"
            )

    def start(self, *options: str) -> None:
        """Starts a node on each host; `options` are for all."""
        for number, host in enumerate(self.hosts):
            args = ["--gossip", f"10.77.0.{number + 1}:27587", "--client", "127.0.0.1:27586", "--http", "127.0.0.1:0"]
            args += ["--network", "plant", "--insecure", *options]
            start = ["join", "10.77.0.1:27587"] if number else ["run", "--peer-wait", "0s"]
            self.nodes.append(nodes.Node(*start, *args, name=f"n{number + 1}", prefix=host.prefix))

    @property
    def address(self) -> str:
        """Where the browser finds the first node's page."""
        return f"http://{self.nodes[0].http}"

    def browser(self) -> str:
        """A program that is the browser, on the first host."""
        program = Path(self._folder.name) / "chromium"
        program.write_text(f"#!/bin/sh\nexec {' '.join(self.hosts[0].prefix)} {chromium()} \"$@\"\n")
        program.chmod(0o755)
        return str(program)

    def call(self, number: int, *args: str) -> str:
        """Runs a command of ours at the node of that number, from 1."""
        command = [*self.hosts[number - 1].prefix, nodes.binary(), *args, "--connect", "127.0.0.1:27586"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
        return done.stdout

    def cut(self) -> None:
        """Cuts the cable between the switches: the hosts see nothing but silence."""
        self._switches.ip("link set cable0 down\n")

    def mend(self) -> None:
        """Puts it back."""
        self._switches.ip("link set cable0 up\n")

    def with_cable_of_its_own(self) -> List[str]:
        """What to put in front of a command so that it runs where the switches are, and reaches all hosts by cables that are
        never cut."""
        for number, host in enumerate(self.hosts, start=1):
            self._switches.ip(
                f"link add m{number} type veth peer name mgmt netns {host.pid}\n"
                f"addr add 10.78.{number}.1/30 dev m{number}\nlink set m{number} up\n"
                f"route add 10.77.0.{number}/32 via 10.78.{number}.2\n"
            )
            host.ip(f"addr add 10.78.{number}.2/30 dev mgmt\nlink set mgmt up\n")
        return self._switches.prefix

    def end(self) -> None:
        """Ends all."""
        for node in self.nodes:
            node.stop()
        for space in [*self.hosts, self._switches]:
            space.end()
        self._folder.cleanup()
