"""Which values of a plan a step needs of its last rows only: those with logits or hidden states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgeserve.plan.ops import (
    Add,
    GatedActivation,
    Linear,
    MoeLinear,
    MoeRoute,
    MoeSum,
    Operation,
    Plan,
    RmsNorm,
    Rows,
    Scale,
    SelectRows,
    SoftCap,
    ValueId,
)

_ROW_WISE = (
    RmsNorm,
    Linear,
    MoeRoute,
    MoeLinear,
    MoeSum,
    GatedActivation,
    Add,
    Scale,
    SoftCap,
    SelectRows,
)
"""Operations that need nothing but their row: not its position, nor the cache."""


def late_values(plan: Plan, consumers: Mapping[ValueId, Iterable[Operation]]) -> frozenset[ValueId]:
    """Values of token rows of which a few are wanted: the end of the last layer."""
    late: set[ValueId] = set()
    for op in reversed(plan.operations):
        if plan.shapes[op.out].rows is not Rows.TOKENS or not isinstance(op, _ROW_WISE):
            continue
        readers = list(consumers[op.out])
        if readers and all(
            isinstance(reader, SelectRows) or reader.out in late for reader in readers
        ):
            late.add(op.out)
    return frozenset(late)
