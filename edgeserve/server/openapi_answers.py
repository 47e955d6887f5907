"""Answers of the OpenAPI document: the form of each, its statuses, and the bodies of errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgeserve.server.recorded_fields import Schema

OPENAI_ERROR = "OpenAIError"
ANTHROPIC_ERROR = "AnthropicError"

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_IDS: Schema = {"type": "array", "items": _COUNT}


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_USAGE = _object({"prompt_tokens": _COUNT, "total_tokens": _COUNT}, {"completion_tokens": _COUNT})
_CALL = _object(
    {"id": _TEXT, "type": _TEXT, "function": _object({"name": _TEXT, "arguments": _TEXT})}
)
_CARD: Mapping[str, Schema] = {"id": _TEXT, "object": _TEXT, "created": _COUNT}
_HEAD: Mapping[str, Schema] = {**_CARD, "model": _TEXT}
_FINISH: Schema = {"enum": ["stop", "length", "tool_calls", "function_call"]}
_MESSAGE = _object(
    {"role": {"const": "assistant"}, "content": _TEXT_OR_NULL},
    {"reasoning_content": _TEXT_OR_NULL, "tool_calls": _list(_CALL)},
)
_CHAT_CHOICE = {"index": _COUNT, "message": _MESSAGE, "finish_reason": _FINISH}
_TEXT_CHOICE = {"index": _COUNT, "text": _TEXT, "finish_reason": _FINISH}
_TYPED = _object({"type": _TEXT})
_META: Schema = _object({"state": _TEXT})

SCHEMAS: Mapping[str, Schema] = {
    OPENAI_ERROR: _object(
        {
            "error": _object(
                {
                    "message": _TEXT,
                    "type": _TEXT,
                    "param": _TEXT_OR_NULL,
                    "code": _TEXT_OR_NULL,
                }
            )
        }
    ),
    ANTHROPIC_ERROR: _object(
        {"type": {"const": "error"}, "error": _object({"type": _TEXT, "message": _TEXT})}
    ),
    "ChatCompletion": _object(
        {**_HEAD, "choices": _list(_object(_CHAT_CHOICE)), "usage": _USAGE},
        {"system_fingerprint": _TEXT, "timings": {"type": "object"}},
    ),
    "Completion": _object(
        {**_HEAD, "choices": _list(_object(_TEXT_CHOICE)), "usage": _USAGE},
        {"system_fingerprint": _TEXT, "timings": {"type": "object"}},
    ),
    "Message": _object(
        {
            "id": _TEXT,
            "type": {"const": "message"},
            "role": {"const": "assistant"},
            "model": _TEXT,
            "content": _list(_TYPED),
            "stop_reason": {"enum": ["end_turn", "max_tokens", "tool_use", "stop_sequence"]},
            "stop_sequence": _TEXT_OR_NULL,
            "usage": _object({"input_tokens": _COUNT, "output_tokens": _COUNT}),
        }
    ),
    "TokenCount": _object({"input_tokens": _COUNT}),
    "Response": _object(
        {
            "id": _TEXT,
            "object": {"const": "response"},
            "created_at": _COUNT,
            "model": _TEXT,
            "status": {"enum": ["completed", "incomplete", "failed"]},
            "output": _list(_TYPED),
        }
    ),
    "InputItems": _object(
        {
            "object": {"const": "list"},
            "data": _list(_TYPED),
            "first_id": _TEXT_OR_NULL,
            "last_id": _TEXT_OR_NULL,
            "has_more": {"type": "boolean"},
        }
    ),
    "DeletedResponse": _object({"id": _TEXT, "object": _TEXT, "deleted": {"const": True}}),
    "Embeddings": _object(
        {
            "object": {"const": "list"},
            "data": _list(
                _object(
                    {
                        "object": {"const": "embedding"},
                        "index": _COUNT,
                        "embedding": {"anyOf": [_TEXT, _list({"type": "number"})]},
                    }
                )
            ),
            "model": _TEXT,
            "usage": _USAGE,
        }
    ),
    "Model": _object({**_CARD, "owned_by": _TEXT, "meta": _META}, {"max_model_len": _COUNT}),
    "Models": _object({"object": {"const": "list"}, "data": _list(ref("Model"))}),
    "Tokens": _object(
        {"tokens": {"anyOf": [_IDS, _list(_object({"id": _COUNT, "piece": {}}))]}},
        {"count": _COUNT, "max_model_len": _COUNT},
    ),
    "Text": _object({"content": _TEXT, "prompt": _TEXT}),
    "Prompt": _object({"prompt": _TEXT}),
    "TokenizerInfo": _object(
        {
            "tokenizer_class": _TEXT,
            "bos_token": _TEXT_OR_NULL,
            "eos_token": _TEXT_OR_NULL,
            "chat_template": _TEXT_OR_NULL,
        }
    ),
    "Health": _object({"status": {"const": "ok"}}),
    "Version": _object({"version": _TEXT}),
    "Document": _object({"openapi": _TEXT, "info": {"type": "object"}, "paths": {}}),
}

_ERRORS = {
    400: "A field is wrong; the message says what it may be",
    401: "No API key was given, or a wrong one",
    403: "A foreign Host or Origin",
    404: "Nothing is there by that name",
    405: "The path takes other methods",
    408: "The body did not arrive in time",
    413: "The body is larger than the server takes",
    429: "The queue is full; retry-after says when to come again",
    500: "The server failed, or its model cannot be loaded",
    503: "The model is loading, or has no memory; retry-after says when to come again",
}
EVERYWHERE = (401, 403, 500)
OF_A_BODY = (400, 404, 408, 413, 429, 503)
_RETRY = (429, 503)


def error_answers(statuses: Sequence[int], schema: str) -> dict[str, object]:
    """By status, as OpenAPI has them."""
    return {
        str(status): {
            "description": _ERRORS[status],
            "headers": {
                "x-request-id": {"$ref": "#/components/headers/RequestId"},
                **({"retry-after": {"schema": _TEXT}} if status in _RETRY else {}),
            },
            "content": {"application/json": {"schema": ref(schema)}},
        }
        for status in sorted(statuses)
    }
