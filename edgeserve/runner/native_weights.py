"""A lowered plan's weight matrices in C's memory, and filling them out of a model's files.

Apart from the runner, and without numpy: weights are read while that is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgeserve.binding.weights import NativeWeight, WeightRows
from edgeserve.plan.ops import Plan
from edgeserve.plan.weights import WeightView
from edgeserve.runner.lower import lower
from edgeserve.runner.regions import ExpertsRegion, LinearRegion, LoweredPlan, RowsRegion
from edgeserve.runner.runner import TensorSource


class NativeWeights:
    """Room for the weights of a plan, with their index in C's plan. Close it once."""

    def __init__(self, plan: Plan, *, fuse: bool = True) -> None:
        self.lowered: LoweredPlan = lower(plan, fuse=fuse)
        self.index: dict[WeightView, int] = {}
        self.weights: list[NativeWeight] = []
        try:
            for view in _matrices(self.lowered):
                if view not in self.index:
                    weight = NativeWeight(view.quant_type, view.num_rows, view.shape[-1])
                    self.index[view] = len(self.weights)
                    self.weights.append(weight)
        except BaseException:
            self.close()
            raise

    def fill(self, source: TensorSource, num_threads: int) -> None:
        """Reads and repacks all of them, on `num_threads` threads in C."""
        wanted: Sequence[WeightRows] = [
            WeightRows(self.weights[index], view.tensor, view.first_row)
            for view, index in self.index.items()
        ]
        source.load_weights(wanted, num_threads)

    def close(self) -> None:
        """Gives the memory back; nothing may read or fill it any more."""
        for weight in self.weights:
            weight.close()


def _matrices(lowered: LoweredPlan) -> Iterator[WeightView]:
    for region in lowered.regions:
        if isinstance(region, RowsRegion):
            for op in region.ops:
                if op.weight is not None and len(op.weight.shape) == 2:
                    yield op.weight
        elif isinstance(region, (LinearRegion, ExpertsRegion)):
            parts = region.parts if isinstance(region, LinearRegion) else (region.part,)
            for part in parts:
                yield part.weight
                if part.up_weight is not None:
                    yield part.up_weight
