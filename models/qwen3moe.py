"""Qwen 3 with experts: Qwen 3's attention, and in every layer a mixture of SwiGLU experts."""

from __future__ import annotations

from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.ops import Plan
from edgeserve.plan.rope import RopeStyle
from edgeserve.plan.rope_reader import max_position, read_rope


def build(m: PlanBuilder) -> Plan:
    if not m.hp.expert_count:
        raise m.hp.error("expert_count", "is 0 or missing; this architecture has experts")
    rope = read_rope(m, RopeStyle.HALVES)
    x = m.embed("token_embd")
    for layer in m.layers():
        h = layer.rms_norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.head_norm(q, "attn_q_norm"), layer.head_norm(k, "attn_k_norm")
        q, k = layer.rope(q, k, rope)
        x = x + layer.linear(layer.attention(q, k, v), "attn_output")
        x = x + layer.experts(layer.rms_norm(x, "ffn_norm"))
    hidden = m.rms_norm(x, "output_norm")
    return m.finish(logits=m.logits(hidden), hidden=hidden, max_position=max_position(m))
