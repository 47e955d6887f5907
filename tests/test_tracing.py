"""Spans: one an answer, with the conventions' names, and never a prompt's text."""

from __future__ import annotations

import gzip
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import StatusCode

from edgeserve import AsyncLLM, cli
from edgeserve.server import tracing
from edgeserve.server.tracing import exporting_tracer

from .server_harness import USER, with_server
from .tiny_models import write_tiny_model

PARENT = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=64)


def spans_of(path: Path, *asked: tuple[str, dict[str, Any]]) -> tuple[ReadableSpan, ...]:
    """What a server makes of these requests."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        for url, body in asked:
            await client.post(url, json=body, headers={"traceparent": PARENT})
        await client.get("/metrics")
        await client.get("/v1/models")

    with_server(path, test, context={"tracer": provider.get_tracer("test")}, disk_cache=0)
    return exporter.get_finished_spans()


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_a_span_with_its_counts(path: Path, stream: bool) -> None:
    body = {"messages": USER, "max_tokens": 3, "ignore_eos": True, "stream": stream}
    (span,) = spans_of(path, ("/v1/chat/completions", body))
    found = dict(span.attributes or {})
    assert span.name == "chat tiny"
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.response.model"] == "tiny"
    assert found["gen_ai.request.stream"] is stream
    assert found["gen_ai.usage.output_tokens"] == 3
    assert found["gen_ai.response.finish_reasons"] == ("length",)
    assert (found["http.response.status_code"], found["url.path"]) == (200, "/chat/completions")
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 60  # type: ignore[operator]
    assert "the inn" not in span.to_json()


def test_a_span_belongs_to_its_callers_trace(path: Path) -> None:
    (span,) = spans_of(path, ("/v1/completions", {"prompt": "the", "max_tokens": 1}))
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}-{span.parent.span_id:016x}" == PARENT[3:-3]
    assert span.name == "text_completion tiny"


def test_a_refusal_is_a_span_with_its_status(path: Path) -> None:
    (span,) = spans_of(path, ("/v1/chat/completions", {"messages": []}))
    found = dict(span.attributes or {})
    assert (found["http.response.status_code"], found["error.type"]) == (400, "400")
    assert span.status.status_code is StatusCode.UNSET  # the client's mistake is not the server's


def test_names_are_the_conventions(path: Path) -> None:
    body = {"messages": USER, "max_tokens": 2}
    (span,) = spans_of(path, ("/v1/chat/completions", body))
    known = {getattr(gen_ai_attributes, name) for name in dir(gen_ai_attributes) if name.isupper()}
    named = {name for name in span.attributes or {} if name.startswith("gen_ai.")}
    assert len(named) >= 8
    assert named <= known


def test_spans_arrive_at_the_endpoint() -> None:
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            bodies.append(gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        tracer, end = exporting_tracer(endpoint, "1.2.3")
        tracer.start_span("chat tiny").end()
        end()
        server.shutdown()
    (sent,) = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans
    resource = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("edgeserve", "1.2.3")
    assert [span.name for scope in sent.scope_spans for span in scope.spans] == ["chat tiny"]


def test_without_the_extra_the_option_says_what_to_install(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, tracing.__name__)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    arguments = ["--port", "0", "--otlp-traces-endpoint", "http://127.0.0.1:1/v1/traces"]
    assert cli.main(["serve", str(path), "--no-disk-cache", *arguments]) == 2
    assert "pip install 'edgeserve-llm[otel]'" in capsys.readouterr().err
