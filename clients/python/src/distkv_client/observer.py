"""What an observer is told of calls: their beginning, each try, their end. Costs nothing where there is none.

What is logged tells no path and no value: others may read logs. So it has no error of the client either, in which
there may be a node's words, such as the value that a precondition was about.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from .errors import DistKVError, Fate, TryError
from .retry import ErrorClass

log = logging.getLogger("distkv_client")


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How a call ended."""

    action: str
    seconds: float
    attempts: int
    fate: Fate | None
    """None: it succeeded."""
    error: DistKVError | asyncio.CancelledError | None
    """None: it succeeded. A `CancelledError`: its caller gave it up; a change may have been made all the same. Its
    text may have paths and values in it, which a node has told: log its `code`, or class."""


@runtime_checkable
class Observer(Protocol):
    """Is called on the client's event loop: it must be quick. An `Exception` that it raises is logged and stops
    nothing; what is no `Exception` (`CancelledError`, `SystemExit`, `KeyboardInterrupt`) goes through."""

    def call_begins(self, action: str) -> object:
        """A call begins. What this returns is handed to the other two."""

    def try_begins(self, token: object, node: str, attempt: int) -> None:
        """A try goes to a node."""

    def try_failed(self, token: object, node: str, attempt: int, kind: ErrorClass, text: str) -> None:
        """A try has failed. `text` may have paths and values in it, which a node has told: log `kind` instead."""

    def call_ends(self, token: object, end: CallEnd) -> None:
        """The call has ended, in whatever way: each one that has begun is told once."""


class Watched:
    """One observed call; keeps the observer's exceptions from the caller."""

    __slots__ = ("action", "attempts", "observer", "started", "token")

    def __init__(self, observer: Observer, action: str, now: float) -> None:
        self.observer = observer
        self.action = action
        self.started = now
        self.token: object = None
        self.attempts = 0
        """The last try."""
        try:
            self.token = observer.call_begins(action)
        except Exception as error:
            log_failure(error, "an observer failed at the beginning of %s", action)

    def on_try(self, node: str, attempt: int) -> None:
        """See :meth:`Observer.try_begins`."""
        self.attempts = attempt
        try:
            self.observer.try_begins(self.token, node, attempt)
        except Exception as error:
            log_failure(error, "an observer failed at a try of %s", self.action)

    def on_failed(self, node: str, attempt: int, kind: ErrorClass, text: str) -> None:
        """See :meth:`Observer.try_failed`."""
        try:
            self.observer.try_failed(self.token, node, attempt, kind, text)
        except Exception as error:
            log_failure(error, "an observer failed at a failed try of %s", self.action)

    def on_end(self, now: float, attempts: int, error: DistKVError | None) -> None:
        """See :meth:`Observer.call_ends`."""
        self._tell_end(now, attempts, None if error is None else error.fate, error)

    def on_cancelled(self, now: float, error: asyncio.CancelledError, is_read: bool) -> None:
        """Its caller has given it up."""
        is_not_done = is_read or not self.attempts
        self._tell_end(now, self.attempts, Fate.NOT_DONE if is_not_done else Fate.UNKNOWN, error)

    def _tell_end(
        self, now: float, attempts: int, fate: Fate | None, error: DistKVError | asyncio.CancelledError | None
    ) -> None:
        try:
            end = CallEnd(self.action, now - self.started, attempts, fate, error)
            self.observer.call_ends(self.token, end)
        except Exception as failure:
            log_failure(failure, "an observer failed at the end of %s", self.action)


def log_failure(failure: Exception, text: str, *args: object) -> None:
    """Logs what a program's own function has raised; alone, since behind it there may be the call's own error."""
    told = failure
    if isinstance(failure, (DistKVError, TryError)):
        told = RuntimeError(f"it raised a {type(failure).__name__}")
        told.__traceback__ = failure.__traceback__
    told.__cause__ = told.__context__ = None
    log.error(text, *args, exc_info=told)
