"""Gemma 3 (text): norms before and after each branch, five windowed layers to every full one.

Windowed layers rotate with their own, unscaled base. The embedding is scaled by sqrt(width).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from edgeserve.plan.builder import PlanBuilder, Value
from edgeserve.plan.ops import Plan
from edgeserve.plan.rope import RopeStyle
from edgeserve.plan.rope_reader import max_position, read_rope

_DEFAULT_PATTERN = 6
_LAYERS_OF_27B = 62


def build(m: PlanBuilder) -> Plan:
    hp = m.hp
    rope = read_rope(m, RopeStyle.HALVES)
    local_base = hp.number("rope.freq_base_swa", default=10000.0, above=1.0)
    local_rope = replace(rope, base=local_base, frequency_scale=1.0)
    window = hp.integer("attention.sliding_window", default=0) or None
    windowed = _windowed_layers(m)
    x = m.embed("token_embd", scale=math.sqrt(hp.embedding_length))
    for layer in m.layers():
        local = window is not None and windowed[layer.index]
        h = layer.rms_norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.head_norm(q, "attn_q_norm"), layer.head_norm(k, "attn_k_norm")
        q, k = layer.rope(q, k, local_rope if local else rope)
        h = layer.attention(q, k, v, scale=_attention_scale(m), window=window if local else None)
        x = x + layer.rms_norm(layer.linear(h, "attn_output"), "post_attention_norm")
        h = layer.rms_norm(x, "ffn_norm")
        x = x + layer.rms_norm(layer.linear(layer.geglu(h), "ffn_down"), "post_ffw_norm")
    hidden = m.rms_norm(x, "output_norm")
    logits = _capped(m, m.logits(hidden))
    return m.finish(logits=logits, hidden=hidden, max_position=max_position(m))


def _windowed_layers(m: PlanBuilder) -> Sequence[bool]:
    """Which layers see a window only: every one but each n-th, or as an array says."""
    pattern = m.hp.integer_or_flags("attention.sliding_window_pattern", default=_DEFAULT_PATTERN)
    if isinstance(pattern, int):
        return [pattern == 0 or i % pattern < pattern - 1 for i in range(m.hp.block_count)]
    return pattern


def _attention_scale(m: PlanBuilder) -> float:
    """1/sqrt(key size), but 1/sqrt(width / heads) for the 27B, whose file does not say so."""
    hp = m.hp
    if hp.block_count == _LAYERS_OF_27B:
        return (hp.embedding_length // hp.head_count[0]) ** -0.5
    return hp.key_length**-0.5


def _capped(m: PlanBuilder, logits: Value) -> Value:
    cap = m.hp.number("final_logit_softcapping", default=0.0, low=0.0)
    return m.soft_cap(logits, cap) if cap else logits
