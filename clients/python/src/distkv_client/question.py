"""The question whether a node is alive, which gets through also where a connection is full."""

from __future__ import annotations

import asyncio

from .connection import Connection
from .errors import BusyError
from .line import LONGEST_ARRIVAL
from .path import ROOT

QUESTIONS_KEPT = 64
"""Places on a connection beyond those for requests and streams: a node is asked where all of these are taken, too."""


async def ask(connection: Connection, patience: float) -> None:
    """Asks the node whether it is alive, for so many seconds, and as long as what is under way may take.

    Raises a :class:`~distkv_client.errors.TryError`, not before that time is over where it cannot be asked. A refusal
    is an answer as well.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + patience + connection.line.delay
    try:
        await connection.request(ROOT.get_head, end, end + LONGEST_ARRIVAL, kept=QUESTIONS_KEPT)
    except BusyError:
        # What it says to others meanwhile tells as well that it is alive.
        await asyncio.sleep(max(end - loop.time(), 0))
        raise
