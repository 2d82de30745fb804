"""One scenario: its nodes, scripted or real, its clients, and its steps, played against a driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path as File
from typing import Any

HERE = File(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "clients/python/src"), str(ROOT / "clients/python/tests")]

from distkv_client import Client, Config, TopologyConfig  # noqa: E402
from distkv_client.codec import encode  # noqa: E402
from distkv_client.testing import Cluster, binary  # noqa: E402
from scripted import RESET, SILENCE, ScriptedNode, start  # noqa: E402

FIXTURES = ROOT / "tests/fixtures/tls"
LANGUAGES = ("python", "go", "rust")
LOOKS_MAX = 800
"""How often a step with `until` is asked again."""
LOOK_INTERVAL = 0.025


class WrongError(Exception):
    """A client did not do what the scenario says."""


class Driver:
    """The process that has the clients."""

    def __init__(self, command: str, planted: str | None = None) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        environment.pop("DISTKV_PLANTED", None)
        if planted is not None:
            environment["DISTKV_PLANTED"] = planted
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment
        )

    def _tell(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise WrongError(f"the driver has ended at {order}:\n{self.log()}")
        return json.loads(answer)

    async def tell(self, order: dict[str, Any]) -> Any:
        """Gives an order; its answer."""
        return await asyncio.to_thread(self._tell, order)

    def log(self) -> str:
        """What it wrote to stderr."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-4000:]

    def stop(self) -> None:
        """Ends it: the end of its input tells it to. What it has failed to close dies with it."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


class Pieces(bytes):
    """Bytes that are sent in pieces."""

    size: int

    def __new__(cls, data: bytes, size: int) -> Pieces:
        made = super().__new__(cls, data)
        made.size = size
        return made


def script_of(node: dict[str, Any]) -> Any:
    """What a scripted node answers, one after the other."""
    answers = [dict(answer) for answer in node.get("answers", [])]

    def script(request: dict[str, Any]) -> object:
        for index, answer in enumerate(answers):
            if answer.get("action", request["action"]) == request["action"]:
                rest = [a for a in answers[index + 1 :] if a.get("action", request["action"]) == request["action"]]
                answer["times"] = answer.get("times", 1) - 1
                if rest and answer["times"] <= 0:
                    answers.pop(index)
                break
        else:
            return {"error": "not in the script", "code": "not_found"}
        if answer.get("silence"):
            return SILENCE
        if answer.get("reset"):
            return RESET
        if "garbage" in answer:
            return bytes.fromhex(answer["garbage"])
        if "stream" in answer:
            parts = enumerate(answer["stream"], 1)
            return b"".join(encode({**part, "seq": request["seq"], "wseq": number}) for number, part in parts)
        reply = dict(answer["reply"])
        if reply.pop("written", None):
            tick = {"node": f"{node['name']}~7", "tick": request["seq"], "prev": None}
            reply = {"changed": True, "chain": tick, "tock": request["seq"], **reply}
        if "split" in answer:
            return Pieces(encode({**reply, "seq": request["seq"]}), answer["split"])
        return reply

    return script


def fits(expected: object, found: object) -> bool:
    """Whether all that is expected is there; maps may have more."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in found and fits(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(fits, expected, found))
    return type(expected) is type(found) and expected == found


def command(*args: str) -> str:
    """A command of the node's program, which must work."""
    done = subprocess.run([binary(), *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"distkv-node {shlex.join(args)}: {done.stderr}")
    return done.stdout


class Scenario:
    """What a file says."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.told = tomllib.loads(file.read_text())
        self.number: int = self.told["number"]
        self.title: str = self.told["title"]
        self.is_real = "cluster" in self.told
        if not file.stem.startswith(f"{self.number:02}-"):
            raise ValueError(f"{file.name} has the number {self.number}")

    def is_for(self, language: str) -> bool:
        """Whether it is played with this language's client."""
        return language in self.told.get("languages", [language])

    def left_out(self, language: str) -> int:
        """Steps that are not for this language."""
        return sum(language not in step.get("languages", [language]) for step in self.told["step"])

    def differ(self, language: str) -> int:
        """Steps and clients of which something else is expected in this language."""
        return sum(language in part for part in [*self.told["step"], *self.told.get("clients", {}).values()])

    async def play(self, driver: Driver, language: str, storm_seconds: float | None = None) -> None:
        """Plays it. Raises :class:`WrongError`."""
        with tempfile.TemporaryDirectory() as folder:
            await Play(self.told, driver, language, File(folder), storm_seconds).run()


class Play:
    """One playing of a scenario."""

    def __init__(
        self, told: dict[str, Any], driver: Driver, language: str, folder: File, storm_seconds: float | None
    ) -> None:
        self.told = told
        self.driver = driver
        self.language = language
        self.folder = folder
        self.storm_seconds = storm_seconds
        self.cluster: Cluster | None = None
        self.scripted = [
            ScriptedNode(node["name"], script_of(node), is_old=node.get("old", False)) for node in told.get("node", [])
        ]
        self.saved: dict[str, object] = {}
        self.admin: list[str] = []
        """By which the node's program logs in."""
        self.seeds: list[str] = []
        self.connected: set[str] = set()

    async def run(self) -> None:
        """The whole of it."""
        mine = (step for step in self.told["step"] if self.language in step.get("languages", [self.language]))
        steps = [self._own(step) for step in mine]
        try:
            addresses = await self._start()
            self.seeds = addresses[: self.told.get("seeds", len(addresses))]
            for client in sorted({step.get("client", "a") for step in steps if "do" in step} | {*self._clients()}):
                if not self._clients().get(client, {}).get("late"):
                    await self._connect(client)
            for number, step in enumerate(steps, 1):
                await self._step(step, f"step {number}: {step}")
            for client in sorted(self.connected):
                answer = await self.driver.tell({"do": "close", "client": client})
                if answer != {"ok": {}}:
                    raise WrongError(f"close: {answer}")
        finally:
            for node in self.scripted:
                await node.stop()
            if self.cluster:
                await asyncio.to_thread(self.cluster.stop)

    def _clients(self) -> dict[str, Any]:
        return {name: self._own(client) for name, client in self.told.get("clients", {}).items()}

    def _own(self, part: dict[str, Any]) -> dict[str, Any]:
        """What counts for this language."""
        whole = {**part, **part.get(self.language, {})}
        return {name: value for name, value in whole.items() if name not in LANGUAGES}

    async def _start(self) -> list[str]:
        if "cluster" not in self.told:
            return await start(*self.scripted)
        await asyncio.to_thread(self._start_real)
        assert self.cluster
        return self.cluster.seeds

    def _start_real(self) -> None:
        count, args = self.told["cluster"], []
        if self.told.get("tls"):
            args = ["--client-plaintext", "none", "--cert", str(FIXTURES / "node.pem")]
            args += ["--cert-key", str(FIXTURES / "node.key")]
        if not self.told.get("key"):
            self.cluster = Cluster(count, *args)
        else:
            network = f"keyed-{os.getpid()}-{random.getrandbits(32)}"
            command("key", "new", "--network", network, "--to", str(self.folder / "key"))
            self.cluster = Cluster(0, *args, network=network)
            for number in range(count):
                # Each node writes its own file.
                own = self.folder / f"key{number}"
                shutil.copy(self.folder / "key", own)
                self.cluster.add("--key", str(own))
            self.admin = ["--key", str(self.folder / "key")]
        if self.told.get("users"):
            self._make_users()

    def _make_users(self) -> None:
        """Users of a network: ann, an admin, and bob, who may read below `open`. Their secrets are their names."""
        assert self.cluster
        at = ["--connect", self.cluster[0].client]
        for name in ("ann", "bob"):
            (self.folder / name).write_text(name)
        command(
            "user", "add", "ann", "--role", "admin", "--new-secret-file", str(self.folder / "ann"), *at, *self.admin
        )
        if not self.admin:
            command("auth", "on", "password", *at)
            self.admin = ["--user", "ann", "--secret-file", str(self.folder / "ann")]
        for pattern in ("open", "open.#"):
            command("acl", "set", "readers", pattern, "rxe", *at, *self.admin)
        bob = ["user", "add", "bob", "--acl", "readers", "--new-secret-file", str(self.folder / "bob")]
        command(*bob, *at, *self.admin)

    async def _connect(self, client: str) -> None:
        config = {**self.told.get("config", {}), **self._clients().get(client, {})}
        config.pop("late", None)
        refused = config.pop("refused", None)
        if config.get("tls", "").endswith(".pem"):
            config["tls"] = str(FIXTURES / config["tls"])
        order = {"do": "connect", "client": client, "seeds": self.seeds, "config": config}
        answer = await self.driver.tell(order)
        if refused and not fits(refused, answer.get("error")):
            raise WrongError(f"client {client} is to be refused with {refused}: {answer}")
        if not refused and answer != {"ok": {}}:
            raise WrongError(f"client {client} does not connect: {answer}")
        if not refused:
            self.connected.add(client)

    async def _step(self, step: dict[str, Any], what: str) -> None:
        if "do" in step:
            await self._order(step, what)
        elif "connect" in step:
            await self._connect(step["connect"])
        elif "storm" in step:
            await self._storm(step["storm"], what)
        elif {"kill", "rejoin", "freeze", "thaw", "rotate", "secret"} & step.keys():
            await asyncio.to_thread(self._happen, step)
        elif "requests" in step:
            await self._requests(step, what)
        else:
            self._scripted(step, what)

    async def _order(self, step: dict[str, Any], what: str) -> None:
        unsaid = ("expect", "error", "save", "until", "never", "languages")
        order = {name: value for name, value in step.items() if name not in unsaid}
        for name, value in order.items():
            if isinstance(value, str) and value.startswith("$"):
                order[name] = self.saved[value[1:]]
        # `until`: the state of the cluster spreads; then it is asked again, for a bounded time.
        looks = LOOKS_MAX if step.get("until") else 1
        for look in range(looks):
            answer = await self.driver.tell(order)
            if "error" in step:
                matches = fits(step["error"], answer.get("error"))
            else:
                matches = "ok" in answer and fits(step.get("expect", answer["ok"]), answer["ok"])
            if "never" in step and fits(step["never"], answer.get("ok")):
                raise WrongError(f"{what}\nwas never to be told: {answer}")
            if matches:
                break
            if look + 1 == looks:
                raise WrongError(f"{what}\nanswered: {answer}")
            # Waiting for an event takes its time by itself.
            await asyncio.sleep(0 if step["do"] == "next" else LOOK_INTERVAL)
        if step["do"] == "close":
            self.connected.discard(step.get("client", "a"))
        if "save" in step:
            self.saved[step["save"]] = answer["ok"]["version"]

    def _node(self, name: str) -> ScriptedNode:
        return next(node for node in self.scripted if node.name == name)

    async def _requests(self, step: dict[str, Any], what: str) -> None:
        """What a scripted node was asked."""
        for _ in range(LOOKS_MAX if step.get("until") else 1):
            asked = self._node(step["requests"]).actions(step["action"])
            if len(asked) == step["count"]:
                break
            await asyncio.sleep(LOOK_INTERVAL)
        else:
            raise WrongError(f"{what}\nit was asked: {asked}")
        if step.get("same_id") and len({request["wid"] for request in asked}) != 1:
            raise WrongError(f"{what}\nthe ids differ: {asked}")

    def _scripted(self, step: dict[str, Any], what: str) -> None:
        """What happens to a scripted node, or how often it was connected to."""
        if "accepted" in step:
            accepted = self._node(step["accepted"]).accepted
            if accepted > step["most"]:
                raise WrongError(f"{what}\nit has accepted {accepted}")
        elif "down" in step:
            for node in self.scripted:
                node.states[step["down"]] = "down"
                node.tell_views()
        else:
            raise ValueError(f"unknown {what}")

    def _happen(self, step: dict[str, Any]) -> None:
        """What happens to a real node, or to the network."""
        assert self.cluster
        match step:
            case {"kill": name}:
                self.cluster.by_name(name).kill()
            case {"rejoin": name}:
                self.cluster.rejoin([node.name for node in self.cluster].index(name))
            case {"freeze": name}:
                self.cluster.by_name(name).freeze()
            case {"thaw": name}:
                self.cluster.by_name(name).thaw()
            case {"rotate": _}:
                at = ["--connect", ",".join(self.cluster.seeds)]
                before = command("key", "list", *at, *self.admin)
                command("key", "rotate", *at, *self.admin)
                if command("key", "list", *at, *self.admin) == before:
                    raise RuntimeError("the key was not exchanged")
            case {"secret": secret}:
                file = self.folder / "secret"
                file.write_text(secret["is"])
                at = ["--connect", self.cluster[0].client]
                command("user", "password", secret["user"], "--new-secret-file", str(file), *at, *self.admin)

    async def _storm(self, storm: dict[str, Any], what: str) -> None:
        """Tasks write and read while nodes are killed and come back."""
        assert self.cluster
        seconds, every = storm["seconds"], storm["every"]
        if self.storm_seconds is not None:
            seconds, every = self.storm_seconds, 4.0
        kills = 0
        found = {}
        for where in ("at preferred nodes", "at random nodes"):
            if where == "at random nodes" and self.storm_seconds is None:
                break
            order: dict[str, Any] = {"do": "storm_begin", "tasks": storm["tasks"]}
            if where == "at random nodes":
                # Nodes of their own: what they have found so far would count.
                await asyncio.to_thread(self._renew)
                await self.driver.tell({"do": "close", "client": "a"})
                self.seeds = self.cluster.seeds
                await self._connect("a")
                order["nodes"] = self.cluster.seeds
            answer = await self.driver.tell(order)
            if answer != {"ok": {}}:
                raise WrongError(f"{what}\n{answer}")
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(every / 2)
                index = random.randrange(len(self.cluster))
                self.cluster[index].kill()
                kills += 1
                await asyncio.sleep(every / 2)
                await asyncio.to_thread(self.cluster.rejoin, index)
                await self._order({"do": "view", "expect": {"nodes": self._all_live()}, "until": True}, what)
            told = (await self.driver.tell({"do": "storm_end"}))["ok"]
            told["conflicts"] = await self._conflicts()
            found[where] = told
            if where == "at random nodes":
                continue
            if told["errors"] or told["missing"] or told["writes"] < storm["tasks"]:
                raise WrongError(f"{what}\n{kills} kills: {told}")
        if len(found) == 2:
            print(
                f"{self.language}: {seconds:.0f} s, {kills} kills in all; "
                + "; ".join(
                    f"{where}: {told['writes']} writes, {told['missing']} missing, {told['conflicts']} conflicts"
                    for where, told in found.items()
                )
            )
            few, many = found["at preferred nodes"], found["at random nodes"]
            if few["conflicts"] / few["writes"] > many["conflicts"] / max(many["writes"], 1) / 100:
                raise WrongError(f"{what}\nconflicts are not a hundred times fewer: {found}")

    def _renew(self) -> None:
        assert self.cluster
        count = len(self.cluster)
        self.cluster.stop()
        self.cluster = Cluster(count)

    def _all_live(self) -> dict[str, bool]:
        assert self.cluster
        return {node.name: True for node in self.cluster}

    async def _conflicts(self) -> int:
        """The most conflicts that one node has found since it was started."""
        assert self.cluster
        most = 0
        for node in self.cluster:
            async with Client.connect(node.client, config=Config(topology=TopologyConfig(only_seeds=True))) as one:
                state: Any = await one.request("get_state", conflicts=True, idempotent=True)
                most = max(most, state["conflicts"]["found"])
        return most
