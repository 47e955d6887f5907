"""Who guesses what a sequence says next. Answers never depend on it, only how soon they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from typing import Protocol

from edgeserve.engine.sequence import Sequence


class Proposer(Protocol):
    """Guesses tokens: first how likely it will be right, then, where that pays, which ones."""

    @property
    def name(self) -> str: ...

    @property
    def seconds_per_token(self) -> float:
        """What drafting a token costs, beside the row that verifies it."""
        ...

    def foresee(self, sequence: Sequence, limit: int, /) -> list[float]:
        """How likely its next guess is right, and each further one if those before it were; up to
        `limit` of them. Learns from what the sequence has said since last asked."""
        ...

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        """So many guesses for each sequence that was just foreseen, or fewer."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended. One that was never foreseen is no error."""
        ...

    def close(self) -> None:
        """Gives back what it holds. Twice is fine."""
        ...


def num_alike(guesses: Items[int], answer: Iterable[int]) -> int:
    """How many guesses are right before the first that is not."""
    count = 0
    for guess, token in zip(guesses, answer, strict=False):
        if guess != token:
            break
        count += 1
    return count
