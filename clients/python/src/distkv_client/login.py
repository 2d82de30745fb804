"""A node's greeting, and as whom a connection logs in right after it. Pure; nothing secret is ever shown."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from .checks import Range, check_fields
from .codec import Message
from .errors import ProtocolError
from .tls import Tls

if TYPE_CHECKING:
    from .own_login import OwnLogin

NONCE_BYTES = 32
"""Bytes of a nonce."""
NAME = Range(1, 256)
"""Bytes of the name of a user, or of a method, as nodes take it."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user with its password or token, or the network's key.

    The secret is sent as it is: only within TLS, or to a node of the same machine, unless the configuration has
    `plaintext_login`. `method` is `password`, `token`, or `root`, which has no secret; none takes what the node asks
    for.

    Raises :class:`~distkv_client.errors.UsageError` for what no node takes: a user and a method have 1 to 256 bytes, a
    secret up to 4,096.
    """

    user: Annotated[str, NAME] = "*"
    secret: Annotated[str | None, Range(0, 4096)] = field(default=None, repr=False)
    method: Annotated[str | None, NAME] = None
    key: Annotated[bytes | None, Range(32, 32)] = field(default=None, repr=False)
    """The network's key as far as it is for logins, 32 bytes: it is not sent, both sides prove to have it."""

    def __post_init__(self) -> None:
        check_fields(self, "login")

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


@dataclass(frozen=True, slots=True)
class Access:
    """How a client gets in at each node."""

    login: Login | None = None
    tls: Tls | None = None
    """None: plain text."""
    plaintext_login: bool = False
    """Whether a secret is also sent in plain text to another machine."""
    own: OwnLogin | None = None
    """Where the login may be replaced; it counts instead of `login`."""

    @property
    def current(self) -> Login | None:
        """As whom a connection logs in now."""
        return self.login if self.own is None else self.own.login

    @property
    def since(self) -> float:
        """Since when that is so, by the loop's clock."""
        return float("-inf") if self.own is None else self.own.since

    async def other_than(self, refused: Login, until: float) -> Login | None:
        """What to log in with instead, where a node has not taken this login; none if there is nothing else. `until`:
        when the login must have ended, by the loop's clock."""
        return None if self.own is None else await self.own.other_than(refused, until)

    def on_taken(self, login: Login) -> None:
        """A node has taken this login."""
        if self.own is not None:
            self.own.on_taken(login)


def secret_for(login: Login, method: str) -> str | None:
    """What is sent in such a login. Whoever asks for a method that has no secret gets none."""
    return None if method in ("root", "_test") else login.secret


def lacks_secret(login: Login, method: str) -> bool:
    """Whether such a login cannot succeed, for want of a secret. Of other methods nobody knows here."""
    return login.secret is None and method in ("password", "token")


def proof(key: bytes, label: bytes, client: bytes, node: bytes) -> bytes:
    """What a side sends to show that it has the key."""
    return hmac.new(key, label + client + node, hashlib.sha256).digest()


class Greeting:
    """What a node says first."""

    def __init__(self, message: Message) -> None:
        node = message.get("node")
        if not isinstance(node, str) or not isinstance(message.get("version"), list):
            raise ProtocolError("its first message is no greeting")
        self.node = node
        self.is_catching_up = "tick" in message and message["tick"] is None
        qlen = message.get("qlen")
        self.qlen = qlen if isinstance(qlen, int) and not isinstance(qlen, bool) else None
        auth = message.get("auth")
        first = auth[0] if isinstance(auth, list) and auth else None  # pyright: ignore[reportUnknownVariableType]
        self.auth = first if isinstance(first, str) else None
        nonce = message.get("nonce")
        self.nonce = nonce if isinstance(nonce, bytes) and len(nonce) == NONCE_BYTES else None
        network = message.get("network")
        self.network = network if isinstance(network, str) and network else None
        """The name of its network; none from an older node."""
        self.clock: object = message.get("clock")
        """What the node's own clock says (:class:`~distkv_client.try_time.NodeClock`)."""


def identity_of(told: Message, name: str) -> tuple[str, int | None]:
    """A node's name and incarnation, as its answer to `cluster` has them; `name`: what it is called otherwise."""
    identity: Any = told.get("id")
    if not isinstance(identity, dict):
        return name, None
    fields: dict[str, Any] = identity  # pyright: ignore[reportUnknownVariableType]
    own, incarnation = fields.get("name"), fields.get("incarnation")
    if not isinstance(own, str):
        return name, None
    return own, incarnation if isinstance(incarnation, int) else None
