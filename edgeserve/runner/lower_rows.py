"""One operation of a plan as one operation of the native core on a row."""

from __future__ import annotations

from collections.abc import Callable

from edgeserve.plan.ops import (
    Add,
    Attention,
    Embed,
    GatedActivation,
    Linear,
    MoeLinear,
    MoeRoute,
    MoeSum,
    Operation,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    SoftCap,
    ValueId,
)
from edgeserve.runner.regions import RowOp, RowOpKind


def row_op(op: Operation, operand: Callable[[ValueId], ValueId]) -> RowOp:
    """`op` on one row. `operand` gives the value to read for one of the plan's: its rows are those
    of the result."""
    match op:
        case Embed():
            return RowOp(RowOpKind.EMBED, op.out, weight=op.weight, factor=op.scale)
        case SelectRows():
            return RowOp(RowOpKind.SELECT, op.out, a=op.x)
        case RmsNorm():
            x = operand(op.x)
            return RowOp(
                RowOpKind.RMS_NORM,
                op.out,
                a=x,
                weight=op.weight,
                group=op.group,
                factor=op.epsilon,
            )
        case Rope():
            return RowOp(RowOpKind.ROPE, op.out, a=op.x, rope=op.spec, group=op.head_size)
        case Add():
            a, b = operand(op.a), operand(op.b)
            return RowOp(RowOpKind.ADD, op.out, a=a, b=b)
        case Scale():
            x = operand(op.x)
            return RowOp(RowOpKind.SCALE, op.out, a=x, factor=op.factor)
        case SoftCap():
            x = operand(op.x)
            return RowOp(RowOpKind.SOFT_CAP, op.out, a=x, factor=op.cap)
        case GatedActivation():
            gate, up = operand(op.gate), operand(op.up)
            return RowOp(RowOpKind.GATE, op.out, a=gate, b=up, gate=op.kind)
        case MoeRoute():
            x = operand(op.x)
            return RowOp(
                RowOpKind.MOE_ROUTE, op.out, a=x, normalised=op.normalised, factor=op.scale
            )
        case MoeSum():
            x, route = operand(op.x), operand(op.route)
            return RowOp(RowOpKind.MOE_SUM, op.out, a=x, b=route)
        case Linear() | MoeLinear() | Attention():
            raise AssertionError(f"{type(op).__name__} is no row operation")
