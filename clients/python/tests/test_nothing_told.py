"""Logs and spans tell no path and no value, also where a node's own words have them: others may read logs."""

import asyncio
import gc
import logging
from dataclasses import replace

import pytest
from conftest import until
from scripted import SILENCE, ScriptedNode, error
from test_rules import CONFIG, once, scene

from distkv_client import DistKVError, RetryPolicy, UsageError
from distkv_client.codec import encode

WORDS = 'Data is "HIV positive", not "secret", at patients.jane'
SECRETS = ("HIV", "secret", "patients", "jane")
QUICK = replace(CONFIG, retry=RetryPolicy(initial_delay=0.001, delay_max=0.01, attempts_max=2, total_deadline=50.0))


def words_of(code, is_made=False):
    return error(code, WORDS) | ({"made": True} if is_made else {})


def conflict(request):
    """A list of conflicts that is broken off."""
    return b"".join(
        encode({**part, "seq": request["seq"]}) for part in ({"state": "start", "wseq": 1}, words_of("denied"))
    )


CALLS = {
    "get": lambda client: client.get("patients.jane"),
    "get any": lambda client: client.get("patients.jane", read="any"),
    "get freshest": lambda client: client.get("patients.jane", read="freshest"),
    "get_raw": lambda client: client.get_raw("patients.jane"),
    "entry": lambda client: client.entry("patients.jane"),
    "put": lambda client: client.put("patients.jane", "HIV positive", if_value="secret"),
    "delete": lambda client: client.delete("patients.jane", if_value="secret"),
    "delete_tree": lambda client: client.delete_tree("patients.jane"),
    "batch": lambda client: client.batch().put("patients.jane", "secret").run(),
    "tree": lambda client: client.tree("patients.jane")._collect(),
    "tree, one by one": lambda client: iterated(client.tree("patients.jane")),
    "conflicts": lambda client: client.conflicts("patients.jane")._collect(),
    "conflicts, one by one": lambda client: iterated(client.conflicts("patients.jane")),
    "watch": lambda client: client.watch("patients.jane").begin(),
    "monitor": lambda client: client.monitor("patients.jane").begin(),
    "send": lambda client: client.send("patients.jane", "secret"),
    "request": lambda client: client.request("set_value", path="patients.jane", value="secret"),
    "list_shards": lambda client: client.list_shards(),
    "refresh_shards": lambda client: client.refresh_shards(),
    "prefer_shard": lambda client: client.prefer_shard(1, "secret"),
}
REPLIES = {
    "refused for good": lambda request: words_of("data_mismatch"),
    "not now": lambda request: words_of("not_ready"),
    "made": lambda request: words_of("not_ready", True),
    "by a code of its own": lambda request: words_of("from_the_future"),
    "without a code": lambda request: words_of(None),
    "broken off": conflict,
}


async def iterated(things):
    return [thing async for thing in things]


class Failing:
    """An observer that fails whenever it is told something."""

    def call_begins(self, action):
        raise RuntimeError("at the beginning")

    def try_begins(self, token, node, attempt):
        raise RuntimeError("at a try")

    def try_failed(self, token, node, attempt, kind, text):
        raise RuntimeError("at a failed try")

    def call_ends(self, token, end):
        raise RuntimeError("at the end")


class Raising(Failing):
    """One that raises what the call does."""

    def call_ends(self, token, end):
        if end.error is not None:
            raise end.error


async def all_calls(script, observer):
    """Makes each call at nodes that answer so, which all fail."""
    node = ScriptedNode("s1", script)
    node.table = script
    words = []
    async with scene(node, config=replace(QUICK, observer=observer)) as client:
        for call in CALLS.values():
            try:
                await asyncio.wait_for(call(client), 20)
            except DistKVError as failure:
                words.append(WORDS in str(failure))
    assert any(words), "the program itself is told"


def told(caplog):
    """All that was logged, as it would be written."""
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
    return "\n".join(formatter.format(record) for record in caplog.records)


@pytest.mark.parametrize("observer", [None, Failing(), Raising()], ids=["none", "failing", "raising"])
@pytest.mark.parametrize("script", REPLIES.values(), ids=REPLIES)
async def test_no_log_line_tells_paths_or_values(script, observer, caplog):
    caplog.set_level(logging.DEBUG)
    await all_calls(script, observer)
    gc.collect()
    text = told(caplog)
    assert ("an observer failed" in text) == (observer is not None)
    assert "the table of shards could not be fetched" in text or script is REPLIES["broken off"]
    for secret in SECRETS:
        assert secret not in text


@pytest.mark.parametrize("script", REPLIES.values(), ids=REPLIES)
async def test_no_span_tells_paths_or_values(script):
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.sdk.trace import TracerProvider

    from distkv_client.otel import OtelObserver

    spans = memory.InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    await all_calls(script, OtelObserver(provider))
    found = [span.to_json() for span in spans.get_finished_spans()]
    assert len(found) >= len(CALLS) - 2
    for secret in SECRETS:
        assert not [span for span in found if secret in span]


@pytest.mark.parametrize("what", ["watch", "monitor"])
async def test_no_task_is_named_after_a_path(what):
    """asyncio logs the names of slow tasks, and of those that it finds where they should not be."""
    begun = once(True, False)

    def script(request):
        is_asked = request["action"] in ("watch", "msg_monitor")
        return encode({"seq": request["seq"], "state": "start", "wseq": 1}) if is_asked and begun(request) else SILENCE

    def searches():
        names = [task.get_name() for task in asyncio.all_tasks()]
        return [name for name in names if name.startswith(f"distkv_client: {what}")]

    async with scene(node := ScriptedNode("s1", script), config=CONFIG) as client:
        stream = getattr(client, what)("patients.jane")
        await stream.begin()
        reading = asyncio.create_task(stream.next())
        node.drop()
        await until(searches)
        assert not [name for name in searches() if "patients" in name or "jane" in name]
        await stream.aclose()
        with pytest.raises(UsageError):
            await reading
