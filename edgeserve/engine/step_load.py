"""What a step that is being put together has to compute: rows, and the keys that they look at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from edgeserve.frozen import frozen


class Keys(NamedTuple):
    """Keys that rows look at, by what they cost: a decode reads its own, from memory; a prompt's
    chunk `read`s them once for all its rows, and each row multiplies with those that it has `seen`.
    """

    decoded: float = 0.0
    read: float = 0.0
    seen: float = 0.0


NO_KEYS = Keys()


@frozen
class KeysSeen:
    """How many keys rows look at, as a mean over layers. `groups`: share of layers, window."""

    groups: tuple[tuple[float, int | None], ...] = ()

    @classmethod
    def of(cls, layers: Iterable[tuple[int, int | None]]) -> KeysSeen:
        """Of so many layers of each window."""
        counts = [(count, window) for count, window in layers if count > 0]
        total = sum(count for count, _ in counts)
        return cls(tuple((count / total, window) for count, window in counts))

    def by(self, first_position: int, num_rows: int) -> float:
        """Of `num_rows` rows from `first_position` on, all together."""
        middle = first_position + (num_rows + 1) / 2
        return num_rows * sum(
            share * (middle if window is None else min(middle, window))
            for share, window in self.groups
        )


class StepLoad:
    """Rows of a step, and their keys."""

    def __init__(self, seen: KeysSeen) -> None:
        self._seen = seen
        self.num_rows = 0
        self.keys = NO_KEYS

    def begin(self, decodes: Iterable[tuple[int, int]]) -> None:
        """Anew, with these decodes: (first position, rows) each, more than one where they draft."""
        self.num_rows, decoded, seen = 0, 0.0, 0.0
        for first_position, num_rows in decodes:
            self.num_rows += num_rows
            decoded += self._seen.by(first_position, 1)
            seen += self._seen.by(first_position + 1, num_rows - 1)
        self.keys = Keys(decoded, 0.0, seen)

    def add_draft(self, first_position: int, num_rows: int) -> None:
        """Behind a decode that is in already: its keys have been read. Below 0 it takes rows off
        the end of a prompt's, which others read keys for still."""
        if num_rows == 0:
            return
        self.num_rows += num_rows
        decoded, read, seen = self.keys
        self.keys = Keys(decoded, read, seen + self._seen.by(first_position, num_rows))

    def add_prompt(self, first_position: int, num_rows: int) -> None:
        """Of one prompt."""
        self.num_rows += num_rows
        self.keys = self.keys_with(first_position, num_rows)

    def keys_with(self, first_position: int, num_rows: int) -> Keys:
        """Were so many rows of a prompt to come in as well."""
        if num_rows == 0:
            return self.keys
        decoded, read, seen = self.keys
        return Keys(
            decoded,
            read + self._seen.by(first_position + num_rows - 1, 1),
            seen + self._seen.by(first_position, num_rows),
        )
