"""When Python looks for garbage: in small bites while somebody waits, the rest when it is quiet."""

from __future__ import annotations

import gc

_YOUNG = 2_000
_NEVER = 1_000_000


def collect_later() -> None:
    """Not before `collect_seldom`: while a program starts nearly all that it makes stays, and one
    look at it takes a tenth of the start."""
    gc.disable()


def collect_seldom() -> None:
    """Leaves what is alive now alone for good. From then on a collection is of what was made last,
    and takes a millisecond; what it leaves waits for `collect_now`.

    A full one takes 0.1 to 0.2 s with a long chat on the screen, and came every second while an
    answer streamed. What a chat leaves behind is freed by its counts (`TurnParts.drop`).
    """
    gc.freeze()
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)
    gc.enable()


def collect_now() -> None:
    """Looks through what was made since the last time: some 30 ms after a long answer."""
    gc.collect(1)
