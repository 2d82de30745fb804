"""As whom a client logs in, where the ticket with the secret is in a file: that may get another secret while the client
runs. It is read again when a node does not take the secret that it had before, and only then."""

from __future__ import annotations

from collections.abc import Callable

from .login import Login

READ_EVERY = 1.0
"""Seconds between two looks at the file, at least."""


class OwnLogin:
    """See the module. `reread`: the login that the file says now, or none if that is for something else, or cannot be
    read."""

    def __init__(self, login: Login, reread: Callable[[], Login | None]) -> None:
        self.login = login
        """The login that the file said last."""
        self.since = float("-inf")
        """Since when it is that one, by the loop's clock."""
        self._reread = reread
        self._read_at = float("-inf")

    def other_than(self, refused: Login, now: float) -> Login | None:
        """What to log in with instead, where a node has not taken this login; none if there is nothing else. Nothing
        else of the event loop goes on while the file is read: of all that are refused, the first one reads it."""
        if self.login == refused and now - self._read_at >= READ_EVERY:
            self._read_at = now
            found = self._reread()
            if found is not None and found != refused:
                self.login, self.since = found, now
        return self.login if self.login != refused else None
