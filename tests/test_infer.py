"""Shape inference: what each operation gives, and that operations that do not fit are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edgeserve.models import build_plan
from edgeserve.plan.infer import PlanError, check, infer
from edgeserve.plan.ops import (
    Add,
    Attention,
    Embed,
    Gate,
    GatedActivation,
    Linear,
    MoeLinear,
    MoeRoute,
    MoeSum,
    Operation,
    Plan,
    RmsNorm,
    Rope,
    Rows,
    Scale,
    SelectRows,
    Shape,
    SoftCap,
    ValueId,
)
from edgeserve.plan.rope import RopeSpec, RopeStyle
from edgeserve.plan.weights import WeightView

from .tiny_models import DEFAULTS, describe

T64, T32, T96, R64 = (
    Shape(Rows.TOKENS, 64),
    Shape(Rows.TOKENS, 32),
    Shape(Rows.TOKENS, 96),
    Shape(Rows.LOGITS, 64),
)
VALUES = [T64, T32, T32, T96, R64]
"""%0 (T, 64), %1 and %2 (T, 32), %3 (T, 96), %4 (R, 64)."""
OUT, X, K, V, WIDE, LOGITS = (ValueId(i) for i in (5, 0, 1, 2, 3, 4))
SPEC = RopeSpec(RopeStyle.HALVES, 16, 10000.0)


def weight(*shape: int) -> WeightView:
    return WeightView("w", shape, "F32")


ATTENTION = Attention(OUT, X, K, V, 0, 0, 4, 2, 16, 16, 0.25)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (Embed(OUT, weight(300, 64)), T64),
        (RmsNorm(OUT, X, weight(64), 1e-5, 64), T64),
        (RmsNorm(OUT, X, weight(16), 1e-5, 16), T64),
        (Linear(OUT, X, "l", weight(96, 64), weight(96)), T96),
        (Linear(OUT, LOGITS, "l", weight(300, 64)), Shape(Rows.LOGITS, 300)),
        (MoeRoute(OUT, X, 3, normalised=True), Shape(Rows.TOKENS, 6)),
        (MoeLinear(OUT, X, K, "e", weight(20, 48, 64)), Shape(Rows.TOKENS, 16 * 48)),
        (MoeLinear(OUT, X, K, "e", weight(20, 6, 4)), T96),
        (MoeSum(OUT, X, K), Shape(Rows.TOKENS, 4)),
        (Rope(OUT, X, 16, SPEC), T64),
        (Rope(OUT, X, 32, SPEC), T64),
        (Rope(OUT, X, 16, replace(SPEC, factors=weight(8))), T64),
        (ATTENTION, T64),
        (replace(ATTENTION, k=None, v=None), T64),
        (replace(ATTENTION, sinks=weight(4)), T64),
        (Attention(OUT, X, K, WIDE, 0, 0, 4, 2, 16, 48, 0.25), Shape(Rows.TOKENS, 192)),
        (GatedActivation(OUT, K, V, Gate.SILU), T32),
        (Add(OUT, K, V), T32),
        (Scale(OUT, LOGITS, 2.0), R64),
        (SoftCap(OUT, WIDE, 30.0), T96),
        (SelectRows(OUT, X), R64),
    ],
    ids=lambda item: type(item).__name__,
)
def test_shape(op: Operation, shape: Shape) -> None:
    assert infer(op, VALUES) == shape


@pytest.mark.parametrize(
    ("op", "says"),
    [
        (RmsNorm(OUT, X, weight(32), 1e-5, 64), "weight length is 32, must be 64"),
        (RmsNorm(OUT, X, weight(24), 1e-5, 24), "width modulo group"),
        (Linear(OUT, X, "up", weight(96, 32)), "up input width is 64, must be 32"),
        (Linear(OUT, X, "up", weight(96, 64), weight(64)), "up bias length is 64, must be 96"),
        (MoeRoute(OUT, K, 33, normalised=True), "experts used beyond those there is 1"),
        (MoeLinear(OUT, X, K, "e", weight(20, 48, 24)), "e input width is 64, must be 24"),
        (MoeLinear(OUT, LOGITS, K, "e", weight(20, 48, 64)), "e route rows is T, must be R"),
        (MoeSum(OUT, LOGITS, K), "route rows is T, must be R"),
        (MoeSum(OUT, X, WIDE), "width modulo experts used is 16, must be 0"),
        (Rope(OUT, X, 24, SPEC), "width modulo head size"),
        (Rope(OUT, X, 8, SPEC), "dims beyond the head is 8"),
        (Rope(OUT, X, 16, replace(SPEC, factors=weight(4))), "factors is 4, must be 8"),
        (Rope(OUT, X, 16, replace(SPEC, sections=(2, 2))), "sections' sum is 4, must be 8"),
        (replace(ATTENTION, num_heads=3), "query width is 64, must be 48"),
        (replace(ATTENTION, num_kv_heads=4), "key width is 32, must be 64"),
        (replace(ATTENTION, num_kv_heads=3), "heads modulo key heads is 1"),
        (replace(ATTENTION, value_size=8), "value width is 32, must be 16"),
        (replace(ATTENTION, v=None), "values given is False"),
        (replace(ATTENTION, sinks=weight(2)), "sinks is 2, must be 4"),
        (GatedActivation(OUT, X, K, Gate.SILU), "second operand is (T, 32), must be (T, 64)"),
        (Add(OUT, X, LOGITS), "second operand is (R, 64), must be (T, 64)"),
        (SelectRows(OUT, LOGITS), "rows is R, must be T"),
        (Scale(OUT, ValueId(5), 1.0), "reads value %5 before it is written"),
        (Scale(OUT, ValueId(-1), 1.0), "reads value %-1 before it is written"),
    ],
)
def test_misfit(op: Operation, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        infer(op, VALUES)
    assert says in str(caught.value)


# --- whole plans -------------------------------------------------------------------------------


@pytest.fixture
def plan() -> Plan:
    return build_plan(*describe(DEFAULTS["llama"]))


@pytest.mark.parametrize("family", DEFAULTS)
def test_every_family_s_plan_holds_together(family: str) -> None:
    check(build_plan(*describe(DEFAULTS[family])))


def test_two_operations_that_write_one_value(plan: Plan) -> None:
    twice = (*plan.operations[:2], *plan.operations[1:])
    with pytest.raises(PlanError, match="value number is 1, must be 2"):
        check(replace(plan, operations=twice))


def test_shapes_that_are_not_the_operations_own(plan: Plan) -> None:
    with pytest.raises(PlanError, match="shapes are not the ones"):
        check(replace(plan, shapes=(*plan.shapes[:-1], Shape(Rows.TOKENS, 1))))
    with pytest.raises(PlanError, match="shapes are not the ones"):
        check(replace(plan, shapes=plan.shapes[:-1]))


def test_an_output_that_nothing_writes(plan: Plan) -> None:
    with pytest.raises(PlanError, match="output pooled names value %999"):
        check(replace(plan, outputs={**plan.outputs, "pooled": ValueId(999)}))
