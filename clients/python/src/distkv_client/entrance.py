"""How a connection begins: the node greets; the client logs in, with a secret, which is sent, or with a proof of
having a key; then it asks who the node is."""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from .codec import Fields, Message, encode
from .config import WINDOW_MAX, WINDOW_MIN, Address
from .errors import (
    ACCESS_CODES,
    FULL,
    LoginWaitError,
    LostError,
    NoAccessError,
    NotMetError,
    PlaintextLoginError,
    ServerError,
    TryError,
)
from .login import NONCE_BYTES, Access, Greeting, Login, identity_of, lacks_secret, proof, secret_for

if TYPE_CHECKING:
    from .connection import Connection


async def greeted(address: Address, first: Awaitable[Message]) -> Greeting:
    """What the node says first.

    Raises :class:`~distkv_client.errors.NotMetError`, and what can happen to a connection.
    """
    try:
        return Greeting(await first)
    except (LostError, ServerError) as error:
        if error.code not in ACCESS_CODES:
            raise
        # The node serves clients by TLS only, and this one does not use it.
        raise NotMetError(f"cannot get into {address}: {error}") from None


def window_of(greeting: Greeting, wanted: int) -> int | None:
    """The window of flow control, as far as the node grants it; none: it has no flow control."""
    granted = WINDOW_MAX if greeting.qlen is None else greeting.qlen
    return min(max(min(wanted, granted), WINDOW_MIN), WINDOW_MAX) if granted > 0 else None


def settings_of(greeting: Greeting, window: int | None) -> bytes:
    """What the client says first."""
    settings: dict[str, object] = {"seq": 0, "qlen": window or 0}
    if greeting.is_catching_up:
        # There are other nodes to go to.
        settings["nowait"] = True
    return encode(settings)


async def log_in(connection: Connection, access: Access, greeting: Greeting, until: float) -> None:
    """Logs in, if the node asks for it, or the client knows it by its key. `until`: when that must have ended, by the
    loop's clock.

    Raises :class:`~distkv_client.errors.NoAccessError`, :class:`~distkv_client.errors.LoginWaitError`, and what can
    happen to a connection.
    """
    login = access.current
    if login is None or (login.key is None and greeting.auth is None):
        return
    for is_last in (False, True):
        try:
            await _log_in_as(login, connection, access, greeting)
            access.on_taken(login)
            return
        except ServerError as error:
            refusal = _refusal(error, login, connection)
            if refusal is None:
                raise
            # A node makes those wait who come with a secret that was replaced, too: it need not have looked at it.
            other = None if is_last else await access.other_than(login, until)
            if other is None:
                raise refusal from error
            login = other


def _refusal(error: ServerError, login: Login, connection: Connection) -> TryError | None:
    """What it means that a node answers so to a login; none: nothing of the login."""
    if error.code == FULL:
        return LoginWaitError(f"cannot log in at {connection.address}: it makes the login wait: {error}")
    if error.code not in ACCESS_CODES:
        return None
    return NoAccessError(f"cannot get into {connection.address}: {login.blame()}: {error}")


async def _log_in_as(login: Login, connection: Connection, access: Access, greeting: Greeting) -> None:
    fields = Fields()
    expected: bytes | None = None
    if login.key is not None:
        if greeting.nonce is None:
            why = "it has no cluster key, or does not ask for it yet (--plaintext-peers)"
            raise NoAccessError(f"cannot get into {connection.address}: {why}")
        nonce = os.urandom(NONCE_BYTES)
        fields.add("typ", "key").add("ident", "*").add("nonce", nonce)
        fields.add("proof", proof(login.key, b"distkv login client 1", nonce, greeting.nonce))
        expected = proof(login.key, b"distkv login node 1", nonce, greeting.nonce)
    else:
        # Whoever answers there may choose the method, so what counts is whether the secret would be sent.
        method = login.method or greeting.auth or "password"
        if lacks_secret(login, method):
            why = f"who logs in as {login.user!r} needs the user's secret, and none was given"
            raise NoAccessError(f"cannot get into {connection.address}: {why}")
        fields.add("typ", method).add("ident", login.user)
        if (secret := secret_for(login, method)) is not None:
            if not (access.plaintext_login or connection.is_private):
                what = method if method in ("password", "token") else "secret"
                raise PlaintextLoginError(
                    f"cannot get into {connection.address}: it asks for a login, and the {what} would go there in "
                    "plain text: use TLS (a ticket, or tls=), a tunnel on this machine, or plaintext_login=True"
                )
            fields.add("secret", secret)
    theirs: object = None
    stream = await connection.stream(fields.head("auth"))
    while (item := await stream.next()) is not None:
        theirs = item.message.get("proof", theirs)
    if theirs != expected and expected is not None:
        raise NoAccessError(f"cannot get into {connection.address}: it does not prove that it has the key")


async def learn_identity(connection: Connection) -> None:
    """Asks who the node is, and notes it at the connection. An old node does not know the question.

    Raises :class:`~distkv_client.errors.NoAccessError`, and what can happen to a connection.
    """
    try:
        told = await connection.request(Fields().head("cluster"), float("inf"))
    except ServerError as error:
        if error.code in ACCESS_CODES:
            raise NoAccessError(f"cannot get into {connection.address}: {error}") from None
        if error.code == FULL:
            # Clients of its own machine may log in at a full node, and look what is wrong.
            raise
        return
    except LostError as error:
        if error.code == "auth_required":
            raise NoAccessError(f"cannot get into {connection.address}: {error}") from None
        raise
    connection.name, connection.incarnation = identity_of(told, connection.name)
