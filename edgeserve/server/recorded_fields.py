"""A body's fields that write down how they are read: the JSON schema of a body, from its reader.

Knows nothing of any body: whoever reads one says by what it calls which fields there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from edgeserve.server.fields import Fields

Schema = dict[str, object]


class RecordedFields(Fields):
    """Reads as Fields do, into `schemas`: a schema by field, {} of one that was only read raw."""

    def __init__(
        self, values: Mapping[str, object], where: str, schemas: dict[str, Schema]
    ) -> None:
        super().__init__(values, where)
        self._schemas = schemas

    def raw(self, name: str) -> object:
        self._schemas.setdefault(name, {})
        return super().raw(name)

    def text(self, name: str) -> str | None:
        self._note(name, {"type": ["string", "null"]})
        return super().text(name)

    def flag(self, name: str) -> bool | None:
        self._note(name, {"type": ["boolean", "null"]})
        return super().flag(name)

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        self._note(name, {"type": ["integer", "null"], **range_of(low, high)})
        return super().integer(name, low, high)

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
        self._note(name, {"type": ["number", "null"], **range_of(low, high)})
        return super().number(name, low, high)

    def object(self, name: str) -> Fields | None:
        """Of an object in it the fields are written down as well."""
        value = self.mapping(name)
        if value is None:
            return None
        inner = cast("dict[str, Schema]", self._schemas[name].setdefault("properties", {}))
        return RecordedFields(value, self.path(name), inner)

    def mapping(self, name: str) -> Mapping[str, object] | None:
        self._note(name, {"type": ["object", "null"]})
        return super().mapping(name)

    def items(self, name: str) -> Sequence[object] | None:
        self._note(name, {"type": ["array", "null"]})
        return super().items(name)

    def one_of(self, name: str, allowed: Sequence[str]) -> str | None:
        self._note(name, {"enum": [*allowed, None]})
        return super().one_of(name, allowed)

    def _note(self, name: str, schema: Schema) -> None:
        """What is said first holds; anything says more than a field that was read raw."""
        if not self._schemas.get(name):
            self._schemas[name] = schema


def range_of(low: float | None, high: float | None) -> Schema:
    """The bounds that JSON can say."""
    found: Schema = {}
    if low is not None and math.isfinite(low):
        found["minimum"] = low
    if high is not None and math.isfinite(high):
        found["maximum"] = high
    return found


def schemas_of(
    read: Callable[[Fields], object], examples: Sequence[Mapping[str, object]]
) -> dict[str, Schema]:
    """By field, what `read` reads of examples: all that it reads at all, if they try all of it."""
    schemas: dict[str, Schema] = {}
    for example in examples:
        read(RecordedFields(example, "", schemas))
    return schemas
