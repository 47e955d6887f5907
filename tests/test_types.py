"""SamplingParams: what is allowed, what is refused by name, and that a value never changes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from edgeserve.errors import InvalidRequestError
from edgeserve.types import (
    CompletionOutput,
    RequestOutput,
    SamplingDefaults,
    SamplingParams,
    SequenceBreakers,
    Timings,
    Usage,
)

HUGE = 10**400


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_tokens", value) for value in (0, -1, -5, 1.5, "5", True, math.nan, math.inf)),
        *(("temperature", value) for value in (-1, 100.1, math.nan, math.inf, "1", True, HUGE)),
        *(("top_p", value) for value in (1.0001, -0.1, math.nan, "x", [])),
        *(("min_p", value) for value in (1.5, -1e-9)),
        *(("top_k", value) for value in (1.5, "40", True, math.inf)),
        *(("repetition_penalty", value) for value in (0, -1.0, math.inf, math.nan)),
        *(("presence_penalty", value) for value in (2.1, -2.1, None)),
        *(("frequency_penalty", value) for value in (2.1, -2.1, None)),
        *(("n", value) for value in (0, -1, 129, 1000, None, True, "2")),
        *(("min_tokens", value) for value in (-1, None, 0.5)),
        *(("seed", value) for value in (2**64, -(2**63) - 1, 0.5, "7", True)),
        *(("logprobs", value) for value in (-1, 21, True, "5")),
        *(("prompt_logprobs", value) for value in (-1, 21)),
        *(("ignore_eos", value) for value in (None, 1, "yes")),
        *(("skip_special_tokens", value) for value in (None, 0)),
        *(("stop", value) for value in (5, [1], ["a", None], b"x", [b"x"], {"a": 1})),
        ("stop", ["x"] * 65),
        *(("stop_token_ids", value) for value in (5, "12", {1: 2})),
        *(("logit_bias", value) for value in (5, "x", [(1, 2.0)])),
        *(("dynatemp_range", value) for value in (-0.1, 101, math.nan, "1")),
        *(("dynatemp_exponent", value) for value in (-0.1, 101, math.inf)),
        *(("typical_p", value) for value in (-0.1, 1.01, math.nan, True)),
        *(("top_n_sigma", value) for value in (-1.1, 1001, math.inf, math.nan)),
        *(("xtc_probability", value) for value in (-0.1, 1.1, math.nan)),
        *(("xtc_threshold", value) for value in (-0.1, 1.1, "0.1")),
        *(("dry_multiplier", value) for value in (-0.1, 101, math.inf, HUGE)),
        *(("dry_base", value) for value in (0, 0.99, 101, math.nan)),
        *(("dry_allowed_length", value) for value in (-1, 2**31, 1.5)),
        *(("dry_penalty_last_n", value) for value in (-2, 2**31, "64")),
        *(
            ("dry_sequence_breakers", value)
            for value in ("\n", 5, [1], [""], ["x" * 41], ["\ud800"])
        ),
        ("dry_sequence_breakers", ["é" * 21]),
        ("dry_sequence_breakers", ["x"] * 65),
        *(("mirostat", value) for value in (1, 3, -1, 0.5, True, "2")),
        *(("mirostat_tau", value) for value in (-0.1, 101, math.nan)),
        *(("mirostat_eta", value) for value in (-0.1, 101, math.inf)),
        *(("repeat_last_n", value) for value in (-2, 2**31, 0.5)),
        *(("min_keep", value) for value in (-1, 2**31)),
        *(("samplers", value) for value in ("top_k", 5, ["tfs_z"], ["top_k", "top_k"], [None])),
        ("samplers", ["typ_p", "typical_p"]),
    ],
)
def test_value_that_is_not_allowed_is_refused_by_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.parameter == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token_id", [-1, 1.5, "x", True, None])
def test_stop_token_that_is_no_id_is_refused_with_its_place(token_id: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(stop_token_ids=[3, token_id])
    assert caught.value.parameter == "stop_token_ids[1]"


@pytest.mark.parametrize(
    ("bias", "key"),
    [
        ({-3: 5}, "-3"),
        ({"abc": 1}, "'abc'"),
        ({"12": 1}, "'12'"),
        ({True: 1}, "True"),
        ({7: math.nan}, "7"),
        ({7: "1"}, "7"),
        ({7: None}, "7"),
        ({7: HUGE}, "7"),
    ],
)
def test_bias_that_is_not_allowed_is_refused_by_key(bias: Any, key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(logit_bias=bias)
    assert caught.value.parameter == f"logit_bias[{key}]"


def test_minimum_beyond_the_maximum_is_refused_with_both() -> None:
    with pytest.raises(InvalidRequestError, match=r"min_tokens = 6: .*max_tokens, which is 5"):
        SamplingParams(min_tokens=6, max_tokens=5)
    assert SamplingParams(min_tokens=5, max_tokens=5).min_tokens == 5


@pytest.mark.parametrize("value", [1, 10**9, 2**63, 2**200, 5.0])
def test_integers_may_be_huge_or_written_as_floats(value: Any) -> None:
    params = SamplingParams(max_tokens=value)
    assert params.max_tokens == int(value)
    assert type(params.max_tokens) is int


def test_numpy_numbers_are_numbers() -> None:
    params: Any = SamplingParams(
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.int64(40),  # type: ignore[arg-type]
        stop_token_ids=np.array([1, 2]),  # type: ignore[arg-type]
        logit_bias={np.int32(3): np.float16(2.0)},  # type: ignore[dict-item]
    )
    assert (params.temperature, params.top_k) == (0.5, 40)
    assert params.stop_token_ids == (1, 2)
    assert params.logit_bias == {3: 2.0}
    kinds = {type(params.temperature), type(params.top_k), type(params.stop_token_ids[0])}
    assert kinds == {float, int}


@pytest.mark.parametrize("seed", [0, 1, -2, 2**63, 2**64 - 1, -(2**63)])
def test_seed_may_be_any_64_bit_integer(seed: int) -> None:
    assert SamplingParams(seed=seed).seed == seed


def test_seed_minus_one_is_no_seed() -> None:
    assert SamplingParams(seed=-1).seed is None


@pytest.mark.parametrize("top_k", [-1, 0, -(10**30)])
def test_top_k_below_one_is_off(top_k: int) -> None:
    assert SamplingParams(top_k=top_k).resolved(SamplingDefaults(top_k=7)).top_k == 0


@pytest.mark.parametrize(
    ("stop", "strings"),
    [
        (None, ()),
        ("", ()),
        ([""], ()),
        (["", "a", ""], ("a",)),
        ("ab", ("ab",)),
        (("a", "b"), ("a", "b")),
        (["x"] * 64, ("x",) * 64),
    ],
)
def test_empty_stop_strings_are_dropped(stop: Any, strings: tuple[str, ...]) -> None:
    assert SamplingParams(stop=stop).stop_strings == strings


def test_fields_left_out_come_from_the_defaults_and_others_do_not() -> None:
    defaults = SamplingDefaults(0.3, 0.9, 11, 0.2, 1.3)
    own = SamplingParams().resolved(defaults)
    assert (own.temperature, own.top_p, own.top_k, own.min_p) == (0.3, 0.9, 11, 0.2)
    assert own.repetition_penalty == 1.3
    zero = SamplingParams(temperature=0, top_p=0, top_k=0, min_p=0, repetition_penalty=1)
    assert zero.resolved(defaults).temperature == 0.0
    assert zero.resolved(defaults).top_p == 0.0
    assert zero.resolved(defaults).repetition_penalty == 1.0


def test_a_value_never_changes() -> None:
    stop, ids, bias = ["a"], [1], {1: 2.0}
    params = SamplingParams(stop=stop, stop_token_ids=ids, logit_bias=bias)
    stop.append("b")
    ids.append(2)
    bias[3] = 4.0
    assert params == SamplingParams(stop=["a"], stop_token_ids=(1,), logit_bias={1: 2.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        params.logit_bias[1] = 5.0  # type: ignore[index]


def test_equal_values_hash_alike() -> None:
    first = SamplingParams(stop=["a", "b"], stop_token_ids=[1, 2], logit_bias={1: 2.0})
    second = SamplingParams(stop=("a", "b"), stop_token_ids=(1, 2), logit_bias={1: 2.0})
    assert first == second
    assert hash(first) == hash(second)
    assert first != SamplingParams(stop=["a", "b"], stop_token_ids=[1, 2], logit_bias={1: 3.0})


def test_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]


def test_usage_adds_up() -> None:
    assert Usage(3, 4).total_tokens == 7


def test_text_of_an_output_is_the_first_choices() -> None:
    choices = tuple(CompletionOutput(i, text, (), "stop") for i, text in enumerate(("a", "b")))
    output = RequestOutput("r", None, (), choices, Usage(0, 0), Timings(0, 0, 0, 0, 0))
    assert output.text == "a"


@pytest.mark.parametrize(
    "value", ["x" * 10**6, 10**5000, [1] * 10**6], ids=["text", "integer", "list"]
)
def test_message_stays_short_however_long_the_value(value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(temperature=value)
    assert len(str(caught.value)) < 300
    assert caught.value.value is value


# --- samplers in an order ------------------------------------------------------------------------

PLAIN = SamplingDefaults(temperature=1.0, top_p=1.0, min_p=0.0)


@pytest.mark.parametrize(
    ("fields", "samplers"),
    [
        ({}, ()),
        ({"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1}, ()),
        ({"temperature": 0.7, "repetition_penalty": 1.2, "repeat_last_n": 64}, ()),
        ({"top_k": 5, "samplers": ["top_p", "top_k"]}, ()),
        ({"top_k": 5, "top_p": 0.9, "samplers": ["top_p", "top_k"]}, ("top_p", "top_k")),
        ({"temperature": 0.5, "top_k": 5, "samplers": ["top_k", "temperature"]}, ()),
        (
            {"temperature": 0.5, "top_k": 5, "samplers": ["temperature", "top_k"]},
            ("temperature", "top_k"),
        ),
        ({"typical_p": 0.9, "top_k": 5}, ("top_k", "typical_p")),
        ({"typ_p": 0.9}, None),
        ({"typical_p": 0.9, "samplers": ["typ_p"]}, ("typical_p",)),
        ({"top_n_sigma": -1}, ()),
        ({"top_n_sigma": 1.0}, ("top_n_sigma",)),
        ({"xtc_probability": 0.5}, ("xtc",)),
        ({"dynatemp_range": 0.5}, ("temperature",)),
        ({"dry_multiplier": 0.8}, ("dry",)),
        ({"dry_multiplier": 0.8, "dry_penalty_last_n": 0}, ()),
        ({"dry_multiplier": 0.8, "samplers": ["top_k"]}, ()),
        ({"min_keep": 5, "top_p": 0.5}, ("top_p",)),
        ({"mirostat": 2, "top_k": 5, "temperature": 0.5}, ("temperature", "mirostat")),
        ({"mirostat": 2, "dry_multiplier": 1.0}, ("dry", "mirostat")),
        ({"mirostat": 0, "mirostat_tau": 3.0}, ()),
        ({"mirostat": 2, "temperature": 0}, ()),
        ({"temperature": 0, "xtc_probability": 1.0, "typical_p": 0.1, "dynatemp_range": 1.0}, ()),
        ({"temperature": 0, "dry_multiplier": 1.0, "top_k": 5}, ("dry",)),
    ],
    ids=str,
)
def test_what_has_an_effect_and_an_order_of_its_own_is_named(
    fields: dict[str, Any], samplers: tuple[str, ...] | None
) -> None:
    if samplers is None:
        with pytest.raises(TypeError):
            SamplingParams(**fields)
    else:
        assert SamplingParams(**fields).resolved(PLAIN).samplers == samplers


def test_a_sampler_that_the_order_leaves_out_is_off() -> None:
    fields: dict[str, Any] = {"temperature": 0.0, "top_k": 3, "min_p": 0.5, "presence_penalty": 1.0}
    left = SamplingParams(**fields, samplers=["top_p"]).resolved(SamplingDefaults())
    assert (left.temperature, left.top_k, left.min_p, left.top_p) == (1.0, 0, 0.0, 0.95)
    assert not left.needs_history
    assert SamplingParams(**fields, samplers=["min_p"]).resolved(PLAIN).min_p == 0.5


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({"repetition_penalty": 1.1}, True),
        ({"repetition_penalty": 1.1, "repeat_last_n": 0}, False),
        ({"dry_multiplier": 1.0}, True),
        ({"dry_multiplier": 1.0, "temperature": 0}, True),
        ({"typical_p": 0.5}, False),
    ],
    ids=str,
)
def test_tokens_so_far_are_needed_for_penalties_and_dry(fields: Any, needed: bool) -> None:
    assert SamplingParams(**fields).resolved(PLAIN).needs_history is needed


def test_breakers_are_read_where_dry_is_on() -> None:
    assert SamplingParams().breaker_texts == ()
    assert SamplingParams(dry_sequence_breakers=["x"]).breaker_texts == ()
    assert SamplingParams(dry_multiplier=1).breaker_texts == ("\n", ":", '"', "*")
    assert SamplingParams(dry_multiplier=1, dry_sequence_breakers=["x"]).breaker_texts == ("x",)
    assert SamplingParams(dry_multiplier=1, dry_sequence_breakers=[]).breaker_texts == ()


def test_breakers_give_back_what_they_were_made_of() -> None:
    sequences = {(4,), (0,), (63,), (64, 1), (5, 5, 5), (5, 5), (5, 6)}
    breakers = SequenceBreakers.of(65, sequences)
    assert set(breakers.sequences) == sequences
    assert len(breakers.alone) == 12
    assert breakers == SequenceBreakers.of(65, [*sequences, (5, 5)])
