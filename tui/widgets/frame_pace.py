"""How soon one frame may follow another: most of the time belongs to whoever types."""

from __future__ import annotations

import time
from collections.abc import Callable

_LEAST_SECONDS = 1 / 20
_MOST_SECONDS = 1 / 4
_SHARE = 0.4


class FramePace:
    """At most twenty frames a second; fewer where this thread computes more than two fifths of the
    time, as on a machine whose cores all work on the answer. `thread_seconds` is what it computed.
    """

    def __init__(self, thread_seconds: Callable[[], float] = time.thread_time) -> None:
        self._thread_seconds = thread_seconds
        self._spent = thread_seconds()

    def pause(self) -> float:
        """Before the next frame, in seconds; to be asked once a frame, when it begins."""
        before, self._spent = self._spent, self._thread_seconds()
        return min(max(_LEAST_SECONDS, (self._spent - before) / _SHARE), _MOST_SECONDS)
