"""Views of weight tensors: which rows of which tensor an operation reads. No data is held here."""

from __future__ import annotations

import math
from dataclasses import replace

from edgeserve.frozen import frozen


@frozen
class WeightView:
    """Rows [first_row, first_row + shape[0]) of a tensor in the model file.

    `shape` is the view's own: (n_out, n_in) for a matrix, (n,) for a vector, (experts, n_out, n_in)
    for the matrices of experts, whose rows follow one another. A view of part of
    the rows is how fused projections (phi3's qkv) are taken apart without copying.
    """

    tensor: str
    shape: tuple[int, ...]
    quant_type: str
    first_row: int = 0

    @property
    def num_rows(self) -> int:
        """Rows of a matrix, all experts' together."""
        return math.prod(self.shape[:-1])

    def rows(self, first_row: int, num_rows: int) -> WeightView:
        """`num_rows` rows of this view from `first_row` on."""
        return replace(
            self, first_row=self.first_row + first_row, shape=(num_rows, *self.shape[1:])
        )

    def __str__(self) -> str:
        size = "x".join(str(extent) for extent in self.shape)
        at = f"@{self.first_row}" if self.first_row else ""
        return f"{self.tensor}{at}[{size} {self.quant_type}]"
