"""As whom a client logs in, where the ticket with the secret is in a file: that may get another secret while the client
runs. It is read again when a node does not take the secret that it had before, and only then.

Whoever replaces a secret may end the user's connections first, and put the ticket in its place a moment later. So where
a node had taken the secret before, the file is read several times before the client counts as refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .login import Login

READ_EVERY = 1.0
"""Seconds between the last look at the file for one refusal and the next look, at least."""
PAUSES = (0.1, 0.2, 0.3, 0.4)
"""Seconds before each further look for one refusal, where a node had taken the secret before."""


class OwnLogin:
    """See the module. `reread`: the login that the file says now, or none if that is for something else, or cannot be
    read."""

    def __init__(self, login: Login, reread: Callable[[], Login | None]) -> None:
        self.login = login
        """The login that the file said last."""
        self.since = float("-inf")
        """Since when it is that one, by the loop's clock."""
        self._is_good = False
        """A node has taken it, and the file was not read in vain since then."""
        self._reread = reread
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()
        """Who reads the file holds it, so that others that were refused meanwhile get the same."""

    def on_taken(self, login: Login) -> None:
        """A node has taken this login."""
        self._is_good = self._is_good or login == self.login

    async def other_than(self, refused: Login, until: float) -> Login | None:
        """What to log in with instead, where a node has not taken this login; none if there is nothing else. `until`:
        when the login must have ended, by the loop's clock. At most half of the time is spent on that: the rest is for
        a login with what is found."""
        until = (asyncio.get_running_loop().time() + until) / 2
        if self.login == refused:
            try:
                async with asyncio.timeout_at(until), self._turn:
                    await self._read_for(refused, until)
            except TimeoutError:
                pass
        if self.login != refused:
            return self.login
        # So whoever is refused next is told at once.
        self._is_good = False
        return None

    async def _read_for(self, refused: Login, until: float) -> None:
        """Reads it for one refusal, and for all that wait for their turn meanwhile. Nothing else of the event loop goes
        on while the file itself is read."""
        loop, before = asyncio.get_running_loop(), self._read_at
        for pause in (0.0, *(PAUSES if self._is_good else ())):
            if self.login != refused or (pause and loop.time() + pause > until):
                return
            if pause:
                await asyncio.sleep(pause)
            now = loop.time()
            if now - before >= READ_EVERY:
                self._read_at = now
                found = self._reread()
                if found is not None and found != refused:
                    self.login, self.since, self._is_good = found, now, False
