"""This client against the vectors that the Rust code writes, and is compared with: clients/conformance/vectors."""

from __future__ import annotations

import json
import os
from pathlib import Path as File

import msgpack
import pytest

from distkv_client import Path, RetryPolicy, Version
from distkv_client.codec import Splitter, decode_message
from distkv_client.errors import ProtocolError, ServerError
from distkv_client.memory import Memory
from distkv_client.model import Entry
from distkv_client.retry import SAME_NODE, ErrorClass, GiveUp, Idempotency, backoff, class_of_server
from distkv_client.router import Candidate, Router
from distkv_client.shards import _row_of
from distkv_client.view import compare, decode_view

FOLDER = File(os.environ.get("DISTKV_VECTORS", File(__file__).parents[2] / "conformance/vectors"))


def rows(name):
    found = json.loads((FOLDER / f"{name}.json").read_text())["rows"]
    assert found, f"{name} has lost its rows"
    return found


def test_codes_have_the_classes_of_the_vectors():
    assert len(rows("codes")) >= 30
    for row in rows("codes"):
        for is_made, kind in [(False, row["class"]), (True, row["made"])]:
            assert class_of_server(ServerError("no", row["code"], is_made)).value == kind, row
    assert class_of_server(ServerError("no", None)) is ErrorClass.FINAL


def test_decisions_are_those_of_the_vectors():
    assert len(rows("decisions")) == len(ErrorClass) * len(Idempotency) * 2
    for row in rows("decisions"):
        kind = ErrorClass(row["class"])
        decision = RetryPolicy().decide(kind, 1, row["elapsed_ms"] / 1000, Idempotency(row["request"]), 0.5)
        if isinstance(decision, GiveUp):
            assert decision.reason.value == row["decision"], row
        else:
            assert ("elsewhere" if decision.other_node else "there") == row["decision"], row
            assert decision.other_node == (kind not in SAME_NODE)


def test_pauses_are_those_of_the_vectors():
    for row in rows("backoff"):
        chance = int(row["random"]) / ((1 << 64) - 1)
        pause = backoff(row["first_ms"] / 1e3, row["factor"], row["longest_ms"] / 1e3, row["failures"], chance)
        assert pause == pytest.approx(row["pause_ns"] / 1e9, rel=1e-8, abs=1e-9), row


def test_routes_are_those_of_the_vectors():
    for row in rows("routes"):
        prefer = row["prefer_of_even_shards"]
        overrides = dict.fromkeys(range(0, 1024, 2), prefer) if prefer is not None else {}
        router = Router([Candidate(name, is_live) for name, is_live in row["nodes"]], overrides)
        assert router.preferred(row["shard"]) == row["preferred"], row
        assert list(router.order(row["shard"])) == row["order"], row


def test_paths_have_the_bytes_of_the_vectors():
    assert len(rows("path_bytes")) > 150
    for row in rows("path_bytes"):
        path = Path.parse(row["text"])
        assert bytes(path).hex() == row["bytes"], row
        assert path.shard == row["shard"], row
        assert Path.from_bytes(bytes.fromhex(row["bytes"])) == path


def split(pieces):
    """The messages of a stream that comes in these pieces, and whether it ends in an error."""
    splitter, found = Splitter(), []
    try:
        for piece in pieces:
            for message in splitter.split(piece):
                # As the connection does: what cannot be decoded ends it.
                decode_message(message)
                found.append(bytes(message).hex())
    except ProtocolError:
        return found, True
    return found, False


def test_messages_end_where_the_vectors_say_wherever_they_are_cut():
    for row in rows("messages"):
        data = bytes.fromhex(row["bytes"])
        cuts = [[data], [data[at : at + 1] for at in range(len(data))]]
        cuts += [[data[:at], data[at:]] for at in range(1, min(len(data), 300))]
        for pieces in cuts:
            found, is_wrong = split(pieces)
            if row["end"] == "too_long":
                # This client refuses it at once, or when so many bytes have come.
                assert found == []
                continue
            assert is_wrong == (row["end"] == "error"), (row, pieces)
            if not is_wrong:
                assert found == row["messages"], (row, pieces)
            else:
                # What came before the error may be told or not, as the pieces fall.
                assert found == row["messages"][: len(found)], (row, pieces)


def test_a_message_that_is_too_long_is_refused_before_it_fills_the_memory():
    row = next(row for row in rows("messages") if "c6ffffffff" in row["bytes"])
    found, is_wrong = split([bytes.fromhex(row["bytes"]), *[bytes(1 << 20)] * 64])
    assert found == [] and is_wrong


def test_versions_compare_as_in_the_vectors():
    assert len(rows("versions")) >= 100
    for row in rows("versions"):
        one, other = Version(*row["one"]), Version(*row["other"])
        assert (one > other) - (one < other) == row["order"], row
        assert Version.parse(str(one)) == one


def test_what_a_watch_remembers_is_what_the_vectors_say():
    for row in rows("memory"):
        memory = Memory(row["paths_max"], row["bytes_max"])
        for number, step in enumerate(row["steps"]):
            path = Path.parse(step["path"]) if "path" in step else None
            match step["do"]:
                case "begin_feed":
                    memory.begin_feed()
                case "gone":
                    memory.on_gone(path, Version(*step["version"]), step["tock"])
                case "clear":
                    memory.clear()
                case "look":
                    version = Version(step["tock"], step["node"], step["tick"])
                    entry = Entry(step["value"], step["value"] is None, version, "told", step["tock"])
                    assert memory.look(path, entry, step["resuming"]).value == step["look"], (number, step)
                    if step["delivered"]:
                        memory.on_delivered(path, entry)
            assert memory.is_whole == step["whole"], (number, step)
            assert sorted(map(str, memory.not_seen())) == step["not_seen"], (number, step)


def test_views_are_read_and_differ_as_the_vectors_say():
    before = ()
    for row in rows("views"):
        nodes, source = decode_view(msgpack.unpackb(bytes.fromhex(row["report"]), strict_map_key=False))
        assert source == row["source"]
        shown = [
            {
                "name": node.name,
                "incarnation": node.incarnation,
                "client": None if node.client is None else str(node.client),
                "gossip": node.gossip,
                "state": node.state,
                "ready": node.is_ready,
                "live": node.is_live,
                "counts": node.counts,
            }
            for node in nodes
        ]
        assert shown == row["nodes"], row
        added, removed, changed = compare(before, nodes)
        assert [node.name for node in added] == row["added"]
        assert [node.name for node in removed] == row["removed"]
        assert [node.name for _, node in changed] == row["changed"]
        before = nodes


def test_the_table_of_shards_is_read_as_the_vectors_say():
    for row in rows("shard_pages"):
        reply = msgpack.unpackb(bytes.fromhex(row["reply"]))
        shown = [
            {
                "id": str(one.id),
                "start": one.start.to_bytes(16, "big").hex(),
                "end": one.end.to_bytes(16, "big").hex(),
                "first": one.first,
                "last": one.last,
                "prefer": one.prefer,
            }
            for one in map(_row_of, reply["result"])
        ]
        assert shown == row["rows"]
        assert (reply["next"] and reply["next"].hex()) == row["next"]
