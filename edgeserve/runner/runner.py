"""The seam between the engine and whatever computes: one Protocol, one implementation a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from edgeserve.binding.weights import WeightRows
from edgeserve.plan.ops import CacheGroup
from edgeserve.runner.batch import Batch, ChooseToken, ScoreToken, TokenResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class TensorSource(Protocol):
    """Where a runner gets weights from: rows of a tensor of the model file."""

    def float32_rows(self, name: str, first_row: int, num_rows: int) -> NDArray[np.float32]:
        """Rows of tensor `name`, dequantised: (num_rows, n_in). A vector is one row."""
        ...

    def load_weights(self, wanted: Sequence[WeightRows], num_threads: int) -> None:
        """Fills native weights, each with as many rows as it has."""
        ...


class Runner(Protocol):
    """Executes a plan over a paged KV cache. Not safe for several threads at once."""

    @property
    def numerics_class(self) -> str:
        """Runners of one class give the same bits for the same rows."""
        ...

    @property
    def cache_groups(self) -> Sequence[CacheGroup]: ...

    @property
    def num_blocks(self) -> int:
        """Blocks in each cache group's pool."""
        ...

    def block_bytes(self, cache_group: int) -> int:
        """Bytes of one block of a cache group, over all its layers."""
        ...

    def execute(self, batch: Batch) -> None:
        """One forward pass: stores all rows' keys and values, keeps the logits for `sample`, and
        hidden states."""
        ...

    def sample(self, rows: Sequence[ChooseToken | ScoreToken]) -> list[TokenResult]:
        """One result for each logits row of the last `execute`, in batch order."""
        ...

    def logits(self) -> NDArray[np.floating]:
        """The last step's logits, (R, vocab): for tests and evaluation, not for the hot path."""
        ...

    def hidden(self) -> NDArray[np.floating]:
        """The last step's hidden states, after the last norm: (H, width), in batch order."""
        ...

    def copy_blocks(self, cache_group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies whole blocks, (source, destination) in order."""
        ...

    def read_blocks(self, cache_group: int, block_ids: Sequence[int]) -> bytes:
        """The bytes of blocks, one after another, `block_bytes` each."""
        ...

    def write_blocks(self, cache_group: int, block_ids: Sequence[int], data: bytes) -> None:
        """What `read_blocks` gave, into other blocks."""
        ...

    def grow(self, num_blocks: int) -> None:
        """Makes room for `num_blocks` blocks in each group; the contents stay."""
        ...

    def close(self) -> None:
        """Gives memory back. Twice is fine."""
        ...
