"""What a client has done so far: counters for people and for tests, in the groups that the Rust client has."""

from __future__ import annotations

from dataclasses import dataclass, field

from .retry import ErrorClass

LATENCY_BUCKETS = 28
"""Buckets of a histogram; the last one has everything from about 67 s on."""


@dataclass(slots=True)
class NodeStats:
    """What went to one node."""

    tries: int = 0
    """Also those that were not sent, since the node had failed just now, but neither those of `freshest` nor of
    `conflicts`."""
    failures: int = 0
    """Tries that did not succeed, whatever the reason is: also a refusal that a program expects, as of `if_new` where
    there is an entry."""
    latency: list[int] = field(default_factory=lambda: [0] * LATENCY_BUCKETS)
    """Answered tries by time: bucket i has those of 2^(i-1) to 2^i - 1 µs."""

    def note(self, seconds: float) -> None:
        """A try was answered."""
        bucket = int(seconds * 1e6).bit_length()
        self.latency[bucket if bucket < LATENCY_BUCKETS else -1] += 1

    def quantile(self, share: float) -> float:
        """An upper bound in seconds of the time that this share of the answered tries took; 0 without any."""
        wanted = share * sum(self.latency)
        seen = 0
        for bucket, count in enumerate(self.latency):
            seen += count
            if seen and seen >= wanted:
                return float(1 << bucket) / 1e6
        return 0.0


@dataclass(slots=True)
class RouterStats:
    """Where tries went."""

    to_preferred: int = 0
    to_others: int = 0
    overrides: int = 0
    """Overrides of preferred nodes in force."""
    nodes: dict[str, NodeStats] = field(default_factory=dict[str, NodeStats])
    shards: dict[str, int] = field(default_factory=dict[str, int])
    """Shards that were asked for, by their preferred node."""


@dataclass(slots=True)
class PoolStats:
    """Connections."""

    nodes: int = 0
    connections: int = 0
    open_requests: int = 0
    opened: int = 0
    failed: int = 0
    failures_remembered: int = 0
    lost: int = 0
    idle_closed: int = 0
    probes: int = 0
    silent_closed: int = 0


@dataclass(slots=True)
class TopologyStats:
    """The cluster view."""

    epoch: int = 0
    nodes: int = 0
    live: int = 0
    watching: str | None = None
    views: int = 0
    lost: int = 0
    moved: int = 0
    """Shards whose preferred node moved, as listeners were told."""
    seeds_only: bool = False


@dataclass(slots=True)
class RetryStats:
    """Calls and their tries."""

    calls: int = 0
    retries: int = 0
    """Tries after a call's first."""
    unavailable: int = 0
    """Tries that failed since the node could not do it now, and did not: also those that were not sent, since it could
    not be reached, or had failed just now."""
    overload: int = 0
    aborted: int = 0
    timed_out: int = 0
    fate_unknown: int = 0
    refused: int = 0
    """Tries that a node refused for good, also by a precondition."""
    deadlines: int = 0
    unsafe_to_retry: int = 0

    def count(self, kind: ErrorClass) -> None:
        """A try has failed."""
        match kind:
            case ErrorClass.UNAVAILABLE:
                self.unavailable += 1
            case ErrorClass.OVERLOAD | ErrorClass.BUSY:
                self.overload += 1
            case ErrorClass.ABORTED:
                self.aborted += 1
            case ErrorClass.TRY_DEADLINE:
                self.timed_out += 1
            case ErrorClass.FATE_UNKNOWN | ErrorClass.UNKNOWN_THERE:
                self.fate_unknown += 1
            case ErrorClass.FINAL:
                self.refused += 1


@dataclass(slots=True)
class ReadStats:
    """Reads, and what this client wrote."""

    stale_answers: int = 0
    stale_taken: int = 0


@dataclass(slots=True)
class WatchStats:
    """Watches."""

    lost: int = 0
    resumed: int = 0
    restarted: int = 0
    repeats: int = 0


@dataclass(slots=True)
class ShardMapStats:
    """The table of overrides of preferred nodes."""

    fetches: int = 0
    failures: int = 0
    rows: int = 0


@dataclass(slots=True)
class ClientStats:
    """Everything."""

    router: RouterStats = field(default_factory=RouterStats)
    pool: PoolStats = field(default_factory=PoolStats)
    topology: TopologyStats = field(default_factory=TopologyStats)
    retry: RetryStats = field(default_factory=RetryStats)
    reads: ReadStats = field(default_factory=ReadStats)
    watches: WatchStats = field(default_factory=WatchStats)
    shards: ShardMapStats = field(default_factory=ShardMapStats)
