"""Where this program, or its machine, may open no more files: how the system says so, and what callers are told."""

from __future__ import annotations

import errno
import ssl

from .errors import NoSocketError, UnavailableError


def is_out_of_files(error: OSError) -> bool:
    """Whether that is why it failed. The numbers of TLS errors mean something else."""
    return not isinstance(error, ssl.SSLError) and error.errno in (errno.EMFILE, errno.ENFILE)


def out_of_files(error: OSError, what: str) -> NoSocketError:
    """The error of a try; `what` could not be done."""
    return NoSocketError(f"{what}: no more files may be opened here: {error.strerror}")


def cannot_begin(error: OSError, what: str) -> UnavailableError:
    """The error of a client that cannot even try."""
    cause = out_of_files(error, what)
    return UnavailableError(str(cause), cause=cause)
