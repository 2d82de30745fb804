"""Any request with one reply, for actions that the client has no method for."""

from __future__ import annotations

from typing import Any

from .call import Caller, Plan
from .checks import bool_of, text_of
from .codec import Fields
from .errors import UsageError
from .path import Path, PathLike
from .retry import Idempotency

READS = frozenset(
    "get_value enum enumerate get_state enum_node get_internal enum_internal check_deleted status members clients "
    "history list_shards cluster key_list auth_info auth_get test_acl".split()
)
"""Actions that change nothing, whatever becomes of their answer. Of any other one nobody knows here."""
STREAMS = frozenset(
    "get_tree get_tree_internal watch msg_monitor conflicts watch_cluster get_snapshot auth auth_list".split()
)
"""Actions that are answered with more than one message."""


async def request(
    caller: Caller,
    action: str,
    path: PathLike | None,
    idempotent: bool,
    timeout: float | None,
    fields: dict[str, object],
) -> dict[str, Any]:
    """See :meth:`distkv_client.Client.request`."""
    if "seq" in fields:
        raise UsageError("the field seq is the client's own")
    if text_of(action, "an action") in STREAMS or (action == "delete_tree" and fields.get("nchain")):
        raise UsageError(f"{action} is answered with a stream here, and a request has one reply")
    told = caller.own_writes.order_into(Fields(Path.of(path) if path is not None else None))
    for name, value in fields.items():
        told.add(name, value)
    shard = Path.of(path).shard if path is not None else 0
    kind = Idempotency.UNGUARDED
    if bool_of(idempotent, "idempotent"):
        kind = Idempotency.READ if action in READS else Idempotency.GUARDED
    # A time of the caller's own counts.
    plan = Plan(action, shard, kind, deadline=timeout, counts_always=action in READS or "by" in fields)
    served = await caller.call(plan, told.head(action))
    reply: dict[str, Any] = served.reply
    return reply
