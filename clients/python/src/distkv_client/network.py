"""The one network whose nodes a client uses. Pure."""

from __future__ import annotations

import json

from .config import Address
from .errors import OtherNetworkError


class Network:
    """See the module. `name`: the configuration's, or the ticket's; `source`: which of them. Without a name, the first
    node that lets the client in and tells its network decides. Once the name is known, it stays the same."""

    __slots__ = ("_says", "name")

    def __init__(self, name: str | None, source: str) -> None:
        self.name = name or None
        self._says = f", as its {source} says" if name else ""

    def check(self, address: Address, theirs: str | None) -> None:
        """Raises :class:`~distkv_client.errors.OtherNetworkError` if a node's greeting names another network. That of
        an older node names none."""
        if theirs is None or self.name is None or theirs == self.name:
            return
        # Names are any text, and are shown in one line.
        shown, own = (json.dumps(name, ensure_ascii=False) for name in (theirs, self.name))
        text = f"it is a node of the network {shown}, and this client is of {own}{self._says}"
        raise OtherNetworkError(f"cannot use {address}: {text}")

    def settle(self, address: Address, theirs: str | None) -> None:
        """The same once a node has let the client in. Another one may have decided since its greeting."""
        if self.name is None:
            self.name = theirs
        self.check(address, theirs)
