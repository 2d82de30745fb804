"""The smart client of distkv-node for asyncio: it routes, pools, retries, follows the cluster, resumes watches.

>>> import asyncio
>>> from distkv_client import Client
>>> async def main(seed):
...     async with Client.connect(seed) as client:
...         await client.put("site.lamp", {"on": True}, copies=1)
...         print(await client.get("site.lamp"))
>>> asyncio.run(main(SEED))
{'on': True}
"""

from .batch import Batch, BatchReply
from .client import Client
from .codec import Extension
from .config import Address, Config, PoolConfig, ReadMode, TopologyConfig
from .connecting import Connecting
from .errors import (
    BadValueError,
    ChangedError,
    ClosedError,
    ClosedFateUnknownError,
    DeniedError,
    DistKVError,
    ExistsError,
    Fate,
    FateUnknownError,
    KeyNotFoundError,
    NoMajorityError,
    PreconditionError,
    RefusedError,
    UnavailableError,
    UsageError,
    ValueChangedError,
)
from .login import Login
from .model import UNSET, Conflict, Entry, Repeated, TreeEntry, Version, Written
from .monitor import Gap, Monitor, TopicMessage
from .observer import CallEnd, Observer
from .pairs import Pairs
from .path import Path
from .retry import ErrorClass, RetryPolicy
from .shards import ShardRow
from .stats import ClientStats
from .ticket import Ticket
from .tls import Tls
from .tree import Conflicts, ConflictsFound, Tree
from .version import __version__
from .view import ClusterView, Move, Node, TopologyChange
from .watch import Change, Restarted, Resumed, UpToDate, Watch, WatchEvent
from .writes import AUTO, WriteId

__all__ = [
    "AUTO",
    "UNSET",
    "Address",
    "BadValueError",
    "Batch",
    "BatchReply",
    "CallEnd",
    "Change",
    "ChangedError",
    "Client",
    "ClientStats",
    "ClosedError",
    "ClosedFateUnknownError",
    "ClusterView",
    "Config",
    "Conflict",
    "Conflicts",
    "ConflictsFound",
    "Connecting",
    "DeniedError",
    "DistKVError",
    "Entry",
    "ErrorClass",
    "ExistsError",
    "Extension",
    "Fate",
    "FateUnknownError",
    "Gap",
    "KeyNotFoundError",
    "Login",
    "Monitor",
    "Move",
    "NoMajorityError",
    "Node",
    "Observer",
    "Pairs",
    "Path",
    "PoolConfig",
    "PreconditionError",
    "ReadMode",
    "RefusedError",
    "Repeated",
    "Restarted",
    "Resumed",
    "RetryPolicy",
    "ShardRow",
    "Ticket",
    "Tls",
    "TopicMessage",
    "TopologyChange",
    "TopologyConfig",
    "Tree",
    "TreeEntry",
    "UnavailableError",
    "UpToDate",
    "UsageError",
    "ValueChangedError",
    "Version",
    "Watch",
    "WatchEvent",
    "WriteId",
    "Written",
    "__version__",
]
