"""A plan as text, one operation a line: what golden files hold and people read."""

from __future__ import annotations

from dataclasses import fields

from edgeserve.plan.ops import CacheGroup, Operation, Plan, Shape, inputs
from edgeserve.plan.rope import RopeSpec, Yarn
from edgeserve.plan.weights import WeightView


def plan_to_text(plan: Plan) -> str:
    """Deterministic: equal plans give equal text, different ones different text."""
    lines = [f"plan {plan.architecture} vocab={plan.vocab_size} max_position={plan.max_position}"]
    lines.append(f"inputs {_attributes(plan.inputs)}".rstrip())
    lines.append(f"flags chunkable={plan.chunkable} causal={plan.causal}")
    lines.extend(_group_line(index, group) for index, group in enumerate(plan.cache_groups))
    lines.extend(
        _operation_line(op, shape) for op, shape in zip(plan.operations, plan.shapes, strict=True)
    )
    lines.extend(f"output {name} = %{value}" for name, value in plan.outputs.items())
    return "\n".join(lines) + "\n"


def _group_line(index: int, group: CacheGroup) -> str:
    window = f" window={group.window}" if group.window is not None else ""
    caches = " ".join(
        f"{cache.cache_id}:{cache.num_kv_heads}x({cache.key_size}+{cache.value_size})"
        for cache in group.caches
    )
    return f"cache group {index} {group.kind.value}{window}: {caches}"


def _operation_line(op: Operation, shape: Shape) -> str:
    operands = " ".join(f"%{value}" for value in inputs(op))
    skip = {"out", "x", "route", "q", "k", "v", "gate", "up", "a", "b"}
    attributes = _attributes(op, skip)
    return " ".join(
        part for part in (f"%{op.out} {shape} =", type(op).__name__, operands, attributes) if part
    )


def _attributes(item: object, skip: frozenset[str] | set[str] = frozenset()) -> str:
    """Every field that differs from its default, as name=value."""
    shown: list[str] = []
    for f in fields(item):  # type: ignore[arg-type]
        value = getattr(item, f.name)
        if f.name not in skip and value != f.default:
            shown.append(f"{f.name}={_value(value)}")
    return " ".join(shown)


def _value(value: object) -> str:
    if isinstance(value, (RopeSpec, Yarn)):
        return f"({_attributes(value)})"
    if isinstance(value, WeightView):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    return str(getattr(value, "value", value))
