"""The tokenizer section of a model file's metadata, field by field, each checked for its type.

Says which field is wrong and where it stands in the file. Knows nothing of what fields are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from edgeserve.errors import TokenizerError
from edgeserve.types import Metadata, MetadataValue

_PREFIX = "tokenizer.ggml."


class TokenizerFields:
    """Typed access to the `tokenizer.ggml.*` keys. Raises TokenizerError naming the key."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def error(self, name: str, reason: str) -> TokenizerError:
        """The error to raise about the field `name`, with its place in the file if it has one."""
        key = _PREFIX + name
        offset = self._metadata.offsets.get(key)
        return TokenizerError(key, reason if offset is None else f"{reason} (byte {offset})")

    def _value(self, name: str) -> MetadataValue | None:
        return self._metadata.values.get(_PREFIX + name)

    def text(self, name: str) -> str | None:
        value = self._value(name)
        if value is not None and not isinstance(value, str):
            raise self.error(name, f"is {_kind(value)}, must be a string")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._value(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"is {_kind(value)}, must be true or false")
        return value

    def token_id(self, name: str, num_tokens: int) -> int | None:
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"is {_kind(value)}, must be a token id")
        if not 0 <= value < num_tokens:
            raise self.error(name, f"is {value}, must be from 0 to {num_tokens - 1}")
        return value

    def texts(self, name: str) -> Sequence[str] | None:
        """An array of strings, or None where the field is absent."""
        return cast("Sequence[str] | None", self._array(name, {str}, "strings"))

    def integers(self, name: str, length: int) -> Sequence[int] | None:
        values = cast("Sequence[int] | None", self._array(name, {int}, "integers"))
        self._check_length(name, values, length)
        return values

    def numbers(self, name: str, length: int) -> Sequence[float] | None:
        values = cast("Sequence[float] | None", self._array(name, {int, float}, "numbers"))
        self._check_length(name, values, length)
        return values

    def _array(self, name: str, types: set[type], what: str) -> Sequence[MetadataValue] | None:
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, (str, int, float)):
            raise self.error(name, f"is {_kind(value)}, must be an array of {what}")
        foreign = set(map(type, value)) - types
        if foreign:
            index = next(i for i, element in enumerate(value) if type(element) in foreign)
            raise self.error(name, f"element {index} is {_kind(value[index])}, must be {what}")
        return value

    def _check_length(self, name: str, values: Sequence[float] | None, length: int) -> None:
        if values is not None and len(values) != length:
            raise self.error(name, f"has {len(values)} elements for {length} tokens")


def _kind(value: MetadataValue) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a float"
    return "a string" if isinstance(value, str) else "an array"
