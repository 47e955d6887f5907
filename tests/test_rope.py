"""Rotary frequencies against the papers' formulas, written out one pair at a time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.errors import HyperParameterError
from edgeserve.models import build_plan
from edgeserve.plan.ops import Rope
from edgeserve.plan.rope import RopeSpec, RopeStyle, Yarn, rope_frequencies

from .tiny_models import DEFAULTS, describe

PLAIN = RopeSpec(RopeStyle.HALVES, 8, 10000.0)


def spec_of(family: str, **changes: object) -> RopeSpec:
    metadata = {k: v for k, v in changes.items() if "." in k}
    fields = {k: v for k, v in changes.items() if "." not in k}
    model = replace(DEFAULTS[family], metadata=metadata, **fields)  # type: ignore[arg-type]
    plan = build_plan(*describe(model))
    return next(op.spec for op in plan.operations if isinstance(op, Rope))


# --- frequencies -------------------------------------------------------------------------------


def test_plain_frequencies() -> None:
    frequencies, magnitude = rope_frequencies(PLAIN, None)
    assert frequencies.tolist() == pytest.approx([1.0, 0.1, 0.01, 0.001], rel=1e-15)
    assert magnitude == 1.0


def test_linear_interpolation_divides_every_frequency() -> None:
    frequencies, magnitude = rope_frequencies(replace(PLAIN, frequency_scale=0.25), None)
    assert frequencies.tolist() == pytest.approx([0.25, 0.025, 0.0025, 0.00025], rel=1e-15)
    assert magnitude == 1.0


def test_factors_divide_their_own_frequency() -> None:
    factors = np.array([1.0, 2.0, 4.0, 8.0])
    frequencies, _ = rope_frequencies(PLAIN, factors)
    assert frequencies.tolist() == pytest.approx([1.0, 0.05, 0.0025, 0.000125], rel=1e-15)


def _yarn_by_the_paper(
    dims: int, base: float, factor: float, original: int, fast: float, slow: float
) -> list[float]:
    """YaRN's `inv_freq`, as its authors' code computes it, a pair at a time."""

    def correction_dim(rotations: float) -> float:
        return dims * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction_dim(fast)), 0)
    high = min(math.ceil(correction_dim(slow)), dims - 1)
    result: list[float] = []
    for pair in range(dims // 2):
        extrapolated = base ** (-2 * pair / dims)
        width = high - low if high != low else 0.001
        ramp = min(1.0, max(0.0, (pair - low) / width))
        result.append(extrapolated / factor * ramp + extrapolated * (1 - ramp))
    return result


@given(
    st.sampled_from([16, 64, 96, 128]),
    st.sampled_from([10000.0, 500000.0, 1e6]),
    st.sampled_from([2.0, 4.0, 32.0]),
    st.sampled_from([2048, 4096, 32768]),
)
def test_yarn_is_the_paper_s(dims: int, base: float, factor: float, original: int) -> None:
    spec = RopeSpec(RopeStyle.HALVES, dims, base, frequency_scale=1.0 / factor, yarn=Yarn(original))
    frequencies, magnitude = rope_frequencies(spec, None)
    expected = _yarn_by_the_paper(dims, base, factor, original, 32.0, 1.0)
    assert frequencies.tolist() == pytest.approx(expected, rel=1e-12)
    assert magnitude == pytest.approx(0.1 * math.log(factor) + 1.0, rel=1e-15)


def test_yarn_keeps_fast_pairs_stretches_slow_ones_and_ramps_between() -> None:
    spec = RopeSpec(RopeStyle.HALVES, 128, 10000.0, frequency_scale=0.25, yarn=Yarn(4096))
    ratio = rope_frequencies(spec, None)[0] / rope_frequencies(replace(PLAIN, dims=128), None)[0]
    assert ratio[0] == 1.0
    assert ratio[-1] == pytest.approx(0.25)
    assert (np.diff(ratio) <= 1e-12).all()
    assert ((ratio > 0.26) & (ratio < 0.99)).sum() > 10


def test_yarn_that_stretches_nothing_changes_nothing() -> None:
    """A factor of 1 or less must not shrink the rotated elements."""
    for factor in (1.0, 0.5):
        spec = replace(PLAIN, frequency_scale=1.0 / factor, yarn=Yarn(4096))
        assert rope_frequencies(spec, None)[1] == 1.0
    same = rope_frequencies(replace(PLAIN, yarn=Yarn(4096)), None)[0]
    assert same.tolist() == rope_frequencies(PLAIN, None)[0].tolist()


def test_attention_factor_multiplies_yarn_s_own() -> None:
    spec = replace(PLAIN, frequency_scale=0.25, yarn=Yarn(4096), attention_factor=2.0)
    assert rope_frequencies(spec, None)[1] == pytest.approx(2.0 * (0.1 * math.log(4.0) + 1.0))
    assert rope_frequencies(replace(PLAIN, attention_factor=1.19), None)[1] == 1.19


# --- what files ask for ------------------------------------------------------------------------


def test_styles_by_family() -> None:
    styles = {family: spec_of(family).style for family in DEFAULTS}
    assert styles.pop("llama") is RopeStyle.INTERLEAVED
    assert set(styles.values()) == {RopeStyle.HALVES}


def test_no_scaling_keys_no_scaling() -> None:
    spec = spec_of("llama")
    assert spec == RopeSpec(RopeStyle.INTERLEAVED, 16, 10000.0)


def test_linear_scaling_under_its_new_and_its_old_name() -> None:
    assert spec_of("llama", rope_factor=4.0).frequency_scale == 0.25
    assert spec_of("llama", **{"llama.rope.scale_linear": 4.0}).frequency_scale == 0.25
    both = {"llama.rope.scale_linear": 4.0, "llama.rope.scaling.factor": 2.0}
    assert spec_of("llama", **both).frequency_scale == 0.5


def test_a_factor_of_zero_means_none() -> None:
    assert spec_of("llama", **{"llama.rope.scaling.factor": 0.0}).frequency_scale == 1.0


def test_scaling_type_none_ignores_the_factor() -> None:
    spec = spec_of("llama", rope_scaling="none", rope_factor=4.0)
    assert spec.frequency_scale == 1.0


def test_yarn_keys() -> None:
    changes: dict[str, object] = {
        "rope_scaling": "yarn",
        "rope_factor": 4.0,
        "original_context": 128,
        "qwen3.rope.scaling.yarn_beta_fast": 16.0,
        "qwen3.rope.scaling.yarn_beta_slow": 2.0,
    }
    spec = spec_of("qwen3", **changes)
    assert spec.yarn == Yarn(128, beta_fast=16.0, beta_slow=2.0)
    assert spec.frequency_scale == 0.25


def test_yarn_without_an_original_context_takes_the_trained_one() -> None:
    spec = spec_of("qwen3", rope_scaling="yarn", rope_factor=4.0, context=2048)
    assert spec.yarn == Yarn(2048)


def test_unknown_scaling_is_refused() -> None:
    with pytest.raises(HyperParameterError, match="'ntk', must be one of none, linear, yarn, lon"):
        spec_of("llama", rope_scaling="ntk")


def test_partial_rotation() -> None:
    assert spec_of("phi3", rope_dims=12).dims == 12
