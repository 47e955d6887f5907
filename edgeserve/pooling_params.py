"""What a caller asks of an embedding: one vector of a prompt's rows, how long, how scaled."""

from __future__ import annotations

from typing import Literal, cast

from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen

Pooling = Literal["mean", "last"]
POOLINGS: tuple[Pooling, ...] = ("mean", "last")


@frozen
class PoolingParams:
    """`pooling` of a prompt's hidden states, after the model's last norm: their mean, or the last.

    Of the vector the first `dimensions` elements are kept, None being all; where `normalize`, they
    are then scaled to length 1 (a vector of zeros stays one).
    """

    pooling: Pooling
    dimensions: int | None = None
    normalize: bool = True

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise InvalidRequestError("pooling", self.pooling, " or ".join(POOLINGS))
        size = cast(object, self.dimensions)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InvalidRequestError("dimensions", size, "an integer of 1 or more")
        if not isinstance(cast(object, self.normalize), bool):
            raise InvalidRequestError("normalize", self.normalize, "True or False")
