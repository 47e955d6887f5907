"""Request bodies of the OpenAPI document: fields and ranges as the readers of bodies read them.

A table says only what a reader does not: the form of fields that are several things at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from edgeserve.frozen import frozen
from edgeserve.sampling_fields import SAMPLERS
from edgeserve.sampling_params import INTEGER_RANGES, NUMBER_RANGES
from edgeserve.server.anthropic_body import anthropic_body
from edgeserve.server.chat_body import EFFORTS, chat_body
from edgeserve.server.completion_body import completion_body, infill_body
from edgeserve.server.embeddings import embeddings_body
from edgeserve.server.fields import Fields
from edgeserve.server.recorded_fields import Schema, range_of, schemas_of
from edgeserve.server.responses_body import responses_body
from edgeserve.server.responses_store import ResponseStore

Body = Mapping[str, object]

_ANY_VOCABULARY = 1 << 31
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_OBJECT: Schema = {"type": "object"}
_TEXT_PART: Schema = {
    "type": "object",
    "properties": {"type": {"enum": ["text", "input_text", "output_text"]}, "text": _TEXT},
    "required": ["type", "text"],
}
_OTHER_PART: Schema = {"type": "object", "properties": {"type": _TEXT}, "required": ["type"]}
_PARTS: Schema = {
    "anyOf": [
        _TEXT,
        {"type": "array", "items": {"anyOf": [_TEXT_PART, _OTHER_PART]}},
        {"type": "null"},
    ]
}
_JSON_SCHEMA: Schema = {"anyOf": [_OBJECT, _TEXT, {"type": "boolean"}, {"type": "null"}]}
_USER: Schema = {"role": "user", "content": "Hello!"}
_SCHEMA_EXAMPLE: Schema = {"type": "object", "properties": {"name": {"type": "string"}}}
_FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA_EXAMPLE}}
_TOOL: Schema = {"name": "look", "description": "Looks.", "parameters": _SCHEMA_EXAMPLE}
_NO_LIMIT: Schema = {"type": ["integer", "null"], "minimum": -1, "description": "-1: no limit"}
_CHOICE: Schema = {"anyOf": [{"enum": ["none", "auto", "required", "any", None]}, _OBJECT]}
_SYNTAX: Schema = {"type": ["string", "null"], "description": "GBNF, which has ::=, or Lark"}


def _messages(roles: Sequence[str], required: Sequence[str]) -> Schema:
    message = {"role": {"enum": list(roles)}, "content": _PARTS}
    item = {"type": "object", "properties": message, "required": list(required)}
    return {"type": "array", "minItems": 1, "items": item}


_PROMPT: Schema = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {**_TEXTS, "minItems": 1},
        _IDS,
        {"type": "array", "items": _IDS, "minItems": 1},
    ]
}
_FORMS: Mapping[str, Schema] = {
    "model": {"type": ["string", "null"], "description": "one of /models; without, the one served"},
    "stop": {"anyOf": [_TEXT, {**_TEXTS, "maxItems": 64}, {"type": "null"}]},
    "logit_bias": {
        "anyOf": [
            {"type": "object", "additionalProperties": {"type": "number"}},
            {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
            {"type": "null"},
        ]
    },
    "samplers": {"type": ["array", "null"], "items": {"enum": [*SAMPLERS, "typ_p"]}},
    "stop_token_ids": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}},
    "dry_sequence_breakers": {"type": ["array", "null"], "items": _TEXT, "maxItems": 64},
    "mirostat": {"enum": [0, 2, None]},
    "best_of": {"type": ["integer", "null"], "description": "n, where it is given"},
    "reasoning_effort": {"enum": [*EFFORTS, None]},
    "tools": {"type": ["array", "null"], "items": _OBJECT},
    "functions": {"type": ["array", "null"], "items": _OBJECT},
    "tool_choice": _CHOICE,
    "function_call": _CHOICE,
    "json_schema": _JSON_SCHEMA,
    "guided_json": _JSON_SCHEMA,
    "guided_choice": {"type": ["array", "null"], "items": _TEXT, "minItems": 1},
    "grammar": _SYNTAX,
    "guided_grammar": _SYNTAX,
    "max_tokens": _NO_LIMIT,
    "max_completion_tokens": _NO_LIMIT,
    "max_output_tokens": _NO_LIMIT,
    "n_predict": _NO_LIMIT,
}
"""By field, on all paths that read it."""

_RANGES = {name: range_of(low, high) for name, low, high in (*NUMBER_RANGES, *INTEGER_RANGES)}
_RANGES["repetition_penalty"] = {"exclusiveMinimum": 0}
_RANGES["repeat_penalty"] = {"exclusiveMinimum": 0}


def _responses(body: Fields, *, vocab_size: int) -> object:
    return responses_body(body, ResponseStore(), vocab_size=vocab_size)


def _embeddings(body: Fields, *, vocab_size: int) -> object:
    return embeddings_body(body, vocab_size)


def _tokenize(body: Fields, **_: int) -> object:
    names = ("add_special", "parse_special", "with_pieces", "add_special_tokens")
    return body.text("content"), body.text("prompt"), [body.flag(name) for name in names]


def _detokenize(body: Fields, **_: int) -> object:
    return body.items("tokens")


@frozen
class BodyForm:
    """A reader of bodies, examples that try all that it reads, and what it does not say itself:
    fields that must be there or of which one must, the forms of those that are read raw."""

    read: Callable[..., object]
    examples: Sequence[Body]
    required: Sequence[str] = ()
    forms: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    streams: bool = True
    one_required: Sequence[str] = ()

    def schema(self) -> Schema:
        """Other fields may be there: the answer's header lists them as ignored."""

        def read(body: Fields) -> None:
            body.text("model")
            if self.streams:
                body.flag("stream")
            self.read(body, vocab_size=_ANY_VOCABULARY)

        found = schemas_of(read, self.examples)
        choices = [{"required": [name]} for name in self.one_required]
        return {
            **({"anyOf": choices} if choices else {}),
            "type": "object",
            "properties": {name: self._field(name, found[name]) for name in sorted(found)},
            "required": list(self.required),
            "additionalProperties": True,
            "examples": [dict(example) for example in self.examples],
        }

    def _field(self, name: str, recorded: Schema) -> Schema:
        own = self.forms.get(name) or _FORMS.get(name)
        if own is not None:
            return own
        is_number = recorded.get("type") in (["number", "null"], ["integer", "null"])
        return {**_RANGES.get(name, {}), **recorded} if is_number else recorded


_ASKS: Body = {
    "messages": [_USER],
    "stream_options": {"include_usage": True},
    "max_tokens": 64,
}
_STRUCTURED: Body = {"structured_outputs": {"json": _SCHEMA_EXAMPLE}}
_OPENAI_TOOLS: Body = {"tools": [{"type": "function", "function": _TOOL}], "tool_choice": "auto"}
_CHAT = BodyForm(
    chat_body,
    (
        _ASKS,
        {**_ASKS, **_OPENAI_TOOLS, "logprobs": True, "top_logprobs": 2},
        {**_ASKS, "response_format": _FORM},
        {**_ASKS, **_STRUCTURED},
    ),
    ("messages",),
    {
        "messages": _messages(
            ("system", "developer", "user", "assistant", "tool", "function"), ("role",)
        )
    },
)
_COMPLETED: Body = {"prompt": "Once", "stream_options": {"include_usage": True}, "max_tokens": 8}
_LOGPROBS: Mapping[str, Schema] = {
    "logprobs": {"anyOf": [{"type": ["integer", "null"], **range_of(0, 20)}, {"const": False}]}
}
_COMPLETION = BodyForm(
    completion_body,
    (
        {**_COMPLETED, "logprobs": 1},
        {**_COMPLETED, "response_format": _FORM},
        {**_COMPLETED, **_STRUCTURED},
    ),
    ("prompt",),
    {**_LOGPROBS, "prompt": _PROMPT},
)
_INFILL = BodyForm(
    infill_body,
    (
        {"input_prefix": "def f(", "input_suffix": "return x", **_COMPLETED, "prompt": "x"},
        {"input_prefix": "[", "max_tokens": 8, "response_format": _FORM},
        {"input_prefix": "[", "max_tokens": 8, **_STRUCTURED},
    ),
    forms=_LOGPROBS,
)
_ASKED: Body = {"max_tokens": 64, "messages": [_USER]}
_MESSAGES = BodyForm(
    anthropic_body,
    (
        {**_ASKED, "thinking": {"type": "enabled", "budget_tokens": 1024}},
        {
            **_ASKED,
            "tools": [{"name": "look", "input_schema": _SCHEMA_EXAMPLE}],
            "tool_choice": {"type": "tool", "name": "look"},
        },
        {
            **_ASKED,
            "output_config": {
                "effort": "low",
                "format": {"type": "json_schema", "schema": _SCHEMA_EXAMPLE},
            },
        },
        {**_ASKED, "output_format": {"type": "json_schema", "schema": _SCHEMA_EXAMPLE}},
    ),
    ("messages",),
    {
        "messages": _messages(("user", "assistant", "system"), ("role", "content")),
        "system": _PARTS,
    },
)
_ITEMS: Sequence[Schema] = (
    {
        "type": "object",
        "properties": {
            "type": {"const": "message"},
            "role": {"enum": ["user", "system", "developer", "assistant"]},
            "content": _PARTS,
        },
        "required": ["role", "content"],
    },
    {
        "type": "object",
        "properties": {
            "type": {"type": "string", "pattern": "^reasoning$|_(call|call_output)$"},
            "call_id": _TEXT,
            "name": _TEXT,
            "arguments": _TEXT,
            "output": _PARTS,
        },
        "required": ["type"],
    },
    {"type": "object", "properties": {"id": _TEXT}, "required": ["id"]},
)
_RESPONSES = BodyForm(
    _responses,
    (
        {
            "input": "Hello!",
            "max_output_tokens": 64,
            "tools": [{"type": "function", **_TOOL}],
            "tool_choice": "auto",
        },
        {"input": [_USER], "max_output_tokens": 64, "reasoning": {"effort": "low"}},
        {
            "input": "A person.",
            "max_output_tokens": 64,
            "text": {"format": {"type": "json_schema", "schema": _SCHEMA_EXAMPLE}},
        },
    ),
    one_required=("input", "previous_response_id"),
    forms={
        "input": {
            "anyOf": [_TEXT, {"type": "array", "items": {"anyOf": _ITEMS}}, {"type": "null"}]
        },
        "background": {"enum": [False, None]},
        "conversation": {"type": "null"},
        "prompt": {"type": "null"},
        "stream_options": {"type": ["object", "null"]},
    },
)
BODIES: Mapping[str, BodyForm] = {
    "/chat/completions": _CHAT,
    "/completions": _COMPLETION,
    "/infill": _INFILL,
    "/messages": _MESSAGES,
    "/messages/count_tokens": replace(_MESSAGES, streams=False),
    "/responses": _RESPONSES,
    "/embeddings": BodyForm(
        _embeddings, ({"input": "Hello!"},), ("input",), {"input": _PROMPT}, streams=False
    ),
    "/tokenize": BodyForm(
        _tokenize,
        ({"content": "Hello!"}, {"prompt": "Hello!"}),
        one_required=("content", "prompt"),
        streams=False,
    ),
    "/detokenize": BodyForm(
        _detokenize,
        ({"tokens": [1, 2]},),
        ("tokens",),
        {"tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
        streams=False,
    ),
    "/apply-template": replace(_CHAT, streams=False),
}
"""By path."""
