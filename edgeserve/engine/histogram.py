"""How a quantity is spread over many requests, in buckets that stay the same."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from edgeserve.frozen import frozen


@frozen
class Distribution:
    """`counts[i]` values were at most `bounds[i]` and above the bound before; the last count, one
    more than there are bounds, is of all that were larger."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def __add__(self, other: Distribution) -> Distribution:
        """Of both together, whose bounds are the same."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Distribution(self.bounds, counts, self.total + other.total)


class Histogram:
    """One thread adds values; any may look."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """`bounds` ascend."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, values: Iterable[float]) -> None:
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._total += value

    def seen(self) -> Distribution:
        return Distribution(self._bounds, tuple(self._counts), self._total)
