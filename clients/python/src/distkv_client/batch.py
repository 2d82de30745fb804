"""Many reads and writes in one request with one reply. No transaction: what fails does not keep the rest from
being done, and others' changes may come in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self, Union

from .call import Caller, Plan
from .codec import Fields, array_head, encode_value
from .connection import Connection
from .errors import Fate, ProtocolError, RefusedError, ServerError, UsageError, worse_fate
from .model import UNSET, Entry, Unset, Version, Written, entry_of, written_of
from .outcome import fate_of, refusal
from .path import Path, PathLike
from .replies import server_error
from .retry import ErrorClass, Idempotency, class_of_server
from .try_time import TryTime
from .view import Target
from .write_places import Turn
from .writes import AUTO, WriteIdLike, WriteOptions

BATCH_OPS_MAX = 1024
"""Most operations of a batch."""

BatchReply = Union[Entry, Written, RefusedError]
"""What one operation of a batch came to. An error is returned, not raised: the other operations were done."""


class Operations:
    """What a batch is to do, in this order, at one node."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._ops: list[tuple[Path, str, bytes | None, WriteOptions | None]] = []

    def __len__(self) -> int:
        return len(self._ops)

    def get(self, path: PathLike) -> Self:
        """Reads an entry, as the batch's node has it: this client's own latest write may be missing."""
        return self._add(Path.of(path), "get_value", None, None)

    def put(
        self,
        path: PathLike,
        value: object,
        *,
        if_version: Version | Unset | None = UNSET,
        if_new: bool = False,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
        idempotent: bool = False,
    ) -> Self:
        """Writes a value."""
        options = WriteOptions(if_version, if_new, if_value, write_id, 0, idempotent)
        return self._add(Path.of(path), "set_value", encode_value(value), options)

    def delete(
        self,
        path: PathLike,
        *,
        if_version: Version | Unset | None = UNSET,
        if_value: object = UNSET,
        write_id: WriteIdLike = AUTO,
    ) -> Self:
        """Deletes an entry."""
        options = WriteOptions(if_version, False, if_value, write_id)
        return self._add(Path.of(path), "delete_value", None, options)

    def _add(self, path: Path, action: str, value: bytes | None, options: WriteOptions | None) -> Self:
        if len(self._ops) >= BATCH_OPS_MAX:
            raise UsageError(f"a batch has at most {BATCH_OPS_MAX} operations")
        self._ops.append((path, action, value, options))
        return self

    async def carry_out(self, timeout: float | None) -> list[BatchReply]:
        """Does them at the node that is preferred for the first path.

        Raises :class:`~distkv_client.errors.DistKVError`: nothing is known then but the fate of all operations.
        """
        if not self._ops:
            return []
        with self._caller.write_places.begin(len(self._ops)) as turn:
            return await self._run_as(turn, timeout)

    async def _run_as(self, turn: Turn, timeout: float | None) -> list[BatchReply]:
        encoded, idempotency = self._encode(turn if self._caller.config.write_ids else None)
        shard = self._ops[0][0].shard
        needs_id = any(options is not None and options.needs_id for _, _, _, options in self._ops)
        first = self._caller.home(shard) if idempotency is Idempotency.READ else self._apart()
        plan = Plan("batch", shard, idempotency, needs_id, first, deadline=timeout)
        head = Fields().raw("ops", encoded).head("batch")
        is_repeatable = idempotency is not Idempotency.UNGUARDED

        async def once(connection: Connection, time: TryTime) -> list[Any]:
            reply: Any = await connection.request(head, *time)
            return self._check(reply, is_repeatable)

        served = await self._caller.call(plan, head, once)
        replies: list[BatchReply] = []
        for (path, action, _, _), result in zip(self._ops, served.reply, strict=True):
            if "error" in result:
                error = server_error(result)
                fate = Fate.NOT_DONE
                if action != "get_value":
                    # The batch may have been tried before.
                    now = fate_of(error, class_of_server(error), Idempotency.UNGUARDED)
                    fate = worse_fate(served.earlier, now)
                replies.append(refusal(error, fate, served.life[0], served.attempts))
            elif action == "get_value":
                replies.append(entry_of(result, served.life[0]))
                self._caller.apart.note(path, served.life[0])
            else:
                written = written_of(result, served.life[0], served.attempts, served.maybe_twice)
                replies.append(self._caller.note_write(path, written, served.life))
        return replies

    def _apart(self) -> Target | None:
        """Where the first of its operations that has a condition goes, if that is no live node."""
        conditions = (path for path, _, _, options in self._ops if options is not None and options.has_condition)
        return next(filter(None, map(self._caller.apart.of, conditions)), None)

    def _encode(self, automatic: Turn | None) -> tuple[bytes, Idempotency]:
        """Its operations as a field's value, and what a second try would do."""
        parts = [array_head(len(self._ops))]
        idempotency = Idempotency.READ
        for path, action, value, options in self._ops:
            fields = Fields(path)
            if options is None:
                fields.raw("nchain", b"\x01")
            else:
                if value is not None:
                    fields.raw("value", value)
                write_id = options.id(automatic)
                options.write_into(fields, write_id)
                self._caller.own_writes.order_into(fields, path if value is None or options.idempotent else None)
                if options.idempotency(write_id) is Idempotency.UNGUARDED:
                    idempotency = Idempotency.UNGUARDED
                elif idempotency is Idempotency.READ:
                    idempotency = Idempotency.GUARDED
            parts.append(fields.as_map(action))
        return b"".join(parts), idempotency

    def _check(self, reply: Any, is_repeatable: bool) -> list[Any]:
        """The results. An error that another node might not have becomes the error of the whole batch if the
        batch can be retried; it says whether any of it is made."""
        results: Any = reply.get("results")
        if not isinstance(results, list) or len(results) != len(self._ops):  # pyright: ignore[reportUnknownArgumentType]
            raise ProtocolError("the results of a batch are none")
        found: list[Any] = results  # pyright: ignore[reportUnknownVariableType]
        passing: ServerError | None = None
        is_made = False
        for (_, action, _, _), result in zip(self._ops, found, strict=True):
            if not isinstance(result, dict):
                raise ProtocolError("a result of a batch is none")
            if "error" not in result:
                is_made = is_made or action != "get_value"
                continue
            error = server_error(result)  # pyright: ignore[reportUnknownArgumentType]
            is_made = is_made or error.is_made
            if passing is None and class_of_server(error) is not ErrorClass.FINAL:
                passing = error
        if passing is not None and is_repeatable:
            passing.is_made = is_made
            raise passing
        return found


class Batch(Operations):
    """Operations that are to be done in this order, at one node; `await` it, or :meth:`run`."""

    def __await__(self) -> Generator[Any, None, list[BatchReply]]:
        return self.run().__await__()

    async def run(self, *, timeout: float | None = None) -> list[BatchReply]:
        """See :meth:`Operations.carry_out`."""
        return await self.carry_out(timeout)
