"""Where our time goes: a measure's steps by operation, the same one of all layers added up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgeserve.bench.contestant import Native
from edgeserve.bench.timing import Clock, Limits
from edgeserve.bench.workload import Measure, Work, work_of
from edgeserve.frozen import frozen
from edgeserve.runner.region_costs import RegionCost

BEFORE = "before the first"
OUTSIDE = "outside the core"


@frozen
class OperationTime:
    """All layers' of one operation, in all steps of the measure."""

    name: str
    seconds: float
    share: float
    work: Work

    @property
    def bytes_per_s(self) -> float:
        return self.work.num_bytes / self.seconds if self.seconds else 0.0

    @property
    def operations_per_s(self) -> float:
        return self.work.operations / self.seconds if self.seconds else 0.0

    @property
    def weight_operations_per_s(self) -> float:
        return self.work.weight_operations / self.seconds if self.seconds else 0.0


@frozen
class Profile:
    """By operation, in the order of a layer; what is no operation comes last."""

    measure: Measure
    num_steps: int
    seconds: float
    limits: Limits
    operations: tuple[OperationTime, ...]


def profile(ours: Native, measure: Measure, limits: Limits, clock: Clock) -> Profile:
    """Runs the measure once more, with a clock read after every region."""
    costs = ours.runner.region_costs()
    nanoseconds = np.zeros(len(costs) + 1, np.uint64)
    ours.prepare(measure)
    ours.runner.profile_into(nanoseconds)
    try:
        started = clock()
        ours.run(measure)
        seconds = clock() - started
    finally:
        ours.runner.profile_into(None)
    operations = _operations(measure, costs, [float(n) * 1e-9 for n in nanoseconds], seconds)
    return Profile(measure, len(list(measure.steps())), seconds, limits, operations)


def _operations(
    measure: Measure, costs: Sequence[RegionCost], seconds: Sequence[float], total: float
) -> tuple[OperationTime, ...]:
    named: dict[str, tuple[float, list[RegionCost]]] = {}
    for cost, spent in zip(costs, seconds, strict=False):
        before, members = named.get(cost.name, (0.0, []))
        named[cost.name] = (before + spent, [*members, cost])
    named[BEFORE] = (seconds[-1], [])
    named[OUTSIDE] = (max(0.0, total - sum(seconds)), [])
    steps = list(measure.steps())
    return tuple(
        OperationTime(name, spent, spent / total if total else 0.0, work_of(members, steps))
        for name, (spent, members) in named.items()
    )
