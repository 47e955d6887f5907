"""A Runner that computes nothing: logits are a function of the tokens in the cache, and so exact.

It keeps token ids where keys and values would be and reads every row's whole history back through
the block tables, in every cache group; in one with a window, what the window shows. A wrong table,
position or chunk gives other logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from edgeserve.plan.ops import CacheGroup, CacheKind
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, ScoreToken, TokenResult
from edgeserve.runner.oracle_sampler import sample_rows

History = tuple[int, ...]
LogitsOf = Callable[[History], NDArray[np.float64]]


def hashed_logits(vocab_size: int, spread: float = 2.0) -> LogitsOf:
    """Logits that any change of the history changes."""

    def logits_of(history: History) -> NDArray[np.float64]:
        digest = blake2b(np.array(history, np.int32).tobytes(), digest_size=8).digest()
        random = np.random.default_rng(int.from_bytes(digest, "little"))
        return random.standard_normal(vocab_size) * spread

    return logits_of


def scripted_logits(vocab_size: int, num_prompt_tokens: int, script: Sequence[int]) -> LogitsOf:
    """Logits that make a greedy sampler say `script`, and then its last token again and again."""

    def logits_of(history: History) -> NDArray[np.float64]:
        logits = np.zeros(vocab_size)
        at = max(0, len(history) - num_prompt_tokens)
        logits[script[min(at, len(script) - 1)]] = 10.0
        return logits

    return logits_of


class FakeRunner:
    """Implements Runner. `on_execute` and `on_sample`, when set, are called first, and may raise.

    `closed` counts calls of close.
    """

    numerics_class = "fake"

    def __init__(
        self,
        logits_of: LogitsOf,
        *,
        num_blocks: int,
        num_groups: int = 1,
        windows: Sequence[int] = (),
    ) -> None:
        """`num_groups` groups that see everything, and one more for each of `windows`."""
        self._logits_of = logits_of
        self._windows = windows
        self._num_full = num_groups
        num_groups += len(windows)
        self._cells = np.full((num_groups, num_blocks, BLOCK_SIZE), -1, np.int32)
        self._logits: list[NDArray[np.float64]] = []
        self._hidden: list[NDArray[np.float64]] = []
        self.cache_groups: Sequence[CacheGroup] = [
            *[CacheGroup(CacheKind.FULL, ())] * self._num_full,
            *[CacheGroup(CacheKind.WINDOW, (), window) for window in windows],
        ]
        self.num_blocks = num_blocks
        self.batches: list[Batch] = []
        self.on_execute: Callable[[Batch], None] | None = None
        self.on_sample: Callable[[], None] | None = None
        self.closed = 0

    def block_bytes(self, cache_group: int) -> int:
        return self._cells[cache_group, 0].nbytes

    def execute(self, batch: Batch) -> None:
        self.batches.append(batch)
        if self.on_execute is not None:
            self.on_execute(batch)
        self._logits, self._hidden = [], []
        for g in range(batch.num_groups):
            rows = range(int(batch.first_row[g]), int(batch.first_row[g + 1]))
            tables = batch.block_tables[:, g]
            for row in rows:
                block, slot = divmod(int(batch.positions[row]), BLOCK_SIZE)
                for group, table in enumerate(tables):
                    self._cells[group, table[block], slot] = batch.token_ids[row]
            for row in rows[len(rows) - int(batch.num_logits_rows[g]) :]:
                self._logits.append(self._logits_of(self._history(tables, batch.positions[row])))
            for row in rows[len(rows) - int(batch.num_hidden_rows[g]) :]:
                self._hidden.append(self._logits_of(self._history(tables, batch.positions[row])))

    def sample(self, rows: Sequence[ChooseToken | ScoreToken]) -> list[TokenResult]:
        if self.on_sample is not None:
            self.on_sample()
        return sample_rows(self._logits, rows)

    def logits(self) -> NDArray[np.float64]:
        return np.stack(self._logits)

    def hidden(self) -> NDArray[np.float64]:
        """What would be logits, of the rows that are asked for hidden states."""
        return np.stack(self._hidden)

    def copy_blocks(self, cache_group: int, pairs: Sequence[tuple[int, int]]) -> None:
        for source, destination in pairs:
            self._cells[cache_group, destination] = self._cells[cache_group, source]

    def read_blocks(self, cache_group: int, block_ids: Sequence[int]) -> bytes:
        return self._cells[cache_group, list(block_ids)].tobytes()

    def write_blocks(self, cache_group: int, block_ids: Sequence[int], data: bytes) -> None:
        cells = np.frombuffer(data, np.int32).reshape(len(block_ids), BLOCK_SIZE)
        self._cells[cache_group, list(block_ids)] = cells

    def grow(self, num_blocks: int) -> None:
        raise NotImplementedError

    def abort(self, raised: bool) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.closed += 1

    def _history(self, tables: NDArray[np.int32], position: int) -> History:
        seen = {self._cells_of(group, table, position) for group, table in enumerate(tables)}
        (history,) = {cells for cells in seen if len(cells) == position + 1}
        assert all(history[-len(cells) :] == cells for cells in seen), "cache groups disagree"
        assert -1 not in history, "a row read a cell that nobody wrote"
        return history

    def _cells_of(self, group: int, table: NDArray[np.int32], position: int) -> History:
        """What a row of the group at the position sees."""
        first = 0
        if group >= self._num_full:
            first = max(0, position + 1 - self._windows[group - self._num_full])
        cells = self._cells[group, table].reshape(-1)[first : position + 1]
        return tuple(cells.tolist())
