"""Plays the scenarios of clients/conformance against a driver: this client's, or the one that
DISTKV_CONFORMANCE_DRIVER names."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path as File

import pytest
from scripted import RESET, SILENCE, ScriptedNode, start

from distkv_client.codec import encode
from distkv_client.testing import Cluster, binary

HERE = File(__file__).parents[1]
FIXTURES = File(os.environ.get("DISTKV_FIXTURES", HERE.parents[1] / "tests/fixtures")) / "tls"
SCENARIOS = sorted((HERE.parent / "conformance/scenarios").glob("*.toml"))


class Driver:
    """The process that has the client."""

    def __init__(self) -> None:
        named = os.environ.get("DISTKV_CONFORMANCE_DRIVER")
        command = shlex.split(named) if named else [sys.executable, str(HERE / "conformance/driver.py")]
        environment = {**os.environ, "PYTHONPATH": str(HERE / "src")}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def _tell(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the driver has ended"
        return json.loads(answer)

    async def tell(self, order):
        return await asyncio.to_thread(self._tell, order)


@pytest.fixture(scope="module")
def driver():
    running = Driver()
    yield running
    running.process.stdin.close()
    assert running.process.wait(20) == 0
    running.process.stdout.close()


def script_of(node):
    """What a scripted node answers, one after the other."""
    answers = list(node.get("answers", []))

    def script(request):
        for index, answer in enumerate(answers):
            if answer.get("action", request["action"]) == request["action"]:
                rest = [a for a in answers[index + 1 :] if a.get("action", request["action"]) == request["action"]]
                if rest:
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
        reply = dict(answer["reply"])
        if reply.pop("written", None):
            tick = {"node": f"{node['name']}~7", "tick": request["seq"], "prev": None}
            reply = {"changed": True, "chain": tick, "tock": request["seq"], **reply}
        if "split" in answer:
            return Pieces(encode({**reply, "seq": request["seq"]}), answer["split"])
        return reply

    return script


class Pieces(bytes):
    """Bytes that are sent in pieces."""

    def __new__(cls, data, size):
        made = super().__new__(cls, data)
        made.size = size
        return made


def fits(expected, found):
    """Whether all that is expected is there; maps may have more."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(name in found and fits(value, found[name]) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(fits, expected, found))
    return type(expected) is type(found) and expected == found


def node_args(scenario):
    """The arguments of real nodes."""
    if not scenario.get("tls"):
        return []
    return [
        "--client-plaintext",
        "none",
        "--cert",
        str(FIXTURES / "node.pem"),
        "--cert-key",
        str(FIXTURES / "node.key"),
    ]


def make_users(address, folder):
    """Users of a network: ann, an admin, and bob, who may read below `open`. Their secrets are their names."""

    def run(*args):
        done = subprocess.run([binary(), *args, "--connect", address], capture_output=True, text=True)
        assert done.returncode == 0, (args, done.stderr)

    for name in ("ann", "bob"):
        (folder / name).write_text(name)
    run("user", "add", "ann", "--role", "admin", "--new-secret-file", str(folder / "ann"))
    run("auth", "on", "password")
    ann = ("--user", "ann", "--secret-file", str(folder / "ann"))
    for pattern in ("open", "open.#"):
        run("acl", "set", "readers", pattern, "rxe", *ann)
    run("user", "add", "bob", "--acl", "readers", "--new-secret-file", str(folder / "bob"), *ann)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
async def test_scenario(file, driver, tmp_path):
    scenario = tomllib.loads(file.read_text())
    assert str(scenario["number"]) == file.stem.partition("-")[0].lstrip("0")
    cluster = Cluster(scenario["cluster"], *node_args(scenario)) if "cluster" in scenario else None
    scripted = [
        ScriptedNode(node["name"], script_of(node), is_old=node.get("old", False)) for node in scenario.get("node", [])
    ]
    clients = {step.get("client", "a") for step in scenario["step"] if "do" in step} | {*scenario.get("clients", {})}
    try:
        addresses = cluster.seeds if cluster else await start(*scripted)
        if scenario.get("users"):
            make_users(cluster[0].client, tmp_path)
        for client in sorted(clients):
            seeds = addresses[: scenario.get("seeds", len(addresses))]
            config = {**scenario.get("config", {}), **scenario.get("clients", {}).get(client, {})}
            if config.get("tls", "").endswith(".pem"):
                config["tls"] = str(FIXTURES / config["tls"])
            order = {"do": "connect", "client": client, "seeds": seeds, "config": config}
            refused = config.pop("refused", None)
            answer = await driver.tell(order)
            assert fits(refused, answer.get("error")) if refused else answer == {"ok": {}}, answer
        saved = {}
        for number, step in enumerate(scenario["step"], 1):
            await play(step, driver, cluster, {node.name: node for node in scripted}, saved, f"step {number}: {step}")
        refused = {name for name, config in scenario.get("clients", {}).items() if "refused" in config}
        for client in sorted(clients - refused):
            assert await driver.tell({"do": "close", "client": client}) == {"ok": {}}
    finally:
        for node in scripted:
            await node.stop()
        if cluster:
            cluster.stop()


async def play(step, driver, cluster, scripted, saved, what):
    """One step."""
    if "do" in step:
        order = {
            name: value for name, value in step.items() if name not in ("expect", "error", "save", "until", "never")
        }
        for name, value in order.items():
            if isinstance(value, str) and value.startswith("$"):
                order[name] = saved[value[1:]]
        # `until`: the state of the cluster spreads; then it is asked again, for a bounded time.
        for _ in range(400 if step.get("until") else 1):
            answer = await driver.tell(order)
            if "error" in step:
                matches = fits(step["error"], answer.get("error"))
            else:
                matches = "ok" in answer and fits(step.get("expect", answer["ok"]), answer["ok"])
            assert "never" not in step or not fits(step["never"], answer.get("ok")), (what, answer)
            if matches:
                break
            await asyncio.sleep(0.025)
        assert matches, (what, answer)
        if "save" in step:
            saved[step["save"]] = answer["ok"]["version"]
    elif "requests" in step:
        asked = scripted[step["requests"]].actions(step["action"])
        assert len(asked) == step["count"], (what, asked)
        if step.get("same_id"):
            assert len({request["wid"] for request in asked}) == 1, what
    elif "accepted" in step:
        assert scripted[step["accepted"]].accepted <= step["most"], what
    elif "down" in step:
        for node in scripted.values():
            node.states[step["down"]] = "down"
            node.tell_views()
    elif "kill" in step:
        cluster.by_name(step["kill"]).kill()
    elif "rejoin" in step:
        await asyncio.to_thread(cluster.rejoin, [node.name for node in cluster].index(step["rejoin"]))
    elif "freeze" in step:
        cluster.by_name(step["freeze"]).freeze()
    elif "thaw" in step:
        cluster.by_name(step["thaw"]).thaw()
    else:
        pytest.fail(f"unknown step {step}")


def test_every_scenario_has_a_title_of_its_own():
    titles = [tomllib.loads(file.read_text())["title"] for file in SCENARIOS]
    assert len(titles) == len(set(titles)) >= 20


def test_the_table_of_scenarios_is_complete():
    scenarios = [tomllib.loads(file.read_text()) for file in SCENARIOS]
    rows = [f"| {one['number']} | {one['title']} | {'real' if 'cluster' in one else 'scripted'} |" for one in scenarios]
    text = (HERE.parent / "conformance/README.md").read_text()
    assert [row for row in rows if row not in text] == []


sys.path.insert(0, str(HERE / "conformance"))


def planted():
    from planted import FOUND_BY

    return FOUND_BY.items()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scenario"), planted())
def test_a_planted_deviation_is_found(name, scenario):
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", str(File(__file__)), "-k", f"{scenario} and not planted"]
    for environment, code in ((os.environ, 0), ({**os.environ, "DISTKV_PLANTED": name}, 1)):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE, timeout=110)
        assert done.returncode == code, done.stdout
        assert ("1 passed" if code == 0 else "1 failed") in done.stdout
