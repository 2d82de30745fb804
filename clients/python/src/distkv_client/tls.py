"""TLS to nodes: whom a client believes, and a session over bytes that asyncio carries.

The session is our own layer over `ssl.MemoryBIO`: a node on the client's own machine greets in plain text
before it sees that TLS begins, and that greeting is skipped, unbelieved. Only TLS 1.3 is spoken.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any, cast

import msgpack

from .alerts import refusal
from .checks import bytes_of, file_of
from .codec import decode_message
from .errors import DistKVError, LostError, NotMetError, ProtocolError, ServerError, UsageError
from .files import cannot_begin, is_out_of_files
from .replies import check_reply
from .reread import Reread
from .retry import ErrorClass, class_of_code

log = logging.getLogger("distkv_client")

GREETING_BYTES_MAX = 16 << 10
"""Longest greeting in plain text that is skipped."""
ALPN = "distkv"
"""The protocol's name in the handshake."""
KEY_KINDS = ("PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY")
"""Forms of a private key, as PEM calls them."""


@dataclass(frozen=True, slots=True)
class TicketCertificate:
    """The client certificate of a ticket, as DER."""

    chain: tuple[bytes, ...]
    key: bytes = field(repr=False)
    file: str | None
    """What has the ticket; none: no file, and it cannot be replaced."""
    again: Callable[[], tuple[tuple[bytes, ...], bytes]]
    """Chain and key that the file has now. Raises :class:`~distkv_client.errors.UsageError`, or
    :class:`~distkv_client.errors.UnavailableError`."""


class Tls:
    """How nodes are known, and as whom this client presents itself.

    `ca_hash`: the SHA-256 of the CA's certificate (DER), which nodes must present; `ca_file`: CAs as a PEM
    file. `cert_file` and `key_file`: a client certificate. Nothing is believed because the system believes it.

    The files are read again for a new connection, all of them, once one has changed; what cannot be used then, as a
    certificate without the key that belongs to it, changes nothing, and is logged. Open connections stay. A copy, also
    one that was pickled, reads the files again, too.
    """

    def __init__(
        self,
        *,
        ca_hash: bytes | None = None,
        ca_file: str | File | None = None,
        cert_file: str | File | None = None,
        key_file: str | File | None = None,
    ) -> None:
        if (ca_hash is None) == (ca_file is None):
            raise UsageError("TLS needs either the CA's hash or a file with it")
        if ca_hash is not None and len(bytes_of(ca_hash, "the CA's hash")) != 32:
            raise UsageError("the CA's hash has 32 bytes")
        self.ca_hash = ca_hash
        if cert_file is None and key_file is not None:
            raise UsageError("key_file is the key of the certificate in cert_file, which is missing")
        cert = None if cert_file is None else file_of(cert_file, "cert_file")
        key = None if key_file is None else file_of(key_file, "key_file")
        self._made_with = (ca_hash, None if ca_file is None else file_of(ca_file, "ca_file"), cert, key)
        # The program may change its working directory.
        self._ca, self._cert, self._key = (None if one is None else os.path.abspath(one) for one in self._made_with[1:])
        # Before they are read: what is written meanwhile is seen next time.
        self._files = Reread([one for one in (self._ca, self._cert, self._key) if one is not None])
        self._learnt: bytes | None = None
        self._ticket: TicketCertificate | None = None
        self.trouble = ""
        """Why what the files have now is not used; empty where it is."""
        # Also where the CA is still to be learnt, so that a wrong file is told at once.
        self._own = self._made()
        self._context = None if self._ca is None else self._own

    def __reduce__(self) -> tuple[object, ...]:
        if self._ticket is not None:
            raise TypeError("the client certificate of a ticket can be neither copied nor pickled: hand on the ticket")
        return _made_again, self._made_with

    @classmethod
    def of_ticket(cls, ca_hash: bytes, certificate: TicketCertificate | None) -> Tls:
        """From what a ticket holds."""
        tls = cls(ca_hash=ca_hash)
        if certificate is not None:
            tls._ticket = certificate
            tls._files = Reread([] if certificate.file is None else [certificate.file])
            tls._own = tls._made()
        return tls

    @property
    def certificate_place(self) -> str | None:
        """Where the client's certificate comes from; none: it has none."""
        if self._ticket is None:
            return self._cert
        return "its ticket" if self._ticket.file is None else f"the ticket in {self._ticket.file}"

    def renew(self) -> None:
        """Before a new connection: reads the files again, if they have changed. Nothing else of the event loop goes on
        meanwhile."""
        seen = self._files.changed()
        if seen is None:
            return
        try:
            own = self._made(is_again=True)
        except DistKVError as error:
            if not _may_pass(error):
                self._files.note(seen)
            if str(error) != self.trouble:
                self.trouble = str(error)
                log.warning("the files for TLS have changed, and what they had before is used on: %s", error)
            return
        self._files.note(seen)
        self.trouble = ""
        self._own = own
        if self._context is not None:
            self._context = own
        log.info("the files for TLS have changed, and are used for new connections from now on")

    def _made(self, is_again: bool = False) -> ssl.SSLContext:
        """What sessions are begun with. It believes nobody yet where the CA is still to be learnt."""
        if self._ticket is not None:
            context = _of_der(*(self._ticket.again() if is_again else (self._ticket.chain, self._ticket.key)))
        else:
            context = _new_context()
            if self._cert is not None:
                _load(context, self._cert, self._key, is_again)
        try:
            if self._ca is not None:
                context.load_verify_locations(cafile=self._ca)
            elif self._learnt is not None:
                context.load_verify_locations(cadata=self._learnt)
        except OSError as error:
            raise _unusable(error, "the file with the CA") from None
        return context

    @property
    def context(self) -> ssl.SSLContext | None:
        """What connections are made with; none while the CA is known by its hash alone."""
        return self._context

    def learn(self, chain: list[bytes]) -> None:
        """Takes the CA out of the chain that a node has presented, if it is in it.

        Raises :class:`~distkv_client.errors.NotMetError`. Nothing but a certificate with the right hash is
        taken, and the connections made with it verify the whole chain, the name and the time.
        """
        for certificate in chain:
            if hashlib.sha256(certificate).digest() == self.ca_hash:
                self._learnt = certificate
                self._own.load_verify_locations(cadata=certificate)
                self._context = self._own
                return
        raise NotMetError("the node is of another CA than the one with this hash")

    @staticmethod
    def probe_context() -> ssl.SSLContext:
        """To look at a node's chain only: nothing is sent or believed over it."""
        context = _new_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols([ALPN])
    return context


def _load(context: ssl.SSLContext, cert: str, key: str | None, is_again: bool) -> None:
    """The client certificate, from files. At the beginning, somebody may be there who knows the password of a key."""
    try:
        context.load_cert_chain(cert, key, password=(lambda: "") if is_again else None)
    except OSError as error:
        raise _unusable(error, "the client certificate") from None


def _of_der(chain: tuple[bytes, ...], key: bytes) -> ssl.SSLContext:
    pem = "".join(ssl.DER_cert_to_PEM_cert(certificate) for certificate in chain)
    body = base64.encodebytes(key).decode()
    for kind in KEY_KINDS:
        context = _new_context()
        try:
            # The ssl module reads keys from files only; this one is the owner's alone, and gone at once.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(f"{pem}-----BEGIN {kind}-----\n{body}-----END {kind}-----\n")
                file.flush()
                context.load_cert_chain(file.name)
        except ssl.SSLError:
            continue
        except OSError as error:
            raise _unusable(error, "the client certificate in the ticket") from None
        return context
    raise UsageError("the client certificate in the ticket cannot be used")


def _may_pass(error: DistKVError) -> bool:
    """Whether files could not be read, rather than used: that may go better though nothing in them changes."""
    cause = error.__context__
    return isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError)


def _made_again(ca_hash: bytes | None, ca_file: str | None, cert_file: str | None, key_file: str | None) -> Tls:
    return Tls(ca_hash=ca_hash, ca_file=ca_file, cert_file=cert_file, key_file=key_file)


def _unusable(error: OSError, what: str) -> DistKVError:
    """The error for a file of certificates."""
    if is_out_of_files(error):
        return cannot_begin(error, f"{what} cannot be read")
    return UsageError(f"{what} cannot be used: {error}")


def _without_zone(host: str) -> str:
    """An IPv6 address without its zone, which is this machine's, so no certificate has it; anything else as it is."""
    ip, _, _ = host.partition("%")
    try:
        ipaddress.IPv6Address(ip)
    except ValueError:
        return host
    return ip


class Session:
    """One TLS session over bytes that somebody else moves."""

    def __init__(self, context: ssl.SSLContext, host: str, tls: Tls | None = None) -> None:
        self._tls = tls
        self._has_read = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname=_without_zone(host))
        self._plain: bytearray | None = bytearray()
        """What came before the session, as far as it is not skipped yet; none once it has begun."""
        self.is_ready = False

    def begin(self) -> bytes:
        """The first bytes to send."""
        self._shake()
        return self._outgoing.read()

    def _shake(self) -> None:
        if self.is_ready:
            return
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLCertVerificationError as error:
            raise NotMetError(f"the node's certificate is not believed: {error.verify_message}") from None
        except (ssl.SSLError, ValueError) as error:
            raise NotMetError(f"no TLS came about: {error}") from None
        self.is_ready = True

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """What came: the bytes within the session, and bytes to send.

        Raises :class:`~distkv_client.errors.NotMetError` in the handshake, or
        :class:`~distkv_client.errors.ServerError` where a node says why there will be none; `ssl.SSLError` behind it.
        """
        if self._plain is not None:
            data = self._skip_plain(data)
            if not data:
                return b"", b""
        self._incoming.write(data)
        self._shake()
        parts: list[bytes] = []
        if self.is_ready:
            try:
                while True:
                    part = self._ssl.read(256 << 10)
                    if not part:
                        break
                    self._has_read = True
                    parts.append(part)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                # Only now, and before all else, a node says that it does not accept the client's certificate.
                told = None if self._has_read or self._tls is None else refusal(error, self._tls)
                if told is None:
                    raise
                raise NotMetError(told) from None
        return b"".join(parts), self._outgoing.read()

    def _skip_plain(self, data: bytes) -> bytes:
        """Leaves out one MessagePack map before the first record of TLS."""
        assert self._plain is not None
        self._plain += data
        if 20 <= self._plain[0] <= 23:
            rest = bytes(self._plain)
            self._plain = None
            return rest
        unpacker = msgpack.Unpacker()
        unpacker.feed(self._plain)
        try:
            unpacker.skip()
        except Exception:
            if len(self._plain) > GREETING_BYTES_MAX:
                raise NotMetError("the node does not speak TLS") from None
            return b""
        end = unpacker.tell()
        _check_greeting(bytes(self._plain[:end]))
        rest = bytes(self._plain[end:])
        self._plain = None
        if rest and not 20 <= rest[0] <= 23:
            raise NotMetError("the node does not speak TLS")
        return rest

    def send(self, data: bytes) -> bytes:
        """Bytes of the session as bytes to send."""
        self._ssl.write(data)
        return self._outgoing.read()

    def chain(self) -> list[bytes]:
        """The certificates that the other side has presented, as DER, verified or not."""
        inner = self._ssl
        get = getattr(inner, "get_unverified_chain", None)
        if get is None:
            # Public from Python 3.13 on.
            get = getattr(getattr(inner, "_sslobj", None), "get_unverified_chain", None)
        if get is None:
            leaf = inner.getpeercert(binary_form=True)
            return [leaf] if leaf else []
        found: list[bytes] = []
        presented: list[Any] = list(get() or [])
        for certificate in presented:
            if isinstance(certificate, bytes):
                found.append(certificate)
            else:
                found.append(ssl.PEM_cert_to_DER_cert(certificate.public_bytes()))
        return found


def _check_greeting(plain: bytes) -> None:
    """Raises the error that a node tells in plain text, before TLS: it is full, say, and another one may not be.
    What is no error is not believed."""
    try:
        check_reply(decode_message(memoryview(plain)))
    except ServerError as error:
        if error.code == "auth_required":
            # It took this client for one without TLS, because nothing came for too long.
            raise LostError(f"this client began too late: {error}") from None
        if class_of_code(error.code) is ErrorClass.FINAL:
            raise NotMetError(f"it says, in plain text: {error}") from None
        raise
    except ProtocolError:
        pass


class ChainReader(asyncio.Protocol):
    """A connection that is opened only to look at the node's certificates."""

    def __init__(self, host: str, done: asyncio.Future[list[bytes]]) -> None:
        self._session = Session(Tls.probe_context(), host)
        self._done = done
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected."""
        self._transport = stream = cast(asyncio.Transport, transport)
        stream.write(self._session.begin())

    def data_received(self, data: bytes) -> None:
        """Something came."""
        try:
            _, out = self._session.receive(data)
        except (LostError, ServerError) as error:
            if not self._done.done():
                self._done.set_exception(error)
            return
        except (NotMetError, ssl.SSLError) as error:
            if not self._done.done():
                self._done.set_exception(NotMetError(str(error)))
            return
        if out and self._transport is not None:
            self._transport.write(out)
        if self._session.is_ready and not self._done.done():
            self._done.set_result(self._session.chain())

    def close(self) -> None:
        """Ends it."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        if not self._done.done():
            # A node that stops says nothing of this client.
            self._done.set_exception(LostError("the node closed the connection in the handshake"))
