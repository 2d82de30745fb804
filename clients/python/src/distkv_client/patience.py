"""Requests that may take long: how a node that works is told from one that is silent."""

from __future__ import annotations

import asyncio
from typing import Any

from .call import Once
from .connection import Connection
from .errors import BusyError, TimedOutError, TryError
from .question import ask
from .try_time import TryTime


def long_once(head: bytes, patience: float) -> Once:
    """A try of a request that takes as long as it takes. Meanwhile the node is asked now and then whether it is alive:
    it is given up once it has sent nothing for so many seconds."""

    async def once(connection: Connection, time: TryTime) -> Any:
        return await _request(connection, head, time, patience)

    return once


async def _request(connection: Connection, head: bytes, time: TryTime, patience: float) -> Any:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    reply = loop.create_task(connection.request(head, *time), name="distkv_client: long request")
    try:
        while not (await asyncio.wait({reply}, timeout=patience / 2))[0]:
            asked = loop.time()
            try:
                await ask(connection, patience / 2)
            except TimedOutError:
                if connection.heard_at < asked:
                    raise
            except BusyError:
                # It cannot be asked. What it sends to others tells as well that it is alive.
                now = loop.time()
                is_silent = now - max(connection.heard_at, begun) >= patience + connection.line.delay
                if is_silent and not connection.line.is_arriving(now):
                    raise TimedOutError(f"{connection.name} sent nothing for long") from None
            except TryError:
                # It is alive, or the reply is told the same.
                pass
        return reply.result()
    finally:
        reply.cancel()
        await asyncio.wait({reply})
        if not reply.cancelled():
            # Else asyncio logs the error that nobody has asked for, with the node's words.
            reply.exception()
