"""Llama 1 to 3, Mistral, SmolLM: pre-norm, SwiGLU, interleaved rope, optional `rope_freqs`.

Mixtral is one with experts in place of the feed-forward layer.
"""

from __future__ import annotations

from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.ops import Plan
from edgeserve.plan.rope import RopeStyle
from edgeserve.plan.rope_reader import max_position, read_rope


def build(m: PlanBuilder) -> Plan:
    rope = read_rope(m, RopeStyle.INTERLEAVED)
    scale = m.hp.number("attention.scale", default=0.0, low=0.0) or None
    x = m.embed("token_embd")
    for layer in m.layers():
        h = layer.rms_norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.rope(q, k, rope)
        x = x + layer.linear(layer.attention(q, k, v, scale=scale), "attn_output")
        h = layer.rms_norm(x, "ffn_norm")
        if m.hp.expert_count:
            x = x + layer.experts(h)
        else:
            x = x + layer.linear(layer.swiglu(h), "ffn_down")
    hidden = m.rms_norm(x, "output_norm")
    return m.finish(logits=m.logits(hidden), hidden=hidden, max_position=max_position(m))
