"""The lowered plan as data: regions over values, and the slots that values share.

One region is one barrier in the native core. What the fields mean to it: native/include.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum

from edgeserve.frozen import frozen
from edgeserve.plan.ops import Attention, Gate, ValueId
from edgeserve.plan.rope import RopeSpec
from edgeserve.plan.weights import WeightView


class RegionRows(IntEnum):
    """es_rows: which of a step's rows a region computes."""

    TOKENS = 0
    LOGITS = 1
    OUTPUT = 2
    HIDDEN = 3


class RowOpKind(IntEnum):
    """es_row_op_kind."""

    EMBED = 0
    SELECT = 1
    RMS_NORM = 2
    ROPE = 3
    STORE_KEY = 4
    STORE_VALUE = 5
    ADD = 6
    SCALE = 7
    SOFT_CAP = 8
    GATE = 9
    MOE_ROUTE = 10
    MOE_SUM = 11


@frozen
class RowOp:
    """One operation on a row. `factor` is epsilon for a norm, the cap for a soft cap.

    `b` of MOE_SUM is the route.
    """

    kind: RowOpKind
    out: ValueId | None
    a: ValueId | None = None
    b: ValueId | None = None
    weight: WeightView | None = None
    rope: RopeSpec | None = None
    cache: int | None = None
    gate: Gate | None = None
    normalised: bool | None = None
    group: int = 0
    factor: float = 1.0


@frozen
class RowsRegion:
    rows: RegionRows
    ops: tuple[RowOp, ...]


@frozen
class LinearPart:
    """One product and its epilogue. `out` is None where it goes to the cache."""

    weight: WeightView
    bias: WeightView | None
    scale: float
    out: ValueId | None
    unit_rows: int
    up_weight: WeightView | None = None
    up_bias: WeightView | None = None
    gate: Gate | None = None
    head_norm: WeightView | None = None
    head_norm_epsilon: float = 0.0
    rope: RopeSpec | None = None
    store_key: int | None = None
    store_value: int | None = None
    residual: ValueId | None = None


@frozen
class LinearRegion:
    rows: RegionRows
    x: ValueId
    parts: tuple[LinearPart, ...]
    norm: WeightView | None = None
    norm_epsilon: float = 0.0


@frozen
class AttentionRegion:
    op: Attention


@frozen
class ExpertsRegion:
    """One product, or a gated pair, of each row with each of its experts."""

    rows: RegionRows
    x: ValueId
    route: ValueId
    part: LinearPart
    num_used: int


Region = RowsRegion | LinearRegion | AttentionRegion | ExpertsRegion


def reads(region: Region) -> Iterator[ValueId]:
    """The values a region reads."""
    match region:
        case RowsRegion():
            for op in region.ops:
                yield from (value for value in (op.a, op.b) if value is not None)
        case LinearRegion():
            yield region.x
            for part in region.parts:
                if part.residual is not None:
                    yield part.residual
        case AttentionRegion():
            yield region.op.q
        case ExpertsRegion():
            yield from (region.x, region.route)


def writes(region: Region) -> Iterator[ValueId]:
    """The values a region writes."""
    match region:
        case RowsRegion():
            yield from (op.out for op in region.ops if op.out is not None)
        case LinearRegion():
            yield from (part.out for part in region.parts if part.out is not None)
        case AttentionRegion():
            yield region.op.out
        case ExpertsRegion() if region.part.out is not None:
            yield region.part.out
        case ExpertsRegion():
            pass


@frozen
class LoweredPlan:
    """Regions in order. `widths` gives each value's; `logits` is the value that is sampled.

    The rows of `hidden` that lie behind those with logits are hidden states.
    """

    regions: tuple[Region, ...]
    widths: Mapping[ValueId, int]
    logits: ValueId
    hidden: ValueId

    def slots(self) -> tuple[dict[ValueId, int], list[int]]:
        """A slot for each value, and each slot's width: values that never live together share.

        A region's outputs never share with its inputs, so that units may run in any order.
        """
        last_read = {value: i for i, region in enumerate(self.regions) for value in reads(region)}
        last_read[self.logits] = last_read[self.hidden] = len(self.regions)
        slot_of: dict[ValueId, int] = {}
        widths: list[int] = []
        free: dict[int, list[int]] = {}
        for index, region in enumerate(self.regions):
            written = list(writes(region))
            for value in written:
                pool = free.setdefault(self.widths[value], [])
                if not pool:
                    pool.append(len(widths))
                    widths.append(self.widths[value])
                slot_of[value] = pool.pop()
            for value in {*reads(region), *written}:
                if last_read.get(value, index) == index:
                    free.setdefault(self.widths[value], []).append(slot_of[value])
        return slot_of, widths
