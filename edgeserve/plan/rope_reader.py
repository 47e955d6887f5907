"""Which rotary embedding a file asks for: its scaling keys and its factor tensors."""

from __future__ import annotations

from edgeserve.plan.builder import PlanBuilder
from edgeserve.plan.rope import RopeSpec, RopeStyle, Yarn
from edgeserve.plan.weights import WeightView

_SCALINGS = ("none", "linear", "yarn", "longrope")


def read_rope(m: PlanBuilder, style: RopeStyle) -> RopeSpec:
    """The rotation of a model with one rope for all layers.

    Raises HyperParameterError for a scaling type that nobody here knows: running without it
    would give wrong text beyond the first positions.
    """
    hp = m.hp
    scaling = hp.text("rope.scaling.type", default="linear")
    if scaling not in _SCALINGS:
        raise hp.error(
            "rope.scaling.type", f"is {scaling!r}, must be one of {', '.join(_SCALINGS)}"
        )
    # Files from before 2023-10 call it scale_linear. 0 is how converters write "none".
    old_factor = hp.number("rope.scale_linear", default=1.0, low=0.0)
    factor = hp.number("rope.scaling.factor", default=old_factor, low=0.0) or 1.0
    yarn = None
    if scaling == "yarn":
        yarn = Yarn(
            _original_context(m),
            hp.number("rope.scaling.yarn_beta_fast", default=32.0, above=0.0),
            hp.number("rope.scaling.yarn_beta_slow", default=1.0, above=0.0),
        )
    return RopeSpec(
        style=style,
        dims=hp.rope_dimension_count,
        base=hp.rope_freq_base,
        frequency_scale=1.0 if scaling == "none" else 1.0 / factor,
        factors=_factors(m),
        attention_factor=hp.number("rope.scaling.attn_factor", default=1.0, above=0.0),
        yarn=yarn,
    )


def max_position(m: PlanBuilder) -> int:
    """One past the last position that the rope choice covers."""
    if m.has_tensor("rope_factors_long.weight") and not _wants_long(m):
        return _original_context(m)
    return m.hp.context_length


def _original_context(m: PlanBuilder) -> int:
    return m.hp.integer("rope.scaling.original_context_length", default=m.hp.context_length, low=1)


def _wants_long(m: PlanBuilder) -> bool:
    return m.max_model_len > _original_context(m)


def _factors(m: PlanBuilder) -> WeightView | None:
    """`rope_freqs` (Llama 3), or longrope's tensor for the context asked for (Phi 3)."""
    shape = (m.hp.rope_dimension_count // 2,)
    long, short = "rope_factors_long.weight", "rope_factors_short.weight"
    if not m.has_tensor(long):
        return m.optional_weight("rope_freqs.weight", shape)
    m.ignore(long, short)
    return m.weight(long if _wants_long(m) else short, shape)
