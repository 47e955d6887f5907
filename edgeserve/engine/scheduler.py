"""Which rows the next step computes: decodes first, then prompts, within the token budget.

First come, first served. When blocks run out, the youngest running sequence gives its own back
and is computed again later: its tokens stay, so its answer does too.
"""

from __future__ import annotations

from collections import deque

from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import OutOfBlocksError
from edgeserve.frozen import frozen

_MAX_SCORED_ROWS = 32
"""Prompt rows of one sequence that get logits in a step: a row is a megabyte at 262k tokens."""


@frozen
class ScheduledRows:
    """`num_tokens` of a sequence from its first uncomputed one; the last rows need logits."""

    sequence: Sequence
    num_tokens: int
    num_logits_rows: int


@frozen
class SchedulerOutput:
    rows: tuple[ScheduledRows, ...]
    num_preempted: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(rows.num_tokens for rows in self.rows)


class Scheduler:
    """Owns every live sequence. Budgets are tokens a step, and sequences at once."""

    def __init__(self, cache: KVCache, *, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        self._cache = cache
        self._max_num_batched_tokens = max_num_batched_tokens
        # With a row a step for everyone who runs, a prompt always moves, and nobody starves.
        self._max_num_seqs = min(max_num_seqs, max_num_batched_tokens)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def require_blocks(self, num_tokens: int) -> None:
        """Raises OutOfBlocksError if the whole pool could not hold a sequence of this length."""
        needed = self._cache.blocks_for(num_tokens)
        if needed > self._cache.num_blocks:
            raise OutOfBlocksError(needed, self._cache.num_blocks)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence. Raises OutOfBlocksError if the whole pool could not hold it."""
        self.require_blocks(sequence.num_prompt_tokens + sequence.max_tokens)
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forgets a sequence that is finished or no longer wanted, and frees its blocks."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        self._cache.release(sequence.block_tables)

    def schedule(self, max_rows: int | None = None) -> SchedulerOutput:
        """The next step's rows; every sequence's blocks for them are taken already.

        `max_rows` bounds prompts further than the token budget does; decodes are never held back.
        """
        num_preempted = self._admit_and_make_room()
        budget = self._max_num_batched_tokens
        rows: list[ScheduledRows] = []
        decodes = [s for s in self._running if s.num_uncomputed_tokens == 1][:budget]
        rows.extend(_rows(sequence, 1) for sequence in decodes)
        if max_rows is not None:
            # A prompt alone always goes on; beside decodes it gets what time they leave.
            budget = min(budget, max(max_rows, len(decodes) + 1))
        budget -= len(decodes)
        for sequence in self._running:
            num_tokens = min(sequence.num_uncomputed_tokens, budget)
            if num_tokens > 0 and sequence.num_uncomputed_tokens > 1:
                rows.append(_rows(sequence, num_tokens))
                budget -= rows[-1].num_tokens
        return SchedulerOutput(tuple(rows), num_preempted)

    def check(self) -> None:
        """Raises AssertionError unless the block accounting is exact."""
        live = [*self._running, *self._waiting]
        self._cache.check([sequence.block_tables for sequence in live])

    def _admit_and_make_room(self) -> int:
        """Grows running sequences' tables to hold all their tokens, oldest first; then admits."""
        num_preempted = 0
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            if self._cache.extend(sequence.block_tables, len(sequence.token_ids)):
                index += 1
            else:
                self._preempt(self._running.pop())
                num_preempted += 1
        if num_preempted == 0:
            self._admit()
        return num_preempted

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._max_num_seqs:
            sequence = self._waiting[0]
            if not self._cache.extend(sequence.block_tables, len(sequence.token_ids)):
                return
            self._running.append(self._waiting.popleft())

    def _preempt(self, sequence: Sequence) -> None:
        self._cache.release(sequence.block_tables)
        sequence.num_computed_tokens = 0
        sequence.num_preemptions += 1
        self._waiting.appendleft(sequence)


def _rows(sequence: Sequence, num_tokens: int) -> ScheduledRows:
    """Logits for the last token if it ends the chunk; for all rows while the prompt is scored."""
    if sequence.wants_prompt_scores:
        num_tokens = min(num_tokens, _MAX_SCORED_ROWS)
        return ScheduledRows(sequence, num_tokens, num_tokens)
    reaches_end = num_tokens == sequence.num_uncomputed_tokens
    return ScheduledRows(sequence, num_tokens, 1 if reaches_end else 0)
