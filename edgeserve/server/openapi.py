"""The OpenAPI document of a server: a description for each of its routes, none that is missing.

Imported by whoever asks for it: a server that nobody asks does not make it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from starlette.routing import Route

from edgeserve.frozen import frozen
from edgeserve.server.health import installed_version
from edgeserve.server.openapi_answers import (
    ANTHROPIC_ERROR,
    EVERYWHERE,
    OF_A_BODY,
    OPENAI_ERROR,
    SCHEMAS,
    error_answers,
    ref,
)
from edgeserve.server.openapi_requests import BODIES
from edgeserve.server.recorded_fields import Schema

_JSON = "application/json"
_STREAM = "text/event-stream"
_TEXT: Schema = {"type": "string"}
_TOLD = ("ignored", "adjusted", "relaxed")
"""What headers list of a body: fields without effect, changed ones, constraints made looser."""


@frozen
class _Operation:
    """A route's method. `answer` names a schema; without one the answer is text."""

    summary: str
    answer: str | None = None
    errors: Sequence[int] = ()
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


_NAME = {"name": "path"}
_ID = {"response_id": "path"}
_OPERATIONS: Mapping[tuple[str, str], _Operation] = {
    ("POST", "/chat/completions"): _Operation("OpenAI's chat", "ChatCompletion"),
    ("POST", "/completions"): _Operation("OpenAI's completion of raw prompts", "Completion"),
    ("POST", "/infill"): _Operation("What belongs between two texts", "Completion"),
    ("POST", "/messages"): _Operation("Anthropic's chat", "Message"),
    ("POST", "/messages/count_tokens"): _Operation("Counts a prompt's tokens", "TokenCount"),
    ("POST", "/responses"): _Operation("OpenAI's Responses", "Response"),
    ("GET", "/responses/{response_id}"): _Operation("A kept response", "Response", (404,), _ID),
    ("GET", "/responses/{response_id}/input_items"): _Operation(
        "What a kept response answers, a page at a time",
        "InputItems",
        (400, 404),
        {**_ID, "limit": "query", "order": "query", "after": "query"},
    ),
    ("DELETE", "/responses/{response_id}"): _Operation(
        "Forgets a kept response", "DeletedResponse", (404,), _ID
    ),
    ("POST", "/embeddings"): _Operation("A vector for each text", "Embeddings"),
    ("GET", "/models"): _Operation("The models that are served", "Models"),
    ("GET", "/models/{name}"): _Operation("One model", "Model", (404,), _NAME),
    ("POST", "/tokenize"): _Operation("A text's tokens", "Tokens"),
    ("POST", "/detokenize"): _Operation("The text of tokens", "Text"),
    ("POST", "/apply-template"): _Operation("The prompt that a chat becomes", "Prompt"),
    ("GET", "/tokenizer_info"): _Operation(
        "Special tokens and the chat template",
        "TokenizerInfo",
        (400, 404, 503),
        {"model": "query"},
    ),
    ("GET", "/health"): _Operation("Whether a model answers", "Health", (503,)),
    ("GET", "/version"): _Operation("The version that runs", "Version"),
    ("GET", "/metrics"): _Operation("Prometheus's text"),
    ("GET", "/"): _Operation("What runs here, and how to ask it"),
    ("GET", "/openapi.json"): _Operation("All of it, as OpenAPI describes it", "Document"),
}


def summaries() -> Sequence[tuple[str, str, str]]:
    """Method, path and what it is, of all there is, as the document describes it."""
    return [(method, path, each.summary) for (method, path), each in _OPERATIONS.items()]


def openapi_document(routes: Sequence[Route]) -> dict[str, object]:
    """OpenAPI 3.1. Raises KeyError for a route that has no description here."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            path = route.path.replace(":path}", "}")
            operation = _operation(method, path)
            paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edgeserve",
            "version": installed_version(),
            "description": (
                "A local language model behind OpenAI's and Anthropic's APIs. Every path is there "
                "with and without /v1. A null is an absent field. Fields that are not listed are "
                "ignored, and x-edgeserve-ignored names them."
            ),
        },
        "servers": [{"url": "/v1"}, {"url": "/"}],
        "paths": paths,
        "security": [{}, {"bearer": []}, {"key": []}],
        "components": _components(),
    }


def _operation(method: str, path: str) -> dict[str, object]:
    described = _OPERATIONS[method, path]
    body = BODIES.get(path)
    errors = {*EVERYWHERE, *described.errors, *(OF_A_BODY if body is not None else ())}
    is_anthropic = path.startswith("/messages")
    found: dict[str, object] = {
        "summary": described.summary,
        "operationId": _operation_id(method, path),
        "responses": {
            "200": _answer(described, body is not None and body.streams),
            **error_answers(sorted(errors), ANTHROPIC_ERROR if is_anthropic else OPENAI_ERROR),
        },
    }
    if described.parameters:
        found["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": _TEXT}
            for name, place in described.parameters.items()
        ]
    if body is not None:
        found["requestBody"] = {"required": True, "content": {_JSON: {"schema": body.schema()}}}
    return found


def _operation_id(method: str, path: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in path).split() or ["root"]
    return "_".join((method.lower(), *words))


def _answer(described: _Operation, streams: bool) -> dict[str, object]:
    if described.answer is None:
        content: dict[str, object] = {"text/plain": {"schema": _TEXT}}
    else:
        content = {_JSON: {"schema": ref(described.answer)}}
    if streams:
        content[_STREAM] = {}
    told = {f"x-edgeserve-{what}": {"schema": _TEXT} for what in _TOLD} if streams else {}
    headers = {"x-request-id": {"$ref": "#/components/headers/RequestId"}, **told}
    return {"description": described.summary, "headers": headers, "content": content}


def _components() -> dict[str, object]:
    return {
        "schemas": dict(SCHEMAS),
        "headers": {
            "RequestId": {
                "description": "The client's own x-request-id, or one that was made",
                "schema": _TEXT,
            }
        },
        "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        },
    }
