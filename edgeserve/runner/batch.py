"""What one step computes, as arrays: tokens of many sequences laid end to end.

The unit is a row group: consecutive positions of one block table. A sequence usually owns one
group a step; a decode is a group of one row, a prefill chunk a longer one.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.frozen import frozen
from edgeserve.types import ResolvedSampling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK_SIZE = 16
"""Tokens in a KV block."""


@frozen
class RowGroup:
    """`token_ids` at `first_position`, `first_position` + 1, …, over one table per cache group.

    The last `num_logits_rows` rows get logits, or else the last `num_hidden_rows` give their hidden
    states: of one group not both. A table holds the ids of the blocks for positions 0-15, 16-31, …,
    up to the last row's.
    """

    token_ids: Sequence[int]
    first_position: int
    block_tables: Sequence[Sequence[int]]
    num_logits_rows: int
    num_hidden_rows: int = 0


@frozen
class Batch:
    """Row groups, flattened. T rows, G groups, C cache groups, R rows with logits, H with hidden
    states.

    token_ids (T,) and positions (T,) int32; first_row (G + 1,) int32, group g being rows
    first_row[g] to first_row[g + 1]; num_logits_rows and num_hidden_rows (G,) int32; block_tables
    (C, G, most blocks) int32, filled up with -1. `embeddings` (T, width) float32, where given,
    stands in for the rows whose token id is -1.
    """

    token_ids: NDArray[np.int32]
    positions: NDArray[np.int32]
    first_row: NDArray[np.int32]
    num_logits_rows: NDArray[np.int32]
    num_hidden_rows: NDArray[np.int32]
    block_tables: NDArray[np.int32]
    embeddings: NDArray[np.float32] | None = None

    @property
    def num_rows(self) -> int:
        return len(self.token_ids)

    @property
    def num_groups(self) -> int:
        return len(self.num_logits_rows)

    @classmethod
    def from_groups(cls, groups: Sequence[RowGroup], num_cache_groups: int) -> Batch:
        """Lays groups end to end, in order."""
        import numpy as np

        # Lists first: numpy costs a microsecond a call, and a step of few rows is all calls.
        token_ids: list[int] = []
        positions: list[int] = []
        first_row = [0]
        for group in groups:
            token_ids += group.token_ids
            positions += range(group.first_position, group.first_position + len(group.token_ids))
            first_row.append(len(token_ids))
        longest = max((len(t) for group in groups for t in group.block_tables), default=0)
        filler = array("i", [-1]) * longest
        tables = array("i")
        for c in range(num_cache_groups):
            for group in groups:
                table = group.block_tables[c]
                tables += table if isinstance(table, array) else array("i", table)
                tables += filler[len(table) :]
        return cls(
            np.array(token_ids, np.int32),
            # Past int32 it wraps, and the runner refuses what is no position.
            np.array(positions, np.int64).astype(np.int32),
            np.array(first_row, np.int32),
            np.array([group.num_logits_rows for group in groups], np.int32),
            np.array([group.num_hidden_rows for group in groups], np.int32),
            np.frombuffer(tables, np.int32).reshape(num_cache_groups, len(groups), longest),
        )


@frozen
class ChooseToken:
    """Sample a token from a row of logits.

    The random numbers are keyed by `seed` and `position` (the absolute position of the token
    being chosen). `history` is prompt and output so far, needed by penalties and DRY only; the
    first `num_prompt_tokens` are the prompt. `banned` tokens cannot be chosen, nor those whose bit
    in `mask` is not set: (ceil(vocab / 32),) uint32, the lowest bit first. Where nothing is left
    the mask holds, and bias and bans do not. `num_logprobs` likeliest tokens are reported; None
    reports nothing. `mu` is mirostat's, after the token before; `chained` takes it from the row
    before this one instead, which is then the same sequence's.
    """

    sampling: ResolvedSampling
    seed: int
    position: int
    history: Sequence[int] = ()
    num_prompt_tokens: int = 0
    banned: Sequence[int] = ()
    num_logprobs: int | None = None
    mask: NDArray[np.uint32] | None = None
    mu: float = 0.0
    chained: bool = False


@frozen
class ScoreToken:
    """Report how likely a row of logits makes a token that is already known."""

    token_id: int
    num_logprobs: int


@frozen
class TokenResult:
    """A row's token. `logprob` and `rank` are under the unmodified logits; `top` is (id, logprob)
    by likelihood, lowest id first among equals. `finite` is False if the row held NaN or
    infinity where no token can be chosen, `allowed` if the mask left none that the model can make;
    then the token means nothing. `mu` is mirostat's now; without it, it means nothing."""

    token_id: int
    logprob: float = 0.0
    rank: int = 0
    top: tuple[tuple[int, float], ...] = ()
    finite: bool = True
    allowed: bool = True
    mu: float = 0.0
