"""The fields that say what an answer's text must match, read into a Constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from edgeserve.errors import InvalidRequestError
from edgeserve.server.fields import Fields
from edgeserve.server.turn import Constraint

_TEXTS: Mapping[str, Literal["regex", "gbnf", "lark"]] = {
    "guided_regex": "regex",
    "guided_grammar": "lark",
    "grammar": "gbnf",
}


def constraint_of(body: Fields) -> Constraint | None:
    """Of `response_format`, `guided_json`, `guided_regex`, `guided_grammar`, `grammar`; one."""
    found = [_response_format(body), _guided_json(body), _json_schema(body)]
    for name, kind in _TEXTS.items():
        text = body.text(name)
        found.append(Constraint(kind, text, name) if text else None)
    constraints = [constraint for constraint in found if constraint is not None]
    if len(constraints) > 1:
        first, second = constraints[:2]
        raise InvalidRequestError(second.where, "given", f"left out beside {first.where}")
    return constraints[0] if constraints else None


def _response_format(body: Fields) -> Constraint | None:
    given = body.object("response_format")
    if given is None:
        return None
    where = given.path("type")
    kind = given.one_of("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise InvalidRequestError(where, None, "text, json_object or json_schema")
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint("json_object", given.mapping("schema"), where)
    holder = given.object("json_schema")
    if holder is None:  # llama-server's shape
        schema = given.mapping("schema")
        strict = False
    else:
        schema = holder.mapping("schema")
        strict = holder.flag("strict") or False
    if schema is None:
        raise InvalidRequestError(f"{given.path('json_schema')}.schema", None, "a JSON schema")
    return Constraint("json_schema", schema, where, strict)


def _guided_json(body: Fields) -> Constraint | None:
    value = body.raw("guided_json")
    if value is None:
        return None
    if not isinstance(value, dict | str):
        raise InvalidRequestError("guided_json", value, "a JSON schema")
    return Constraint("json_schema", cast(object, value), "guided_json")


def _json_schema(body: Fields) -> Constraint | None:
    schema = body.mapping("json_schema")
    return None if schema is None else Constraint("json_schema", schema, "json_schema")
