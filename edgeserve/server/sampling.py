"""The sampling fields of OpenAI's bodies, and of the servers that added to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from edgeserve import sampling_fields
from edgeserve.errors import InvalidRequestError
from edgeserve.requests import SamplingFields
from edgeserve.server.fields import Fields
from edgeserve.types import SamplingParams

MAX_STOPS = 64
_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "dynatemp_range",
    "dynatemp_exponent",
    "typical_p",
    "top_n_sigma",
    "xtc_probability",
    "xtc_threshold",
    "dry_multiplier",
    "dry_base",
    "mirostat_tau",
    "mirostat_eta",
)
_INTEGERS = (
    "top_k",
    "seed",
    "n",
    "min_tokens",
    "repeat_last_n",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "min_keep",
    "mirostat",
)
_LISTS = ("dry_sequence_breakers", "samplers", "stop_token_ids")


def sampling_fields_of(body: Fields, *, vocab_size: int) -> SamplingFields:
    """All but max_tokens and logprobs. Raises InvalidRequestError with field and range."""
    found: dict[str, object] = {}
    for name in _NUMBERS:
        found[name] = body.number(name)
    for name in _INTEGERS:
        found[name] = body.integer(name)
    for name in _LISTS:
        found[name] = body.items(name)
    found["ignore_eos"] = body.flag("ignore_eos")
    found["skip_special_tokens"] = body.flag("skip_special_tokens")
    found["repetition_penalty"] = _first_number(body, "repetition_penalty", "repeat_penalty")
    found["stop"] = _stops(body)
    found["logit_bias"] = _logit_bias(body, vocab_size)
    best_of, n = body.integer("best_of"), found["n"] or 1
    if best_of is not None and best_of != n:
        raise InvalidRequestError("best_of", best_of, f"left out, or n, which is {n}")
    return cast(SamplingFields, {k: value for k, value in found.items() if value is not None})


def params_with(fields: SamplingFields, **others: object) -> SamplingParams:
    """With further fields; those that are None stay the default."""
    given = {name: value for name, value in others.items() if value is not None}
    return SamplingParams(**cast(SamplingFields, {**fields, **given}))


def max_tokens_of(body: Fields, *names: str, may_be_zero: bool = False) -> int | None:
    """The first of `names` that is there; None is no limit but the context's."""
    values = [(name, body.integer(name)) for name in names]  # all are read: none was ignored
    for name, value in values:
        if value is None:
            continue
        if value == -1:
            return None
        if value == 0 and not may_be_zero:
            raise InvalidRequestError(name, 0, "at least 1: leave it out, or -1 for no limit")
        if value < 0:
            raise InvalidRequestError(name, value, "at least 1, or -1 for no limit")
        return value
    return None


def _first_number(body: Fields, *names: str) -> float | None:
    values = [body.number(name) for name in names]
    return next((value for value in values if value is not None), None)


def _stops(body: Fields) -> Sequence[str] | None:
    value = body.raw("stop")
    if value is None:
        return None
    items: list[object] = cast("list[object]", value) if isinstance(value, list) else [value]
    if len(items) > MAX_STOPS:
        raise InvalidRequestError("stop", len(items), f"at most {MAX_STOPS} strings")
    for index, item in enumerate(items):
        name = f"stop[{index}]" if isinstance(value, list) else "stop"
        if not isinstance(item, str):
            raise InvalidRequestError(name, item, "a string")
        if not item:
            body.ignore(name)
    return tuple(cast("list[str]", items))


def _logit_bias(body: Fields, vocab_size: int) -> Mapping[int, float] | None:
    """Of an object, or of pairs as llama-server takes them."""
    value = body.raw("logit_bias")
    if value is None:
        return None
    if isinstance(value, dict):
        pairs = list(cast("dict[str, object]", value).items())
    elif isinstance(value, list):
        pairs = [_pair(index, item) for index, item in enumerate(cast("list[object]", value))]
    else:
        raise InvalidRequestError("logit_bias", value, "an object of token ids and numbers")
    found: dict[int, float] = {}
    for key, bias in pairs:
        token_id = _token_id(key, vocab_size)
        number = sampling_fields.number(f"logit_bias[{key}]", bias, -1e300, 1e300)
        found[token_id] = max(-100.0, min(100.0, number))
    return found


def _pair(index: int, item: object) -> tuple[object, object]:
    if isinstance(item, list):
        pair = cast("list[object]", item)
        if len(pair) == 2:
            return pair[0], pair[1]
    raise InvalidRequestError(
        f"logit_bias[{index}]", cast(object, item), "a pair of a token id and a number"
    )


def _token_id(key: object, vocab_size: int) -> int:
    allowed = f"a token id from 0 to {vocab_size - 1}"
    token_id = key
    if isinstance(key, str):
        try:
            token_id = int(key)
        except ValueError:
            raise InvalidRequestError(f"logit_bias[{key!r}]", key, allowed) from None
    if isinstance(token_id, bool) or not isinstance(token_id, int | float):
        raise InvalidRequestError(f"logit_bias[{key!r}]", key, allowed)
    if token_id != int(token_id) or not 0 <= token_id < vocab_size:
        raise InvalidRequestError(f"logit_bias[{key!r}]", key, allowed)
    return int(token_id)
