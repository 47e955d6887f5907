"""Shape inference: the one place that knows which shapes an operation takes and gives."""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.errors import ModelError
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
    Plan,
    RmsNorm,
    Rope,
    Rows,
    Scale,
    SelectRows,
    Shape,
    SoftCap,
    inputs,
)


class PlanError(ModelError):
    """An architecture wrote an operation whose inputs do not fit together."""


def infer(op: Operation, shapes: Sequence[Shape]) -> Shape:
    """The shape of `op.out`, given the shapes of all values before it. Raises PlanError."""
    for value in inputs(op):
        if not 0 <= value < len(shapes):
            raise PlanError(f"{type(op).__name__} reads value %{value} before it is written")
    match op:
        case Embed():
            return Shape(Rows.TOKENS, op.weight.shape[1])
        case Linear():
            return _linear(op, shapes[op.x])
        case MoeRoute():
            missing = max(0, op.num_used - shapes[op.x].width)
            _expect(op, "experts used beyond those there", missing, 0)
            return Shape(shapes[op.x].rows, 2 * op.num_used)
        case MoeLinear():
            return _moe_linear(op, shapes[op.x], shapes[op.route])
        case MoeSum():
            return _moe_sum(op, shapes[op.x], shapes[op.route])
        case RmsNorm():
            return _rms_norm(op, shapes[op.x])
        case Rope():
            return _rope(op, shapes[op.x])
        case Attention():
            return _attention(op, shapes)
        case GatedActivation():
            return _same(op, shapes[op.gate], shapes[op.up])
        case Add():
            return _same(op, shapes[op.a], shapes[op.b])
        case Scale() | SoftCap():
            return shapes[op.x]
        case SelectRows():
            _expect(op, "rows", shapes[op.x].rows.value, Rows.TOKENS.value)
            return Shape(Rows.LOGITS, shapes[op.x].width)


def check(plan: Plan) -> None:
    """Infers a whole plan again and compares: single assignment, order, shapes, outputs."""
    shapes: list[Shape] = []
    for op in plan.operations:
        _expect(op, "value number", op.out, len(shapes))
        shapes.append(infer(op, shapes))
    if tuple(shapes) != plan.shapes:
        raise PlanError("the plan's shapes are not the ones its operations give")
    for name, value in plan.outputs.items():
        if not 0 <= value < len(shapes):
            raise PlanError(f"output {name} names value %{value}, which nothing writes")


def _linear(op: Linear, x: Shape) -> Shape:
    num_out, num_in = op.weight.shape
    _expect(op, f"{op.name} input width", x.width, num_in)
    if op.bias is not None:
        _expect(op, f"{op.name} bias length", op.bias.shape[0], num_out)
    return Shape(x.rows, num_out)


def _moe_linear(op: MoeLinear, x: Shape, route: Shape) -> Shape:
    _, num_out, num_in = op.weight.shape
    num_used = route.width // 2
    _expect(op, f"{op.name} route rows", route.rows.value, x.rows.value)
    if x.width != num_used * num_in:
        _expect(op, f"{op.name} input width", x.width, num_in)
    return Shape(x.rows, num_used * num_out)


def _moe_sum(op: MoeSum, x: Shape, route: Shape) -> Shape:
    num_used = route.width // 2
    _expect(op, "route rows", route.rows.value, x.rows.value)
    _expect(op, "width modulo experts used", x.width % num_used, 0)
    return Shape(x.rows, x.width // num_used)


def _rms_norm(op: RmsNorm, x: Shape) -> Shape:
    _expect(op, "weight length", op.weight.shape[0], op.group)
    _expect(op, "width modulo group", x.width % op.group, 0)
    return x


def _rope(op: Rope, x: Shape) -> Shape:
    _expect(op, "width modulo head size", x.width % op.head_size, 0)
    _expect(op, "dims beyond the head", max(0, op.spec.dims - op.head_size), 0)
    if op.spec.factors is not None:
        _expect(op, "factors", op.spec.factors.shape[0], op.spec.dims // 2)
    if op.spec.sections:
        _expect(op, "sections' sum", sum(op.spec.sections), op.spec.dims // 2)
    return x


def _attention(op: Attention, shapes: Sequence[Shape]) -> Shape:
    _expect(op, "query width", shapes[op.q].width, op.num_heads * op.key_size)
    _expect(op, "heads modulo key heads", op.num_heads % op.num_kv_heads, 0)
    _expect(op, "values given", op.v is not None, op.k is not None)
    if op.k is not None and op.v is not None:
        _expect(op, "key width", shapes[op.k].width, op.num_kv_heads * op.key_size)
        _expect(op, "value width", shapes[op.v].width, op.num_kv_heads * op.value_size)
    if op.sinks is not None:
        _expect(op, "sinks", op.sinks.shape[0], op.num_heads)
    return Shape(shapes[op.q].rows, op.num_heads * op.value_size)


def _same(op: Operation, a: Shape, b: Shape) -> Shape:
    _expect(op, "second operand", str(b), str(a))
    return a


def _expect(op: Operation, what: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise PlanError(f"{type(op).__name__} %{op.out}: {what} is {actual}, must be {expected}")
