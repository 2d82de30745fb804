"""What the driver tries with many operations of a client at once: cancelling everywhere, other loops, forks, storms."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
from collections.abc import Awaitable, Callable
from typing import Any

from distkv_client import Client, Config, DistKVError, Path, RetryPolicy, TopologyConfig, UpToDate, UsageError

TURNS_MAX = 400
"""More turns of the loop than any operation takes."""
ERRORS_MAX = 5
"""Errors of a storm that are told."""


def sockets() -> int:
    """Open sockets of this process."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            pass
    return found


def tasks() -> int:
    """Tasks of clients in this loop."""
    return sum(task.get_name().startswith("distkv_client") for task in asyncio.all_tasks())


def operations(client: Client, path: Path) -> list[Callable[[], Awaitable[Any]]]:
    """Everything that a client does."""

    async def watch() -> None:
        async with client.watch(path) as events:
            async for event in events:
                if isinstance(event, UpToDate):
                    return

    async def tree() -> None:
        async for _ in client.tree(path):
            pass

    async def conflicts() -> None:
        async for _ in client.conflicts(path):
            pass

    return [
        lambda: client.get(path, default=None),
        lambda: client.entry(path),
        lambda: client.get(path, default=None, read="freshest"),
        lambda: client.put(path, 2, copies=1),
        lambda: client.delete(path),
        lambda: client.batch().put(path, 1).get(path).run(),
        tree,
        watch,
        conflicts,
        client.refresh_shards,
    ]


async def _give_up_after(turns: int, operation: Callable[[], Awaitable[Any]]) -> bool:
    """Begins an operation and cancels it after so many turns of the loop; whether it was cancelled."""
    task: asyncio.Future[Any] = asyncio.ensure_future(operation())
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    task.cancel()
    try:
        await asyncio.wait_for(task, 10)
    except asyncio.CancelledError:
        return True
    return False


async def cancel_everywhere(client: Client, path: Path) -> dict[str, Any]:
    """Begins each operation again and again, and cancels it at its first await, at its second, and so on to its end."""
    places = 0
    every = operations(client, path)
    for operation in every:
        for turns in range(TURNS_MAX):
            if not await _give_up_after(turns, operation):
                break
            places += 1
        # And after a while, wherever it is then.
        for _ in range(20):
            try:
                await asyncio.wait_for(asyncio.ensure_future(operation()), random.random() * 0.002)
            except TimeoutError:
                pass
    return {"operations": len(every), "is_many": places >= len(every)}


async def other_loop(client: Client, path: Path) -> None:
    """Uses the client in another event loop."""

    def use() -> None:
        asyncio.run(client.get(path))

    await asyncio.to_thread(use)


async def fork(client: Client, path: Path) -> None:
    """Uses the client in a child of this process; what the child is told is raised here."""

    def child(pipe: Any) -> None:
        async def use() -> str:
            try:
                await client.get(path)
            except UsageError as error:
                return str(error)
            return ""

        asyncio.events._set_running_loop(None)
        pipe.send(asyncio.new_event_loop().run_until_complete(use()))
        os._exit(0)

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    if not await asyncio.to_thread(ours.poll, 20):
        raise TimeoutError("the child says nothing")
    told = ours.recv()
    await asyncio.to_thread(process.join, 10)
    if told:
        raise UsageError(told)


class Storm:
    """Many tasks that write and read, while the runner kills nodes."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._count = count
        self._nodes: list[Client] = []
        """One for each node, where writes go to any of them."""
        self._is_over = False
        self._writes = 0
        self._acknowledged: dict[Path, list[int]] = {}
        self._errors: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, nodes: list[str]) -> None:
        """With `nodes`, each write goes to any of these addresses."""
        alone = Config(topology=TopologyConfig(only_seeds=True), retry=RetryPolicy(total_deadline=0.5))
        self._nodes = [await Client.connect(node, config=alone) for node in nodes]
        self._tasks = [asyncio.create_task(self._work(task)) for task in range(self._count)]

    async def end(self) -> dict[str, Any]:
        """What was written, and what of it is missing."""
        self._is_over = True
        await asyncio.gather(*self._tasks)
        missing = 0
        for path, value in self._acknowledged.items():
            missing += await self._client.get(path, default=None) != value
        for node in self._nodes:
            await node.close(grace=0)
        return {"writes": self._writes, "missing": missing, "errors": self._errors}

    async def _work(self, task: int) -> None:
        number = 0
        while not self._is_over:
            number += 1
            try:
                await self._once(task, number)
            except DistKVError as error:
                if len(self._errors) < ERRORS_MAX:
                    self._errors.append(repr(error))

    async def _once(self, task: int, number: int) -> None:
        """A write of its own, one where all write, and now and then a read."""
        path, value = Path("storm", task, number % 8), [task, number]
        await self._writer().put(path, value, copies=1)
        self._acknowledged[path] = value
        # Where all tasks write, nobody's value is expected to stay.
        await self._writer().put(Path("shared", number % 8), value)
        self._writes += 2
        if number % 3 == 0 and not self._nodes and (found := await self._client.get(path)) != value:
            self._errors.append(f"{path} is {found}, not {value}")

    def _writer(self) -> Client:
        return random.choice(self._nodes) if self._nodes else self._client
