"""How long steps take, learned from real ones: what bounds a step in time, not only in tokens."""

from __future__ import annotations

_WEIGHT = 0.5
"""Of the newest step against all before it: a prompt's later chunks cost more than its first."""


class StepTimes:
    """Seconds a row, from `prior` on. The answers never depend on it, only how they are cut."""

    def __init__(self, prior: float) -> None:
        self._seconds_per_row = prior

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of `num_rows` took `seconds`."""
        if num_rows > 0 and seconds > 0.0:
            newest = seconds / num_rows
            self._seconds_per_row += _WEIGHT * (newest - self._seconds_per_row)

    def rows_within(self, seconds: float) -> int:
        """Rows that should take no longer than `seconds`; at least one."""
        if self._seconds_per_row <= 0.0:
            return 1 << 30
        return max(1, int(seconds / self._seconds_per_row))
