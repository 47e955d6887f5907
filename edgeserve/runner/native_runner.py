"""The Runner that computes in C: describes the lowered plan to it, makes one C call a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from edgeserve.binding.executor import (
    Fields,
    NativeExecutor,
    PlanArrays,
)
from edgeserve.binding.library import native_num_cores
from edgeserve.home_process import HomeProcess
from edgeserve.plan.ops import CacheGroup, Gate, Plan
from edgeserve.plan.rope import RopeSpec, RopeStyle, rope_frequencies
from edgeserve.plan.weights import WeightView
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.interruptible import run_interruptibly
from edgeserve.runner.kv_types import KV_TYPES, KVType
from edgeserve.runner.native_sampling import SampleRows, token_result
from edgeserve.runner.native_weights import NativeWeights
from edgeserve.runner.region_costs import RegionCost, region_costs
from edgeserve.runner.regions import (
    AttentionRegion,
    ExpertsRegion,
    LinearPart,
    LinearRegion,
    LoweredPlan,
    RegionRows,
    RowOp,
    RowsRegion,
)
from edgeserve.runner.runner import TensorSource

_GATES = {Gate.SILU: 0, Gate.GELU_TANH: 1, Gate.RELU_SQUARED: 2}
_NONE = -1
_LONG_STEP_ROWS = 16
"""From so many on, a step is worth interrupting in its middle."""


class NativeRunner:
    """Implements Runner over native/. `fuse` False and `kernels` are for tests and doctors;
    `kv_cache_dtype` is a name of KV_TYPES. `weights`, of the same plan, may still be filled while
    the runner is made; they are its own from then on. None: it makes and fills them."""

    def __init__(
        self,
        plan: Plan,
        source: TensorSource,
        *,
        num_blocks: int,
        num_threads: int,
        max_rows: int,
        kernels: str | None = None,
        fuse: bool = True,
        kv_cache_dtype: str = "f16",
        weights: NativeWeights | None = None,
    ) -> None:
        self._plan = plan
        self._num_blocks = num_blocks
        self._home = HomeProcess()
        made = NativeWeights(plan, fuse=fuse) if weights is None else weights
        self._weights = made
        try:
            if weights is None:
                made.fill(source, num_threads)
            arrays = _PlanWriter(plan, source, made, max_rows, KV_TYPES[kv_cache_dtype])
            self._executor = NativeExecutor(
                arrays.finish(), num_threads=num_threads, num_blocks=num_blocks, kernels=kernels
            )
        except BaseException:
            if weights is None:
                made.close()
            raise
        self._closing = Lock()
        self._sample_rows = SampleRows()

    @property
    def numerics_class(self) -> str:
        return "exact-1"

    @property
    def kernels(self) -> str:
        """The kernel set that runs."""
        return self._executor.kernels

    @property
    def cache_groups(self) -> Sequence[CacheGroup]:
        return self._plan.cache_groups

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def weight_bytes(self) -> int:
        return sum(weight.num_bytes for weight in self._weights.weights)

    def region_costs(self) -> list[RegionCost]:
        """What each region of a step is called, and what it has to read and to multiply."""
        weights = self._weights.weights
        sizes = {view: weights[i].num_bytes for view, i in self._weights.index.items()}
        token_bytes = [
            self.block_bytes(group) / BLOCK_SIZE for group in range(len(self.cache_groups))
        ]
        return list(region_costs(self._weights.lowered, self.cache_groups, sizes, token_bytes))

    def profile_into(self, nanoseconds: NDArray[np.uint64] | None) -> None:
        """Steps add each region's time, and last what comes before the first, until None."""
        self._here.profile_into(nanoseconds)

    def block_bytes(self, cache_group: int) -> int:
        return self._here.block_bytes(cache_group)

    def execute(self, batch: Batch) -> None:
        executor = self._here

        def step() -> None:
            executor.step(
                batch.token_ids,
                batch.positions,
                batch.first_row,
                batch.num_logits_rows,
                batch.num_hidden_rows,
                batch.block_tables,
                batch.embeddings,
            )

        if len(batch.token_ids) < _LONG_STEP_ROWS:
            step()
            return
        try:
            run_interruptibly(step, lambda: self.abort(True))
        except KeyboardInterrupt:
            self.abort(False)
            raise

    def abort(self, raised: bool) -> None:
        """Makes the running step end with AbortedError; from any thread."""
        self._here.abort(raised)

    def sample(self, rows: Sequence[ChooseToken | ScoreToken]) -> list[TokenResult]:
        found = self._here.sample(self._sample_rows.of(rows))
        return [token_result(sampled) for sampled in found]

    def logits(self) -> NDArray[np.float32]:
        return self._here.logits()

    def hidden(self) -> NDArray[np.float32]:
        return self._here.hidden()

    def copy_blocks(self, cache_group: int, pairs: Sequence[tuple[int, int]]) -> None:
        self._here.copy_blocks(cache_group, pairs)

    def read_blocks(self, cache_group: int, block_ids: Sequence[int]) -> bytes:
        return self._here.read_blocks(cache_group, block_ids)

    def write_blocks(self, cache_group: int, block_ids: Sequence[int], data: bytes) -> None:
        self._here.write_blocks(cache_group, block_ids, data)

    def grow(self, num_blocks: int) -> None:
        if num_blocks > self._num_blocks:
            self._here.grow(num_blocks)
            self._num_blocks = num_blocks

    def close(self) -> None:
        """Ends a step that another thread is in, and gives memory back. Twice is fine."""
        if not self._home.is_here:
            return
        with self._closing:
            self._executor.close()
            self._weights.close()

    @property
    def _here(self) -> NativeExecutor:
        """The executor. In a forked copy its threads and locks would be waited for forever."""
        self._home.require()
        return self._executor


def num_cores() -> int:
    """Cores worth computing on: physical ones, within affinity and cgroup limits."""
    return native_num_cores()


class _PlanWriter:
    """Turns a lowered plan into C's arrays, and reads the vectors it needs on the way."""

    def __init__(
        self,
        plan: Plan,
        source: TensorSource,
        weights: NativeWeights,
        max_rows: int,
        kv_type: KVType,
    ) -> None:
        self._plan = plan
        self._kv_type = kv_type
        self._source = source
        self._weights = weights
        self.lowered: LoweredPlan = weights.lowered
        self._max_rows = max_rows
        self._slot_of, self._slot_widths = self.lowered.slots()
        self._cache_index = {
            cache.cache_id: index
            for index, (_, cache) in enumerate(
                (group, cache) for group in plan.cache_groups for cache in group.caches
            )
        }
        self._vectors: dict[WeightView, int] = {}
        self._vector_data: list[NDArray[np.float32]] = []
        self._ropes: dict[RopeSpec, int] = {}
        self._rope_data: list[tuple[NDArray[np.float64], bool, float]] = []
        self._regions: list[Fields] = []
        self._row_ops: list[Fields] = []
        self._linears: list[Fields] = []
        self._attentions: list[Fields] = []
        self._write_regions()

    def finish(self) -> PlanArrays:
        caches: list[Fields] = [
            {
                "group": index,
                "n_kv_heads": cache.num_kv_heads,
                "key_size": cache.key_size,
                "value_size": cache.value_size,
                "type": self._kv_type.number,
            }
            for index, group in enumerate(self._plan.cache_groups)
            for cache in group.caches
        ]
        return PlanArrays(
            slot_widths=self._slot_widths,
            regions=self._regions,
            row_ops=self._row_ops,
            linears=self._linears,
            attentions=self._attentions,
            caches=caches,
            vectors=self._vector_data,
            ropes=self._rope_data,
            weights=self._weights.weights,
            num_cache_groups=len(self._plan.cache_groups),
            logits=self._slot_of[self.lowered.logits],
            hidden=self._slot_of[self.lowered.hidden],
            vocab_size=self._plan.vocab_size,
            max_rows=self._max_rows,
            max_position=self._plan.max_position,
        )

    def _write_regions(self) -> None:
        for region in self.lowered.regions:
            match region:
                case RowsRegion():
                    self._append(0, self._row_ops, map(self._row_op, region.ops), region.rows)
                case LinearRegion():
                    parts = map(self._linear, region.parts)
                    extra: Fields = {
                        "x": self._slot_of[region.x],
                        "norm": self._vector(region.norm),
                        "norm_epsilon": region.norm_epsilon,
                    }
                    self._append(1, self._linears, parts, region.rows, extra)
                case ExpertsRegion():
                    experts: Fields = {
                        "x": self._slot_of[region.x],
                        "route": self._slot_of[region.route],
                        "n_experts": region.part.weight.shape[0],
                    }
                    self._append(
                        3, self._linears, [self._linear(region.part)], region.rows, experts
                    )
                case AttentionRegion():
                    one = [self._attention(region)]
                    self._append(2, self._attentions, one, RegionRows.TOKENS)

    def _append(
        self,
        kind: int,
        into: list[Fields],
        items: Iterable[Fields],
        rows: RegionRows,
        extra: Fields | None = None,
    ) -> None:
        first = len(into)
        into.extend(items)
        region: dict[str, int | float] = {
            "kind": kind,
            "first": first,
            "count": len(into) - first,
            "rows": int(rows),
            "x": _NONE,
            "norm": _NONE,
            "route": _NONE,
            "n_experts": 0,
        }
        region.update(extra or {})
        self._regions.append(region)

    def _row_op(self, op: RowOp) -> Fields:
        index = _NONE
        if op.rope is not None:
            index = self._rope(op.rope)
        elif op.cache is not None:
            index = self._cache_index[op.cache]
        elif op.gate is not None:
            index = _GATES[op.gate]
        elif op.normalised is not None:
            index = int(op.normalised)
        elif op.weight is not None:
            is_matrix = len(op.weight.shape) == 2
            index = self._weights.index[op.weight] if is_matrix else self._vector(op.weight)
        return {
            "kind": int(op.kind),
            "out": self._slot(op.out),
            "a": self._slot(op.a),
            "b": self._slot(op.b),
            "index": index,
            "group": op.group,
            "factor": op.factor,
        }

    def _linear(self, part: LinearPart) -> Fields:
        return {
            "weight": self._weights.index[part.weight],
            "bias": self._vector(part.bias),
            "out": self._slot(part.out),
            "unit_rows": part.unit_rows,
            "scale": part.scale,
            "up_weight": _NONE if part.up_weight is None else self._weights.index[part.up_weight],
            "up_bias": self._vector(part.up_bias),
            "gate": _NONE if part.gate is None else _GATES[part.gate],
            "head_norm": self._vector(part.head_norm),
            "head_norm_epsilon": part.head_norm_epsilon,
            "rope": _NONE if part.rope is None else self._rope(part.rope),
            "store_key": self._cache(part.store_key),
            "store_value": self._cache(part.store_value),
            "residual": self._slot(part.residual),
        }

    def _attention(self, region: AttentionRegion) -> Fields:
        op = region.op
        return {
            "q": self._slot_of[op.q],
            "out": self._slot_of[op.out],
            "cache": self._cache_index[op.cache_id],
            "n_heads": op.num_heads,
            "window": op.window or 0,
            "sinks": self._vector(op.sinks),
            "scale": op.scale,
            "soft_cap": op.soft_cap or 0.0,
        }

    def _slot(self, value: object) -> int:
        return _NONE if value is None else self._slot_of[value]  # type: ignore[index]

    def _cache(self, cache_id: int | None) -> int:
        return _NONE if cache_id is None else self._cache_index[cache_id]

    def _vector(self, view: WeightView | None) -> int:
        if view is None:
            return _NONE
        if view not in self._vectors:
            whole = self._source.float32_rows(view.tensor, 0, 1).reshape(-1)
            data = whole[view.first_row : view.first_row + view.shape[0]]
            self._vectors[view] = len(self._vector_data)
            self._vector_data.append(np.ascontiguousarray(data, np.float32))
        return self._vectors[view]

    def _rope(self, spec: RopeSpec) -> int:
        if spec not in self._ropes:
            factors = None
            if spec.factors is not None:
                rows = self._source.float32_rows(spec.factors.tensor, 0, 1)
                factors = rows.reshape(-1).astype(np.float64)
            frequencies, magnitude = rope_frequencies(spec, factors)
            self._ropes[spec] = len(self._rope_data)
            interleaved = spec.style is RopeStyle.INTERLEAVED
            self._rope_data.append((np.ascontiguousarray(frequencies), interleaved, magnitude))
        return self._ropes[spec]
