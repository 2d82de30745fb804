"""The Python client for the scenarios of clients/conformance: lines of JSON in, lines of JSON out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from typing import Any

from trials import Storm, cancel_everywhere, fork, other_loop, sockets, tasks

from distkv_client import (
    Change,
    Client,
    Config,
    DistKVError,
    Entry,
    Login,
    Path,
    PoolConfig,
    RefusedError,
    RetryPolicy,
    Tls,
    TopologyConfig,
    Version,
    Watch,
    Written,
)

CLASSES = (
    "KeyNotFound",
    "Precondition",
    "Refused",
    "Unavailable",
    "FateUnknown",
    "NoMajority",
    "BadValue",
    "Usage",
    "Closed",
)


def config_of(told: dict[str, Any]) -> Config:
    """The fields of the settings that have them by name."""
    made: dict[str, Any] = {}
    for name, kind in (("retry", RetryPolicy), ("pool", PoolConfig), ("topology", TopologyConfig)):
        names = {field.name for field in dataclasses.fields(kind)} & told.keys()
        made[name] = kind(**{field: told[field] for field in names})
    names = {field.name for field in dataclasses.fields(Config)} & told.keys() - {"login", "tls"}
    if "login" in told:
        made["login"] = Login(**told["login"])
    if "tls" in told:
        is_file = told["tls"].endswith(".pem")
        made["tls"] = Tls(ca_file=told["tls"]) if is_file else Tls(ca_hash=bytes.fromhex(told["tls"]))
    return Config(**made, **{field: told[field] for field in names})


def shown(thing: Any) -> Any:
    """A result as JSON."""
    if isinstance(thing, Entry):
        version = str(thing.version) if thing.version else None
        return {"value": thing.value, "deleted": thing.deleted, "version": version}
    if isinstance(thing, Written):
        return {
            "changed": thing.changed,
            "repeated": thing.repeated.value,
            "node": thing.node,
            "attempts": thing.attempts,
            "version": str(thing.version) if thing.version else None,
        }
    if isinstance(thing, RefusedError):
        return {"code": thing.code, "fate": thing.fate.value}
    return thing


def options_of(order: dict[str, Any], *names: str) -> dict[str, Any]:
    options = {name: order[name] for name in names if name in order}
    if isinstance(options.get("if_version"), str):
        options["if_version"] = Version.parse(options["if_version"])
    if order.get("no_id"):
        options["write_id"] = None
    return options


WRITE = ("if_new", "if_version", "if_value", "write_id", "copies", "idempotent", "timeout")
DELETE = ("if_version", "if_value", "write_id", "copies", "timeout")


class Driver:
    """The clients of one scenario."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.watches: dict[str, Watch] = {}
        self.changes: dict[str, list[Any]] = {}
        self.storms: dict[str, Storm] = {}
        self.sockets: int | None = None
        """Sockets that were open before the first client."""

    async def obey(self, order: dict[str, Any]) -> Any:
        """One order."""
        name = order.get("client", "a")
        do = order["do"]
        if do == "left":
            return {"sockets": sockets() - (self.sockets or 0), "tasks": tasks()}
        if do == "connect":
            if self.sockets is None:
                self.sockets = sockets()
            self.clients[name] = await Client.connect(*order["seeds"], config=config_of(order.get("config", {})))
            return {}
        client = self.clients[name]
        if do == "close":
            await self.clients.pop(name).close()
            self.watches.pop(name, None)
            return {}
        path = order.get("path", ":")
        match do:
            case "preferred":
                return client.preferred(path)
            case "get":
                return {"value": await client.get(path, **options_of(order, "read", "timeout"))}
            case "get_raw":
                return {"hex": (await client.get_raw(path)).hex()}
            case "entry":
                return shown(await client.entry(path))
            case "put":
                return shown(await client.put(path, order.get("value"), **options_of(order, *WRITE)))
            case "put_raw":
                return shown(await client.put_raw(path, bytes.fromhex(order["hex"])))
            case "delete":
                return shown(await client.delete(path, **options_of(order, *DELETE)))
            case "tree":
                return [[str(entry.path), entry.value] for entry in await client.tree(path)]
            case "children":
                return await client.children(path)
            case "batch":
                batch = client.batch()
                for op in order["ops"]:
                    if op["do"] == "put":
                        batch.put(op["path"], op.get("value"), if_new=op.get("if_new", False))
                    else:
                        getattr(batch, op["do"])(op["path"])
                return [shown(reply) for reply in await batch]
            case "watch":
                self.watches[name] = client.watch(path)
                await self.watches[name].begin()
                return {}
            case "next":
                event = await asyncio.wait_for(self.watches[name].next(), 60)
                if isinstance(event, Change):
                    told = {"path": str(event.path), "value": event.value, "deleted": event.deleted}
                    return {"event": "change", **told}
                return {"event": {"UpToDate": "uptodate"}.get(type(event).__name__, type(event).__name__.lower())}
            case "collect":
                seen: list[Any] = []
                while len(seen) < order["count"]:
                    try:
                        event = await asyncio.wait_for(self.watches[name].next(), order["patience"])
                    except TimeoutError:
                        continue
                    if isinstance(event, Change):
                        seen.append(event.value)
                return seen
            case "puts":
                for number in range(1, order["count"] + 1):
                    await client.put(path, number)
                return {}
            case "gets":
                calls = (client.get(path, **options_of(order, "timeout")) for _ in range(order["count"]))
                done = await asyncio.gather(*calls, return_exceptions=True)
                return {"good": sum(not isinstance(one, BaseException) for one in done)}
            case "put_bytes":
                return shown(await client.put(path, bytes(order["size"])))
            case "get_bytes":
                return {"size": len(await client.get(path))}
            case "prefer":
                await client.prefer_shard(Path.of(path).shard, order["node"])
                return {}
            case "refresh":
                await client.refresh_shards()
                return {}
            case "listen":
                told = self.changes[name] = []
                client.on_topology_change(told.append)
                return {}
            case "changes":
                return [
                    {
                        "epochs": change.epoch - change.previous_epoch,
                        "added": [node.name for node in change.added],
                        "dead": [new.name for _, new in change.changed if not new.is_live],
                        "moved": sorted({move.before for move in change.moved if move.before}),
                    }
                    for change in self.changes[name]
                ]
            case "cancel_everywhere":
                return await cancel_everywhere(client, Path.of(path))
            case "other_loop":
                return await other_loop(client, Path.of(path))
            case "fork":
                return await fork(client, Path.of(path))
            case "storm_begin":
                self.storms[name] = Storm(client, order["tasks"])
                await self.storms[name].begin(order.get("nodes", []))
                return {}
            case "storm_end":
                return await self.storms.pop(name).end()
            case "unwatch":
                await self.watches.pop(name).aclose()
                return {}
            case "view":
                view = client.cluster_view()
                live = sorted(node.name for node in view.nodes if node.is_live)
                nodes = {node.name: node.is_live for node in view.nodes}
                return {"epoch": view.epoch, "nodes": nodes, "live": live}
            case "stats":
                return dataclasses.asdict(client.stats())
        raise ValueError(f"unknown order {do!r}")


def class_of(error: DistKVError) -> str:
    """The class that all languages have."""
    names = [kind.__name__.removesuffix("Error") for kind in type(error).__mro__]
    return next(name for name in names if name in CLASSES)


async def main() -> None:
    """Obeys until the input ends."""
    driver = Driver()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            answer: dict[str, Any] = {"ok": await driver.obey(json.loads(line))}
        except DistKVError as error:
            told = {"code": error.code, "fate": error.fate.value, "attempts": error.attempts, "node": error.node}
            answer = {"error": {"class": class_of(error), **told}}
        print(json.dumps(answer), flush=True)
    for client in driver.clients.values():
        await client.close(grace=0)


if __name__ == "__main__":
    if name := os.environ.get("DISTKV_PLANTED"):
        from planted import plant

        plant(name)
    asyncio.run(main())
