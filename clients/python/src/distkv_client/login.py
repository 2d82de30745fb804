"""As whom a connection logs in, right after the node's greeting. Pure; nothing secret is ever shown."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

NONCE_BYTES = 32
"""Bytes of a nonce."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user with its password or token, or the network's key.

    The secret is sent as it is: use it within TLS, or to a node of the same machine. `method` is `password`,
    `token` or `root`; none takes what the node asks for.
    """

    user: str = "*"
    secret: str | None = field(default=None, repr=False)
    method: str | None = None
    key: bytes | None = field(default=None, repr=False)
    """The network's key as far as it is for logins, 32 bytes: it is not sent, both sides prove to have it."""

    @classmethod
    def password(cls, user: str, password: str) -> Login:
        """A user of the method `password`."""
        return cls(user, password, "password")

    @classmethod
    def token(cls, user: str, token: str) -> Login:
        """A user of the method `token`."""
        return cls(user, token, "token")

    def blame(self) -> str:
        """What may be wrong when a node refuses it."""
        if self.key is not None:
            return "wrong cluster key"
        if self.secret is None:
            return f"there is no user {self.user!r}, or it needs a secret"
        return f"there is no user {self.user!r}, or its secret is another one"


def proof(key: bytes, label: bytes, client: bytes, node: bytes) -> bytes:
    """What a side sends to show that it has the key."""
    return hmac.new(key, label + client + node, hashlib.sha256).digest()
