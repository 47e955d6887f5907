"""Walks a JSON schema, and keeps of it only what is known to be enforced.

Every reference is resolved inside the schema and gets a name of our own, so that what is left
stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from edgeserve.errors import ConstraintError
from edgeserve.frozen import frozen
from edgeserve.text import schema_keywords as keywords
from edgeserve.text.patterns import refused_pattern
from edgeserve.types import Relaxed

_MAX_DEPTH = 64
_MAX_NODES = 10_000
_MAX_REMAINDERS = 20_000
_LEFT_OUT = object()

Node = dict[str, Any]


@frozen
class Place:
    """A node of the cleaned schema, and the path to where it was."""

    node: Node
    path: str


class SchemaCleaner:
    """For one schema. `problem` says what speaks against a small schema, empty if nothing."""

    def __init__(self, schema: object, *, lenient: bool, problem: Callable[[Node], str]) -> None:
        self.relaxed: list[Relaxed] = []
        self.places: list[Place] = []
        """Definitions before what refers to them, and inner nodes before outer ones."""
        self._schema = schema
        self._lenient = lenient
        self._problem = problem
        self._names: dict[str, str] = {"#": "#"}
        self._queue: list[str] = []
        self._found: list[Place] = []
        self._num_nodes = 0

    def clean(self) -> Node | bool:
        """What of the schema is enforced. Raises ConstraintError for what cannot be."""
        cleaned = self._node(self._schema, "#", 0)
        definitions: dict[str, Node | bool] = {}
        self.places, self._found = self._found, []
        while self._queue:
            pointer = self._queue.pop()
            definitions[self._names[pointer].rpartition("/")[2]] = self._node(
                self._target(pointer), pointer, 0
            )
            self.places, self._found = self._found + self.places, []
        if definitions and isinstance(cleaned, dict):
            cleaned["$defs"] = definitions
        return cleaned

    def pointer_of(self, name: str) -> str:
        """The pointer that was given this name."""
        return next(pointer for pointer, given in self._names.items() if given == name)

    def relax(self, path: str, keyword: str, reason: str) -> None:
        self.relaxed.append(Relaxed(path, keyword, reason))

    def _refuse(self, path: str, keyword: str, reason: str) -> object:
        if not self._lenient:
            raise ConstraintError("json_schema", reason, path=path, keyword=keyword)
        self.relax(path, keyword, reason)
        return _LEFT_OUT

    def _node(self, node: object, path: str, depth: int) -> Node | bool:
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            reason = f"is a {type(node).__name__}; a schema is an object, true or false"
            raise ConstraintError("json_schema", reason, path=path)
        self._num_nodes += 1
        if depth > _MAX_DEPTH or self._num_nodes > _MAX_NODES:
            reason = f"is larger than what is read: {_MAX_DEPTH} deep, {_MAX_NODES:,} parts"
            raise ConstraintError("json_schema", reason, path=path)
        found: Node = {}
        for keyword, value in _modern(cast(Mapping[str, Any], node)).items():
            if keyword in keywords.ANNOTATIONS or keyword.startswith("x-"):
                continue
            kept = self._kept(keyword, value, path, depth)
            if kept is not _LEFT_OUT:
                found[keyword] = kept
        self._found.append(Place(found, path))
        return found

    def _kept(self, keyword: str, value: Any, path: str, depth: int) -> object:
        """What stays of a keyword's value."""
        if keyword in keywords.SCHEMAS:
            return self._node(value, f"{path}/{keyword}", depth + 1)
        if keyword in keywords.SCHEMA_MAPS:
            return self._schema_map(keyword, value, path, depth)
        if keyword in keywords.SCHEMA_LISTS:
            return self._schema_list(keyword, value, path, depth)
        if keyword == "$ref":
            return self._reference(value, path)
        if keyword == "format":
            return self._format(value, path)
        if keyword == "pattern":
            reason = self._pattern_problem(value)
        else:
            reason = _plain_problem(keyword, value)
        if reason == "":
            return value
        return _LEFT_OUT if reason is None else self._refuse(path, keyword, reason)

    def _schema_map(self, keyword: str, value: Any, path: str, depth: int) -> object:
        if not isinstance(value, Mapping):
            return self._refuse(path, keyword, "must be an object of schemas")
        found: Node = {}
        for name, each in cast(Mapping[str, Any], value).items():
            inner = f"{path}/{keyword}/{_escaped(name)}"
            reason = self._pattern_problem(name) if keyword == "patternProperties" else ""
            if reason:
                self._refuse(f"{path}/{keyword}", _escaped(name), reason)
            else:
                found[name] = self._node(each, inner, depth + 1)
        return found

    def _schema_list(self, keyword: str, value: Any, path: str, depth: int) -> object:
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            return self._refuse(path, keyword, "must be a list of schemas, at least one")
        return [
            self._node(each, f"{path}/{keyword}/{index}", depth + 1)
            for index, each in enumerate(cast(Sequence[Any], value))
        ]

    def _reference(self, value: Any, path: str) -> object:
        if not isinstance(value, str) or not (value == "#" or value.startswith("#/")):
            return self._refuse(path, "$ref", f"{value!r}: only references inside the schema, #/…")
        if value not in self._names:
            if self._target(value) is _LEFT_OUT:
                return self._refuse(path, "$ref", f"{value!r} leads nowhere")
            self._names[value] = f"#/$defs/{len(self._names)}"
            self._queue.append(value)
        return self._names[value]

    def _target(self, pointer: str) -> object:
        """What a pointer leads to."""
        node: Any = self._schema
        for part in pointer.split("/")[1:]:
            name = _unescaped(part)
            if isinstance(node, Mapping) and name in node:
                node = cast(Mapping[str, Any], node)[name]
            elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):  # pyright: ignore[reportUnknownArgumentType]
                node = cast(list[Any], node)[int(name)]
            else:
                return _LEFT_OUT
        return node

    def _format(self, value: Any, path: str) -> object:
        """Formats that nobody knows are left out, and listed, also where nothing else may be."""
        if value in keywords.FORMATS:
            return value
        self.relax(path, "format", f"{value!r} is no format that can be enforced")
        return _LEFT_OUT

    def _pattern_problem(self, pattern: Any) -> str:
        if not isinstance(pattern, str):
            return "must be a text"
        return refused_pattern(pattern) or self._problem({"type": "string", "pattern": pattern})


def _modern(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """As drafts since 2019 write it: tuples by prefixItems, exclusive bounds as numbers."""
    found = dict(node)
    extra = found.pop("additionalItems", None)
    if isinstance(found.get("items"), list) and "prefixItems" not in found:
        found["prefixItems"] = found.pop("items")
        if extra is not None:
            found["items"] = extra
        if not found["prefixItems"]:
            del found["prefixItems"]
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        is_flag = isinstance(found.get(exclusive), bool)
        if is_flag and found.pop(exclusive) and bound in found:
            found[exclusive] = found.pop(bound)
    return found


def _plain_problem(keyword: str, value: Any) -> str | None:
    """Why a keyword without schemas in it cannot be enforced: empty if it can, None if there is
    nothing to enforce."""
    if keyword in keywords.UNLESS_IDLE and value is keywords.UNLESS_IDLE[keyword]:
        return None
    if keyword in keywords.COUNTS:
        return "" if _is_count(value) else "must be a whole number, 0 or more"
    if keyword == "multipleOf":
        return _divisor_problem(value)
    if keyword in keywords.NUMBERS:
        return "" if _is_number(value) else "must be a number"
    match keyword:
        case "const":
            return ""
        case "enum":
            return (
                "" if isinstance(value, list) and value else "must be a list of values, not empty"
            )
        case "required":
            return "" if _is_texts(value) else "must be a list of names"
        case "type":
            names: Any = [value] if isinstance(value, str) else value
            known = _is_texts(names) and names and keywords.TYPES.issuperset(names)
            return "" if known else f"{value!r}: must be of {', '.join(sorted(keywords.TYPES))}"
        case _:
            return "this keyword cannot be enforced; leave it out"


def _divisor_problem(value: Any) -> str:
    """Its digits are followed remainder by remainder, each a state: a second for 70,000."""
    if not _is_number(value) or value <= 0:
        return "must be a number above 0"
    digits = Decimal(repr(value)).normalize().as_tuple()
    count = int("".join(map(str, digits.digits))) * 10 ** max(0, int(digits.exponent))
    return "" if count <= _MAX_REMAINDERS else f"has more than {_MAX_REMAINDERS:,} remainders"


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in cast(list[Any], value))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    from urllib.parse import unquote

    return unquote(part).replace("~1", "/").replace("~0", "~")
