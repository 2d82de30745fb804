"""An observer that makes OpenTelemetry spans of calls: `pip install distkv-client[otel]`.

A span per call, an event per failed try; names are those of the conventions for databases. Paths and values are
never told.
"""

from __future__ import annotations

import importlib
from typing import Any

from .errors import DistKVError
from .observer import CallEnd
from .retry import ErrorClass


class OtelObserver:
    """`Config(observer=OtelObserver())`. `tracer_provider`: instead of the global one."""

    def __init__(self, tracer_provider: Any = None) -> None:
        self._trace: Any = importlib.import_module("opentelemetry.trace")
        self._tracer: Any = self._trace.get_tracer("distkv_client", tracer_provider=tracer_provider)

    def call_begins(self, action: str) -> object:
        """Begins a span."""
        attributes = {"db.system.name": "distkv", "db.operation.name": action}
        return self._tracer.start_span(action, kind=self._trace.SpanKind.CLIENT, attributes=attributes)

    def try_begins(self, token: Any, node: str, attempt: int) -> None:
        """Notes the node of the last try."""
        token.set_attribute("distkv.node", node)
        token.set_attribute("distkv.attempts", attempt)

    def try_failed(self, token: Any, node: str, attempt: int, kind: ErrorClass, text: str) -> None:
        """Notes a failed try as an event."""
        token.add_event("try failed", {"distkv.node": node, "distkv.attempt": attempt, "error.type": kind.value})

    def call_ends(self, token: Any, end: CallEnd) -> None:
        """Ends the span."""
        if end.error is not None:
            code = end.error.code if isinstance(end.error, DistKVError) else None
            token.set_attribute("error.type", code or type(end.error).__name__)
            if end.fate is not None:
                token.set_attribute("distkv.fate", end.fate.value)
            token.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        token.end()
