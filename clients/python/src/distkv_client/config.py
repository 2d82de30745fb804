"""How a client behaves. The defaults are for a program that would rather wait some seconds than get an error."""

from __future__ import annotations

import enum
import ipaddress
from dataclasses import dataclass, field
from typing import Annotated

from .checks import ABOVE_ZERO, NOT_NEGATIVE, Range, check_fields, instance_of, text_of
from .errors import UsageError
from .login import Login
from .observer import Observer
from .retry import RetryPolicy
from .tls import Tls

DEFAULT_PORT = 27586
"""The client port where none is named."""
CONNECTIONS_PER_NODE_MAX = 16
"""Most connections to one node."""
WINDOW_MIN, WINDOW_MAX = 2, 4096
"""The window of flow control."""

LINEARIZABLE = (
    "linearizable reads are refused: a node acknowledges a write alone, before any other node has it, and while "
    "the network is split both sides take writes, so no number of nodes can tell whether there is a newer one; "
    "'freshest' asks a majority for the newest that they have, and a put with if_version finds out whether what "
    "it read was current"
)


class ReadMode(enum.Enum):
    """Which node's answer a read takes."""

    PREFERRED = "preferred"
    """Of the node that acknowledged this client's last write of the shard; without one, of the preferred node."""
    ANY = "any"
    """Of any node. A write of one's own may not be seen yet."""
    FRESHEST = "freshest"
    """The newest version of a majority of the nodes."""

    @classmethod
    def of(cls, mode: ReadMode | str) -> ReadMode:
        """From a word. Raises :class:`~distkv_client.errors.UsageError`, with the reason."""
        if isinstance(mode, ReadMode):
            return mode
        word = text_of(mode, "a read mode").lower()
        if word in ("linearizable", "linearisable", "strong"):
            raise UsageError(LINEARIZABLE, code="read_mode")
        try:
            return cls(word)
        except ValueError:
            raise UsageError(
                f"there is no read mode {mode!r}; there are preferred, any (what etcd calls serializable), freshest",
                code="read_mode",
            ) from None


def _is_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address, with a zone ("fe80::1%eth0") or without. Which zones exist, the system knows."""
    ip, _, zone = text.partition("%")
    try:
        return ipaddress.ip_address(ip).version == 6 and ":" not in zone
    except ValueError:
        return False


class Address:
    """Where a node listens for clients; never changed."""

    __slots__ = ("_hash", "host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._hash = hash((host, port))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self.host, self.port) == (other.host, other.port)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Address(host={self.host!r}, port={self.port})"

    @classmethod
    def parse(cls, text: str, default_port: int | None = DEFAULT_PORT) -> Address:
        """From `host:port`, `host`, `[::1]:port`. Raises :class:`~distkv_client.errors.UsageError`.

        >>> Address.parse("n1")
        Address(host='n1', port=27586)
        >>> str(Address.parse("[::1]:5"))
        '[::1]:5'
        """
        text = text_of(text, "an address").strip()
        if "," in text:
            raise UsageError(f"{text!r} is no address; give a list: each address as a text of its own")
        if "://" in text:
            scheme = text.partition("://")[0]
            raise UsageError(f"{text!r} is no address; write host:port, without '{scheme}://'")
        if text.startswith("["):
            host, bracket, rest = text[1:].partition("]")
            if not bracket:
                raise UsageError(f"{text!r} does not close its bracket; write [ADDRESS]:PORT")
            if host and not _is_ipv6(host):
                raise UsageError(f"{text!r}: brackets are for IPv6 addresses, and {host!r} is none; write host:port")
            if rest and not rest.startswith(":"):
                raise UsageError(f"{text!r} has no colon after its brackets; write [ADDRESS]:PORT")
            port = rest[1:] if rest else None
        elif _is_ipv6(text):
            host, port = text, None
        else:
            host, colon, port_text = text.rpartition(":")
            if "%" in host and _is_ipv6(host):
                raise UsageError(f"{text!r} needs brackets before its port; write [{host}]:{port_text}")
            host, colon, rest = text.partition(":")
            port = rest if colon else None
        if port is None:
            port = "" if default_port is None else str(default_port)
        elif port.isascii() and port.isdigit() and int(port) == 0:
            raise UsageError(f"{text!r}: nothing listens at port 0; write host:port, with the port that the node has")
        if not host:
            raise UsageError(f"{text!r} has no host; write host:port")
        if not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
            raise UsageError(
                f"{text!r}: {port!r} is no port; write host:port, with a port up to 65535, and an IPv6 address as "
                "[ADDRESS]:PORT"
            )
        for character in host:
            # A zone ("fe80::1%eth0") has more; the system judges it.
            if not character.isalnum() and character not in "-_.:%":
                raise UsageError(f"{text!r}: {character!r} cannot be part of a host name")
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def seed_of(text: str) -> Address:
    """An address that a program gives: a link-local one is no good without the zone, which only this host knows. Raises
    :class:`~distkv_client.errors.UsageError`."""
    seed = Address.parse(text)
    ip, _, zone = seed.host.partition("%")
    if not zone and _is_ipv6(ip) and ipaddress.ip_address(ip).is_link_local:
        raise UsageError(
            f"{text!r} is a link-local address and has no zone (the name of this machine's network interface); give "
            f"its zone, like {Address(f'{ip}%eth0', seed.port)}"
        )
    return seed


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """How connections are kept. Times are seconds. Here and below, a range says what a setting may be: `Client.connect`
    refuses any other value."""

    connections_per_node: Annotated[int, Range(1, CONNECTIONS_PER_NODE_MAX)] = 2
    """1 to 16. On each there is room for 3,840 streams (watches, monitors, trees that are coming), of which the
    client's view is one."""
    busy_at: Annotated[int, Range(1)] = 64
    """Open requests from which on another connection is opened; at least 1."""
    idle_close: Annotated[float, NOT_NEGATIVE] = 60.0
    """An unused connection is closed after this long."""
    failure_memory: Annotated[float, NOT_NEGATIVE] = 0.1
    """How long a failed attempt to connect counts for all callers; doubles up to the next."""
    failure_memory_max: Annotated[float, NOT_NEGATIVE] = 2.0
    probe_after: Annotated[float, NOT_NEGATIVE] = 10.0
    """A node that is silent for this long while something is open is asked whether it is alive."""
    probe_timeout: Annotated[float, ABOVE_ZERO] = 4.0
    """How long it may take to answer that."""
    connect_timeout: Annotated[float, ABOVE_ZERO] = 3.0
    """How long connecting may take, the greeting and the login included."""
    window: Annotated[int, Range(WINDOW_MIN, WINDOW_MAX)] = 64
    """Messages of one stream that may be under way, 2 to 4,096, as far as the node grants that."""


@dataclass(frozen=True, slots=True)
class TopologyConfig:
    """How the cluster is watched. Times are seconds."""

    first_view_timeout: Annotated[float, ABOVE_ZERO] = 3.0
    """How long a node may take to begin to send its view."""
    retry_delay: Annotated[float, Range(0.001)] = 0.05
    """The wait after no candidate could be reached; doubles up to the next. Both are at least 1 ms: who looks for nodes
    without a pause would do nothing else."""
    retry_delay_max: Annotated[float, Range(0.001)] = 1.0
    old_nodes_delay: Annotated[float, Range(0.01)] = 10.0
    """How often nodes without a view are asked again; at least 10 ms."""
    only_seeds: bool = False
    """Use only the seeds, whatever nodes report. Without a view there is no read mode `freshest`."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a client does. Times are seconds."""

    pool: PoolConfig = field(default_factory=PoolConfig)
    topology: TopologyConfig = field(default_factory=TopologyConfig)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    read_mode: ReadMode | str = ReadMode.PREFERRED
    """For reads that do not say it themselves."""
    write_ids: bool = True
    """Whether each write carries an id, by which nodes know it again when it is retried."""
    connect_deadline: Annotated[float, ABOVE_ZERO] = 10.0
    """How long `connect` tries to reach a seed. Seeds that do not answer share this time."""
    own_write_patience: Annotated[float, NOT_NEGATIVE] = 1.0
    """How long a read looks for a node that has this client's own last write of a path."""
    own_writes_max: Annotated[int, NOT_NEGATIVE] = 16_384
    """Paths whose own last write is remembered."""
    watch_paths_max: Annotated[int, NOT_NEGATIVE] = 65_536
    """Paths that a watch remembers in order to continue at another node."""
    watch_bytes_max: Annotated[int, NOT_NEGATIVE] = 16 << 20
    """Bytes of them."""
    watch_patience: Annotated[float, NOT_NEGATIVE] = 2.0
    """How long a watch waits at another node for versions that it delivered and that node lacks."""
    shard_table_age: Annotated[float, Range(0.1)] = 30.0
    """How old the table of overrides of preferred nodes gets before it is fetched again; at least 0.1."""
    login: Login | None = None
    """As whom the nodes are used, where they ask for a login; instead of the user of a ticket."""
    plaintext_login: bool = False
    """Whether a password or token is also sent without TLS to another machine: whoever is in between, or answers in the
    node's place, can read it. Otherwise a node that asks for it there counts as one that refuses the client."""
    tls: Tls | None = None
    """How nodes are known; none: plain text."""
    network: str | None = None
    """The network's name: nodes of another one are not used. Without it, the ticket's counts, or else that of the first
    node that lets the client in and tells it."""
    ticket: str | None = field(default=None, repr=False)
    """A ticket, or `@FILE` with one: seeds, TLS, login and network at once. Without seeds, `DISTKV_TICKET` is taken.
    What is given beside it, seeds, `tls`, `login` or `network`, counts instead of what the ticket has of that. A file
    is read again when a node does not take its secret any more: another one for the same user is taken then; so is
    another client certificate in it, for new connections, once the file has changed."""
    observer: Observer | None = None
    """Is told of calls and tries."""


def checked(config: object) -> Config:
    """A configuration that a client can have. Raises :class:`~distkv_client.errors.UsageError`."""
    told = instance_of(config, Config, "config")
    check_fields(told, "config")
    if told.network == "":
        raise UsageError("config.network is empty: it is a network's name, or None")
    if told.topology.only_seeds and ReadMode.of(told.read_mode) is ReadMode.FRESHEST:
        raise UsageError(
            "config.read_mode cannot be 'freshest' with config.topology.only_seeds: the client then does not know "
            "which nodes there are, so not what a majority of them is"
        )
    return told
