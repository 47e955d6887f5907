"""What a constraint forces is a draft that is surely accepted: several tokens come in one step.

Without it the same tokens come one by one, since each is then all that its mask allows.
"""

from __future__ import annotations

from collections.abc import Mapping

from edgeserve.engine.sequence import Sequence


class Forced:
    """A Proposer of the tokens that follow whatever the model says."""

    name = "forced"
    seconds_per_token = 0.0

    def __init__(self) -> None:
        self._forced: dict[Sequence, list[int]] = {}

    def foresee(self, sequence: Sequence, limit: int, /) -> list[float]:
        if sequence.matcher is None:
            return []
        forced = self._forced[sequence] = sequence.matcher.forced()[:limit]
        return [1.0] * len(forced)

    def draft(self, wanted: Mapping[Sequence, int]) -> Mapping[Sequence, list[int]]:
        return {sequence: self._forced[sequence][:count] for sequence, count in wanted.items()}

    def forget(self, sequence: Sequence) -> None:
        self._forced.pop(sequence, None)

    def close(self) -> None:
        self._forced.clear()
