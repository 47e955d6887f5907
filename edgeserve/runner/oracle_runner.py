"""The plan in numpy: slow, plain, and the reference for every other executor.

Each output row is a function of its own row and of the keys before it, never of the rows beside
it: a matrix product is taken row by row, over fixed blocks of the weight, so that the order of
every sum is the same whatever the chunk. Weights are dequantised and held in `dtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edgeserve.errors import LibraryError
from edgeserve.plan.ops import (
    Add,
    Attention,
    CacheGroup,
    Embed,
    Gate,
    GatedActivation,
    Linear,
    Mask,
    MoeLinear,
    MoeRoute,
    MoeSum,
    Operation,
    Plan,
    RmsNorm,
    Rope,
    Scale,
    SelectRows,
    SoftCap,
    ValueId,
)
from edgeserve.plan.rope import RopeSpec, RopeStyle, rope_frequencies
from edgeserve.plan.weights import WeightView
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.oracle_sampler import sample_rows
from edgeserve.runner.runner import TensorSource

Array = NDArray[np.floating]

_WEIGHT_BLOCK_BYTES = 1 << 18
"""Rows of a weight are multiplied in blocks of about this size, so that they stay in cache."""

_GELU_SCALE = float(np.sqrt(2.0 / np.pi))


def _silu(x: Array) -> Array:
    # exp of the negative magnitude never overflows.
    small = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, small) / (1.0 + small)


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(_GELU_SCALE * x * (1.0 + 0.044715 * x * x)))


def _relu_squared(x: Array) -> Array:
    return np.square(np.maximum(x, 0.0))


_GATES: Mapping[Gate, Callable[[Array], Array]] = {
    Gate.SILU: _silu,
    Gate.GELU_TANH: _gelu_tanh,
    Gate.RELU_SQUARED: _relu_squared,
}


def _last_rows(batch: Batch, counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Of each row group the last `counts`."""
    ends = batch.first_row[1:].tolist()
    rows: list[NDArray[np.int64]] = [
        np.arange(end - count, end) for end, count in zip(ends, counts.tolist(), strict=True)
    ]
    return np.concatenate(rows)


class OracleRunner:
    """Implements Runner. `dtype` is numpy's float32 or float64; the KV cache has the same."""

    def __init__(
        self, plan: Plan, source: TensorSource, *, num_blocks: int, dtype: type[np.floating]
    ) -> None:
        self._plan = plan
        self._dtype = dtype
        self._num_blocks = num_blocks
        self._source = source
        self._weights: dict[WeightView, Array] = {}
        self._rope: dict[RopeSpec, tuple[NDArray[np.float64], float]] = {}
        self._group_of: dict[int, int] = {}
        self._caches: dict[int, tuple[Array, Array]] = {}
        for index, group in enumerate(plan.cache_groups):
            for cache in group.caches:
                self._group_of[cache.cache_id] = index
                heads = (num_blocks, BLOCK_SIZE, cache.num_kv_heads)
                self._caches[cache.cache_id] = (
                    np.zeros((*heads, cache.key_size), dtype),
                    np.zeros((*heads, cache.value_size), dtype),
                )
        for op in plan.operations:
            self._load(op)
        self._logits: Array = np.zeros((0, plan.vocab_size), dtype)
        self._hidden: Array = np.zeros((0, 1), dtype)

    @property
    def numerics_class(self) -> str:
        return f"oracle-{np.dtype(self._dtype).name}"

    @property
    def cache_groups(self) -> Sequence[CacheGroup]:
        return self._plan.cache_groups

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    def block_bytes(self, cache_group: int) -> int:
        group = self._plan.cache_groups[cache_group]
        return int(group.bytes_per_token(np.dtype(self._dtype).itemsize)) * BLOCK_SIZE

    def execute(self, batch: Batch) -> None:
        values: dict[ValueId, Array] = {}
        for op in self._plan.operations:
            values[op.out] = self._run(op, values, batch)
        self._logits = values[self._plan.outputs["logits"]]
        hidden = values[self._plan.outputs["hidden"]]
        self._hidden = hidden[_last_rows(batch, batch.num_hidden_rows)]

    def sample(self, rows: Sequence[ChooseToken | ScoreToken]) -> list[TokenResult]:
        return sample_rows(self._logits, rows)

    def logits(self) -> Array:
        return self._logits

    def hidden(self) -> Array:
        return self._hidden

    def copy_blocks(self, cache_group: int, pairs: Sequence[tuple[int, int]]) -> None:
        for array in self._arrays(cache_group):
            for source, destination in pairs:
                array[destination] = array[source]

    def read_blocks(self, cache_group: int, block_ids: Sequence[int]) -> bytes:
        arrays = self._arrays(cache_group)
        return b"".join(array[block].tobytes() for block in block_ids for array in arrays)

    def write_blocks(self, cache_group: int, block_ids: Sequence[int], data: bytes) -> None:
        expected = len(block_ids) * self.block_bytes(cache_group)
        if len(data) != expected:
            raise ValueError(f"{len(block_ids)} blocks are {expected} bytes, not {len(data)}")
        flat = np.frombuffer(data, self._dtype)
        offset = 0
        for block in block_ids:
            for array in self._arrays(cache_group):
                size = array[block].size
                array[block] = flat[offset : offset + size].reshape(array[block].shape)
                offset += size

    def grow(self, num_blocks: int) -> None:
        extra = max(0, num_blocks - self._num_blocks)
        for cache_id, arrays in self._caches.items():
            keys, values = (
                np.concatenate([a, np.zeros((extra, *a.shape[1:]), a.dtype)]) for a in arrays
            )
            self._caches[cache_id] = (keys, values)
        self._num_blocks += extra

    def close(self) -> None:
        self._weights.clear()
        self._caches.clear()

    def _arrays(self, cache_group: int) -> list[Array]:
        caches = self._plan.cache_groups[cache_group].caches
        return [array for cache in caches for array in self._caches[cache.cache_id]]

    # --- weights -------------------------------------------------------------------------------

    def _load(self, op: Operation) -> None:
        match op:
            case Embed() | RmsNorm() | MoeLinear():
                self._fetch(op.weight)
            case Linear():
                self._fetch(op.weight)
                if op.bias is not None:
                    self._fetch(op.bias)
            case Rope():
                factors = None
                if op.spec.factors is not None:
                    factors = self._fetch(op.spec.factors).astype(np.float64)
                self._rope[op.spec] = rope_frequencies(op.spec, factors)
            case Attention() if op.sinks is not None:
                self._fetch(op.sinks)
            case _:
                pass

    def _fetch(self, view: WeightView) -> Array:
        """The view's data, held once, in the view's shape."""
        if view not in self._weights:
            vector = len(view.shape) == 1
            first = 0 if vector else view.first_row
            rows = self._source.float32_rows(view.tensor, first, 1 if vector else view.num_rows)
            if vector:
                rows = rows.reshape(-1)[view.first_row : view.first_row + view.shape[0]]
            self._weights[view] = np.ascontiguousarray(rows, self._dtype).reshape(view.shape)
        return self._weights[view]

    # --- operations ----------------------------------------------------------------------------

    def _run(self, op: Operation, values: Mapping[ValueId, Array], batch: Batch) -> Array:
        match op:
            case Embed():
                return self._embed(op, batch)
            case RmsNorm():
                return self._rms_norm(op, values[op.x])
            case Linear():
                return self._linear(op, values[op.x])
            case MoeRoute():
                return self._route(op, values[op.x])
            case MoeLinear():
                return self._moe_linear(op, values[op.x], values[op.route])
            case MoeSum():
                return self._moe_sum(values[op.x], values[op.route])
            case Rope():
                return self._rotate(op, values[op.x], batch)
            case Attention():
                return self._attention(op, values, batch)
            case GatedActivation():
                return _GATES[op.kind](values[op.gate]) * values[op.up]
            case Add():
                return values[op.a] + values[op.b]
            case Scale():
                return values[op.x] * self._dtype(op.factor)
            case SoftCap():
                return op.cap * np.tanh(values[op.x] / op.cap)
            case SelectRows():
                return values[op.x][_last_rows(batch, batch.num_logits_rows)]

    def _embed(self, op: Embed, batch: Batch) -> Array:
        weight = self._fetch(op.weight)
        # Row -1, which stands for "given as an embedding", reads some row and is overwritten.
        out = weight[batch.token_ids] * self._dtype(op.scale)
        if batch.embeddings is not None:
            given = batch.token_ids == -1
            out[given] = batch.embeddings[given]
        return out

    def _rms_norm(self, op: RmsNorm, x: Array) -> Array:
        groups = x.reshape(len(x), -1, op.group)
        mean = np.mean(np.square(groups), axis=-1, keepdims=True)
        normed = groups / np.sqrt(mean + self._dtype(op.epsilon)) * self._fetch(op.weight)
        return normed.reshape(x.shape)

    def _linear(self, op: Linear, x: Array) -> Array:
        out = self._product(self._fetch(op.weight), x)
        if op.scale != 1.0:
            out *= self._dtype(op.scale)
        if op.bias is not None:
            out += self._fetch(op.bias)
        return out

    def _product(self, weight: Array, x: Array) -> Array:
        """x weight^T, row by row."""
        num_out, num_in = weight.shape
        out = np.empty((len(x), num_out), self._dtype)
        step = max(1, _WEIGHT_BLOCK_BYTES // (num_in * weight.itemsize))
        for first in range(0, num_out, step):
            block = weight[first : first + step]
            for row, into in zip(x, out, strict=True):
                np.dot(block, row, out=into[first : first + step])
        return out

    def _route(self, op: MoeRoute, x: Array) -> Array:
        # Stable: of equals the lowest id first.
        ids = np.argsort(-x, axis=1, kind="stable")[:, : op.num_used]
        chosen = np.take_along_axis(x, ids, axis=1)
        largest = chosen[:, :1]
        weights = np.exp(chosen - largest)
        shares = weights if op.normalised else np.exp(x - largest)
        weights = weights / shares.sum(axis=1, keepdims=True) * self._dtype(op.scale)
        return np.concatenate([ids.astype(self._dtype), weights], axis=1)

    def _moe_linear(self, op: MoeLinear, x: Array, route: Array) -> Array:
        weight = self._fetch(op.weight)
        num_experts, num_out, num_in = weight.shape
        num_used = route.shape[1] // 2
        ids = route[:, :num_used]
        runs = np.broadcast_to(x.reshape(len(x), -1, num_in), (len(x), num_used, num_in))
        out = np.empty((len(x), num_used, num_out), self._dtype)
        for expert in range(num_experts):
            here = ids == expert
            out[here] = self._product(weight[expert], runs[here])
        return out.reshape(len(x), -1)

    def _moe_sum(self, x: Array, route: Array) -> Array:
        weights = route[:, route.shape[1] // 2 :]
        runs = x.reshape(len(x), weights.shape[1], -1)
        out = np.zeros_like(runs[:, 0])
        for rank in range(weights.shape[1]):
            out += runs[:, rank] * weights[:, rank : rank + 1]
        return out

    def _rotate(self, op: Rope, x: Array, batch: Batch) -> Array:
        frequencies, magnitude = self._rope[op.spec]
        angles = batch.positions[:, None, None].astype(np.float64) * frequencies
        cos = (np.cos(angles) * magnitude).astype(self._dtype)
        sin = (np.sin(angles) * magnitude).astype(self._dtype)
        out = x.reshape(len(x), -1, op.head_size).copy()
        dims = op.spec.dims
        if op.spec.style is RopeStyle.INTERLEAVED:
            first, second = np.s_[..., 0:dims:2], np.s_[..., 1:dims:2]
        else:
            first, second = np.s_[..., : dims // 2], np.s_[..., dims // 2 : dims]
        a, b = out[first].copy(), out[second].copy()
        out[first] = a * cos - b * sin
        out[second] = a * sin + b * cos
        return out.reshape(x.shape)

    def _attention(self, op: Attention, values: Mapping[ValueId, Array], batch: Batch) -> Array:
        keys, cached = self._caches[op.cache_id]
        tables = batch.block_tables[self._group_of[op.cache_id]]
        group_of_row = np.repeat(np.arange(batch.num_groups), np.diff(batch.first_row))
        if op.k is not None and op.v is not None:
            columns = batch.positions // BLOCK_SIZE
            if columns.max() >= tables.shape[1] or (tables[group_of_row, columns] < 0).any():
                raise LibraryError("a row has no block for its position in the block table")
            blocks = tables[group_of_row, columns]
            slots = batch.positions % BLOCK_SIZE
            keys[blocks, slots] = values[op.k].reshape(-1, op.num_kv_heads, op.key_size)
            cached[blocks, slots] = values[op.v].reshape(-1, op.num_kv_heads, op.value_size)
        queries = values[op.q].reshape(
            -1, op.num_kv_heads, op.num_heads // op.num_kv_heads, op.key_size
        )
        out = np.empty((batch.num_rows, op.num_heads * op.value_size), self._dtype)
        for g in range(batch.num_groups):
            rows = range(int(batch.first_row[g]), int(batch.first_row[g + 1]))
            last = int(batch.positions[rows[-1]])
            table = tables[g, : last // BLOCK_SIZE + 1]
            # (kv heads, positions, size): a head's history lies together.
            history_k = keys[table].reshape(-1, op.num_kv_heads, op.key_size).swapaxes(0, 1).copy()
            history_v = cached[table].reshape(-1, op.num_kv_heads, op.value_size)
            history_v = history_v.swapaxes(0, 1).copy()
            for row in rows:
                end = last + 1 if op.mask is Mask.NONE else int(batch.positions[row]) + 1
                start = 0 if op.window is None else max(0, end - op.window)
                seen = slice(start, end)
                out[row] = self._attend(op, queries[row], history_k[:, seen], history_v[:, seen])
        return out

    def _attend(self, op: Attention, query: Array, keys: Array, values: Array) -> Array:
        """One row: query (kv heads, group, size), keys and values (kv heads, positions, size)."""
        out = np.empty((op.num_kv_heads, query.shape[1], op.value_size), self._dtype)
        for head in range(op.num_kv_heads):
            scores = (query[head] @ keys[head].T) * self._dtype(op.scale)
            if op.soft_cap is not None:
                scores = op.soft_cap * np.tanh(scores / op.soft_cap)
            top = scores.max(axis=-1, keepdims=True)
            sinks = None
            if op.sinks is not None:
                sinks = self._fetch(op.sinks).reshape(op.num_kv_heads, -1)[head][:, None]
                top = np.maximum(top, sinks)
            weights = np.exp(scores - top)
            total = weights.sum(axis=-1, keepdims=True)
            if sinks is not None:
                total = total + np.exp(sinks - top)
            out[head] = (weights @ values[head]) / total
        return out.reshape(-1)
