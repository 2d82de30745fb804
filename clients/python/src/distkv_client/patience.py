"""Requests that may take long: how a node that works is told from one that is silent."""

from __future__ import annotations

import asyncio
from typing import Any

from .call import Once
from .connection import Connection
from .errors import BusyError, TimedOutError, TryError
from .path import ROOT


def long_once(head: bytes, patience: float) -> Once:
    """A try of a request that takes as long as it takes. Meanwhile the node is asked now and then whether it is alive:
    it is given up once it has sent nothing for so many seconds."""

    async def once(connection: Connection, end: float, until: float | None) -> Any:
        return await _request(connection, head, (end, until), patience)

    return once


async def _request(connection: Connection, head: bytes, times: tuple[float, float | None], patience: float) -> Any:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    end, until = times
    reply = loop.create_task(connection.request(head, end, until=until), name="distkv_client: long request")
    try:
        while not (await asyncio.wait({reply}, timeout=patience / 2))[0]:
            asked = loop.time()
            try:
                await connection.request(ROOT.get_head, asked + patience / 2)
            except TimedOutError:
                if connection.heard_at < asked:
                    raise
            except BusyError:
                # It cannot be asked. What it sends to others tells as well that it is alive.
                if loop.time() - max(connection.heard_at, begun) >= patience:
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
