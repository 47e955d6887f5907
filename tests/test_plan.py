"""The builder and what a plan carries: views, caches by lifetime, names, text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeserve.models import build_plan
from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.hyperparams import HyperParams
from edgeserve.plan.ops import (
    Attention,
    CacheGroup,
    CacheKind,
    CacheSpec,
    Linear,
    Operation,
    Plan,
    PlanInputs,
    Rope,
    Shard,
    inputs,
    weights,
)
from edgeserve.plan.text import plan_to_text
from edgeserve.plan.weights import WeightView

from .tiny_models import DEFAULTS, describe


def tiny(family: str, **overrides: object) -> Plan:
    model = replace(DEFAULTS[family], **overrides)  # type: ignore[arg-type]
    return build_plan(*describe(model))


def find(plan: Plan, kind: type[Operation]) -> list[Operation]:
    return [op for op in plan.operations if isinstance(op, kind)]


# --- views -------------------------------------------------------------------------------------


@given(st.integers(0, 50), st.integers(1, 50), st.integers(0, 20), st.integers(1, 20))
def test_views_of_views_add_up(first: int, rows: int, inner: int, count: int) -> None:
    whole = WeightView("w", (200, 8), "Q4_K")
    view = whole.rows(first, rows).rows(inner, count)
    assert view == WeightView("w", (count, 8), "Q4_K", first_row=first + inner)


def test_fused_qkv_is_three_views_that_cover_the_tensor() -> None:
    plan = tiny("phi3", kv_heads=2)
    views = [op.weight for op in find(plan, Linear) if op.weight.tensor == "blk.0.attn_qkv.weight"]
    assert [(view.first_row, view.shape) for view in views] == [
        (0, (64, 64)),
        (64, (32, 64)),
        (96, (32, 64)),
    ]


def test_fused_bias_is_cut_like_its_weight() -> None:
    plan = tiny("llama", fused_qkv=True, qkv_bias=True)
    biases = [op.bias for op in find(plan, Linear) if "attn_qkv" in op.weight.tensor]
    assert [(b.first_row, b.shape) for b in biases[:3]] == [(0, (64,)), (64, (32,)), (96, (32,))]


def test_linears_have_stable_names_and_shard_tags() -> None:
    tags = {op.name: op.shard for op in find(tiny("phi3", layers=1), Linear)}
    assert tags == {
        "blk.0.attn_qkv.attn_q": Shard.COLUMN,
        "blk.0.attn_qkv.attn_k": Shard.COLUMN,
        "blk.0.attn_qkv.attn_v": Shard.COLUMN,
        "blk.0.attn_output": Shard.ROW,
        "blk.0.ffn_up.gate": Shard.COLUMN,
        "blk.0.ffn_up.up": Shard.COLUMN,
        "blk.0.ffn_down": Shard.ROW,
        "output": Shard.COLUMN,
    }


def test_weights_of_an_operation_include_rope_factors() -> None:
    rope = find(tiny("llama", rope_freqs=True), Rope)[0]
    assert [str(view) for view in weights(rope)] == ["rope_freqs.weight[8 F32]"]


def test_inputs_are_in_the_order_of_the_fields() -> None:
    attention = find(tiny("llama"), Attention)[0]
    assert inputs(attention) == (attention.q, attention.k, attention.v)
    assert inputs(replace(attention, k=None, v=None)) == (attention.q,)


# --- caches ------------------------------------------------------------------------------------


def test_layers_with_one_lifetime_share_a_cache_group() -> None:
    plan = tiny("gemma3", layers=8)
    local, full = plan.cache_groups
    assert (local.kind, local.window) == (CacheKind.WINDOW, 24)
    assert (full.kind, full.window) == (CacheKind.FULL, None)
    assert [cache.cache_id for cache in local.caches] == [0, 1, 2, 3, 4, 6, 7]
    assert [cache.cache_id for cache in full.caches] == [5]


def test_layers_may_differ_in_key_heads() -> None:
    plan = tiny("llama", kv_heads=(4, 1))
    assert plan.cache_groups == (
        CacheGroup(CacheKind.FULL, (CacheSpec(0, 4, 16, 16), CacheSpec(1, 1, 16, 16))),
    )


def test_kv_bytes_count_every_layer() -> None:
    assert tiny("llama").kv_bytes_per_token(2) == 2 * 2 * 2 * (16 + 16)
    assert tiny("gemma3", layers=8).kv_bytes_per_token(0.5) == 0.5 * 8 * 2 * (32 + 32)


def test_two_layers_on_one_cache_count_it_once() -> None:
    metadata, tensors = describe(DEFAULTS["llama"])
    builder = PlanBuilder(HyperParams(metadata), tensors, max_model_len=512)
    x = builder.embed("token_embd")
    for layer in builder.layers():
        q, k, v = layer.qkv(x)
        op = Attention(builder.next_id(), q.id, k.id, v.id, layer.index, 0, 4, 2, 16, 16, 0.25)
        builder.attend(op)
    builder.ignore(*tensors)
    plan = builder.finish(logits=builder.logits(x), hidden=x, max_position=512)
    assert plan.cache_groups == (CacheGroup(CacheKind.FULL, (CacheSpec(0, 2, 16, 16),)),)


# --- outputs and inputs ------------------------------------------------------------------------


def test_tied_output_reads_the_embedding() -> None:
    for tied, tensor in ((True, "token_embd.weight"), (False, "output.weight")):
        plan = tiny("llama", tied=tied)
        last = plan.operations[plan.outputs["logits"]]
        assert isinstance(last, Linear)
        assert (last.name, last.weight.tensor) == ("output", tensor)


def test_outputs_inputs_and_flags() -> None:
    plan = tiny("gemma3", softcap=30.0)
    assert set(plan.outputs) == {"logits", "hidden"}
    assert plan.shapes[plan.outputs["logits"]].width == plan.vocab_size == 300
    assert plan.shapes[plan.outputs["hidden"]].width == 64
    assert plan.inputs == PlanInputs(True, True, position_components=1, token_types=False)
    assert (plan.chunkable, plan.causal) == (True, True)


# --- text --------------------------------------------------------------------------------------

VARIANTS = [
    ("llama", {}),
    ("llama", {"rope_base": 10000.000001}),
    ("llama", {"rope_base": 1e6}),
    ("llama", {"rope_freqs": True}),
    ("llama", {"tied": True}),
    ("llama", {"qkv_bias": True}),
    ("llama", {"kv_heads": (2, 1)}),
    ("llama", {"kv_heads": (1, 2)}),
    ("llama", {"fused_qkv": True}),
    ("llama", {"context": 256}),
    ("llama", {"rope_scaling": "linear", "rope_factor": 4.0}),
    ("llama", {"rope_scaling": "yarn", "rope_factor": 4.0, "original_context": 64}),
    ("llama", {"rope_scaling": "yarn", "rope_factor": 4.0, "original_context": 128}),
    ("qwen2", {}),
    ("qwen3", {}),
    ("gemma3", {}),
    ("gemma3", {"window": 32}),
    ("gemma3", {"window_pattern": 4}),
    ("gemma3", {"softcap": 30.0}),
    ("gemma3", {"softcap": 30.000000000000004}),
    ("phi3", {}),
    ("phi3", {"rope_dims": 8}),
    ("phi3", {"window": 24}),
]


def test_text_tells_plans_apart() -> None:
    texts = {plan_to_text(tiny(family, **changes)) for family, changes in VARIANTS}
    assert len(texts) == len(VARIANTS)


@pytest.mark.parametrize("family", DEFAULTS)
def test_text_is_deterministic(family: str) -> None:
    assert plan_to_text(tiny(family)) == plan_to_text(tiny(family))
