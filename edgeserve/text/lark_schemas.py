"""The JSON schemas inside a Lark grammar: each is held to what holds for one alone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import cast

from edgeserve.errors import ConstraintError
from edgeserve.text.json_schema import enforceable_schema, whitespace
from edgeserve.types import Relaxed

# Texts, regular expressions and comments are passed over: what they hold is no schema.
_PART = re.compile(r'"(?:[^"\\\n]|\\.)*"|/(?![/*])(?:[^/\\\n]|\\.)+/|//[^\n]*|(?P<json>%json\b)\s*')


def with_enforceable_schemas(grammar: str, *, lenient: bool) -> tuple[str, tuple[Relaxed, ...]]:
    """The grammar with each schema after %json as llguidance enforces it, and what was relaxed:
    the path in the first schema begins with "%json 1#". Raises ConstraintError."""
    parts: list[str] = []
    relaxed: list[Relaxed] = []
    at = num_schemas = 0
    while (found := _PART.search(grammar, at)) is not None:
        parts.append(grammar[at : found.end()])
        at = found.end()
        if found["json"]:
            num_schemas += 1
            prefix = f"%json {num_schemas}"
            end = _schema_end(grammar, at, prefix)
            schema, left_out = _enforceable(grammar[at:end], prefix, lenient)
            parts.append(schema)
            relaxed += (replace(each, path=prefix + each.path) for each in left_out)
            at = end
    return "".join((*parts, grammar[at:])), tuple(relaxed)


def _schema_end(grammar: str, start: int, prefix: str) -> int:
    try:
        return json.JSONDecoder().raw_decode(grammar, start)[1]
    except (ValueError, RecursionError) as error:
        raise ConstraintError("lark", f"{prefix} is not followed by JSON: {error}") from None


def _enforceable(text: str, prefix: str, lenient: bool) -> tuple[str, tuple[Relaxed, ...]]:
    try:
        schema, relaxed = enforceable_schema(text, lenient=lenient)
    except ConstraintError as error:
        path = prefix + error.path
        raise ConstraintError("lark", error.reason, path=path, keyword=error.keyword) from None
    inner = cast(object, json.loads(schema))
    if isinstance(inner, dict):
        inner = {**cast(dict[str, object], inner), "x-guidance": whitespace()}
    return json.dumps(inner, ensure_ascii=False), relaxed
