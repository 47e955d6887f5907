"""The fields that say what an answer's text must match, read into one Constraint.

OpenAI's `response_format`, llama-server's `grammar` and `json_schema`, vLLM's `guided_*` and
`structured_outputs`. A wish that is not read here would be silently unconstrained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import cast

from edgeserve.errors import ConstraintError, InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.fields import Fields
from edgeserve.types import Constraint


@frozen
class Wish:
    """A constraint, and the field that asked for it."""

    constraint: Constraint
    where: str


def constraint_of(body: Fields) -> Wish | None:
    """Raises InvalidRequestError for two at once, and ConstraintError naming the field."""
    found = [
        _response_format(body),
        _schema(body, "json_schema"),
        _schema(body, "guided_json"),
        _regex(body, "guided_regex"),
        _choice(body, "guided_choice"),
        _grammar(body, "guided_grammar"),
        _grammar(body, "grammar"),
        *_structured_outputs(body),
    ]
    wishes = [wish for wish in found if wish is not None]
    if len(wishes) > 1:
        first, second = wishes[:2]
        raise InvalidRequestError(second.where, "given", f"left out beside {first.where}")
    return wishes[0] if wishes else None


@contextmanager
def naming_field(where: str | None) -> Generator[None]:
    """Errors of a constraint are about the field that asked for it; tools name theirs."""
    try:
        yield
    except ConstraintError as error:
        if where is not None and error.kind != "tools":
            error.parameter = where
        raise


def _response_format(body: Fields) -> Wish | None:
    given = body.object("response_format")
    if given is None:
        return None
    where = given.path("type")
    kind = given.one_of("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise InvalidRequestError(where, None, "text, json_object or json_schema")
    if kind == "text":
        return None
    if kind == "json_object" and not given.has("schema"):
        return Wish(Constraint.json_object(), where)
    holder = given.object("json_schema") if given.has("json_schema") else given
    if holder is None or not holder.has("schema"):
        raise InvalidRequestError(f"{given.path('json_schema')}.schema", None, "a JSON schema")
    return _schema(holder, "schema")


def _structured_outputs(body: Fields) -> list[Wish | None]:
    given = body.object("structured_outputs")
    if given is None:
        return []
    wishes = [_schema(given, "json"), _regex(given, "regex"), _choice(given, "choice")]
    if given.flag("json_object"):
        wishes.append(Wish(Constraint.json_object(), given.path("json_object")))
    return [*wishes, _grammar(given, "grammar")]


def _schema(given: Fields, name: str) -> Wish | None:
    value = given.raw(name)
    if value is None:
        return None
    if not isinstance(value, dict | str | bool):
        raise InvalidRequestError(given.path(name), value, "a JSON schema")
    wish = cast("dict[str, object] | str | bool", value)
    return _wish(partial(Constraint.json_schema, wish), given.path(name))


def _regex(given: Fields, name: str) -> Wish | None:
    text = _text(given, name)
    return _wish(partial(Constraint.regex, text), given.path(name)) if text else None


def _choice(given: Fields, name: str) -> Wish | None:
    texts = given.items(name)
    if texts is None:
        return None
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise InvalidRequestError(given.path(name), texts, "a list of texts to choose from")
    pattern = "|".join(re.escape(text) for text in cast("list[str]", texts))
    return _wish(partial(Constraint.regex, f"(?:{pattern})"), given.path(name))


def _grammar(given: Fields, name: str) -> Wish | None:
    """GBNF, which has `::=`; otherwise Lark."""
    text = _text(given, name)
    if text is None:
        return None
    make = Constraint.gbnf if "::=" in text else Constraint.lark
    return _wish(partial(make, text), given.path(name))


def _text(given: Fields, name: str) -> str | None:
    """An empty one asks for nothing: clients send it where their user wrote none."""
    text = given.text(name)
    if text == "":
        given.ignore(given.path(name))
    return text or None


def _wish(make: Callable[[], Constraint], where: str) -> Wish:
    with naming_field(where):
        return Wish(make(), where)
