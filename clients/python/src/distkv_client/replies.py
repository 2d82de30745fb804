"""Errors that messages are, and errors that several calls get. Pure."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from .codec import Message
from .errors import LostError, NotMetError, ProtocolError, ServerError, TryError

if TYPE_CHECKING:
    from .config import Address


def again(error: TryError) -> TryError:
    """The same error for another call: one exception is raised once."""
    if isinstance(error, ServerError):
        return ServerError(error.text, error.code, error.is_made)
    if isinstance(error, LostError):
        return LostError(str(error), error.code)
    told = type(error)(str(error))
    told.__cause__ = error.__cause__
    return told


def end_of(error: TryError | ssl.SSLError, address: Address, is_greeting: bool) -> TryError:
    """How a connection ends on which this came; `is_greeting`: instead of its greeting."""
    match error:
        case ServerError():
            # In plain text, before TLS.
            return error
        case ProtocolError():
            return ProtocolError(f"{address} does not speak the client protocol: {error}")
        case NotMetError():
            return NotMetError(f"cannot get into {address}: {error}")
        case ssl.SSLError() if is_greeting:
            # A node that does not accept the client's certificate says so after the handshake.
            return NotMetError(f"cannot get into {address}: {error}")
        case _:
            # Also what a node says that took it for a client without TLS.
            return LostError(f"the connection to {address} is lost: {error}")


def server_error(message: Message) -> ServerError:
    """The error that a message is."""
    text, code = message.get("error"), message.get("code")
    told = text if isinstance(text, str) else "an error that is not told as text"
    return ServerError(told, code if isinstance(code, str) else None, message.get("made") is True)


NO_REPLY = frozenset(("error", "state"))
"""What a message has that is none to a request with one reply."""


def check_reply(message: Message) -> None:
    """Raises the error that a reply is."""
    if "error" in message:
        raise server_error(message)
    if "state" in message:
        raise ProtocolError("a stream came as the answer to a request")
