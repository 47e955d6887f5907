"""A span for every answer, for OpenTelemetry: only where an endpoint was named (extra `otel`).

Attributes are those of its conventions for generative AI; no text of a prompt or answer is in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPERATIONS = {
    "/chat/completions": "chat",
    "/messages": "chat",
    "/responses": "chat",
    "/completions": "text_completion",
    "/infill": "text_completion",
    "/embeddings": "embeddings",
}
# A request's notes, as the log has them, and what the conventions call them.
_NOTES: Mapping[str, tuple[str, Callable[[object], AttributeValue]]] = {
    "model": ("gen_ai.response.model", str),
    "stream": ("gen_ai.request.stream", bool),
    "prompt": ("gen_ai.usage.input_tokens", lambda count: cast(int, count)),
    "output": ("gen_ai.usage.output_tokens", lambda count: cast(int, count)),
    "cached": ("gen_ai.usage.cache_read.input_tokens", lambda count: cast(int, count)),
    "ttft_ms": ("gen_ai.response.time_to_first_chunk", lambda ms: cast(float, ms) / 1e3),
    "finish": ("gen_ai.response.finish_reasons", lambda reason: [str(reason)]),
    "queue_ms": ("edgeserve.queue_time", lambda ms: cast(float, ms) / 1e3),
    "miss": ("edgeserve.prefix_miss", str),
}


class Traced:
    """An ASGI layer under the log's, whose notes of a request it reads."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = _OPERATIONS.get(scope.get("path", ""))
        if scope["type"] != "http" or scope["method"] != "POST" or operation is None:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}
        with self._tracer.start_as_current_span(
            operation, self._propagator.extract(headers), SpanKind.SERVER
        ) as span:
            span.set_attributes(_asked(scope, operation))
            status = 0

            async def sending(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await self._app(scope, receive, sending)
            finally:
                _end(span, operation, status, scope["state"]["notes"])


def _asked(scope: Scope, operation: str) -> dict[str, AttributeValue]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": "edgeserve",
        "http.request.method": scope["method"],
        "url.path": scope["path"],
        "edgeserve.request_id": scope["state"]["request_id"],
    }


def _end(span: Span, operation: str, status: int, notes: Mapping[str, object]) -> None:
    """What is known of a request when its last byte is out. A status of 0: nobody was there."""
    if "model" in notes:
        span.update_name(f"{operation} {notes['model']}")
    for note, (name, of) in _NOTES.items():
        if note in notes:
            span.set_attribute(name, of(notes[note]))
    if status:
        span.set_attribute("http.response.status_code", status)
    if status == 0 or status >= 400:
        span.set_attribute("error.type", str(status) if status else "client gone")
    if status >= 500:
        span.set_status(StatusCode.ERROR)


def exporting_tracer(endpoint: str, version: str) -> tuple[Tracer, Callable[[], None]]:
    """A tracer whose spans go to an OTLP endpoint over HTTP, and how to send the last of them."""
    resource = Resource.create({"service.name": "edgeserve", "service.version": version})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    return provider.get_tracer("edgeserve.server", version), provider.shutdown
