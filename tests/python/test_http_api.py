"""The HTTP API is what its description says: requests that schemathesis makes up from it, and nonsense, at a real node."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple
from urllib.parse import quote

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from jsonschema import Draft7Validator
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
PATIENCE = 60.0
DOCS = Path(__file__).parents[2] / "docs"
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


# Names, labels and moments that made-up requests meet again: of all that the description allows they would meet none.
NAME = "[a-z]{1,8}"
LABEL = '"[0-9a-f]{1,12}-[0-9]{1,6}"'
NARROWED: Dict[str, Dict[str, Any]] = {
    "/kv/{path} path": {"pattern": f"^{NAME}(/{NAME}){{0,3}}$"},
    "get /kv/{path} after": {"pattern": f"^{NAME}$"},
    "get /kv/{path} depth": {"maximum": 1_000_000},
    "get /kv/{path} If-None-Match": {"pattern": f"^{LABEL}$"},
    "put /kv/{path} copies": {"maximum": 8},
    "put /kv/{path} timeout": {"maximum": 3_600},
    "put /kv/{path} If-Match": {"pattern": rf"^(\*|{LABEL})$"},
    "put /kv/{path} Distkv-Wid": {"pattern": "^[0-9a-f]{32}$"},
    "delete /kv/{path} copies": {"maximum": 8},
    "delete /kv/{path} timeout": {"maximum": 3_600},
    "delete /kv/{path} If-Match": {"pattern": rf"^(\*|{LABEL})$"},
    "delete /kv/{path} Distkv-Wid": {"pattern": "^[0-9a-f]{32}$"},
    "get /conflicts since": {"maximum": 1_000_000},
    "get /conflicts limit": {"maximum": 1_000_000},
    "get /conflicts path": {"pattern": rf"^{NAME}(\.{NAME}){{0,3}}$"},
    "get /history path": {"pattern": rf"^{NAME}(\.{NAME}){{0,3}}$"},
    "get /history since": {"enum": ["2026-01-01T00:00:00Z", "2026-11-21T09:14:42.123Z"]},
}


def _parameters(document: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """The schemas of all parameters, by where they stand and what they are called."""
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            # Those of all methods of a path stand in a list of their own.
            is_list = method == "parameters"
            for each in operation if is_list else operation.get("parameters", []):
                where = path if is_list else f"{method} {path}"
                found[f"{where} {each['name']}"] = each["schema"]
    return found


def _narrowed(document: Dict[str, Any]) -> Dict[str, Any]:
    """With less to make requests up from than the node takes."""
    schemas = _parameters(document)
    for name, narrower in NARROWED.items():
        schemas[name].update(narrower)
    # Bytes that are made up are hardly ever MessagePack.
    del document["paths"]["/kv/{path}"]["put"]["requestBody"]["content"]["application/msgpack"]
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
    schema = schemathesis.from_dict(_narrowed(_without_streams(document)), base_url=base)
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


# What the node takes and what it refuses, by the parameter's name in the description, and whether it does.
INPUTS: List[Tuple[str, str, bool]] = [
    *(
        ("/kv/{path} path", path, True)
        for path in ("site/lamp1", "kitchen_lamp-2", "a/b/c/d/e/f", ":n", ":1/::x", "Über", "")
    ),
    *(("/kv/{path} path", path, False) for path in ("a//b", "a/", "/".join(["a"] * 65))),
    *(("get /kv/{path} limit", limit, limit in ("1", "1000")) for limit in ("0", "1", "1000", "1001")),
    *(("get /kv/{path} after", after, after != "") for after in ("lamp1", ":1", "a b", "")),
    *(("get /kv/{path} depth", depth, depth != "-1") for depth in ("-1", "0", "9223372036854775807")),
    *(
        (f"{method} /kv/{{path}} {name}", number, number != "-1")
        for method in ("put", "delete")
        for name in ("copies", "timeout")
        for number in ("-1", "0", "9", "9223372036854775807")
    ),
    *(
        (f"{operation} /kv/{{path}} {name}", label, is_taken)
        for operation, name in (("get", "If-None-Match"), ("put", "If-Match"), ("delete", "If-Match"))
        for label, is_taken in (
            ("*", True),
            ('"b7dabd7ec979-17"', True),
            ('"b7dabd7ec979-1000000"', True),
            ('"a-1", "b-2"', True),
            ('"a,b"', False),
            (", ".join(['"a-1"'] * 64), True),
            (", ".join(['"a-1"'] * 65), False),
            ("b7dabd7ec979-17", False),
            ('*, "a-1"', False),
        )
    ),
    ("get /kv/{path} If-None-Match", 'W/"a-1", "b-2"', True),
    *(
        (f"{method} /kv/{{path}} If-None-Match", label, label == "*")
        for method in ("put", "delete")
        for label in ("*", '"a-1"')
    ),
    *(("put /kv/{path} Distkv-Wid", wid, True) for wid in ("0123456789abcdef" * 2, "0123456789ABCDEF" * 2)),
    *(("put /kv/{path} Distkv-Wid", wid, False) for wid in ("0" * 31, "0" * 33, "g" * 32)),
    *(("get /conflicts since", since, since != "-1") for since in ("-1", "0", "9223372036854775807")),
    *(("get /conflicts limit", limit, limit != "-1") for limit in ("-1", "0", "9223372036854775807")),
    *(("get /conflicts path", path, path != "") for path in ("site.lamp-1", ":", "a:1", "")),
    *(("get /history path", path, path != "") for path in ("site.lamp-1", ":", "a:1", "")),
    *(("get /history since", since, True) for since in ("2026-11-21T09:14:42Z", "2030-01-01T00:00:00.5+01:00")),
    *(("get /history limit", limit, limit in ("1", "1000")) for limit in ("0", "1", "1000", "1001")),
]


def _fits(schema: Dict[str, Any], text: str) -> bool:
    is_number = schema["type"] == "integer"
    return bool(Draft7Validator(schema).is_valid(int(text) if is_number else text))


def test_the_description_allows_what_the_node_takes_and_nothing_that_it_refuses(http_node: Any) -> None:
    running, token = http_node
    base = f"http://{running.http}/v1"
    document = requests.get(f"{base}/openapi.json", timeout=PATIENCE).json()
    schemas = _parameters(document)
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    for name, text, is_taken in INPUTS:
        where, parameter = name.rsplit(" ", 1)
        method, path = where.split(" ") if " " in where else ("get", where)
        query = {"path": "a"} if path == "/history" and parameter != "path" else {}
        headers = {}
        if "-" in parameter:
            headers[parameter] = text
        elif where != "/kv/{path}":
            query[parameter] = text
        if parameter in ("limit", "after") and path == "/kv/{path}":
            query["children"] = ""
        elif parameter == "depth":
            query["tree"] = ""
        elif parameter == "copies":
            query["timeout"] = "0"
        segments = quote(text, safe="/:") if where == "/kv/{path}" else "a"
        response = session.request(
            method,
            base + path.replace("{path}", segments),
            params=query,
            headers=headers,
            data=b"1" if method == "put" else None,
            timeout=PATIENCE,
        )
        assert (response.status_code != 400) == is_taken, (name, text, response.text)
        assert _fits(schemas[name], text) == is_taken, (name, text, schemas[name])


def test_flags_alone_may_stand_without_a_value_in_the_description() -> None:
    for path, methods in json.loads((DOCS / "openapi.json").read_text())["paths"].items():
        for method in methods.keys() & {"get", "put", "delete"}:
            for each in methods[method].get("parameters", []):
                is_flag = "" in each["schema"].get("enum", [])
                assert each.get("allowEmptyValue", False) == is_flag, (method, path, each["name"])


def test_the_description_knows_each_status_that_the_documents_name() -> None:
    described = set()
    for methods in json.loads((DOCS / "openapi.json").read_text())["paths"].values():
        for method in methods.keys() & {"get", "put", "delete"}:
            described.update(methods[method]["responses"])
    rows = (DOCS / "http-api.md").read_text().split("## Errors")[1].splitlines()
    named = {row.split("|")[1].strip() for row in rows if row.startswith("| ")} - {"status"}
    assert described == named | {"200", "201", "304"}


def test_messagepack_is_a_body_that_the_description_knows(http_node: Any) -> None:
    running, token = http_node
    base = f"http://{running.http}/v1"
    described = requests.get(f"{base}/openapi.json", timeout=PATIENCE).json()["paths"]["/kv/{path}"]
    for kind, body in (("application/json", b"[7]"), ("application/msgpack", b"\x91\x07")):
        assert kind in described["put"]["requestBody"]["content"], kind
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        requests.put(f"{base}/kv/a", data=body, headers=headers, timeout=PATIENCE).raise_for_status()
        assert requests.get(f"{base}/kv/a", timeout=PATIENCE).json() == [7], kind
