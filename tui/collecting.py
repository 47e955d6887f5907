"""When Python looks for garbage: never all of it while somebody waits for a key's echo."""

from __future__ import annotations

import gc

_YOUNG = 5_000
_MIDDLE = 5
_FULL = 1_000


def collect_seldom() -> None:
    """Leaves what is alive now alone for good, and bounds a collection to some 30 ms.

    A full one takes 0.1 to 0.2 s with a long chat on the screen, and came every second while an
    answer streamed. What a chat leaves behind is freed by its counts (`TurnParts.drop`).
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _FULL)
