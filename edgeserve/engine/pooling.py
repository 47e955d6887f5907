"""One prompt's hidden states on their way to its vector. Knows rows and their order only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgeserve.errors import NonFiniteEmbeddingError
from edgeserve.types import PoolingParams

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Pooler:
    """Takes a prompt's rows in the order of their positions, each once, however they are cut.

    A mean is summed in float64 from the first position to the last, so that it is the same whatever
    the chunks; rows that are computed again, after preemption, are not asked for again.
    """

    def __init__(self, params: PoolingParams, num_prompt_tokens: int) -> None:
        self._params = params
        self._num_prompt_tokens = num_prompt_tokens
        self._num_taken = 0
        self._pooled: NDArray[np.float64] | None = None

    @property
    def needs_every_row(self) -> bool:
        """Whether no row may be spared because its keys and values are there already."""
        return self._params.pooling == "mean"

    def num_wanted(self, first_position: int, num_tokens: int) -> int:
        """How many of these rows go into the vector and are not there yet: always the last ones."""
        end = first_position + num_tokens
        begin = self._num_taken if self.needs_every_row else self._num_prompt_tokens - 1
        return max(0, end - max(first_position, begin))

    def take(self, states: NDArray[np.floating]) -> None:
        """The next rows that were wanted, (n, width)."""
        import numpy as np

        rows = states.astype(np.float64)
        if self.needs_every_row:
            if self._pooled is not None:
                rows[0] += self._pooled
            # By its definition one row after another; a sum may take them in any order.
            np.add.accumulate(rows, axis=0, out=rows)
        self._pooled = rows[-1].copy()
        self._num_taken += len(rows)

    def vector(self) -> tuple[float, ...]:
        """float32 values. Raises NonFiniteEmbeddingError."""
        import numpy as np

        assert self._pooled is not None, "a prompt has a last row"
        pooled = self._pooled[: self._params.dimensions]
        if self.needs_every_row:
            pooled = pooled / self._num_prompt_tokens
        if not np.isfinite(pooled).all():
            raise NonFiniteEmbeddingError
        if self._params.normalize:
            # An exact sum: no machine's order of adding shows.
            length = math.sqrt(math.fsum(np.square(pooled).tolist()))
            pooled = pooled / length if length > 0.0 else pooled
        return tuple(pooled.astype(np.float32).tolist())
