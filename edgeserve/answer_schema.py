"""What an answer's `schema` says: how to hold the answer to it, and what value to make of it.

A class counts that has pydantic's two methods; pydantic itself is the caller's to import.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, cast, runtime_checkable

from edgeserve.errors import InvalidRequestError, OutputParseError
from edgeserve.types import Constraint, SamplingParams

Parse = Callable[[str], object]


@runtime_checkable
class ModelClass(Protocol):
    """pydantic's BaseModel, as a class."""

    def model_json_schema(self) -> Mapping[str, object]: ...

    def model_validate_json(self, json_data: str, /) -> object: ...


def held_to(params: SamplingParams, schema: object) -> tuple[SamplingParams, Parse | None]:
    """The params with the constraint that a `schema` means, and what makes a value of an answer.

    Raises ConstraintError, and InvalidRequestError for two constraints at once.
    """
    if schema is None:
        asked = params.constraint
        return params, json.loads if asked is not None and asked.kind == "json_schema" else None
    if params.constraint is not None:
        raise InvalidRequestError("schema", "given", "alone, without a constraint beside it")
    parse: Parse = json.loads
    if isinstance(schema, ModelClass):
        parse = partial(_validated, schema)
        schema = cast(object, schema.model_json_schema())
    return replace(params, constraint=Constraint.json_schema(schema)), parse


def _validated(model: ModelClass, text: str) -> object:
    try:
        return model.model_validate_json(text)
    except ValueError as error:  # pydantic's ValidationError is one
        raise OutputParseError(text, error) from error
