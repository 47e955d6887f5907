"""A JSON schema as llguidance enforces it: each keyword is enforced, listed as relaxed, or refused.

llguidance passes over keywords that it does not know; nothing it might pass over reaches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from llguidance import LLMatcher

from edgeserve.errors import ConstraintError
from edgeserve.text.matcher import reason_of
from edgeserve.text.number_bounds import bound_not_held, has_risky_bounds
from edgeserve.text.schema_cleaner import Node, Place, SchemaCleaner
from edgeserve.text.schema_cycles import endless_reference
from edgeserve.text.schema_keywords import KEPT
from edgeserve.types import Relaxed

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

_MAX_TRIALS = 500
_MAX_BOUNDS = 200


def whitespace() -> JsonCompileOptions:
    """Between the tokens of JSON: none, a space, or up to two new lines and an indent, as llama.cpp
    has it. With any number of blanks small models write blanks for ever."""
    return {"whitespace_pattern": r"( |\n{1,2}[ \t]{0,20})", "lenient": False}


def enforceable_schema(text: str, *, lenient: bool) -> tuple[str, tuple[Relaxed, ...]]:
    """The schema to give to llguidance, as JSON, and what it leaves out.

    Raises ConstraintError naming the first keyword that cannot be enforced, and its path; with
    `lenient` that is left out instead.
    """
    cleaner = SchemaCleaner(_parsed(text), lenient=lenient, problem=_problem)
    schema = cleaner.clean()
    if schema is False:
        raise ConstraintError("json_schema", "nothing satisfies false", path="#")
    schema = {} if schema is True else schema
    _refuse_endless(schema, cleaner)
    _refuse_loose_bounds(cleaner, lenient=lenient)
    problem = _problem(schema)
    if problem and lenient:
        problem = _relax(schema, cleaner)
    if problem:
        raise _error(schema, cleaner, problem)
    return json.dumps(schema, ensure_ascii=False), tuple(cleaner.relaxed)


def _parsed(text: str) -> object:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        found = cast(object, json.loads(text, parse_constant=refuse))
        json.dumps(found, allow_nan=False)  # 1e999 is read as infinity
    except (ValueError, RecursionError) as error:
        raise ConstraintError("json_schema", f"is no JSON: {error}") from None
    return found


def _problem(schema: Node) -> str:
    """What llguidance says against a schema; empty if nothing."""
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=whitespace())
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar)
    return reason_of(messages[0]) if is_error else ""


def _refuse_endless(schema: Node, cleaner: SchemaCleaner) -> None:
    endless = endless_reference(schema)
    if endless is not None:
        reason = "its values have no end: each must hold another one"
        raise ConstraintError("json_schema", reason, path=cleaner.pointer_of(endless))


def _refuse_loose_bounds(cleaner: SchemaCleaner, *, lenient: bool) -> None:
    """With `lenient` those bounds are left out."""
    risky = [place for place in cleaner.places if has_risky_bounds(place.node)]
    if len(risky) > _MAX_BOUNDS:
        reason = f"has more than {_MAX_BOUNDS} bounds of numbers that take a trial each"
        raise ConstraintError("json_schema", reason, path=risky[_MAX_BOUNDS].path)
    for place in risky:
        while (keyword := bound_not_held(place.node)) is not None:
            reason = "lets some numbers past it; give a bound of fewer digits, or an inclusive one"
            if not lenient:
                raise ConstraintError("json_schema", reason, path=place.path, keyword=keyword)
            del place.node[keyword]
            cleaner.relax(place.path, keyword, reason)


def _relax(schema: Node, cleaner: SchemaCleaner) -> str:
    """Leaves out more and more, until llguidance takes the rest; what it still says if not."""
    for place in cleaner.places:
        if "oneOf" in place.node:
            choices = {"anyOf": place.node.pop("oneOf")}
            place.node["allOf"] = [*place.node.get("allOf", ()), choices]
            cleaner.relax(place.path, "oneOf", "more than one of them may hold")
    if not _problem(schema):
        return ""
    for place in cleaner.places:
        for keyword in place.node.keys() - KEPT:
            del place.node[keyword]
            cleaner.relax(place.path, keyword, "cannot be enforced beside the others")
    return _problem(schema)


def _error(schema: Node, cleaner: SchemaCleaner, problem: str) -> ConstraintError:
    """Names the innermost place where llguidance finds something to say, and the keyword without
    which it would not."""
    definitions = {"$defs": schema.get("$defs", {})}
    for place in cleaner.places[:_MAX_TRIALS]:
        reason = _problem({**place.node, **definitions})
        if reason:
            keywords = (
                keyword
                for keyword, rest in _without_each(place)
                if not _problem({**rest, **definitions})
            )
            keyword = next(keywords, "")
            return ConstraintError("json_schema", reason, path=place.path, keyword=keyword)
    return ConstraintError("json_schema", problem, path="#")


def _without_each(place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    for keyword in sorted(place.node, key=KEPT.__contains__):
        yield keyword, {other: value for other, value in place.node.items() if other != keyword}
