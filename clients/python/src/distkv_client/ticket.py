"""Tickets: where the nodes are, how they are known, and who one is, in one text. Pure but for `@FILE` and the
environment."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgpack

from .checks import text_of
from .config import Config
from .errors import UnavailableError, UsageError
from .files import cannot_begin, is_out_of_files
from .login import Login
from .own_login import OwnLogin
from .tls import TicketCertificate, Tls

START = "distkv1."
"""What each ticket begins with."""
ADDRESSES_MAX = 16
"""Addresses in a ticket."""
TEXT_BYTES_MAX = 1024
"""Bytes of one address, name, method or secret."""
CHAIN_MAX = 4
"""Certificates in a ticket."""
TICKET_BYTES_MAX = 64 << 10
"""Bytes of a ticket as text."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What is in a ticket."""

    addresses: tuple[str, ...]
    network: str
    method: str | None = None
    user: str | None = None
    secret: str | None = field(default=None, repr=False)
    ca: bytes | None = None
    """SHA-256 of the CA's certificate; none: plain text."""
    chain: tuple[bytes, ...] = ()
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, text: str) -> Ticket:
        """From a ticket, or `@` and the name of a file that holds one.

        Raises :class:`~distkv_client.errors.UsageError`.
        """
        text = text_of(text, "a ticket").strip()
        if text.startswith("@"):
            try:
                with open(text[1:], "rb") as file:
                    # With the end of its line, and one byte that shows that there is too much.
                    text = file.read(TICKET_BYTES_MAX + 3).decode().strip()
            except (OSError, UnicodeDecodeError) as error:
                if isinstance(error, OSError) and is_out_of_files(error):
                    raise cannot_begin(error, "the ticket's file cannot be read") from None
                raise UsageError(f"the ticket's file cannot be read: {error}") from None
        if not text.startswith(START):
            version, dot, _ = text.removeprefix("distkv").partition(".")
            if text.startswith("distkv") and dot and version.isdigit():
                raise UsageError("this ticket is of a later version of distkv")
            raise UsageError(f"this is no ticket: a ticket begins with {START!r}, or is @ and a file's name")
        damaged = UsageError("the ticket is damaged: it was cut or mistyped; copy it again, whole")
        if len(text) > TICKET_BYTES_MAX:
            raise damaged
        encoded = text[len(START) :]
        try:
            data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise damaged from None
        content, checksum = data[:-4], data[-4:]
        if hashlib.sha256(content).digest()[:4] != checksum:
            raise damaged
        try:
            told = msgpack.unpackb(content)
        except Exception:
            raise damaged from None
        if not isinstance(told, dict):
            raise damaged
        return cls._of(told, damaged)  # pyright: ignore[reportUnknownArgumentType]

    @classmethod
    def _of(cls, told: dict[str, Any], damaged: UsageError) -> Ticket:
        addresses = told.get("addresses")
        if not isinstance(addresses, list) or not 1 <= len(addresses) <= ADDRESSES_MAX:  # pyright: ignore[reportUnknownArgumentType]
            raise damaged
        texts: list[object] = [*addresses, told.get("network")]  # pyright: ignore[reportUnknownVariableType]
        method, user, secret = (told.get(name) for name in ("method", "user", "secret"))
        texts += [text for text in (method, user, secret) if text is not None]
        if not all(isinstance(text, str) and len(text.encode()) <= TEXT_BYTES_MAX for text in texts):
            raise damaged
        if (method is None) != (user is None):
            raise UsageError("the ticket has a method of login without a user, or the other way round")
        ca, key = told.get("ca"), told.get("key")
        chain: list[Any] = told.get("chain") or []
        if ca is not None and (not isinstance(ca, bytes) or len(ca) != 32):
            raise UsageError("the CA's hash in the ticket is not 32 bytes long")
        if len(chain) > CHAIN_MAX or not all(isinstance(part, bytes) for part in chain):
            raise damaged
        where = tuple(str(address) for address in addresses)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return cls(where, str(told["network"]), method, user, secret, ca, tuple(chain), key)


def with_ticket(seeds: tuple[str, ...], config: Config) -> tuple[tuple[str, ...], Config, OwnLogin | None]:
    """Seeds and configuration, completed from a ticket if there is one: what they have already counts instead of what
    it has. And the login, where it may be replaced: that of a ticket in a file."""
    text = config.ticket
    if text is None and not seeds:
        text = os.environ.get("DISTKV_TICKET") or None
    if text is None:
        return seeds or ("127.0.0.1",), config, None
    ticket, own = Ticket.read(text), None
    # The program may change its working directory.
    file = os.path.abspath(text.strip()[1:]) if text.strip().startswith("@") else None
    if ticket.user is not None and config.login is None:
        login = Login(ticket.user, ticket.secret, ticket.method)
        config = replace(config, login=login)
        if file is not None:
            own = OwnLogin(login, partial(_login_in, file, ticket, config.tls is None))
    if ticket.ca is not None and config.tls is None:
        config = replace(config, tls=Tls.of_ticket(ticket.ca, _certificate(ticket, file)))
    if not config.network:
        config = replace(config, network=ticket.network)
    return seeds or ticket.addresses, config, own


def _login_in(file: str, first: Ticket, has_its_ca: bool) -> Login | None:
    """The login of the ticket that is in this file now, if that is of the same network and user, and of the same CA
    where that of the first one counts. Nothing else of it is looked at. None also of a file that is gone, or is being
    written."""
    try:
        # Nobody may write into a pipe any more.
        ticket = Ticket.read(f"@{file}") if os.path.isfile(file) else None
        if ticket is None or ticket.user is None or (ticket.network, ticket.user) != (first.network, first.user):
            return None
        if has_its_ca and ticket.ca != first.ca:
            return None
        return Login(ticket.user, ticket.secret, ticket.method)
    except (UsageError, UnavailableError):
        return None


def _certificate(ticket: Ticket, file: str | None) -> TicketCertificate | None:
    """The client certificate of a ticket, which may be in a file, if it has one."""
    if ticket.key is None or not ticket.chain:
        return None
    return TicketCertificate(ticket.chain, ticket.key, file, partial(_certificate_in, file or "", ticket))


def _certificate_in(file: str, first: Ticket) -> tuple[tuple[bytes, ...], bytes]:
    """The chain and the key of the ticket that is in this file now, if that is of the same network and CA. Nothing else
    of it is looked at."""
    ticket = Ticket.read(f"@{file}")
    if (ticket.network, ticket.ca) != (first.network, first.ca):
        raise UsageError("the ticket is for another network, or of another CA")
    if ticket.key is None or not ticket.chain:
        raise UsageError("the ticket has no client certificate any more")
    return ticket.chain, ticket.key
