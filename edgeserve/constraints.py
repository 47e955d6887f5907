"""What an answer is to be held to: a JSON schema, a regular expression, a grammar. Values only.

text/constraint.py makes masks of them, and says which part of one cannot be enforced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, cast

from edgeserve.errors import ConstraintError
from edgeserve.frozen import frozen

ConstraintKind = Literal["json_schema", "regex", "lark", "gbnf"]

MAX_CONSTRAINT_CHARS = 1 << 20
"""Of a schema or grammar; more is a mistake, and takes seconds to compile."""


@frozen
class Constraint:
    """The whole of an answer matches `text`. Made by the methods below.

    A `lenient` one leaves out what of a JSON schema cannot be enforced, but never names, types,
    required and enum; what was left out is listed when it is compiled.
    """

    kind: ConstraintKind
    text: str
    lenient: bool = False

    @classmethod
    def json_schema(cls, schema: object, *, lenient: bool = False) -> Constraint:
        """JSON that a schema describes: a mapping, True, or the JSON text of one. Members come in
        the schema's order. Raises ConstraintError if it is no JSON."""
        if isinstance(schema, str):
            return cls("json_schema", _bounded("json_schema", schema), lenient)
        if not isinstance(schema, (Mapping, bool)):
            raise ConstraintError("json_schema", f"is a {type(schema).__name__}, not a mapping")
        try:
            text = json.dumps(cast(object, schema), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConstraintError("json_schema", f"is no JSON: {error}") from None
        return cls("json_schema", _bounded("json_schema", text), lenient)

    @classmethod
    def json_object(cls) -> Constraint:
        """Any JSON object."""
        return cls("json_schema", '{"type": "object"}')

    @classmethod
    def regex(cls, pattern: str) -> Constraint:
        """Text that a regular expression (Rust's syntax, without look-around) matches whole."""
        return cls("regex", _bounded("regex", pattern))

    @classmethod
    def lark(cls, grammar: str, *, lenient: bool = False) -> Constraint:
        """A Lark grammar as llguidance reads it: rules from `start`, regular expressions, `%json`
        with a schema, `<[id]>` for a control token."""
        return cls("lark", _bounded("lark", grammar), lenient)

    @classmethod
    def gbnf(cls, grammar: str) -> Constraint:
        """A grammar in llama.cpp's notation."""
        return cls("gbnf", _bounded("gbnf", grammar))


@frozen
class Relaxed:
    """A part of a schema that is not enforced: its `keyword`, and the `path` to where that is."""

    path: str
    keyword: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}/{self.keyword}: {self.reason}"


def _bounded(kind: ConstraintKind, text: object) -> str:
    if not isinstance(text, str):
        raise ConstraintError(kind, f"is a {type(text).__name__}, not a text")
    if len(text) > MAX_CONSTRAINT_CHARS:
        allowed = f"at most {MAX_CONSTRAINT_CHARS:,} characters are read"
        raise ConstraintError(kind, f"is {len(text):,} characters long; {allowed}")
    return text
