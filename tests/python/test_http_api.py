"""The HTTP API is what its description says: requests that schemathesis makes up from it, and nonsense, at a real node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from nodes import Node
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

# Requests of each kind for each operation.
EXAMPLES = 25
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
    """What never ends cannot be read to its end, and with made-up secrets nothing is answered: tests/program/http has both."""
    for methods in document["paths"].values():
        for method in methods.keys() & {"get", "put", "delete"}:
            methods[method].pop("security", None)
    del document["security"]
    del document["paths"]["/live"]
    read = document["paths"]["/kv/{path}"]["get"]
    endless = {"watch", "fetch", "conflicts"}
    read["parameters"] = [each for each in read["parameters"] if each["name"] not in endless]
    return document


def _ask(strategy: Any, session: requests.Session, statuses: List[int]) -> None:
    """Sends what the strategy makes up, and compares the answers with the description."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def check(case: Any) -> None:
        if case.query and "timeout" in case.query:
            case.query["timeout"] = 0
        response = case.call(session=session, timeout=PATIENCE)
        statuses.append(response.status_code)
        if response.status_code in (400, 431) and not response.content:
            return  # A head that is no HTTP is refused before anybody looks at what it asks for.
        case.validate_response(response, checks=CHECKS)
        # There is no other node to have a copy.
        if response.status_code != 504:
            case.validate_response(response, checks=(not_a_server_error,))

    check()  # pylint: disable=no-value-for-parameter


def _ask_nonsense(base: str, session: requests.Session, statuses: List[int]) -> None:
    """What fits no description is refused in words, and as what it is: the client's mistake."""
    text = strategies.text(alphabet=strategies.characters(blacklist_categories=["Cs"]), max_size=20)
    escaped = text.map(quote) | strategies.sampled_from(["%", "%ff", ":", "%3A1:2", "..", ":'t',", "a//b", ":n"])
    words = strategies.sampled_from(["tree", "children", "limit", "after", "depth", "copies", "timeout"])
    parameters = strategies.lists(strategies.tuples(words | escaped, escaped), max_size=3)

    @settings(
        max_examples=5 * EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        strategies.sampled_from(["GET", "PUT", "DELETE"]), escaped, parameters, strategies.binary(max_size=20)
    )
    def check(method: str, path: str, query: List[Tuple[str, str]], body: bytes) -> None:
        target = f"{base}/kv/{path}?" + "&".join(f"{name}={value}" for name, value in query)
        data = body if method == "PUT" else None
        response = session.request(method, target, data=data, timeout=PATIENCE)
        statuses.append(response.status_code)
        # 504: there is no other node to have a copy.
        assert response.status_code < 500 or response.status_code == 504, (target, response.text)
        if response.status_code >= 400:
            assert {"code", "error"} <= response.json().keys(), (target, response.text)

    check()  # pylint: disable=no-value-for-parameter


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
        statuses = seen.setdefault(operation.verbose_name, [])
        _ask(operation.as_strategy(), session, statuses)
    _ask_nonsense(base, session, seen.setdefault("nonsense", []))
    took = time.monotonic() - began
    assert took < BUDGET, f"{took:.0f} s"
    # It was no empty talk: writes were made and refused, and nonsense was found to be that.
    writes = seen["PUT /v1/kv/{path}"]
    assert 201 in writes and 412 in writes, seen
    assert 400 in seen["nonsense"], seen
    assert len(seen) == 11 and all(statuses for statuses in seen.values()), seen
    # It has survived.
    assert requests.get(f"http://{running.http}/livez", timeout=PATIENCE).status_code == 200
