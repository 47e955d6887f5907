"""Whether a schema's bounds of numbers hold as llguidance writes them.

It turns them into digits by way of 64-bit floats, and lets some numbers through that lie past a
bound: 1 where it is above 1 and below 1.1, 2^53 where it is at least 2^53 + 1. What lies closest
to each bound is tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any

from llguidance import LLMatcher, LLTokenizer

_HOLDS = {"minimum": ge, "exclusiveMinimum": gt, "maximum": le, "exclusiveMaximum": lt}
_EXACT = Context(prec=700)  # a float's digits, and one more
_FARTHEST = (Decimal(2**63 - 1), Decimal(-(2**63)))  # what it makes of integers past 64 bits
_MOST_DECIMALS = 3


def has_risky_bounds(node: Mapping[str, Any]) -> bool:
    """Whether `bound_not_held` has to try: for most bounds nothing was ever found wrong."""
    kind = _kind(node)
    return kind is not None and not all(_is_plain(name, node[name], kind) for name in _named(node))


def bound_not_held(node: Mapping[str, Any]) -> str | None:
    """A keyword of this node past whose bound a number would be let through, if there is one."""
    kind = _kind(node)
    if kind is None:
        return None
    return _not_held(kind, tuple((keyword, repr(node[keyword])) for keyword in _named(node)))


def _named(node: Mapping[str, Any]) -> list[str]:
    return [keyword for keyword in _HOLDS if keyword in node]


def _kind(node: Mapping[str, Any]) -> str | None:
    types = node.get("type", "number")
    names: list[str] = [types] if isinstance(types, str) else types
    return next((kind for kind in ("number", "integer") if kind in names), None)


def _is_plain(keyword: str, value: float, kind: str) -> bool:
    if abs(value) >= 2**53:
        return False
    return kind == "integer" or (value == int(value) and not keyword.startswith("exclusive"))


@lru_cache(maxsize=1000)
def _not_held(kind: str, bounds: tuple[tuple[str, str], ...]) -> str | None:
    exact = {keyword: Decimal(value) for keyword, value in bounds}
    schema = {"type": kind, **{keyword: json.loads(value) for keyword, value in bounds}}
    start = LLMatcher(_bytes(), LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    if start.is_error():
        return None  # it says so itself
    tried = sorted({near for bound in exact.values() for near in _near(bound, kind)})
    for number in tried:
        for keyword, bound in exact.items():
            if not _HOLDS[keyword](number, bound) and _is_let_through(start, number):
                return keyword
    return None


def _near(bound: Decimal, kind: str) -> Iterator[Decimal]:
    """Numbers around a bound: it itself, and a unit away and cut off at every digit that counts."""
    yield from _FARTHEST
    last = min(0, int(bound.as_tuple().exponent)) if kind == "number" else 0
    for exponent in {0, *range(last - 1, last + _MOST_DECIMALS)} if kind == "number" else (0,):
        unit = Decimal(1).scaleb(exponent)
        for rounding in (ROUND_FLOOR, ROUND_CEILING):
            cut = bound.quantize(unit, rounding, _EXACT)
            yield from (cut, _EXACT.add(cut, unit), _EXACT.subtract(cut, unit))


def _is_let_through(start: LLMatcher, number: Decimal) -> bool:
    text = format(number, "f")
    matcher = start.deep_copy()
    tokens = _bytes().tokenize_str(text)
    return matcher.consume_tokens(tokens) and matcher.is_accepting()


@lru_cache(maxsize=1)
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")
