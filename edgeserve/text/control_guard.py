"""Which control tokens in a rendered prompt were written by the template, and which by its input.

Before rendering, characters of the input from which a control token's text could be made are
swapped for stand-ins, symbols that occur nowhere else. A control text that still reads as one
after rendering is the template's own; one that only reads so once the stand-ins are swapped back
came out of the input, whole or in pieces, and gets a guard character inside. Knows no Jinja.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from edgeserve.errors import InvalidRequestError

_GUARDS = (*range(0xFDD0, 0xFDF0), *(plane << 16 | 0xFFFE for plane in range(1, 17)))
"""Unicode noncharacters: no text has a use for them, and no vocabulary holds them."""
_STAND_INS = (*range(0x1D300, 0x1D357), *range(0x1F030, 0x1F094), *range(0x2800, 0x2900))
"""Tai Xuan Jing symbols, dominoes, braille. Symbols, since repr() and json print them as they
are, and no letters, spaces or digits, since those change or end words."""
_UNFIT = frozenset("\"'\\")
_API_WORDS = frozenset(
    [
        "arguments",
        "array",
        "assistant",
        "boolean",
        "content",
        "description",
        "enum",
        "function",
        "id",
        "integer",
        "items",
        "name",
        "null",
        "number",
        "object",
        "parameters",
        "properties",
        "reasoning_content",
        "required",
        "role",
        "string",
        "system",
        "text",
        "thinking",
        "tool",
        "tool_call_id",
        "tool_calls",
        "type",
        "user",
    ]
)
"""Words of the interface, in every request, not the caller's own: templates build upon them."""


class ControlTexts:
    """The texts of a vocabulary's control tokens. Texts of white space only are left out: they
    are separators in everybody's mouth, and the tokenizer alone can decide about them."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(text for text in texts if _handle(text) is not None)
        self._haystack = "\0" + "\0".join(sorted(self._texts)) + "\0"
        self._max_chars = max(map(len, self._texts), default=0)
        lengths: dict[str, set[int]] = {}
        for text in self._texts:
            lengths.setdefault(text[0], set()).add(len(text))
        self._lengths = {first: tuple(sorted(sizes)) for first, sizes in lengths.items()}
        self.handles = frozenset(cast(str, _handle(text)) for text in self._texts)
        self._first = _any_of(self._lengths)
        self._last = _any_of({text[-1] for text in self._texts})

    def find(self, text: str) -> set[tuple[int, int]]:
        """Every (start, length) at which a control text stands, overlapping ones too."""
        return {
            (start, length)
            for start in _positions(self._first, text)
            for length in self._lengths[text[start]]
            if start + length <= len(text) and text[start : start + length] in self._texts
        }

    def begins_at_end(self, text: str) -> bool:
        """Whether `text` ends with the beginning of a control text, but not with all of one."""
        start = max(0, len(text) - self._max_chars)
        return any(
            "\0" + text[index:] in self._haystack and text[index:] not in self._texts
            for index in _positions(self._first, text, start)
        )

    def continues(self, text: str) -> bool:
        """Whether `text` could be the middle of a control text, or its beginning the end of one."""
        text = text.strip()
        if not text or text in _API_WORDS:
            return False
        if len(text) < self._max_chars and text in self._haystack:
            return True
        head = text[: self._max_chars]
        return any(head[: end + 1] + "\0" in self._haystack for end in _positions(self._last, head))


def _handle(text: str) -> str | None:
    """The character of a control text that gets swapped: the first that can be."""
    return next((char for char in text if _is_fit(char)), None)


def _is_fit(char: str) -> bool:
    return char.isprintable() and not char.isspace() and char not in _UNFIT


def _any_of(chars: Iterable[str]) -> re.Pattern[str]:
    return re.compile("[" + "".join(map(re.escape, chars)) + "]" if chars else "(?!)")


def _positions(pattern: re.Pattern[str], text: str, start: int = 0) -> Iterator[int]:
    return (match.start() for match in pattern.finditer(text, start))


def strings_in(value: object) -> Iterator[str]:
    """Every string of plain data: keys and values, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[object, object]", value).items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, Sequence):
        for item in cast("Sequence[object]", value):
            yield from strings_in(item)


class Disguise:
    """Stand-ins for one render: puts them into input, takes them out of anything, tells the two
    readings of the rendered prompt apart."""

    def __init__(self, controls: ControlTexts, strings: Iterable[str]) -> None:
        self._controls = controls
        self._swaps: dict[str, str] = {}
        used: set[str] = set()
        for text in strings:
            used.update(text)
        self._free = (chr(code) for code in _STAND_INS if chr(code) not in used)
        self._guards = (chr(code) for code in _GUARDS if chr(code) not in used)
        self._originals: dict[int, str] = {}
        self._letters: dict[int, str] = {}
        self._markup: dict[int, str] = {}
        self._handles = {
            ord(char): self._stand_in(char) for char in sorted(controls.handles & used)
        }

    def put_on(self, value: object) -> object:
        """A copy of plain data with stand-ins in its strings, keys included."""
        if isinstance(value, str):
            if value in _API_WORDS:
                return value
            hidden = value.translate(self._handles)
            if self._controls.continues(value):
                at = next((index for index, char in enumerate(value) if _is_fit(char)), None)
                if at is not None:
                    hidden = hidden[:at] + self._stand_in(value[at]) + hidden[at + 1 :]
            return hidden
        if isinstance(value, dict):
            items = cast("dict[object, object]", value).items()
            return {self.put_on(key): self.put_on(item) for key, item in items}
        if isinstance(value, list):
            return [self.put_on(item) for item in cast("list[object]", value)]
        return value

    def _stand_in(self, char: str) -> str:
        if char not in self._swaps:
            stand_in = next(self._free, None)
            if stand_in is None:
                raise InvalidRequestError(
                    "messages", "...", f"text that leaves one of {len(_STAND_INS)} symbols unused"
                )
            self._swaps[char] = stand_in
            self._originals[ord(stand_in)] = char
            if char.isalpha():
                self._letters[ord(stand_in)] = char
            if char in "&<>":
                self._markup[ord(stand_in)] = char
        return self._swaps[char]

    def reveal(self, text: str) -> str:
        """The text as the caller gave it; every character stays at its place."""
        return text.translate(self._originals)

    def reveal_letters(self, text: str) -> str:
        """As `reveal`, only letters: for what changes their case."""
        return text.translate(self._letters)

    def reveal_markup(self, text: str) -> str:
        """As `reveal`, only what HTML escapes: for what escapes it, and so makes it harmless."""
        return text.translate(self._markup)

    def reveal_in(self, value: object) -> object:
        """`reveal` for containers."""
        if isinstance(value, str):
            return self.reveal(value)
        if isinstance(value, list):
            return [self.reveal_in(item) for item in cast("list[object]", value)]
        if isinstance(value, tuple):
            return tuple(self.reveal_in(item) for item in cast("tuple[object, ...]", value))
        if isinstance(value, dict):
            items = cast("dict[object, object]", value).items()
            return {self.reveal_in(key): self.reveal_in(item) for key, item in items}
        return value

    def is_stand_in(self, char: str) -> bool:
        return ord(char) in self._originals

    def guarded(self, rendered: str) -> tuple[str, str | None]:
        """The prompt with a guard inside each control text that is not the template's, and that
        guard; None when there is no such control text."""
        plain = self.reveal(rendered)
        foreign = self._controls.find(plain) - self._controls.find(rendered)
        if not foreign:
            return plain, None
        guard = next(self._guards, None)
        if guard is None:
            raise InvalidRequestError(
                "messages", "...", f"text that leaves one of {len(_GUARDS)} noncharacters unused"
            )
        cuts = [0, *sorted({start + 1 for start, _ in foreign}), len(plain)]
        return guard.join(plain[a:b] for a, b in pairwise(cuts)), guard
