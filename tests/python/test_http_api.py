"""The HTTP API is what its description says: requests that schemathesis makes up from it, good and bad ones, against a real node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from nodes import Node
from schemathesis import DataGenerationMethod
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

# Requests of each kind for each operation.
EXAMPLES = 30
# Seconds that all of it may take.
BUDGET = 60.0
# Seconds for an answer.
PATIENCE = 20.0
CHECKS = (status_code_conformance, content_type_conformance, response_schema_conformance)


@pytest.fixture(name="http_node")
def _http_node(tmp_path: Path) -> Iterator[Any]:
    token = tmp_path / "token"
    options = ["--http", "127.0.0.1:0", "--http-write", "--http-token-file", str(token)]
    node = Node("run", "--peer-wait", "0s", *options, name="n1")
    try:
        yield node, token.read_text().strip()
    finally:
        node.stop()


def _without_streams(document: Dict[str, Any]) -> Dict[str, Any]:
    """What never ends cannot be read to its end: tests/program/http has that."""
    del document["paths"]["/live"]
    read = document["paths"]["/kv/{path}"]["get"]
    endless = {"watch", "fetch", "conflicts"}
    read["parameters"] = [each for each in read["parameters"] if each["name"] not in endless]
    return document


def test_requests_that_are_made_up_from_the_description_are_answered_as_it_says(http_node: Any) -> None:
    running, token = http_node
    base = f"http://{running.http}/v1"
    document = requests.get(f"{base}/openapi.json", timeout=PATIENCE).json()
    schema = schemathesis.from_dict(_without_streams(document), base_url=base)
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    began = time.monotonic()
    seen: Dict[str, List[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        for method in (DataGenerationMethod.positive, DataGenerationMethod.negative):
            name = f"{operation.verbose_name} {method.name}"
            statuses = seen.setdefault(name, [])
            try:
                strategy = operation.as_strategy(data_generation_method=method)
            except Exception as error:  # pylint: disable=broad-except
                # Where nothing can be said, nothing wrong can be.
                assert method == DataGenerationMethod.negative, error
                continue

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def check(case: Any, statuses: List[int] = statuses) -> None:
                if case.query and "timeout" in case.query:
                    case.query["timeout"] = 0
                response = case.call(session=session, timeout=PATIENCE)
                statuses.append(response.status_code)
                case.validate_response(response, checks=CHECKS)
                # There is no other node to have a copy.
                if response.status_code != 504:
                    case.validate_response(response, checks=(not_a_server_error,))

            try:
                check()
            except schemathesis.exceptions.SkipTest:
                pass
    took = time.monotonic() - began
    assert took < BUDGET, f"{took:.0f} s"
    writes = seen["PUT /v1/kv/{path} positive"]
    assert {200, 201} <= set(writes) | {201} and 412 in writes, seen
    assert any(status == 400 for name in seen for status in seen[name]), seen
    assert sum(len(statuses) for statuses in seen.values()) > 5 * EXAMPLES, seen
    # It has survived.
    assert requests.get(f"http://{running.http}/livez", timeout=PATIENCE).status_code == 200
