"""How many tokens a second come now."""

from __future__ import annotations

_LEAST_S = 1.0


class Pace:
    """`rate` over the last second or so; None where nothing comes, or not for long enough."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._count = 0
        self._since = 0.0

    def saw(self, count: int, now: float) -> None:
        """So many tokens of the answer under way are here; 0 where there is none."""
        if not self._count or count < self._count:
            self.rate, self._count, self._since = None, count, now
        elif now - self._since >= _LEAST_S:
            self.rate = (count - self._count) / (now - self._since)
            self._count, self._since = count, now
