"""The methods of strings that templates may call: bounded before they allocate, and blind to
stand-ins, so that a template sees its input as the caller gave it. Knows nothing of Jinja.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import SupportsIndex, cast

from edgeserve.text.control_guard import Disguise
from edgeserve.text.template_meter import Meter

_ASKING = frozenset(
    [
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "rfind",
        "rindex",
        "startswith",
    ]
)
_CASE = frozenset(["capitalize", "casefold", "lower", "swapcase", "title", "upper"])
_OWN = frozenset(
    [
        "center",
        "expandtabs",
        "join",
        "ljust",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rjust",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "strip",
        "zfill",
    ]
)
STRING_METHODS = _ASKING | _CASE | _OWN | {"format", "format_map", "splitlines"}
"""Absent: encode and translate, for which no chat template has a use."""

_SLOW = frozenset(("rfind", "rindex"))
_PERCENT_SPEC = re.compile(r"[-+ #0]*(\*|\d+)?(?:\.(\*|\d+))?")
_DIGITS = re.compile(r"\d+")


class TemplateStrings:
    """String methods for one render."""

    def __init__(self, meter: Meter, disguise: Disguise | None) -> None:
        self._meter = meter
        self._disguise = disguise

    def method(self, text: str, name: str) -> Callable[..., object]:
        """What `text.name` calls. `name` is one of STRING_METHODS, formatting excepted."""
        if name in _OWN:
            own = cast("Callable[..., object]", getattr(self, name))
            return lambda *args, **kwargs: own(text, *args, **kwargs)
        if name in _ASKING:
            return lambda *args: self._ask(text, name, args)
        if self._disguise is not None and name in _CASE:
            text = self._disguise.reveal_letters(text)
        return cast("Callable[..., object]", getattr(text, name))

    def reveal(self, value: str) -> str:
        return value if self._disguise is None else self._disguise.reveal(value)

    def _ask(self, text: str, name: str, args: tuple[object, ...]) -> object:
        if self._disguise is not None:
            text = self._disguise.reveal(text)
            args = tuple(self._disguise.reveal_in(arg) for arg in args)
        if name in _SLOW and args and isinstance(args[0], str):
            self._bound_search(text, args[0])
        return getattr(text, name)(*args)

    def _bound_search(self, text: str, part: str | None) -> None:
        """Searching backwards, and stripping, takes time of length times length at worst."""
        if part is not None:
            self._meter.bound(len(text) * len(part) // 64)

    def _carve(self, text: str, pieces: Sequence[str], gap: int) -> Sequence[str]:
        """`pieces` were cut out of the revealed text, `gap` apart: the same cuts of `text`."""
        self._meter.charge(len(text) + 64 * len(pieces))
        if self._disguise is None:
            return pieces
        cuts: list[str] = []
        start = 0
        for piece in pieces:
            cuts.append(text[start : start + len(piece)])
            start += len(piece) + gap
        return cuts

    # --- what widens ---------------------------------------------------------------------------

    def center(self, text: str, width: SupportsIndex, *fill: str) -> str:
        self._meter.bound(width.__index__())
        return text.center(width, *fill)

    def ljust(self, text: str, width: SupportsIndex, *fill: str) -> str:
        self._meter.bound(width.__index__())
        return text.ljust(width, *fill)

    def rjust(self, text: str, width: SupportsIndex, *fill: str) -> str:
        self._meter.bound(width.__index__())
        return text.rjust(width, *fill)

    def zfill(self, text: str, width: SupportsIndex) -> str:
        self._meter.bound(width.__index__())
        return text.zfill(width)

    def expandtabs(self, text: str, tabsize: SupportsIndex = 8) -> str:
        self._meter.bound(len(text) + text.count("\t") * tabsize.__index__())
        return text.expandtabs(tabsize)

    def join(self, text: str, items: Iterable[str]) -> str:
        parts = list(items)
        self._meter.bound(len(text) * len(parts) + sum(map(len, parts)))
        return text.join(parts)

    def replace(self, text: str, old: str, new: str, count: SupportsIndex = -1) -> str:
        plain, old = self.reveal(text), self.reveal(old)
        found = plain.count(old)
        limit = count.__index__()
        found = found if limit < 0 else min(found, limit)
        self._meter.bound(len(text) + found * max(0, len(new) - len(old)))
        if plain == text or not old:  # also keeps what is marked safe marked
            return text.replace(old, new, count)
        return new.join(self._carve(text, plain.split(old, count), len(old)))

    # --- what cuts -----------------------------------------------------------------------------

    def split(
        self, text: str, sep: str | None = None, maxsplit: SupportsIndex = -1
    ) -> Sequence[str]:
        return self._split(text, sep, maxsplit, str.split)

    def rsplit(
        self, text: str, sep: str | None = None, maxsplit: SupportsIndex = -1
    ) -> Sequence[str]:
        self._bound_search(text, sep)
        return self._split(text, sep, maxsplit, str.rsplit)

    def _split(
        self,
        text: str,
        sep: str | None,
        maxsplit: SupportsIndex,
        split: Callable[[str, str | None, SupportsIndex], list[str]],
    ) -> Sequence[str]:
        if sep is None:  # stand-ins stand for no white space: both readings have the same words
            pieces = split(text, None, maxsplit)
            self._meter.charge(len(text) + 64 * len(pieces))
            return pieces
        plain, sep = self.reveal(text), self.reveal(sep)
        return self._carve(text, split(plain, sep, maxsplit), len(sep))

    def partition(self, text: str, sep: str) -> tuple[str, ...]:
        return tuple(self._carve(text, self.reveal(text).partition(self.reveal(sep)), 0))

    def rpartition(self, text: str, sep: str) -> tuple[str, ...]:
        self._bound_search(text, sep)
        return tuple(self._carve(text, self.reveal(text).rpartition(self.reveal(sep)), 0))

    def strip(self, text: str, chars: str | None = None) -> str:
        return self.rstrip(self.lstrip(text, chars), chars)

    def lstrip(self, text: str, chars: str | None = None) -> str:
        if chars is None:
            return text.lstrip()
        self._bound_search(text, chars)
        return text[len(text) - len(self.reveal(text).lstrip(self.reveal(chars))) :]

    def rstrip(self, text: str, chars: str | None = None) -> str:
        if chars is None:
            return text.rstrip()
        self._bound_search(text, chars)
        return text[: len(self.reveal(text).rstrip(self.reveal(chars)))]

    def removeprefix(self, text: str, prefix: str) -> str:
        return text[len(prefix) :] if self._ask(text, "startswith", (prefix,)) else text

    def removesuffix(self, text: str, suffix: str) -> str:
        if suffix and self._ask(text, "endswith", (suffix,)):
            return text[: -len(suffix)]
        return text

    # --- formatting ----------------------------------------------------------------------------

    def percent(self, text: str, args: object) -> str:
        """`text % args`, after adding up what its widths and precisions ask for."""
        total, num_specs = len(text), 0
        position = text.find("%")
        while position >= 0:
            found = _PERCENT_SPEC.match(text, _past_key(text, position + 1))
            assert found is not None  # it matches the empty string
            for size in found.groups():
                total += _largest_int(args) if size == "*" else _as_int(size)
            num_specs += 1
            self._meter.bound(total)
            position = text.find("%", max(found.end(), position + 1) + 1)
        if isinstance(args, Mapping):
            total += num_specs * self._meter.weigh(cast(object, args))[0]
        self._meter.bound(total)
        return text % args

    def check_format_spec(self, spec: str) -> None:
        """The part of a replacement field after the colon, when it is known in full."""
        self._meter.bound(sum(_as_int(digits) for digits in _DIGITS.findall(spec)))


def _past_key(text: str, position: int) -> int:
    """Where a %-specifier goes on after its (key), in which parentheses may nest."""
    if text[position : position + 1] != "(":
        return position
    depth = 0
    for index in range(position, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return len(text)


def _as_int(digits: str | None) -> int:
    return int(digits[:20]) if digits else 0


def _largest_int(args: object) -> int:
    values = cast("tuple[object, ...]", args) if isinstance(args, tuple) else (args,)
    return max((abs(value) for value in values if isinstance(value, int)), default=0)
