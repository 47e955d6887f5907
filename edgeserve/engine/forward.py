"""What a step computes: the rows of all that was scheduled, and an answer to each row's question.

Masks of constrained sequences are computed on a thread of their own while the forward pass runs.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import TYPE_CHECKING

from edgeserve.cache.kv_cache import KVCache
from edgeserve.engine.questions import Masks, questions, row_group
from edgeserve.engine.scheduled_rows import ScheduledRows
from edgeserve.engine.sequence import Sequence
from edgeserve.errors import LibraryError
from edgeserve.runner.batch import Batch, ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.runner import Runner

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class ForwardPass:
    """Over one runner and its cache. An interrupted one (Ctrl-C) can be done again."""

    def __init__(self, runner: Runner, cache: KVCache) -> None:
        self._runner = runner
        self._cache = cache
        self._num_groups = len(runner.cache_groups)
        self._mask_thread: ThreadPoolExecutor | None = None
        self._masks: Future[dict[Sequence, Masks]] | None = None

    def compute(self, scheduled: Items[ScheduledRows]) -> list[ChooseToken | ScoreToken]:
        """Computes the rows; what there is to ask of their logits."""
        groups = [row_group(rows) for rows in scheduled]
        constrained = [rows for rows in scheduled if rows.chooses and rows.sequence.matcher]
        if constrained:
            self._begin_masks(constrained)
        try:
            self._copy_blocks()
            self._runner.execute(Batch.from_groups(groups, self._num_groups))
        finally:
            masks = self._wait_for_masks()
        return [
            question
            for rows in scheduled
            for question in questions(rows, masks.get(rows.sequence, ()))
        ]

    def sample(self, wanted: Items[ChooseToken | ScoreToken]) -> list[TokenResult]:
        results = self._runner.sample(wanted)
        if len(results) != len(wanted):
            raise LibraryError(f"the runner answered {len(results)} rows of {len(wanted)}")
        return results

    def close(self) -> None:
        """Ends the thread for masks. Twice is fine."""
        self._wait_for_masks()
        if self._mask_thread is not None:
            self._mask_thread.shutdown()

    def _begin_masks(self, constrained: Items[ScheduledRows]) -> None:
        self._wait_for_masks()  # of a step that Ctrl-C ended: a matcher is for one thread at a time
        if self._mask_thread is None:
            from concurrent.futures import ThreadPoolExecutor  # and with it logging: 10 ms

            self._mask_thread = ThreadPoolExecutor(1, "edgeserve-masks")
        self._masks = self._mask_thread.submit(_masks_of, constrained)

    def _wait_for_masks(self) -> dict[Sequence, Masks]:
        if self._masks is None:
            return {}
        found = self._masks.result()
        self._masks = None
        return found

    def _copy_blocks(self) -> None:
        """Before any block is written, so that interrupted, it can be done again."""
        for group, pairs in enumerate(self._cache.pending_copies):
            if pairs:
                self._runner.copy_blocks(group, pairs)
                pairs.clear()


def _masks_of(constrained: Items[ScheduledRows]) -> dict[Sequence, Masks]:
    return {
        rows.sequence: rows.sequence.matcher.masks(rows.draft)
        for rows in constrained
        if rows.sequence.matcher is not None
    }
