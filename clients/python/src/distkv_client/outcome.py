"""What a failed try leaves in doubt, and the error of a call that ends with it. Pure."""

from __future__ import annotations

from .errors import (
    REFUSALS,
    DeniedError,
    DistKVError,
    Fate,
    FateUnknownError,
    LateError,
    NoAccessError,
    RefusedError,
    ServerError,
    TooLargeError,
    TryError,
    UnavailableError,
    UsageError,
)
from .retry import ErrorClass, Idempotency, class_of_code


def check_time(now: float, end: float, node: str) -> None:
    """Nothing is sent whose answer could not come in time."""
    if now >= end:
        raise LateError(f"there was no time left to ask {node}")


def fate_of(kind: ErrorClass, idempotency: Idempotency) -> Fate:
    """What a failed try leaves in doubt."""
    if idempotency is Idempotency.READ:
        return Fate.NOT_DONE
    if kind is ErrorClass.UNKNOWN_THERE:
        return Fate.UNCONFIRMED
    if kind in (ErrorClass.TRY_DEADLINE, ErrorClass.FATE_UNKNOWN, ErrorClass.ABORTED):
        return Fate.UNKNOWN
    return Fate.NOT_DONE


def final_error(error: TryError, fate: Fate, node: str | None, attempts: int) -> DistKVError:
    """The error of a call that ends with this one."""
    if isinstance(error, TooLargeError):
        # It is as long at any node: none was asked.
        return UsageError(str(error))
    if isinstance(error, ServerError) and class_of_code(error.code) is ErrorClass.FINAL:
        # A refusal after a try of unknown fate may be that try's doing: `fate` says so.
        kind = REFUSALS.get(error.code or "", RefusedError)
        return kind(error.text, code=error.code, fate=fate, node=node, attempts=attempts, cause=error)
    code = error.code if isinstance(error, ServerError) else None
    if fate is not Fate.NOT_DONE:
        is_unknown = fate is Fate.UNKNOWN
        # A node tells how long it has waited in the last try, which may be a short rest of the call's time.
        what = "it may have been done" if is_unknown else "it is done, but not confirmed in time; of the last try"
        text = f"{what}: {error}"
        return FateUnknownError(text, code=code, fate=fate, node=node, attempts=attempts, cause=error)
    text = f"no node could do it in time; the last try: {error}"
    return UnavailableError(text, node=node, attempts=attempts, cause=error)


def no_access(error: TryError, fate: Fate, node: str, attempts: int) -> DistKVError:
    """The error of a call where no node lets the client in; `error`: what one of them has said."""
    if isinstance(error, NoAccessError) and fate is Fate.NOT_DONE:
        return DeniedError(str(error), code=error.code, node=node, attempts=attempts, cause=error)
    return final_error(error, fate, node, attempts)


def most_telling(last: TryError, unconfirmed: TryError | None) -> TryError:
    """Of the last failure, and a node's word that others have not confirmed what it has made: that word, unless a
    node had the last one, too. The last try is mostly just cut off by the deadline."""
    return last if unconfirmed is None or isinstance(last, ServerError) else unconfirmed
