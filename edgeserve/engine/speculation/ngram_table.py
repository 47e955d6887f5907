"""Where runs of tokens were last followed by something. Amortised O(1) a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

Run = tuple[int, ...]


def runs(tokens: Sequence[int], size: int, first: int, end: int) -> Iterator[tuple[Run, int]]:
    """(the `size` tokens before a place, the place), for places from `first` up to `end`."""
    start = max(first, size)
    if start >= end:
        return iter(())
    window = tokens[start - size : end - 1]
    found = zip(*(islice(window, at, None) for at in range(size)), strict=False)
    return zip(found, range(start, end), strict=True)


class NgramTable:
    """Of one text, which only grows. Later places replace earlier ones."""

    sizes = (5, 3, 2)
    """Tokens that must match: a long run is likelier to go on alike than a short one."""

    def __init__(self) -> None:
        self._places: dict[Run, int] = {}
        self._num_read = 0

    def read(self, tokens: Sequence[int], end: int) -> None:
        """Reads `tokens` up to `end`, but for what was read before."""
        first = self._num_read
        for size in self.sizes:
            if end != first + 1:
                self._places.update(runs(tokens, size, first, end))
            elif first >= size:  # one more, as decoding brings it, and nearly always
                self._places[tuple(tokens[first - size : first])] = first
        self._num_read = max(first, end)

    def find(self, tokens: Sequence[int], end: int) -> int | None:
        """The place that what precedes `end` was at before; by the longest run known."""
        for size in self.sizes:
            if end >= size:
                place = self._places.get(tuple(tokens[end - size : end]))
                if place is not None:
                    return place
        return None
