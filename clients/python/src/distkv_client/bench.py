"""What a GET costs this process: `python -m distkv_client.bench [SEED]`.

CPU time of the client's process per call, over loopback, with 1 and with 100 calls in flight; medians of
several runs. Without a seed, the ticket in `DISTKV_TICKET` is used, or a node is started (`DISTKV_NODE_BIN`).
`--redis HOST:PORT` measures redis-py (asyncio, with hiredis where it is installed) in the same runs, taking turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from .client import Client
from .errors import DistKVError
from .testing import Cluster

Get = Callable[[], Awaitable[object]]

PATH = "bench.value"
VALUE = "x" * 32


async def cost(get: Get, in_flight: int, calls: int) -> tuple[float, float]:
    """CPU and wall time in µs per call."""

    async def work() -> None:
        for _ in range(calls // in_flight):
            await get()

    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(in_flight)))
    done = calls // in_flight * in_flight
    return (time.process_time() - cpu) / done * 1e6, (time.perf_counter() - wall) / done * 1e6


async def measure(seed: str | None, redis: str | None, runs: int, calls: int) -> dict[str, Any]:
    """The medians, by client and calls in flight."""
    seeds = [] if seed is None else [seed]
    async with Client.connect(*seeds) as client:
        await client.put(PATH, VALUE)

        async def reader(other: Client) -> Get:
            return lambda: other.get(PATH)

        async with Client.connect(*seeds) as other:
            getters: dict[str, Get] = {
                "distkv_client": await reader(other),
                "distkv_client own write": await reader(client),
            }
            store: Any = None
            if redis is not None:
                module: Any = importlib.import_module("redis.asyncio")
                host, _, port = redis.rpartition(":")
                store = module.Redis(host=host, port=int(port), max_connections=100)
                await store.set(PATH, VALUE)
                getters["redis-py"] = lambda: store.get(PATH)
            found: dict[str, dict[int, list[tuple[float, float]]]] = {name: {1: [], 100: []} for name in getters}
            for turn in range(runs + 1):
                for name, get in getters.items():
                    for in_flight in (1, 100):
                        told = await cost(get, in_flight, calls)
                        # The first one warms up.
                        if turn:
                            found[name][in_flight].append(told)
            if store is not None:
                await store.aclose()
        await client.delete(PATH)
    return {
        name: {
            str(in_flight): {
                "cpu_us": round(statistics.median(cpu for cpu, _ in some), 2),
                "wall_us": round(statistics.median(wall for _, wall in some), 2),
            }
            for in_flight, some in by_flight.items()
        }
        for name, by_flight in found.items()
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m distkv_client.bench", description=__doc__)
    parser.add_argument(
        "seed", nargs="?", help="a node's client port; without one or a ticket (DISTKV_TICKET), a node is started"
    )
    parser.add_argument("--redis", metavar="HOST:PORT", help="measure redis-py in the same runs")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--uvloop", action="store_true", help="use uvloop, if it is installed")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    if given.runs < 1 or given.calls < 100:
        parser.error("--runs must be at least 1, and --calls at least 100")
    if given.redis is not None and not given.redis.rpartition(":")[2].isdecimal():
        parser.error(f"--redis takes HOST:PORT, not {given.redis!r}")
    try:
        _run(given)
    except ImportError as error:
        sys.exit(f"{parser.prog}: {error.name} is not installed")
    except (DistKVError, OSError, RuntimeError) as error:
        sys.exit(f"{parser.prog}: {error}")
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "redis":
            raise
        sys.exit(f"{parser.prog}: {given.redis}: {error}")


def _run(given: argparse.Namespace) -> None:
    factory: Any = importlib.import_module("uvloop").new_event_loop if given.uvloop else None

    def run(seed: str | None) -> dict[str, Any]:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(measure(seed, given.redis, given.runs, given.calls))

    if given.seed or os.environ.get("DISTKV_TICKET"):
        found = run(given.seed)
    else:
        with Cluster(1) as cluster:
            found = run(cluster.seeds[0])
    if given.json:
        print(json.dumps(found))
        return
    print("CPU (and wall) time per GET in µs, medians")
    for name, by_flight in found.items():
        for in_flight, told in by_flight.items():
            print(f"{name:26} {in_flight:>4} in flight  {told['cpu_us']:7.2f}  ({told['wall_us']:.2f})")


if __name__ == "__main__":
    main()
