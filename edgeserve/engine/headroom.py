"""How much of the pool those who run will still need, before one of them ends and gives its own
back. Whoever starts must leave that free: what is preempted is computed twice, and stands still.

Sequences that run side by side are each somewhere in their answers. Until the next one ends they
grow, all together, by about one answer; three of them cover that it may be a while. How long
answers are is learned from those that ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from edgeserve.engine.sequence import Sequence

_FIRST_GUESS = 128.0
"""Tokens of an answer, as long as none has ended."""
_LEARNED = 1 / 16
"""What one answer counts in the mean."""
NUM_ANSWERS = 3.0


class Headroom:
    """Learns how long answers are, and says how much room those who run will want: at most
    `num_answers` of them."""

    def __init__(self, num_answers: float = NUM_ANSWERS) -> None:
        self._num_answers = num_answers
        self._mean = _FIRST_GUESS

    def learn(self, sequence: Sequence) -> None:
        """A sequence is over. One whose client left says nothing about how long answers are."""
        if sequence.finish_reason not in (None, "abort") and sequence.pooler is None:
            self._mean += (sequence.num_output_tokens - self._mean) * _LEARNED

    def tokens(self, sequences: Iterable[Sequence]) -> int:
        """By how many tokens these will grow, all together, until one of them ends."""
        wanted, most = 0.0, self._num_answers * self._mean
        for sequence in sequences:
            if sequence.pooler is None:
                left = sequence.max_tokens - sequence.num_output_tokens
                wanted += min(left, self._mean)
            if wanted >= most:
                return int(most)
        return int(wanted)
