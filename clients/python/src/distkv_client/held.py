"""What is open for longer than one request: whoever closes the client waits for its end, and the observer is told."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from .call import Caller
from .errors import DistKVError, TryError
from .observer import Watched
from .retry import class_of


@contextmanager
def held(caller: Caller) -> Generator[None, None, None]:
    """Counts as an open call."""
    caller.check_loop()
    caller.open_calls += 1
    try:
        yield
    finally:
        caller.end_call()


class Tries:
    """A call that asks several nodes, as the observer is told of it, if there is one."""

    def __init__(self, watched: Watched | None) -> None:
        self.watched = watched
        self.attempts = 1

    def on_try(self, node: str) -> None:
        """A node is asked."""
        if self.watched is not None:
            self.watched.on_try(node, self.attempts)

    def on_failed(self, node: str, error: TryError, attempt: int | None = None) -> None:
        """A node has not answered; `attempt`: which try that was, if not the last one."""
        if self.watched is not None:
            attempt = self.attempts if attempt is None else attempt
            self.watched.on_failed(node, attempt, class_of(error), str(error))


@contextmanager
def observed(caller: Caller, action: str) -> Generator[Tries, None, None]:
    """The same, for what is no call of the caller's own."""
    with held(caller):
        observer = caller.config.observer
        tries = Tries(None if observer is None else Watched(observer, action, caller.loop.time()))
        watched = tries.watched
        try:
            yield tries
        except DistKVError as error:
            if watched is not None:
                watched.on_end(caller.loop.time(), error.attempts, error)
            raise
        except asyncio.CancelledError as error:
            if watched is not None:
                watched.on_cancelled(caller.loop.time(), error, True)
            raise
        except GeneratorExit:
            # Whoever iterated has what it wanted.
            if watched is not None:
                watched.on_end(caller.loop.time(), tries.attempts, None)
            raise
        if watched is not None:
            watched.on_end(caller.loop.time(), tries.attempts, None)
