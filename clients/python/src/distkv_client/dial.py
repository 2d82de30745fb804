"""How sockets come about: the addresses of a host one after the other, and a look at a node's certificates."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from typing import Any

from .config import Address
from .errors import ConnectError
from .files import is_out_of_files, out_of_files
from .look_up import look_up
from .tls import ChainReader

ADDRESSES_MAX = 16
"""Addresses of one host that are tried."""
KEEP_ALIVE_SECONDS = 15
"""TCP's own probes of a silent connection."""


async def dial(
    protocol: asyncio.BaseProtocol, address: Address, loop: asyncio.AbstractEventLoop, patience: float
) -> None:
    """Connects to the first of the host's addresses that takes it, in so many seconds. Cancelled, it leaves no
    socket. (asyncio's own way to several addresses does, until the collector runs.)

    Raises :class:`~distkv_client.errors.ConnectError`.
    """
    try:
        infos = _known(address) or await look_up(address)
    except OSError as error:
        # Looking up needs files, too, and does not say what it lacks.
        _socket(address, socket.AF_INET, socket.SOCK_STREAM, 0).close()
        raise ConnectError(f"cannot look up {address}: {error.strerror or error}") from None
    reasons: list[str] = []
    for number, (family, kind, proto, _, where) in enumerate(infos[:ADDRESSES_MAX]):
        try:
            sock = _socket(address, family, kind, proto)
        except OSError as error:
            # The system may lack IPv6, for example.
            reasons.append(error.strerror or str(error))
            continue
        try:
            sock.setblocking(False)
            # The last one may take all the time that is left; those before it must leave some.
            is_last = number + 1 == min(len(infos), ADDRESSES_MAX)
            async with asyncio.timeout(None if is_last else patience / (len(infos) + 1)):
                await loop.sock_connect(sock, where)
            await loop.create_connection(lambda: protocol, sock=sock)
            return
        except OSError as error:
            # That of a timeout says nothing, and asyncio puts words of its own in place of the system's.
            sock.close()
            reasons.append(os.strerror(error.errno) if error.errno else "no answer")
        except BaseException:
            sock.close()
            raise
    raise ConnectError(f"cannot connect to {address}: {'; '.join(reasons) or 'it has no address'}")


def _known(address: Address) -> list[Any]:
    """What there is to look up of a host that is an IP address: nobody is asked, so it needs no thread. None of a
    name."""
    try:
        return socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return []


def _socket(address: Address, family: int, kind: int, proto: int) -> socket.socket:
    """Raises :class:`~distkv_client.errors.NoSocketError` where no more files may be opened."""
    try:
        return socket.socket(family, kind, proto)
    except OSError as error:
        if is_out_of_files(error):
            raise out_of_files(error, f"cannot connect to {address}") from None
        raise


async def look(address: Address, loop: asyncio.AbstractEventLoop, patience: float) -> list[bytes]:
    """The certificates that the node presents, as DER; nothing is sent to it.

    Raises :class:`~distkv_client.errors.TryError`.
    """
    done: asyncio.Future[list[bytes]] = loop.create_future()
    reader = ChainReader(address.host, done)
    try:
        await dial(reader, address, loop, patience)
        return await done
    finally:
        if done.done() and not done.cancelled():
            done.exception()
        else:
            done.cancel()
        reader.close()


def is_own_machine(host: object) -> bool:
    """Whether nothing that is sent there leaves the machine; `host`: the address that a socket is connected to."""
    try:
        address = ipaddress.ip_address(host if isinstance(host, str) else "")
    except ValueError:
        return False
    # An IPv6 socket has IPv4 addresses in their long form.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def prepare(sock: socket.socket) -> None:
    """Options of the socket. Where the system refuses them, things are slower, not wrong."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL"):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), KEEP_ALIVE_SECONDS))
    for level, option, value in options:
        try:
            sock.setsockopt(level, option, value)
        except OSError:
            pass
