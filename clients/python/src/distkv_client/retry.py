"""Whether a failed try is repeated, when, and at which node: pure decisions; time and chance are passed in.

A request is retried only if that can help and can do no harm. Harm is a write that is made twice: so if it is
unknown whether a write was made, it is retried only if it carries something that keeps the second one from
counting (`Idempotency.GUARDED`).

>>> RetryPolicy().decide(ErrorClass.FATE_UNKNOWN, 1, 0.0, Idempotency.UNGUARDED, 0.5)
GiveUp(reason=<Reason.FATE_UNKNOWN: 'fate_unknown'>)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

from .checks import ABOVE_ZERO, Range
from .errors import (
    BusyError,
    ConnectError,
    FullError,
    LostError,
    NoAccessError,
    ProtocolError,
    ServerError,
    TimedOutError,
    TryError,
)


class ErrorClass(enum.Enum):
    """What an error means for trying again."""

    UNAVAILABLE = "unavailable"
    """That node cannot do it now, and did not. Another one can."""
    OVERLOAD = "overload"
    """The node has too much to do, and did not do it."""
    ABORTED = "aborted"
    """It was ended in its middle, and can be started anew."""
    TRY_DEADLINE = "try_deadline"
    """One try has used up its time. Whether it was carried out is unknown."""
    FATE_UNKNOWN = "fate_unknown"
    """Whether it was carried out is not known."""
    UNKNOWN_THERE = "unknown_there"
    """The same, but the node that was asked knows more than others do: it is asked again."""
    BUSY = "busy"
    """This connection has too many open requests. Nothing was sent, and the node is fine."""
    FINAL = "final"
    """The answer would be the same at every node, at any time."""


class Idempotency(enum.Enum):
    """What happens if a request is carried out twice."""

    READ = "read"
    """It changes nothing."""
    GUARDED = "guarded"
    """A write with a version precondition, a write id, or `idempotent`: the second one changes nothing."""
    UNGUARDED = "unguarded"
    """A write that would be made twice."""


class Reason(enum.Enum):
    """Why a request is given up."""

    FINAL = "final"
    FATE_UNKNOWN = "fate_unknown"
    DEADLINE = "deadline"


CODES: dict[str, ErrorClass] = {
    **dict.fromkeys(
        (
            "bad_request bad_message unknown_action not_implemented too_large wid_reused given_up denied auth_required "
            "auth_failed is_root not_found already_exists is_new chain_mismatch data_mismatch type_mismatch "
            "in_use memory_full"
        ).split(),
        ErrorClass.FINAL,
    ),
    "not_ready": ErrorClass.UNAVAILABLE,
    "too_late": ErrorClass.UNAVAILABLE,
    "read_only": ErrorClass.UNAVAILABLE,
    "no_event": ErrorClass.UNAVAILABLE,
    "too_many": ErrorClass.OVERLOAD,
    "too_slow": ErrorClass.ABORTED,
    "unknown_fate": ErrorClass.UNKNOWN_THERE,
    "storage_failed": ErrorClass.UNAVAILABLE,
    "internal": ErrorClass.FATE_UNKNOWN,
}
"""What a node's word means. A word that is not here, or none, is final."""

UNCERTAIN = frozenset((ErrorClass.TRY_DEADLINE, ErrorClass.FATE_UNKNOWN, ErrorClass.UNKNOWN_THERE))
"""The request may have been carried out."""
BEGUN = frozenset((ErrorClass.UNAVAILABLE, ErrorClass.OVERLOAD, ErrorClass.ABORTED))
"""Where the node says that the change is made, or a part of it, it is as if it had not answered."""
SAME_NODE = frozenset((ErrorClass.UNKNOWN_THERE, ErrorClass.BUSY))
"""The same node is asked again."""


def class_of_code(code: str | None) -> ErrorClass:
    """What a node's word means where it does not say that the change is made."""
    return CODES.get(code, ErrorClass.FINAL) if code is not None else ErrorClass.FINAL


def class_of_server(error: ServerError) -> ErrorClass:
    """What a node's error means."""
    found = class_of_code(error.code)
    # It did it, or part of it: another node would do it again.
    return ErrorClass.FATE_UNKNOWN if error.is_made and found in BEGUN else found


def class_of(error: TryError, maybe_sent: bool = True) -> ErrorClass:
    """What this error means; `maybe_sent`: some or all of the request may have left."""
    match error:
        case ServerError():
            return class_of_server(error)
        case ConnectError() | NoAccessError() | FullError():
            # One node that lets nobody in, or to which there is no room, is like one that is not there.
            return ErrorClass.UNAVAILABLE
        case LostError() | ProtocolError():
            return ErrorClass.FATE_UNKNOWN if maybe_sent else ErrorClass.UNAVAILABLE
        case TimedOutError():
            return ErrorClass.TRY_DEADLINE
        case BusyError():
            return ErrorClass.BUSY
        case _:
            return ErrorClass.FINAL


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait so many seconds, then try again."""

    delay: float
    other_node: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The request has failed."""

    reason: Reason


def backoff(first: float, factor: int, longest: float, failures: int, random: float) -> float:
    """`first` * `factor`^(failures - 1), at most `longest`, of which a random part between half and all."""
    exponent = min(max(failures - 1, 0), 64)
    try:
        times = float(max(factor, 1)) ** exponent if exponent else 1.0
        whole = min(first * times, longest)
    except OverflowError:
        # It is greater than any float.
        whole = longest
    return whole / 2 + whole / 2 * random


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a request is tried again, and for how long in all. Times are seconds."""

    initial_delay: Annotated[float, ABOVE_ZERO] = 0.01
    """Before the second try."""
    factor: Annotated[int, Range(1)] = 2
    """By how much each delay is longer than the one before it: a whole number, at least 1."""
    delay_max: Annotated[float, ABOVE_ZERO] = 1.0
    """No delay is longer."""
    total_deadline: Annotated[float, ABOVE_ZERO] = 10.0
    """For all tries and delays together."""
    try_deadline: Annotated[float, ABOVE_ZERO] = 2.0
    """For one try, where there is not much to send: 2 s more for each 1,000,000 bytes that its connection has sent and
    that have no answer yet, and as long as an answer is still arriving, but not beyond `total_deadline`."""
    attempts_max: Annotated[int | None, Range(1)] = None
    """Most tries of a call, at least 1; none: only deadlines count."""

    def decide(
        self, error: ErrorClass, attempt: int, elapsed: float, idempotency: Idempotency, random: float
    ) -> Retry | GiveUp:
        """What to do when try number `attempt` (the first is 1) has failed, `elapsed` after the beginning."""
        if error is ErrorClass.FINAL:
            return GiveUp(Reason.FINAL)
        if error in UNCERTAIN and idempotency is Idempotency.UNGUARDED:
            return GiveUp(Reason.FATE_UNKNOWN)
        delay = self.delay(attempt, random)
        if elapsed + delay >= self.total_deadline:
            return GiveUp(Reason.DEADLINE)
        if self.attempts_max is not None and attempt >= self.attempts_max:
            return GiveUp(Reason.DEADLINE)
        return Retry(delay, error not in SAME_NODE)

    def delay(self, attempt: int, random: float) -> float:
        """How long to wait after try number `attempt` has failed."""
        return backoff(self.initial_delay, self.factor, self.delay_max, attempt, random)
