"""A simulated node for the page: serves its files as a node does, and tells it what a test wants, such as of 300 members
or a million entries, that a test cannot have for real."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import parse_qs, unquote, urlsplit

REPOSITORY = Path(__file__).resolve().parents[2]
KINDS = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def policy() -> str:
    """The content security policy that the node sends with the page."""
    source = (REPOSITORY / "crates/http/src/page.rs").read_text()
    match = re.search(r'const POLICY: &str = "((?:[^"\\]|\\.|\\\n)*)"', source)
    assert match
    return re.sub(r"\\\n\s*", "", match.group(1))


def member(name: str, state: str = "up", **more: Any) -> Dict[str, Any]:
    """A member as the node tells of it."""
    now = int(time.time() * 1000)
    row = {"name": name, "state": state, "since": now - 3_600_000, "linked": state == "up", "ready": state in ("up", "self")}
    row.update({"lagging": False, "secured": False, "behind": 0 if state == "up" else None, "behind_s": 0 if state == "up" else None})
    row.update({"queue": 0, "keeper": None, "group": False, "client": "10.77.0.1:27586", "gossip": "", "software": ""})
    return {**row, **more}


def conflict(number: int, path: str, kept: Any, lost: Any) -> Dict[str, Any]:
    """A conflict as the node lists it."""
    sides = [("winner", kept, "n2~a1:5", 17), ("loser", lost, "n3~b2:2", 16)]
    versions = {side: {"value": value, "etag": f'"a-{tock}"', "chain": [event], "tock": tock} for side, value, event, tock in sides}
    return {"path": path, "number": number, "changed": True, **versions}


class Source:
    """What is told; may be changed at any time."""

    def __init__(self) -> None:
        self.cluster: Dict[str, Any] = {
            "node": "n1", "network": "plant", "version": "test", "ready": True, "secured": False, "warnings": [],
            "split": None, "healing": None, "conflicts": 0, "entries": 0,
        }  # fmt: skip
        self.members: List[Dict[str, Any]] = [member("n1", "self"), member("n2"), member("n3")]
        self.events: List[Dict[str, Any]] = []
        self.splits: List[Dict[str, Any]] = []
        self.known = 0
        # The conflicts that are listed below a path: without one, those of the data.
        self.conflicts: Dict[str, List[Dict[str, Any]]] = {}
        # How many children the root has; each tenth has children of its own.
        self.children = 0
        # Whether whoever asks is no operator.
        self.is_for_operators = False
        self.streams = 0
        self.requests: List[str] = []
        self._changed = threading.Condition()
        self._version = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def tell(self, **cluster: Any) -> None:
        """Tells the page anew, with these changes of the cluster."""
        with self._changed:
            self.cluster = {**self.cluster, **cluster}
            self._version += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends it."""
        with self._changed:
            self._version = -1
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def child(self, index: int, prefix: str = "entry") -> Dict[str, Any]:
        """A child as the node lists it."""
        value = {"on": index % 2 == 0, "level": index}
        return {"name": f"{prefix}-{index:07}", "value": value, "more": index % 10 == 0, "etag": f'"a-{index}"'}

    def listing(self, path: List[str], limit: int, after: Optional[str]) -> Dict[str, Any]:
        """The answer to `?children`."""
        total = self.children if not path else 25
        first = int(after.rsplit("-", 1)[1]) + 1 if after else 0
        last = min(total, first + limit)
        items = [self.child(i, "entry" if not path else "inner") for i in range(first, last)]
        return {"items": items, "next": items[-1]["name"] if last < total else None}

    def _handler(source):  # pylint: disable=no-self-argument
        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # pylint: disable=redefined-builtin
                pass

            def answer(self, status: int, kind: str, body: bytes, *fields: Tuple[str, str]) -> None:
                """A whole answer."""
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", policy())
                for name, value in fields:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:  # pylint: disable=invalid-name
                """Answers."""
                url = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
                source.requests.append(self.path)
                if url.path == "/":
                    self.answer(200, KINDS[".html"], (REPOSITORY / "web/index.html").read_bytes())
                elif url.path.startswith("/web/"):
                    file = REPOSITORY / "web" / Path(url.path).name
                    self.answer(200, KINDS[file.suffix], file.read_bytes())
                elif url.path == "/v1/live" and source.is_for_operators and query["parts"] != "data":
                    self.answer(403, "application/json", b'{"code": "denied", "error": "not for users"}')
                elif url.path == "/v1/live":
                    self.live(query["parts"].split(","))
                elif url.path == "/v1/conflicts":
                    since, limit = int(query["since"]), int(query["limit"])
                    found = [c for c in source.conflicts.get(query.get("path", ""), []) if c["number"] > since]
                    text = "".join(f"{json.dumps(conflict)}\n" for conflict in found[-limit:])
                    self.answer(200, "application/x-ndjson", text.encode())
                elif url.path.startswith("/v1/kv/"):
                    path = [unquote(part) for part in url.path[7:].split("/") if part]
                    if "children" in query:
                        answer = source.listing(path, int(query["limit"]), query.get("after"))
                        self.answer(200, "application/json", json.dumps(answer).encode())
                    else:
                        fields = [("ETag", '"a-1"'), ("Distkv-Tock", "17"), ("Distkv-Chain", "n2~a1:5 n1~b2:3")]
                        # An entry from before times were kept has none.
                        if path[-1] != "entry-0000001":
                            fields.append(("Distkv-Time", "2026-11-21T09:14:42.123Z"))
                        self.answer(200, "application/json", b'{"on": true}', *fields)
                else:
                    self.answer(404, "application/json", b"{}")

            def live(self, parts: List[str]) -> None:
                """The stream of events."""
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                source.streams += 1
                told = None
                try:
                    self.event("hello", {"now": int(time.time() * 1000)})
                    if "traffic" in parts:
                        self.event("rates", rates())
                    while True:
                        with source._changed:
                            while told == source._version:
                                source._changed.wait(0.2)
                                # Finds out whether somebody is there.
                                self.wfile.write(b":\n\n")
                            told = source._version
                        if told < 0:
                            return
                        if "cluster" in parts:
                            self.event("cluster", source.cluster)
                            self.event("members", {"rows": source.members})
                        if "history" in parts:
                            self.event("history", {"events": source.events, "splits": source.splits})
                        self.event("data", {"known": source.known})
                except OSError:
                    pass
                finally:
                    source.streams -= 1
                    self.close_connection = True

            def event(self, kind: str, data: Any) -> None:
                """One event."""
                self.wfile.write(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
                self.wfile.flush()

        return Handler


def rates() -> Dict[str, Any]:
    """Ten minutes of made up rates."""
    names = [[f"rate {i}", "/s"] for i in range(24)]
    seconds = [[(s * (i + 1)) % 97 for i in range(24)] for s in range(600)]
    columns = [[(c * row) % 31 for row in range(64)] for c in range(120)]
    kinds = ["reads", "writes", "lists"]
    # Of the lists there are none, and of the writes none until the last minute.
    latency = [[[100 + s, 1_000 + 20 * s, 50], [2_500, 1_200_000, 7] if s >= 540 else None, None] for s in range(600)]
    return {"names": names, "kinds": kinds, "at": 0, "seconds": seconds, "latency": latency, "columns": columns}
