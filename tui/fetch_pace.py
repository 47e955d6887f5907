"""How long a download will still take, from what came in the last seconds; and since when nothing
has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edgeserve.tui.client import LoadProgress

_WINDOW_S = 10.0
_LEAST_S = 2.0
_STEP_S = 0.25
STALLED_S = 5.0
"""So long without a byte is worth saying."""


class FetchPace:
    """Of one download after another: `saw` hears each report. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._what: tuple[str, str, int | None] | None = None
        self._left: int | None = None
        self._came_at = clock()

    def saw(self, progress: LoadProgress | None) -> None:
        """A report without bytes, or of something else, begins anew. The first one with bytes says
        where a part that was there already ends: nothing is told from it."""
        now = self._clock()
        done = 0 if progress is None else progress.done_bytes
        total = None if progress is None else progress.total_bytes
        what = None if progress is None else (progress.stage, progress.label, total)
        if not done or what != self._what or (self._seen and done < self._seen[-1][1]):
            self._what = what
            self._seen.clear()
        self._left = None if total is None or not done else max(0, total - done)
        if not self._seen or done > self._seen[-1][1]:
            self._came_at = now
        if done:
            self._keep(now, done)

    @property
    def silent_s(self) -> float:
        """Since the last byte came, or since the beginning."""
        return self._clock() - self._came_at

    @property
    def seconds_left(self) -> float | None:
        """None before there is enough to tell it from, and where nothing comes."""
        now = self._clock()
        if self._left is None or not self._seen or self.silent_s >= STALLED_S:
            return None
        old = [each for each in self._seen if now - each[0] >= _WINDOW_S]
        since, before = old[-1] if old else self._seen[0]
        came, passed = self._seen[-1][1] - before, now - since
        return self._left * passed / came if came > 0 and passed >= _LEAST_S else None

    def _keep(self, now: float, done: int) -> None:
        """One report for each step, and no more than the window needs."""
        if len(self._seen) > 1 and now - self._seen[-2][0] < _STEP_S:
            self._seen.pop()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] > _WINDOW_S:
            self._seen.popleft()
