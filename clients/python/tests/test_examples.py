"""The examples run, and check what they show; and the observer for OpenTelemetry, with its own SDK."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path as File

import pytest
from conftest import UNHURRIED
from test_access import add_users, run

from distkv_client import Client, KeyNotFoundError, RefusedError
from distkv_client.testing import Cluster

PROJECT = File(__file__).parents[1]
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example(file, shared):
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    command = [sys.executable, "-X", "dev", str(file), shared.seeds[0]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150)
    assert done.returncode == 0 and done.stdout, done.stderr
    assert "Error" not in done.stderr and "never" not in done.stderr, done.stderr


@pytest.mark.parametrize("file", [file for file in EXAMPLES if file.stem != "watch_resume"], ids=lambda file: file.stem)
def test_example_where_clients_must_log_in(file, tmp_path):
    with Cluster(2) as cluster:
        add_users(cluster, tmp_path)
        login = ("--user", "ann", "--method", "password", "--secret", str(tmp_path / "ann"))
        run("ticket", "new", *cluster.seeds, *login, "--to", str(tmp_path / "app.ticket"))
        environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src"), "DISTKV_TICKET": f"@{tmp_path / 'app.ticket'}"}
        command = [sys.executable, "-X", "dev", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=150)
        assert done.returncode == 0 and done.stdout, done.stderr


def test_there_are_four_examples():
    assert len(EXAMPLES) == 4


async def test_calls_become_spans(shared, base):
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry.sdk.trace import TracerProvider

    from distkv_client.otel import OtelObserver

    spans = memory.InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    config = replace(UNHURRIED, observer=OtelObserver(provider))
    async with Client.connect(*shared.seeds, config=config) as client:
        await client.put(base, "a secret")
        with pytest.raises(KeyNotFoundError):
            await client.get(base / "no")
        with pytest.raises(RefusedError):
            await client.put(base, 1, if_new=True)
    told = [span for span in spans.get_finished_spans() if span.name != "list_shards"]
    assert [span.name for span in told] == ["set_value", "get_value", "set_value"]
    assert told[0].attributes["db.system.name"] == "distkv" and told[0].attributes["distkv.attempts"] == 1
    assert told[2].attributes["error.type"] == "already_exists" and told[2].attributes["distkv.fate"] == "not_done"
    assert "secret" not in "".join(span.to_json() for span in told) and str(base) not in str(told[0].attributes)
