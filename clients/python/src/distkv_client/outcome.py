"""What a failed try leaves in doubt, and the error of a call that ends with it. Pure."""

from __future__ import annotations

from .config import Address
from .errors import (
    REFUSALS,
    ConnectError,
    DeniedError,
    DistKVError,
    Fate,
    FateUnknownError,
    FullError,
    LateError,
    NoAccessError,
    RefusedError,
    ServerError,
    TooLargeError,
    TryError,
    UnavailableError,
    UsageError,
    worse_fate,
)
from .retry import ErrorClass, Idempotency, class_of_code


def check_time(now: float, end: float, node: str) -> None:
    """Nothing is sent whose answer could not come in time."""
    if now >= end:
        raise LateError(f"there was no time left to ask {node}")


def fate_of(failure: TryError, kind: ErrorClass, idempotency: Idempotency) -> Fate:
    """What a failed try leaves in doubt."""
    if idempotency is Idempotency.READ:
        return Fate.NOT_DONE
    if kind is ErrorClass.UNKNOWN_THERE:
        return Fate.UNCONFIRMED
    if kind in (ErrorClass.TRY_DEADLINE, ErrorClass.FATE_UNKNOWN, ErrorClass.ABORTED):
        return Fate.UNKNOWN
    # Also who is refused for good may have been refused in the middle, as in the deletion of a tree.
    is_made = isinstance(failure, ServerError) and failure.is_made
    return Fate.UNKNOWN if is_made else Fate.NOT_DONE


class Doubt:
    """What the tries of one call have left in doubt together."""

    __slots__ = ("_failure", "_places", "fate")

    def __init__(self) -> None:
        self.fate = Fate.NOT_DONE
        self._failure: tuple[str, TryError] | None = None
        """The last one that has left this fate, and its node's name."""
        self._places: set[Address] = set()
        """Where it may have been done."""

    def note(self, fate: Fate, address: Address, node: str, failure: TryError) -> None:
        """A try has failed, and leaves this in doubt."""
        if fate is Fate.NOT_DONE:
            return
        self._places.add(address)
        self.fate = worse_fate(self.fate, fate)
        if self.fate is fate:
            self._failure = node, failure

    def is_elsewhere(self, address: Address) -> bool:
        """Another node than this one may have done it, too."""
        return any(other != address for other in self._places)

    def told(self, node: str, last: TryError) -> tuple[str, TryError]:
        """Which failure the call's error tells, and its node's name: the last one that a node itself has told. Else,
        of a change that others have not confirmed, what the node says that has made it, since the last try is mostly
        just cut off by the deadline. Of any other one not that nobody could be asked again, but the try that was
        sent."""
        if self._failure is None or isinstance(last, ServerError):
            return node, last
        is_unsent = isinstance(last, ConnectError)
        return self._failure if self.fate is Fate.UNCONFIRMED or is_unsent else (node, last)


def final_error(error: TryError, fate: Fate, node: str | None, attempts: int) -> DistKVError:
    """The error of a call that ends with this one."""
    if isinstance(error, TooLargeError):
        # It is as long at any node: none was asked.
        return UsageError(str(error))
    if isinstance(error, ServerError) and class_of_code(error.code) is ErrorClass.FINAL:
        # A refusal after a try of unknown fate may be that try's doing: `fate` says so.
        return refusal(error, fate, node, attempts)
    code = error.code if isinstance(error, ServerError) else None
    if fate is not Fate.NOT_DONE:
        is_unknown = fate is Fate.UNKNOWN
        # A node tells how long it has waited in the last try, which may be a short rest of the call's time.
        what = "it may have been done" if is_unknown else "it is done, but not confirmed in time; of the last try"
        text = f"{what}: {error}"
        return FateUnknownError(text, code=code, fate=fate, node=node, attempts=attempts, cause=error)
    if isinstance(error, FullError):
        # Nodes are fine, and no time has passed.
        return UnavailableError(str(error), code=error.code, node=node, attempts=attempts, cause=error)
    text = f"no node could do it in time; the last try: {error}"
    return UnavailableError(text, node=node, attempts=attempts, cause=error)


def refusal(error: ServerError, fate: Fate, node: str | None, attempts: int) -> RefusedError:
    """The error of what a node refuses. It knows of no try but that one: its "nothing was changed" says nothing of an
    earlier one."""
    kind, text = REFUSALS.get(error.code or "", RefusedError), error.text
    # Of another kind of error, the doubt may be its own.
    is_own = error.is_made or class_of_code(error.code) is not ErrorClass.FINAL
    if fate is not Fate.NOT_DONE and not is_own:
        words = text.replace("; nothing was changed", "")
        text = f"an earlier try may have done it; the last one was refused: {words}"
    return kind(text, code=error.code, fate=fate, node=node, attempts=attempts, cause=error)


def no_access(error: TryError, fate: Fate, node: str, attempts: int) -> DistKVError:
    """The error of a call where no node lets the client in; `error`: what one of them has said."""
    if isinstance(error, NoAccessError) and fate is Fate.NOT_DONE:
        return DeniedError(str(error), code=error.code, node=node, attempts=attempts, cause=error)
    return final_error(error, fate, node, attempts)
