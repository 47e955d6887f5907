"""From the semantic plan to regions for the native core: fusion, row selection, slots.

Fusion never changes a bit, because every fused operation is the same arithmetic in the same order
on the same values; `fuse=False` gives the plan operation by operation, for tests to compare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from edgeserve.errors import UnsupportedModelError
from edgeserve.plan.ops import (
    Add,
    Attention,
    Gate,
    GatedActivation,
    Linear,
    MoeLinear,
    Operation,
    Plan,
    RmsNorm,
    Rope,
    Rows,
    SelectRows,
    ValueId,
    inputs,
)
from edgeserve.plan.rope import RopeSpec
from edgeserve.plan.weights import WeightView
from edgeserve.runner.late_rows import late_values
from edgeserve.runner.lower_rows import row_op
from edgeserve.runner.regions import (
    AttentionRegion,
    ExpertsRegion,
    LinearPart,
    LinearRegion,
    LoweredPlan,
    Region,
    RegionRows,
    RowOp,
    RowOpKind,
    RowsRegion,
)

_PANEL = 16
_UNIT_ROWS, _SMALL_UNIT_ROWS, _SMALL_WEIGHT_ROWS = 64, 32, 1024
"""Weight rows that a thread claims at once: long enough a read, short enough to balance, which in
a weight of few rows takes half the size."""


def _unit_rows(weight: WeightView) -> int:
    return _SMALL_UNIT_ROWS if weight.shape[0] < _SMALL_WEIGHT_ROWS else _UNIT_ROWS


def lower(plan: Plan, *, fuse: bool = True) -> LoweredPlan:
    """The regions of `plan`, in order. Attention chunks need causal masks: see Mask."""
    return _Lowering(plan, fuse).run()


@dataclass(slots=True)
class _Chain:
    """A linear with what follows it, as far as it can be computed on the spot."""

    linear: Linear
    up: Linear | None = None
    gate: Gate | None = None
    head_size: int | None = None
    head_norm: RmsNorm | None = None
    rope: RopeSpec | None = None
    store_key: int | None = None
    store_value: int | None = None
    residual: ValueId | None = None
    out: ValueId = field(init=False)
    folded: list[Operation] = field(default_factory=list[Operation])

    def __post_init__(self) -> None:
        self.out = self.linear.out

    def take(self, op: Operation) -> None:
        self.folded.append(op)
        self.out = op.out


class _Lowering:
    def __init__(self, plan: Plan, fuse: bool) -> None:
        self._plan = plan
        self._fuse = fuse
        self._consumers: dict[ValueId, list[Operation]] = {op.out: [] for op in plan.operations}
        for op in plan.operations:
            for value in inputs(op):
                self._consumers[value].append(op)
        self._late = late_values(plan, self._consumers)
        self._regions: list[Region] = []
        self._done: set[ValueId] = set()
        self._folded_norms: dict[ValueId, RmsNorm] = {}
        self._selected: dict[ValueId, ValueId] = {}
        self._widths = {ValueId(i): shape.width for i, shape in enumerate(plan.shapes)}

    def run(self) -> LoweredPlan:
        for op in self._plan.operations:
            if op.out not in self._done:
                self._lower(op)
        outputs = self._plan.outputs
        hidden = self._lower_hidden(outputs["hidden"])
        return LoweredPlan(tuple(self._regions), self._widths, outputs["logits"], hidden)

    def _lower(self, op: Operation) -> None:
        match op:
            case Linear():
                self._lower_linears(op)
            case MoeLinear():
                self._lower_experts(op)
            case Attention():
                self._lower_attention(op)
            case SelectRows() if self._is_late(op.x):
                # Its input was computed for these rows only.
                self._selected[op.out] = op.x
                self._done.add(op.out)
                self._alias(op.out, op.x)
            case RmsNorm() if self._folds_into_linears(op):
                self._folded_norms[op.out] = op
                self._done.add(op.out)
            case _:
                self._emit_row_op(op)

    # --- rows ----------------------------------------------------------------------------------

    def _is_late(self, value: ValueId) -> bool:
        return value in self._late

    def _rows(self, value: ValueId) -> RegionRows:
        if self._is_late(value):
            return RegionRows.OUTPUT
        of_logits = self._plan.shapes[value].rows is Rows.LOGITS
        return RegionRows.LOGITS if of_logits else RegionRows.TOKENS

    def _operand(self, value: ValueId, rows: RegionRows) -> ValueId:
        """`value` with the rows that its reader has: selected, if the reader has fewer."""
        value = self._resolve(value)
        if rows is RegionRows.TOKENS or self._rows_of_operand(value) is not RegionRows.TOKENS:
            return value
        if value not in self._selected:
            out = ValueId(len(self._widths))
            self._widths[out] = self._widths[value]
            self._selected[value] = out
            self._append_row_op(RowOp(RowOpKind.SELECT, out, a=value), RegionRows.OUTPUT)
        return self._selected[value]

    def _rows_of_operand(self, value: ValueId) -> RegionRows:
        return self._rows(value) if value < len(self._plan.shapes) else RegionRows.OUTPUT

    def _alias(self, value: ValueId, to: ValueId) -> None:
        self._selected[value] = to

    def _resolve(self, value: ValueId) -> ValueId:
        """Follows a selection of late rows to the value itself."""
        producer = self._plan.operations[value] if value < len(self._plan.operations) else None
        if isinstance(producer, SelectRows) and self._is_late(producer.x):
            return self._resolve(producer.x)
        return value

    def _emit_row_op(self, op: Operation) -> None:
        rows = self._rows(op.out)
        self._append_row_op(row_op(op, lambda value: self._operand(value, rows)), rows)
        self._done.add(op.out)

    def _append_row_op(self, op: RowOp, rows: RegionRows) -> None:
        last = self._regions[-1] if self._regions else None
        if self._fuse and isinstance(last, RowsRegion) and last.rows is rows:
            self._regions[-1] = RowsRegion(rows, (*last.ops, op))
        else:
            self._regions.append(RowsRegion(rows, (op,)))

    def _lower_hidden(self, value: ValueId) -> ValueId:
        """The value with rows of hidden states: a norm that went into products is computed again,
        of those rows alone."""
        norm = self._folded_norms.get(value)
        if norm is None:
            return self._operand(value, RegionRows.OUTPUT)
        x = self._operand(norm.x, RegionRows.OUTPUT)
        self._regions.append(RowsRegion(RegionRows.HIDDEN, (row_op(norm, lambda _: x),)))
        return value

    # --- linears -------------------------------------------------------------------------------

    def _folds_into_linears(self, op: RmsNorm) -> bool:
        consumers = self._consumers[op.out]
        return (
            self._fuse
            and op.group == self._widths[op.out]
            and bool(consumers)
            and all(isinstance(c, Linear) or self._is_late_select(c) for c in consumers)
            and len({self._rows(c.out) for c in consumers}) == 1
            and self._reaches_linears_only(op.out)
        )

    def _is_late_select(self, op: Operation) -> bool:
        return isinstance(op, SelectRows) and self._is_late(op.x)

    def _reaches_linears_only(self, value: ValueId) -> bool:
        """Whether all readers, seen through selections of late rows, are linears."""
        for consumer in self._consumers[value]:
            if isinstance(consumer, SelectRows):
                if not self._reaches_linears_only(consumer.out):
                    return False
            elif not isinstance(consumer, Linear):
                return False
        return True

    def _lower_linears(self, first: Linear) -> None:
        """One region for all linears that read what `first` reads."""
        rows = self._rows(first.out)
        x = self._resolve(first.x)
        group = [first]
        if self._fuse:
            group = [op for op in self._readers_of(x) if self._rows(op.out) is rows]
        norm = self._folded_norms.get(x)
        source = self._operand(norm.x if norm is not None else x, rows)
        chains = [chain for op in group for chain in self._chain(op, group)]
        parts = [self._part(chain, rows) for chain in chains]
        self._regions.append(
            LinearRegion(
                rows,
                source,
                tuple(parts),
                norm=norm.weight if norm is not None else None,
                norm_epsilon=norm.epsilon if norm is not None else 0.0,
            )
        )
        for chain in chains:
            self._done.update(op.out for op in (chain.linear, *chain.folded))
            if chain.up is not None:
                self._done.add(chain.up.out)

    def _readers_of(self, value: ValueId) -> list[Linear]:
        found: list[Linear] = []
        for consumer in self._consumers[value]:
            if isinstance(consumer, Linear) and consumer.out not in self._done:
                found.append(consumer)
            elif self._is_late_select(consumer):
                found.extend(self._readers_of(consumer.out))
        return found

    def _chain(self, op: Linear, group: Sequence[Linear]) -> Iterator[_Chain]:
        """The linear with what can be folded after it; nothing for one that is another's `up`."""
        chain = _Chain(op)
        if self._fuse:
            gated = self._sole_consumer(op.out)
            if isinstance(gated, GatedActivation):
                pair = self._gate_pair(gated, group)
                if pair is not None and op is pair[1]:
                    return
                if pair is not None:
                    chain.up, chain.gate = pair[1], gated.kind
                    chain.take(gated)
            self._fold_heads(chain)
            self._fold_residual(chain)
        yield chain

    def _sole_consumer(self, value: ValueId) -> Operation | None:
        consumers = self._consumers[value]
        is_output = value in self._plan.outputs.values()
        return consumers[0] if len(consumers) == 1 and not is_output else None

    def _gate_pair(
        self, gated: GatedActivation, group: Sequence[Linear]
    ) -> tuple[Linear, Linear] | None:
        """(gate, up), if both are linears of this region that nothing else reads."""
        by_out = {op.out: op for op in group}
        gate, up = by_out.get(gated.gate), by_out.get(gated.up)
        if gate is None or up is None or gate is up or gate.scale != up.scale:
            return None
        alone = all(self._sole_consumer(op.out) is gated for op in (gate, up))
        return (gate, up) if alone and gate.weight.shape == up.weight.shape else None

    def _fold_heads(self, chain: _Chain) -> None:
        """Head norm, rope and the store to the cache, where heads are whole panels."""
        follower = self._sole_consumer(chain.out)
        if (
            isinstance(follower, RmsNorm)
            and self._is_head(follower.group, chain)
            # A norm of the whole row would make one unit of the product.
            and isinstance(self._sole_consumer(follower.out), (Rope, Attention))
        ):
            chain.head_norm, chain.head_size = follower, follower.group
            chain.take(follower)
            follower = self._sole_consumer(chain.out)
        if isinstance(follower, Rope) and self._is_head(follower.head_size, chain):
            chain.rope, chain.head_size = follower.spec, follower.head_size
            chain.take(follower)
            follower = self._sole_consumer(chain.out)
        if not isinstance(follower, Attention):
            return
        if follower.k == chain.out and self._is_head(follower.key_size, chain):
            chain.store_key, chain.head_size = follower.cache_id, follower.key_size
        elif follower.v == chain.out and self._is_head(follower.value_size, chain):
            chain.store_value, chain.head_size = follower.cache_id, follower.value_size

    def _is_head(self, size: int, chain: _Chain) -> bool:
        same = chain.head_size is None or chain.head_size == size
        return same and size % _PANEL == 0 and self._widths[chain.linear.out] % size == 0

    def _fold_residual(self, chain: _Chain) -> None:
        if chain.store_key is not None or chain.store_value is not None:
            return
        add = self._sole_consumer(chain.out)
        if isinstance(add, Add) and add.a != add.b:
            other = add.b if add.a == chain.out else add.a
            if other in self._done:
                chain.residual = other
                chain.take(add)

    def _part(self, chain: _Chain, rows: RegionRows) -> LinearPart:
        linear, stored = chain.linear, chain.store_key is not None or chain.store_value is not None
        residual = None if chain.residual is None else self._operand(chain.residual, rows)
        return LinearPart(
            weight=linear.weight,
            bias=linear.bias,
            scale=linear.scale,
            out=None if stored else chain.out,
            unit_rows=chain.head_size or _unit_rows(linear.weight),
            up_weight=chain.up.weight if chain.up is not None else None,
            up_bias=chain.up.bias if chain.up is not None else None,
            gate=chain.gate,
            head_norm=chain.head_norm.weight if chain.head_norm is not None else None,
            head_norm_epsilon=chain.head_norm.epsilon if chain.head_norm is not None else 0.0,
            rope=chain.rope,
            store_key=chain.store_key,
            store_value=chain.store_value,
            residual=residual,
        )

    # --- experts -------------------------------------------------------------------------------

    def _lower_experts(self, op: MoeLinear) -> None:
        """One product by experts; a gated pair of them together."""
        rows = self._rows(op.out)
        _, num_out, _ = op.weight.shape
        if num_out % _PANEL != 0:
            raise UnsupportedModelError(
                f"{op.weight.tensor}: experts of {num_out} rows, no multiple of {_PANEL}, need "
                "--device oracle"
            )
        pair = self._expert_pair(op) if self._fuse else None
        up, gated = pair if pair is not None else (None, None)
        part = LinearPart(
            weight=op.weight,
            bias=None,
            scale=1.0,
            out=op.out if gated is None else gated.out,
            unit_rows=_UNIT_ROWS,
            up_weight=up.weight if up is not None else None,
            gate=gated.kind if gated is not None else None,
        )
        x, route = self._operand(op.x, rows), self._operand(op.route, rows)
        self._regions.append(ExpertsRegion(rows, x, route, part, self._widths[op.route] // 2))
        self._done.update(done.out for done in (op, up, gated) if done is not None)

    def _expert_pair(self, gate: MoeLinear) -> tuple[MoeLinear, GatedActivation] | None:
        """The up product and the activation, if nothing else reads either product."""
        gated = self._sole_consumer(gate.out)
        if not isinstance(gated, GatedActivation) or gated.gate != gate.out:
            return None
        up = self._plan.operations[gated.up]
        if not isinstance(up, MoeLinear) or self._sole_consumer(up.out) is not gated:
            return None
        same = (up.x, up.route, up.weight.shape) == (gate.x, gate.route, gate.weight.shape)
        return (up, gated) if same and up is not gate else None

    # --- attention -----------------------------------------------------------------------------

    def _lower_attention(self, op: Attention) -> None:
        stored_keys, stored_values = self._stored(op.cache_id)
        if op.k is not None and not stored_keys:
            self._append_row_op(
                RowOp(RowOpKind.STORE_KEY, None, a=op.k, cache=op.cache_id), RegionRows.TOKENS
            )
        if op.v is not None and not stored_values:
            self._append_row_op(
                RowOp(RowOpKind.STORE_VALUE, None, a=op.v, cache=op.cache_id), RegionRows.TOKENS
            )
        self._regions.append(AttentionRegion(op))
        self._done.add(op.out)

    def _stored(self, cache_id: int) -> tuple[bool, bool]:
        parts = [p for r in self._regions if isinstance(r, LinearRegion) for p in r.parts]
        return (
            any(part.store_key == cache_id for part in parts),
            any(part.store_value == cache_id for part in parts),
        )
