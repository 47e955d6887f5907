"""How long drafts are: as many rows as bring the most tokens a second, none included."""

from __future__ import annotations

from collections.abc import Sequence

from edgeserve.engine.speculation.row_times import RowTimes
from edgeserve.engine.speculation.speculator import Offer

_LEAST_CHANCE = 0.02
"""Of being right, below which a guess is not weighed at all."""
_LEAST_GAIN = 1.02
"""By so much more tokens a second than without: what is thought of times and chances is inexact."""


class PayingLengths:
    """DraftLengths that weigh each guess's chance against what its row adds to the step."""

    def __init__(self, times: RowTimes) -> None:
        self._times = times

    def choose(self, offers: Sequence[Offer], num_rows: int, room: int, /) -> list[int]:
        unit = self._times.unit_seconds
        guesses = sorted(
            (
                (chance, -n)
                for n, offer in enumerate(offers)
                if unit is not None or offer.proposer.seconds_per_token == 0.0
                for chance in _chances(offer)
            ),
            reverse=True,
        )
        tokens, drafting = float(num_rows), 0.0
        most, best = _LEAST_GAIN * tokens / self._times.relative(num_rows), 0
        for count, (chance, n) in enumerate(guesses[: max(0, room)], start=1):
            tokens += chance
            drafting += offers[-n].proposer.seconds_per_token / (unit or 1.0)
            rate = tokens / (self._times.relative(num_rows + count) + drafting)
            if rate > most:
                most, best = rate, count
        lengths = [0] * len(offers)
        for _, n in guesses[:best]:
            lengths[-n] += 1
        return lengths

    def observe(self, num_rows: int, seconds: float, /) -> None:
        self._times.observe(num_rows, seconds)


def _chances(offer: Offer) -> list[float]:
    """That a guess is reached and right, one after another: they never rise."""
    found: list[float] = []
    chance = 1.0
    for each in offer.chances:
        chance *= each
        if chance < _LEAST_CHANCE:
            break
        found.append(chance)
    return found
