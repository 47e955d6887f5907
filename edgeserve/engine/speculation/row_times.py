"""How much longer a decoding step takes for more rows: learned from the steps that were taken."""

from __future__ import annotations

from bisect import bisect_left, insort
from math import exp, log

_SCALE_WEIGHT = 0.25
_SHAPE_WEIGHT = 0.08
_MOST_SURPRISE = log(1.5)
"""A step slower or faster than thought by more is an accident, or another program."""


class RowTimes:
    """Seconds of a step, as a scale that changes fast, with the machine's load and the depth of
    the context, times a shape over the number of rows, which changes slowly.

    `prior` is what a further row adds to a step of one, before a step with more rows has told. Too
    low is found out by one step; too high never.
    """

    def __init__(self, prior: float = 0.1) -> None:
        self._prior = prior
        self._log_scale: float | None = None
        self._known: list[int] = []
        self._shape: dict[int, float] = {}

    def relative(self, num_rows: int) -> float:
        """What such a step should take, in any unit."""
        known, shape = self._known, self._shape
        if num_rows in shape:
            return shape[num_rows]
        if not known:
            return 1.0 + self._prior * (num_rows - 1)
        at = bisect_left(known, num_rows)
        if at == 0:
            return shape[known[0]]
        low = known[at - 1]
        if at == len(known):
            return shape[low] + self._prior * shape[known[0]] * (num_rows - low)
        high = known[at]
        share = (num_rows - low) / (high - low)
        return shape[low] + share * (shape[high] - shape[low])

    @property
    def unit_seconds(self) -> float | None:
        """What `relative` counts in; None before the first step."""
        return None if self._log_scale is None else exp(self._log_scale)

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of `num_rows` took `seconds`."""
        if seconds <= 0.0:
            return
        found = log(seconds)
        if self._log_scale is None:
            self._log_scale = found
        if num_rows not in self._shape:
            insort(self._known, num_rows)
            self._shape[num_rows] = exp(found - self._log_scale)
            return
        surprise = found - self._log_scale - log(self._shape[num_rows])
        surprise = min(max(surprise, -_MOST_SURPRISE), _MOST_SURPRISE)
        self._log_scale += _SCALE_WEIGHT * surprise
        self._shape[num_rows] *= exp(_SHAPE_WEIGHT * surprise)
