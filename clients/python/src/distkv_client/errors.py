"""What a call can end with: one base, :class:`DistKVError`, with `code`, `fate`, `node` and `attempts`.

Errors of one try (:class:`TryError` and below) never leave the client: the retry policy reads them, and a
call's error has the last one as its `cause`.
"""

from __future__ import annotations

import enum


class Fate(enum.Enum):
    """What became of what a call was to do."""

    NOT_DONE = "not_done"
    """It was not done, and will not be."""
    UNKNOWN = "unknown"
    """It may have been done, or may still be, once; or a part of it was done, as of the deletion of a tree."""
    UNCONFIRMED = "unconfirmed"
    """A node has made the change, but not as many others as were asked for have confirmed it."""


def worse_fate(one: Fate, other: Fate) -> Fate:
    """What two tries together leave in doubt. A change that one node has made stays made."""
    for fate in (Fate.UNCONFIRMED, Fate.UNKNOWN):
        if fate in (one, other):
            return fate
    return Fate.NOT_DONE


ACCESS_CODES = frozenset(("auth_required", "auth_failed", "denied"))
"""A node's words for who may not get in."""
FULL = "too_many"
"""A node's word for having no room for another client; as the answer to a login: too many logins have failed."""


class _Told(Exception):
    """Can be copied, and told to another process, whatever its class is made with."""

    def __reduce__(self) -> tuple[object, ...]:
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[_Told], args: tuple[object, ...]) -> _Told:
    return kind.__new__(kind, *args)


# -- errors of one try ---------------------------------------------------------------------------


class TryError(_Told):
    """How one try failed."""


class ServerError(TryError):
    """The node's own error; the connection stays usable."""

    def __init__(self, text: str, code: str | None, is_made: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.is_made = is_made
        """The node says that it has made the change, or part of it."""


class ConnectError(TryError):
    """No connection came about in time, or no name could be looked up. Nothing was sent."""


class LateError(ConnectError):
    """The connection was there, but there was no time left to ask. Nothing was sent."""


class NoSocketError(ConnectError):
    """This program, or its machine, may open no more files, so that nothing is known of the node. Nothing was sent."""


class LoginWaitError(ConnectError):
    """The node makes the login wait, since too many have failed of that user, or from that address: it has not looked
    at the secret, so it neither refuses this client nor lets it in."""


class OtherNetworkError(ConnectError):
    """The node is of another network than the client, which is therefore not refused by one of its own: for a call it
    is like a node that cannot be reached. Nothing was sent, unless the client did not know its own network yet."""


class OtherNodeError(ConnectError):
    """Where the view has a node, another one answers: for the one that was meant, it is as if it could not be reached.
    Nothing was sent."""


class NoAccessError(TryError):
    """No TLS came about, or the node does not know the user. Nothing was sent."""

    code = "no_access"
    """The word for programs, of a call that ends with it."""


class NotMetError(NoAccessError):
    """No TLS came about, so that no greeting could be believed: the node may be of any network."""


class PlaintextLoginError(NoAccessError):
    """The node asks for a login, and the client itself sends it none, since its secret would go to another machine in
    plain text. Nothing was sent."""

    code = "plaintext_login"


class LostError(TryError):
    """The connection ended. Whether an unanswered request was carried out is not known."""

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        """The node's word, if it said why before it closed."""


class ProtocolError(TryError):
    """The other side does not keep to the protocol."""


class TooLargeError(TryError):
    """The request is longer than any node takes. Nothing was sent."""


class BusyError(TryError):
    """Too many requests are open on this connection. Nothing was sent."""


class FullError(TryError):
    """Each connection to the node has as many streams as it may have, and there may be no further connection: the
    client has no room, and the node is fine. Nothing was sent."""

    code = "too_many_streams"
    """The word for programs, of a call that ends with it."""


class TimedOutError(TryError):
    """No answer within the time of one try."""


# -- errors of calls -----------------------------------------------------------------------------


class DistKVError(_Told):
    """The base of all errors that calls raise."""

    default_code: str | None = None

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        fate: Fate = Fate.NOT_DONE,
        node: str | None = None,
        attempts: int = 0,
        cause: TryError | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code if code is not None else self.default_code
        """The word for programs: a node's, or this class's own."""
        self.fate = fate
        """What is known of a write that failed."""
        self.node = node
        """The node of the last try, if there was one."""
        self.attempts = attempts
        """Tries, the last one included; 0: there was none, or a watch or monitor was open as the client was closed."""
        self.cause = cause
        """How the last try failed; of a write that is not confirmed, what a node last said of that."""

    def __str__(self) -> str:
        if not self.attempts:
            return self.text
        tries = "1 try" if self.attempts == 1 else f"{self.attempts} tries"
        fate = {
            Fate.NOT_DONE: "",
            Fate.UNKNOWN: ", may have been done",
            Fate.UNCONFIRMED: ", done but not confirmed",
        }[self.fate]
        where = f"at {self.node}, " if self.node else ""
        return f"{self.text} ({where}{tries}{fate})"


class KeyNotFoundError(DistKVError, KeyError):
    """`get` without a default found no value."""

    default_code = "key_not_found"
    __str__ = DistKVError.__str__


class RefusedError(DistKVError):
    """A node refused it, and no other try can help. `code` is the node's word. If it was refused in its middle, or an
    earlier try may have done it, `fate` says so."""


class DeniedError(RefusedError):
    """The user may not do this, or is not known: `denied`, `auth_required`, `auth_failed`, `no_access`; or the client
    itself sends its secret nowhere in plain text: `plaintext_login`."""


class PreconditionError(RefusedError):
    """A precondition of a write did not hold: somebody was there first, or the node that was asked has not heard of
    that version yet (a split that has just begun: read again, and try again). It may have been an earlier try of this
    call, if `fate` is not :attr:`Fate.NOT_DONE`: who reads anew and does it once more then may do it twice."""


class ExistsError(PreconditionError):
    """`if_new`, and there is a value (`already_exists`)."""


class ChangedError(PreconditionError):
    """`if_version`, and it is another version (`chain_mismatch`) or none (`is_new`) at the node that was asked."""


class ValueChangedError(PreconditionError):
    """`if_value`, and it is another value (`data_mismatch`)."""


class UnavailableError(DistKVError):
    """The deadline passed while no node could do it. It was not done. With the code `too_many_streams`, the client has
    no room for another watch, monitor or tree: that is told at once."""

    default_code = "unavailable"


class FateUnknownError(DistKVError):
    """A try may have been carried out, and another one could do it twice; or the deadline passed after it."""

    default_code = "fate_unknown"


class NoMajorityError(DistKVError):
    """Fewer than a majority of the nodes answered a read that needs one."""

    default_code = "no_majority"

    def __init__(self, answered: int, needed: int, nodes: int, attempts: int, refusal: TryError | None = None) -> None:
        text = f"{answered} of {nodes} nodes answered, {needed} must"
        if refusal is not None:
            text += f"; one does not let this client in: {refusal}"
        super().__init__(text, attempts=attempts, cause=refusal)
        self.answered = answered
        self.needed = needed
        self.nodes = nodes


class BadValueError(DistKVError, ValueError):
    """The value, read or to be written, is not of this type. A write was not sent."""

    default_code = "bad_value"
    __str__ = DistKVError.__str__


class UsageError(DistKVError, ValueError):
    """The call cannot be made like that. Nothing was sent."""

    default_code = "usage"
    __str__ = DistKVError.__str__


class ClosedError(DistKVError):
    """The client was closed."""

    default_code = "closed"


class ClosedFateUnknownError(ClosedError, FateUnknownError):
    """The client was closed while a try was under way that may have been carried out. It is both of its bases."""


REFUSALS: dict[str, type[RefusedError]] = {
    "already_exists": ExistsError,
    "is_new": ChangedError,
    "chain_mismatch": ChangedError,
    "data_mismatch": ValueChangedError,
    "denied": DeniedError,
    "auth_required": DeniedError,
    "auth_failed": DeniedError,
}
"""The class for a node's word; any other word is a plain :class:`RefusedError`."""
