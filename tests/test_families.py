"""Each family's plan as text, held to a golden file.

EDGESERVE_WRITE_GOLDEN=1 writes the files anew; the difference is then for a person to read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from edgeserve.errors import MissingTensorError
from edgeserve.models import FAMILIES, build_plan
from edgeserve.plan.ops import Attention, Plan, Rope
from edgeserve.plan.text import plan_to_text

from .tiny_models import DEFAULTS, TinyModel, describe

GOLDEN = Path(__file__).parent / "data" / "plans"

LONGROPE = {
    "longrope": True,
    "rope_dims": 12,
    "context": 512,
    "original_context": 64,
    "attention_factor": 1.25,
}
CASES: Mapping[str, tuple[TinyModel, int | None]] = {
    "llama": (DEFAULTS["llama"], None),
    "llama3": (replace(DEFAULTS["llama"], layers=1, rope_freqs=True, tied=True), None),
    "llama_arrays": (
        replace(
            DEFAULTS["llama"], kv_heads=(4, 1), feed_forward=(96, 64), head_size=24, qkv_bias=True
        ),
        None,
    ),
    "llama_yarn": (
        replace(
            DEFAULTS["llama"],
            layers=1,
            rope_scaling="yarn",
            rope_factor=4.0,
            original_context=128,
        ),
        None,
    ),
    "qwen2": (DEFAULTS["qwen2"], None),
    "qwen3": (DEFAULTS["qwen3"], None),
    "qwen3moe": (DEFAULTS["qwen3moe"], None),
    "llama_experts": (
        replace(DEFAULTS["llama"], layers=1, experts=4, experts_used=2, feed_forward=48),
        None,
    ),
    "gemma3": (replace(DEFAULTS["gemma3"], layers=7, softcap=30.0), None),
    "gemma3_scaled": (
        replace(
            DEFAULTS["gemma3"],
            layers=2,
            window_pattern=(True, False),
            rope_scaling="linear",
            rope_factor=8.0,
            local_rope_base=20000.0,
        ),
        None,
    ),
    "phi3": (DEFAULTS["phi3"], None),
    "phi3_short": (replace(DEFAULTS["phi3"], layers=1, **LONGROPE), 64),  # type: ignore[arg-type]
    "phi3_long": (replace(DEFAULTS["phi3"], layers=1, **LONGROPE), 65),  # type: ignore[arg-type]
}


def plan_of(name: str) -> Plan:
    model, max_model_len = CASES[name]
    metadata, tensors = describe(model)
    return build_plan(metadata, tensors, max_model_len=max_model_len)


@pytest.mark.parametrize("name", CASES)
def test_plan_is_the_golden_one(name: str) -> None:
    text = plan_to_text(plan_of(name))
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("EDGESERVE_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_file_has_a_case_and_every_family_one() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)
    assert {model.family for model, _ in CASES.values()} == set(FAMILIES) == set(DEFAULTS)


# --- what the reader of a golden file would have to count ---------------------------------------


def _per_layer(plan: Plan) -> list[tuple[int | None, float, float]]:
    """(window, rope base, frequency scale) of each layer."""
    ropes = [op.spec for op in plan.operations if isinstance(op, Rope)]
    attentions = [op for op in plan.operations if isinstance(op, Attention)]
    return [
        (attention.window, ropes[2 * i].base, ropes[2 * i].frequency_scale)
        for i, attention in enumerate(attentions)
    ]


def test_gemma3_windows_five_of_six_layers() -> None:
    local, full = (24, 10000.0, 1.0), (None, 1e6, 1.0)
    assert _per_layer(plan_of("gemma3")) == [local] * 5 + [full] + [local]


def test_gemma3_scales_the_rotation_of_full_layers_only() -> None:
    assert _per_layer(plan_of("gemma3_scaled")) == [(24, 20000.0, 1.0), (None, 1e6, 1 / 8)]


@pytest.mark.parametrize(
    ("pattern", "windowed"),
    [(1, [False] * 4), (2, [True, False] * 2), (3, [True, True, False, True]), (0, [True] * 4)],
)
def test_gemma3_window_periods(pattern: int, windowed: list[bool]) -> None:
    model = replace(DEFAULTS["gemma3"], layers=4, window_pattern=pattern)
    plan = build_plan(*describe(model))
    assert [window is not None for window, _, _ in _per_layer(plan)] == windowed


def test_gemma3_without_a_window_is_full_everywhere() -> None:
    plan = build_plan(*describe(replace(DEFAULTS["gemma3"], window=None)))
    assert _per_layer(plan) == [(None, 1e6, 1.0)] * 8


def test_gemma3_27b_divides_by_the_square_root_of_width_per_head() -> None:
    """Its file does not say so; its 62 layers do."""
    for layers, expected in ((62, (64 // 4) ** -0.5), (61, 32**-0.5)):
        plan = build_plan(*describe(replace(DEFAULTS["gemma3"], layers=layers)))
        scales = {op.scale for op in plan.operations if isinstance(op, Attention)}
        assert scales == {expected}


def test_phi3_turns_by_the_factors_of_the_context_asked_for() -> None:
    for name, tensor, last in (("phi3_short", "short", 64), ("phi3_long", "long", 512)):
        plan = plan_of(name)
        factors = {op.spec.factors for op in plan.operations if isinstance(op, Rope)}
        assert [view.tensor for view in factors if view] == [f"rope_factors_{tensor}.weight"]
        assert plan.max_position == last


def test_phi3_with_long_factors_only() -> None:
    metadata, tensors = describe(replace(DEFAULTS["phi3"], **LONGROPE))  # type: ignore[arg-type]
    del tensors["rope_factors_short.weight"]
    assert build_plan(metadata, tensors).max_position == 512
    with pytest.raises(MissingTensorError, match="rope_factors_short"):
        build_plan(metadata, tensors, max_model_len=64)


@pytest.mark.parametrize(("window", "expected"), [(24, 24), (0, None), (None, None)])
def test_phi3_applies_the_window_of_its_file_in_every_layer(
    window: int | None, expected: int | None
) -> None:
    plan = build_plan(*describe(replace(DEFAULTS["phi3"], window=window)))
    assert {width for width, _, _ in _per_layer(plan)} == {expected}
