"""A request's body, read field by field: forgiving in what is harmless, exact in what is promised.

A null is an absent field, 5.0 is 5, true is no number. Whatever nobody reads was ignored, and
`unread` names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve import sampling_fields
from edgeserve.errors import InvalidRequestError

_INFINITE = float("inf")


class Fields:
    """An object of the body, at the path `where` of it ("" for the body itself). What of it has no
    effect is added to the `ignored` of the object around it."""

    def __init__(
        self, values: Mapping[str, object], where: str = "", ignored: list[str] | None = None
    ) -> None:
        self._values = values
        self._where = where
        self._read: set[str] = set()
        self._ignored: list[str] = [] if ignored is None else ignored

    @property
    def where(self) -> str:
        """The object's own path."""
        return self._where

    def path(self, name: str) -> str:
        """A field's name as errors give it."""
        return f"{self._where}.{name}" if self._where else name

    def raw(self, name: str) -> object:
        """The value as it came; None where it is absent or null."""
        self._read.add(name)
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null. Asking is not reading."""
        return self._values.get(name) is not None

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise InvalidRequestError(self.path(name), value, "a string")
        return value

    def flag(self, name: str) -> bool | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidRequestError(self.path(name), value, "true or false")
        return value

    def integer(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        value = self.raw(name)
        if value is None:
            return None
        return sampling_fields.integer(self.path(name), value, low, high)

    def number(self, name: str, low: float = -_INFINITE, high: float = _INFINITE) -> float | None:
        value = self.raw(name)
        if value is None:
            return None
        return sampling_fields.number(self.path(name), value, low, high)

    def object(self, name: str) -> Fields | None:
        """A field that is an object itself."""
        value = self.mapping(name)
        return None if value is None else Fields(value, self.path(name), self._ignored)

    def mapping(self, name: str) -> Mapping[str, object] | None:
        """The same, as it came."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidRequestError(self.path(name), value, "an object")
        return cast("dict[str, object]", value)

    def items(self, name: str) -> Sequence[object] | None:
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise InvalidRequestError(self.path(name), value, "a list")
        return cast("list[object]", value)

    def objects(self, name: str) -> Sequence[Fields] | None:
        """A list of objects."""
        values = self.items(name)
        if values is None:
            return None
        return [fields_of(value, f"{self.path(name)}[{at}]") for at, value in enumerate(values)]

    def one_of(self, name: str, allowed: Sequence[str]) -> str | None:
        value = self.raw(name)
        if value is not None and value not in allowed:
            raise InvalidRequestError(self.path(name), value, f"one of {', '.join(allowed)}")
        return cast("str | None", value)

    def unread(self) -> tuple[str, ...]:
        """What the body has and nobody asked for; nulls are nothing."""
        names = (name for name, value in self._values.items() if value is not None)
        unread = (self.path(name) for name in names if name not in self._read)
        return (*self._ignored, *unread)

    def ignore(self, path: str) -> None:
        """Part of a field that was read had no effect."""
        self._ignored.append(path)


def fields_of(value: object, where: str) -> Fields:
    """A value that must be an object."""
    if not isinstance(value, dict):
        raise InvalidRequestError(where, value, "an object")
    return Fields(cast("dict[str, object]", value), where)
