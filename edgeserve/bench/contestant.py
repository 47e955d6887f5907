"""Who is measured: the Protocol, and this package's own runner behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from edgeserve.bench.workload import PIECE, Kind, Measure, Step
from edgeserve.loader.gguf import ModelFile
from edgeserve.loader.tensors import TensorReader
from edgeserve.plan.ops import Plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup
from edgeserve.runner.native_runner import NativeRunner


class Contestant(Protocol):
    """Something that computes a measure's tokens, as often as asked."""

    @property
    def name(self) -> str: ...

    def prepare(self, measure: Measure) -> None:
        """What is not timed: brings every sequence to the measure's depth."""
        ...

    def run(self, measure: Measure) -> None:
        """What is timed. Returns when everything has been computed."""
        ...

    def close(self) -> None: ...


def token_ids(first: int, count: int, vocab_size: int) -> list[int]:
    """Ids for positions `first`, …: the same at each position whoever computes it."""
    # Scattered, and behind the control tokens that most vocabularies begin with.
    span = max(1, vocab_size - 20)
    return [
        min(10, vocab_size - 1) + (i * 2654435761 >> 7) % span for i in range(first, first + count)
    ]


def open_native(
    file: ModelFile,
    plan: Plan,
    measures: Sequence[Measure],
    num_threads: int,
    kernels: str | None = None,
    kv_cache_dtype: str = "f16",
) -> Native:
    """The C core with room for the largest of the measures."""
    with TensorReader(file) as tensors:
        runner = NativeRunner(
            plan,
            tensors,
            num_blocks=max(_per_sequence(m) * m.num_sequences for m in measures),
            num_threads=num_threads,
            max_rows=max(PIECE, *(m.num_sequences for m in measures)),
            kernels=kernels,
            kv_cache_dtype=kv_cache_dtype,
        )
    return Native(runner, plan.vocab_size)


def _per_sequence(measure: Measure) -> int:
    return -(-measure.end // BLOCK_SIZE)


class Native:
    """The C core, one call a step. Sequence i has blocks [i * n, (i + 1) * n), n by measure."""

    def __init__(self, runner: NativeRunner, vocab_size: int) -> None:
        self.runner = runner
        self.name = f"edgeserve ({runner.kernels})"
        self._vocab_size = vocab_size
        self._num_groups = len(runner.cache_groups)
        self._filled = 0  # positions of the first sequence whose keys and values are stored
        self._prepared: Measure | None = None
        self._batches: list[Batch] = []

    def prepare(self, measure: Measure) -> None:
        if self._filled < measure.depth:
            rest = Measure(Kind.PREFILL, measure.depth - self._filled, self._filled)
            for batch in self._batches_of(rest):
                self.runner.execute(batch)
            self._filled = measure.depth
        if self._prepared != measure:
            self._copy_depth(measure)
            self._batches = self._batches_of(measure)
            self._prepared = measure

    def run(self, measure: Measure) -> None:
        assert measure == self._prepared
        for batch in self._batches:
            self.runner.execute(batch)

    def close(self) -> None:
        self.runner.close()

    def _copy_depth(self, measure: Measure) -> None:
        """What the first sequence holds, to the others."""
        blocks = _per_sequence(measure)
        pairs = [
            (block, sequence * blocks + block)
            for sequence in range(1, measure.num_sequences)
            for block in range(-(-measure.depth // BLOCK_SIZE))
        ]
        if pairs:
            for group in range(self._num_groups):
                self.runner.copy_blocks(group, pairs)
        if measure.num_sequences > 1:
            self._filled = min(self._filled, blocks * BLOCK_SIZE)  # others' blocks come behind

    def _batches_of(self, measure: Measure) -> list[Batch]:
        return [self._batch(step, _per_sequence(measure)) for step in measure.steps()]

    def _batch(self, step: Step, blocks: int) -> Batch:
        ids = token_ids(step.first, step.num_rows, self._vocab_size)
        groups = [
            RowGroup(ids, step.first, [table] * self._num_groups, step.num_logits_rows)
            for table in (range(i * blocks, (i + 1) * blocks) for i in range(step.num_sequences))
        ]
        return Batch.from_groups(groups, self._num_groups)
