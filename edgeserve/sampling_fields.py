"""One field of a request at a time: its form, or an error naming field and range."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import cast

from edgeserve.constraints import Constraint
from edgeserve.errors import InvalidRequestError

_MAX_STOPS = 64
_MAX_BREAKERS = 64
_MAX_BREAKER_BYTES = 40

SAMPLERS = (
    "penalties",
    "dry",
    "top_n_sigma",
    "top_k",
    "typical_p",
    "top_p",
    "min_p",
    "xtc",
    "temperature",
)
"""What a request may put in an order of its own, in the order that holds otherwise."""

_SAMPLER_ALIASES = {"typ_p": "typical_p"}  # llama.cpp's own word for it


def number(name: str, value: object, low: float, high: float) -> float:
    allowed = f"a number from {low:g} to {high:g}"
    if low == sys.float_info.min:
        allowed = "a positive number"
    elif low == -math.inf:
        allowed = "a number"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidRequestError(name, value, allowed)
    try:
        found = float(value)
    except OverflowError:
        found = math.nan
    if not low <= found <= high:
        raise InvalidRequestError(name, value, allowed)
    return found


def integer(name: str, value: object, low: int | None, high: int | None) -> int:
    """Also of a float without a fraction: other languages write 5 as 5.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidRequestError(name, value, "an integer")
    found = int(value)
    if (low is not None and found < low) or (high is not None and found > high):
        raise InvalidRequestError(
            name, found, f"at least {low}" if high is None else f"an integer from {low} to {high}"
        )
    return found


def items(name: str, values: object, allowed: str) -> Iterable[object]:
    if isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping)):
        return cast(Iterable[object], values)
    raise InvalidRequestError(name, cast(object, values), allowed)


def stops(stop: object) -> str | tuple[str, ...] | None:
    if stop is None or isinstance(stop, str):
        return stop
    found: list[str] = []
    for text in items("stop", stop, "a string or a list of strings"):
        if not isinstance(text, str):
            raise InvalidRequestError("stop", text, "a string or a list of strings")
        found.append(text)
    if len(found) > _MAX_STOPS:
        raise InvalidRequestError("stop", len(found), f"at most {_MAX_STOPS} strings")
    return tuple(found)


def stop_token_ids(ids: object) -> tuple[int, ...]:
    if ids is None:
        return ()
    numbered = enumerate(items("stop_token_ids", ids, "a list of token ids"))
    return tuple(integer(f"stop_token_ids[{at}]", token_id, 0, None) for at, token_id in numbered)


def logit_bias(biases: object) -> Mapping[int, float] | None:
    if biases is None:
        return None
    if not isinstance(biases, Mapping):
        raise InvalidRequestError("logit_bias", biases, "a mapping of token ids to numbers")
    found: dict[int, float] = {}
    for token_id, bias in cast(Mapping[object, object], biases).items():
        name = f"logit_bias[{token_id!r}]"
        found[integer(name, token_id, 0, None)] = number(name, bias, -math.inf, math.inf)
    return MappingProxyType(found)


def constrained(constraint: object, ignore_eos: bool, min_tokens: int) -> None:
    """Beside a constraint nothing may ask for more than what it allows."""
    if constraint is None:
        return
    if not isinstance(constraint, Constraint):
        raise InvalidRequestError("constraint", constraint, "a Constraint")
    if ignore_eos:
        raise InvalidRequestError("ignore_eos", True, "False with a constraint, which has an end")
    if min_tokens > 0:
        raise InvalidRequestError("min_tokens", min_tokens, "0 with a constraint, which has an end")


def samplers(names: object) -> tuple[str, ...]:
    allowed = "a list of " + ", ".join(SAMPLERS)
    found: list[str] = []
    for name in items("samplers", names, allowed):
        known = _SAMPLER_ALIASES.get(name, name) if isinstance(name, str) else name
        if known not in SAMPLERS:
            raise InvalidRequestError("samplers", name, allowed)
        if known in found:
            raise InvalidRequestError("samplers", name, "each sampler once at most")
        found.append(str(known))
    return tuple(found)


def sequence_breakers(texts: object) -> tuple[str, ...]:
    name, allowed = "dry_sequence_breakers", f"strings of 1 to {_MAX_BREAKER_BYTES} bytes of UTF-8"
    found: list[str] = []
    for text in items(name, texts, "a list of strings"):
        if not isinstance(text, str) or not 0 < _num_bytes(text) <= _MAX_BREAKER_BYTES:
            raise InvalidRequestError(name, text, allowed)
        found.append(text)
    if len(found) > _MAX_BREAKERS:
        raise InvalidRequestError(name, len(found), f"at most {_MAX_BREAKERS} strings")
    return tuple(found)


def _num_bytes(text: str) -> int:
    """Of its UTF-8; 0 where it has none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
