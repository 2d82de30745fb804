"""Errors that messages are, and errors that several calls get. Pure."""

from __future__ import annotations

from .codec import Message
from .errors import LostError, ProtocolError, ServerError, TryError


def again(error: TryError) -> TryError:
    """The same error for another call: one exception is raised once."""
    if isinstance(error, ServerError):
        return ServerError(error.text, error.code, error.is_made)
    if isinstance(error, LostError):
        return LostError(str(error), error.code)
    told = type(error)(str(error))
    told.__cause__ = error.__cause__
    return told


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
