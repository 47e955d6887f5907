"""An event loop whose time passes at once when nobody has anything to do.

For tests of waits, in one thread: what another thread or process does takes no time here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Skipping(selectors.SelectSelector):
    """Never waits for as long as it is told, but says that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.skipped += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped


def run_skipping(test: Coroutine[Any, Any, None]) -> None:
    """Like asyncio.run, in no time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(test)
