"""Phi 3, 3.5 and 4-mini: fused qkv and gate+up weights read as views, longrope chosen at load."""

from __future__ import annotations

from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.ops import Gate, Plan, Shard
from edgeserve.plan.rope import RopeStyle
from edgeserve.plan.rope_reader import max_position, read_rope


def build(m: PlanBuilder) -> Plan:
    rope = read_rope(m, RopeStyle.HALVES)
    window = m.hp.integer("attention.sliding_window", default=0) or None
    x = m.embed("token_embd")
    for layer in m.layers():
        h = layer.rms_norm(x, "attn_norm")
        q, k, v = layer.qkv(h)
        q, k = layer.rope(q, k, rope)
        x = x + layer.linear(layer.attention(q, k, v, window=window), "attn_output")
        h = layer.rms_norm(x, "ffn_norm")
        halves = {"gate": layer.feed_forward_length, "up": layer.feed_forward_length}
        gate, up = m.linear_rows(h, layer.name("ffn_up"), halves, shard=Shard.COLUMN)
        x = x + layer.linear(m.gated(gate, up, Gate.SILU), "ffn_down")
    hidden = m.rms_norm(x, "output_norm")
    return m.finish(logits=m.logits(hidden), hidden=hidden, max_position=max_position(m))
