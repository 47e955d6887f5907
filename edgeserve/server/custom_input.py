"""The free text of a custom tool's call, read out of `{"input": "..."}` while it is generated."""

from __future__ import annotations

import json
import re

import msgspec

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_WHOLE = re.compile(
    r'(?:[^"\\]'  # itself
    r"|\\[^u]"  # \n, \"
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\]|\\[^u])))*"  # a pair, or half
)
"""As much of a string's inside as stands for whole characters."""


class CustomInput:
    """Pieces of arguments in, pieces of the text out."""

    def __init__(self) -> None:
        self._arguments = ""
        self._rest = ""
        self._has_begun = False
        self._told: list[str] = []

    def read(self, piece: str) -> str:
        self._arguments += piece
        if not self._has_begun:
            opening = _OPENING.match(self._arguments)
            if opening is None:
                return ""
            self._has_begun = True
            piece = self._arguments[opening.end() :]
        self._rest += piece
        whole = _WHOLE.match(self._rest)
        assert whole is not None  # it matches nothing, too
        self._rest = self._rest[whole.end() :]
        text = _unescaped(whole.group())
        self._told.append(text)
        return text

    def finish(self) -> str:
        """What is left: all of it, where the arguments were none of this form."""
        if self._has_begun:
            return ""
        self._told.append(self._arguments)
        return self._arguments

    @property
    def text(self) -> str:
        """All so far."""
        return "".join(self._told)


def _unescaped(inside: str) -> str:
    """Halves of surrogate pairs, which no text may have, become U+FFFD."""
    try:
        text: str = msgspec.json.decode(f'"{inside}"')
    except msgspec.DecodeError:
        try:
            loaded = json.loads(f'"{inside}"', strict=False)
        except ValueError:  # an escape that JSON has not
            return inside
        text = str(loaded).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
