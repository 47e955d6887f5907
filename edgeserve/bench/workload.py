"""What is measured: prompts read and tokens decoded at a depth, and what the steps of that cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.runner.region_costs import RegionCost
from edgeserve.runner.regions import RegionRows

PIECE = 512
"""Tokens of a prompt that are computed in one step."""


class Kind(str, Enum):
    """Prefill computes its tokens together, decode one after another."""

    PREFILL = "prefill"
    DECODE = "decode"


@frozen
class Step:
    """`num_rows` rows from position `first` on, of each of `num_sequences` sequences."""

    first: int
    num_rows: int
    num_sequences: int
    num_logits_rows: int


@frozen
class Measure:
    """`num_tokens` tokens for each of `num_sequences` sequences that hold `depth` already."""

    kind: Kind
    num_tokens: int
    depth: int = 0
    num_sequences: int = 1

    @property
    def name(self) -> str:
        """`pp512`, `tg32 at 4,096`, `tg32 x 8`."""
        short = "pp" if self.kind is Kind.PREFILL else "tg"
        depth = f" at {self.depth:,}" if self.depth else ""
        sequences = f" x {self.num_sequences}" if self.num_sequences > 1 else ""
        return f"{short}{self.num_tokens}{depth}{sequences}"

    @property
    def total_tokens(self) -> int:
        return self.num_tokens * self.num_sequences

    @property
    def end(self) -> int:
        """One past the last position."""
        return self.depth + self.num_tokens

    def steps(self) -> Iterator[Step]:
        """In order."""
        size = PIECE if self.kind is Kind.PREFILL else 1
        for first in range(self.depth, self.end, size):
            num_rows = min(size, self.end - first)
            is_last = first + num_rows == self.end
            logits = int(self.kind is Kind.DECODE or is_last)
            yield Step(first, num_rows, self.num_sequences, logits)


@frozen
class Sizes:
    """What a user may set. Sequences decode together at the first depth."""

    prefill: int = 512
    decode: int = 32
    depths: tuple[int, ...] = (0, 512, 4096)
    sequences: tuple[int, ...] = (1, 2, 4, 8, 16, 32)

    def __post_init__(self) -> None:
        for name, values, least in (
            ("--prefill", (self.prefill,), 1),
            ("--decode", (self.decode,), 1),
            ("--depths", self.depths, 0),
            ("--sequences", self.sequences, 1),
        ):
            for value in values:
                if value < least:
                    raise InvalidRequestError(name, value, f"{least} or more")

    def measures(self) -> tuple[Measure, ...]:
        """Of one sequence first, by depth, so that a context is filled once; then of several."""
        alone = [
            measure
            for depth in sorted(set(self.depths))
            for measure in (
                Measure(Kind.PREFILL, self.prefill, depth),
                Measure(Kind.DECODE, self.decode, depth),
            )
        ]
        together = [
            Measure(Kind.DECODE, self.decode, self.depths[0], count)
            for count in sorted(set(self.sequences))
            if count > 1 and self.depths
        ]
        return (*alone, *together)


QUICK = Sizes(prefill=128, decode=8, depths=(0, 512), sequences=(1, 4))


@frozen
class LeftOut:
    """A measure that this model or machine has no room for."""

    measure: Measure
    reason: str


def fitting(
    measures: Iterable[Measure], *, max_position: int, max_kv_tokens: int
) -> tuple[tuple[Measure, ...], tuple[LeftOut, ...]]:
    """The measures that fit the model's context and memory, and those that do not."""
    kept: list[Measure] = []
    left_out: list[LeftOut] = []
    for measure in measures:
        kv_tokens = measure.end * measure.num_sequences
        if measure.end > max_position:
            left_out.append(LeftOut(measure, f"the model's context is {max_position:,} tokens"))
        elif kv_tokens > max_kv_tokens:
            reason = f"memory holds keys and values of {max_kv_tokens:,} tokens, not {kv_tokens:,}"
            left_out.append(LeftOut(measure, reason))
        else:
            kept.append(measure)
    return tuple(kept), tuple(left_out)


@frozen
class Work:
    """What some steps have to do at the least. An operation is a product or its addition.

    `weight_operations` are the products with weights, `operations` those of attention too.
    """

    num_bytes: float = 0.0
    weight_operations: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.num_bytes + other.num_bytes,
            self.weight_operations + other.weight_operations,
            self.operations + other.operations,
        )


def work_of(costs: Sequence[RegionCost], steps: Iterable[Step]) -> Work:
    """What the regions cost over the steps."""
    total = Work()
    for step in steps:
        for cost in costs:
            total += _region_work(cost, step)
    return total


def _region_work(cost: RegionCost, step: Step) -> Work:
    num_rows = _rows_per_sequence(cost.rows, step) * step.num_sequences
    if num_rows == 0:
        return Work()
    weights = 2.0 * cost.products * num_rows
    if not cost.position_products:
        return Work(cost.bytes_for(num_rows), weights, weights)
    window = cost.window or step.first + step.num_rows
    positions = range(step.first, step.first + step.num_rows)
    seen = sum(min(position + 1, window) for position in positions) * step.num_sequences
    read = min(step.first + step.num_rows, window + step.num_rows - 1) * step.num_sequences
    return Work(
        cost.weight_bytes + cost.position_bytes * read,
        weights,
        weights + 2.0 * cost.position_products * seen,
    )


def _rows_per_sequence(rows: RegionRows, step: Step) -> int:
    match rows:
        case RegionRows.TOKENS:
            return step.num_rows
        case RegionRows.LOGITS | RegionRows.OUTPUT:
            return step.num_logits_rows
        case RegionRows.HIDDEN:
            return 0
