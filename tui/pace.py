"""How many tokens a second come now, and for how long nothing has."""

from __future__ import annotations

from collections.abc import Hashable

_LEAST_S = 1.0
_SILENT_S = 3.0
"""So long without anything is worth saying."""


class Pace:
    """`rate` over the last second or so; None where nothing comes, or not for long enough.
    `silent_s` is 0 while something comes."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self.silent_s = 0.0
        self._count = 0
        self._since = 0.0
        self._came: Hashable = None
        self._came_at = 0.0

    def saw(self, count: int, came: Hashable, now: float) -> None:
        """So many tokens of the answer under way are here, 0 where there is none; `came` is another
        whenever anything has come, or something else is waited for."""
        self._count_at(count, now)
        if came != self._came:
            self._came, self._came_at = came, now
        passed = now - self._came_at
        self.silent_s = passed if passed >= _SILENT_S else 0.0

    def _count_at(self, count: int, now: float) -> None:
        if not self._count or count < self._count:
            self.rate, self._count, self._since = None, count, now
        elif now - self._since >= _LEAST_S:
            self.rate = (count - self._count) / (now - self._since)
            self._count, self._since = count, now
