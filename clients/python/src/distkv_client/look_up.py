"""Look-ups of names, each in a thread of its own that nothing waits for. Those of asyncio's own threads hold up the end
of the event loop, and of the program, for as long as a name service is silent, and nobody can end them.

All of an event loop that ask for the same address share one look-up, also those that come later: what is answered
after the first of them has given up is there for those that wait then.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import weakref
from typing import Any

from .config import Address
from .errors import ConnectError

LOOK_UPS_MAX = 64
"""Look-ups of this process that have had no answer yet, those of closed clients included."""

_Waiting = list[asyncio.Future[list[Any]]]

_threads: set[threading.Thread] = set()
_under_way: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Address, _Waiting]] = weakref.WeakKeyDictionary()
"""Each loop's part is touched in its own thread only."""


async def look_up(address: Address) -> list[Any]:
    """What `socket.getaddrinfo` says of a host's name. Cancelled, it gives up waiting, not the look-up.

    Raises what that does, or :class:`~distkv_client.errors.ConnectError` where no more can be looked up.
    """
    loop = asyncio.get_running_loop()
    own = _under_way.setdefault(loop, {})
    waiting = own.get(address)
    if waiting is None:
        _begin(address, loop)
        waiting = own[address] = []
    future: asyncio.Future[list[Any]] = loop.create_future()
    waiting.append(future)
    try:
        return await future
    finally:
        waiting.remove(future)


def _begin(address: Address, loop: asyncio.AbstractEventLoop) -> None:
    for ended in [one for one in list(_threads) if not one.is_alive()]:
        # Behind a fork, those of the parent.
        _threads.discard(ended)
    if len(_threads) >= LOOK_UPS_MAX:
        raise ConnectError(f"cannot look up {address}: {LOOK_UPS_MAX} look-ups of names have had no answer yet")

    def ask() -> None:
        answer: list[Any] | Exception
        try:
            answer = list(socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM))
        except Exception as error:
            answer = error
        _threads.discard(thread)
        try:
            loop.call_soon_threadsafe(_end, address, loop, answer)
        except RuntimeError:
            # The loop has ended, and whoever waited.
            pass

    thread = threading.Thread(target=ask, name=f"distkv_client: look up {address.host}", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        # There may be no more threads.
        raise ConnectError(f"cannot look up {address}: {error}") from None
    _threads.add(thread)


def _end(address: Address, loop: asyncio.AbstractEventLoop, answer: list[Any] | Exception) -> None:
    for future in _under_way.get(loop, {}).pop(address, []):
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
