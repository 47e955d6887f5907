"""How long steps take, learned from real ones: what bounds a step in time, not only in tokens.

Answers never depend on it, only how they are cut into steps.
"""

from __future__ import annotations

from bisect import bisect_left
from math import log2

from edgeserve.engine.step_load import NO_KEYS, Keys

_BASE_ROWS = 4.0
"""A step's fixed cost, reading the weights, in rows: before real steps have told."""
_ROWS_OF_KEYS = 4000.0
"""As many keys as cost what a row does, roughly, whatever the model."""
_KEY_COSTS = Keys(decoded=1.5, read=1.5, seen=1.0)
"""Of one kind of key to another, roughly: reading from memory against multiplying."""
_WEIGHT = 0.3
"""Of the newest step against all before it."""
_ALIKE = 0.7
"""Of what a step tells about its own row count, so much is about the machine: about all others."""
_SETTLED = 16
"""Once a row count was seen so often. Before, it tells how the curve bends."""
_MOST_SURPRISE = 2.0
"""A step may be slower or faster than thought by so much; what is beyond is an accident."""
_KNOTS_PER_OCTAVE = 2


class StepTimes:
    """Seconds of a step of so many rows, which look at such keys.

    Priors are seconds a row and a key; 0 is unknown, and nothing is bounded until a step has told.
    A factor on the prior is learned for row counts of a kind, and seconds for each kind of key.
    """

    def __init__(self, prior_s_per_row: float, prior_s_per_key: float = 0.0) -> None:
        self._s_per_row = prior_s_per_row
        self._s_per_key = Keys(*(prior_s_per_key * cost for cost in _KEY_COSTS))
        self._knots: list[int] = []
        self._factors: list[float] = []
        self._num_seen: list[int] = []

    @property
    def are_known(self) -> bool:
        """Whether a prior or a step has told anything."""
        return self._s_per_row > 0.0

    @property
    def were_seen(self) -> bool:
        """Whether a step has told."""
        return bool(self._knots)

    def seconds(self, num_rows: int, keys: Keys = NO_KEYS) -> float:
        """What such a step should take."""
        return self._rows_s(num_rows) + self._keys_s(keys)

    def observe(self, num_rows: int, keys: Keys, seconds: float) -> None:
        """A step of `num_rows` that looked at `keys` took `seconds`."""
        if num_rows <= 0 or seconds <= 0.0:
            return
        if self._s_per_row <= 0.0:
            self._s_per_row = seconds / (num_rows + _BASE_ROWS)
        at = self._knot_of(num_rows, seconds - self._keys_s(keys), seconds / 2)
        thought = self._factors[at] * self._prior(num_rows) + self._keys_s(keys)
        seconds = min(max(seconds, thought / _MOST_SURPRISE), thought * _MOST_SURPRISE)
        # A normalised least-mean-squares step: each part learns by how much of the step it is, keys
        # at least by what they should be. By that alone, rows would take the blame for keys that
        # cost a tenth of what was thought, come to cost nothing, and never be known again.
        for_rows = self._factors[at] * self._prior(num_rows)
        unit = self._factors[at] * self._s_per_row / _ROWS_OF_KEYS
        for_keys = [
            max(known, unit * cost) * count
            for known, cost, count in zip(self._s_per_key, _KEY_COSTS, keys, strict=True)
        ]
        norm = for_rows * for_rows + sum(each * each for each in for_keys)
        step = _WEIGHT * (seconds - thought) / norm
        self._scale(at, 1 + step * for_rows)  # from 0.8 to 1.4: no part is more than the whole
        self._s_per_key = Keys(
            *(
                max(known + step * weight * weight / count, known / 4) if count > 0.0 else known
                for known, weight, count in zip(self._s_per_key, for_keys, keys, strict=True)
            )
        )

    def _knot_of(self, num_rows: int, for_rows_s: float, least_s: float) -> int:
        """Where the knot of such row counts is. A new one takes after its neighbours, for one step
        may be an accident; the very first after the step."""
        knot = round(log2(num_rows) * _KNOTS_PER_OCTAVE)
        at = bisect_left(self._knots, knot)
        if at == len(self._knots) or self._knots[at] != knot:
            seconds = self._rows_s(num_rows) if self._knots else max(for_rows_s, least_s)
            self._knots.insert(at, knot)
            self._factors.insert(at, seconds / self._prior(num_rows))
            self._num_seen.insert(at, 0)
        self._num_seen[at] += 1
        return at

    def _scale(self, at: int, by: float) -> None:
        """One factor, and the others most of the way: a machine that slows down slows all steps,
        and what was slow once would else not be tried again."""
        others = 1 + _ALIKE * (by - 1) if self._num_seen[at] > _SETTLED else 1.0
        self._factors = [
            factor * (by if index == at else others) for index, factor in enumerate(self._factors)
        ]

    def _keys_s(self, keys: Keys) -> float:
        return sum(s * count for s, count in zip(self._s_per_key, keys, strict=True))

    def _prior(self, num_rows: float) -> float:
        return self._s_per_row * (num_rows + _BASE_ROWS)

    def _rows_s(self, num_rows: int) -> float:
        """A straight line between what was observed; past it, like the nearest."""
        if num_rows <= 0:
            return 0.0
        if not self._knots:
            return self._prior(num_rows)
        after = bisect_left(self._knots, log2(num_rows) * _KNOTS_PER_OCTAVE)
        if after == 0 or after == len(self._knots):
            return self._prior(num_rows) * self._factors[min(after, len(self._knots) - 1)]
        (low, low_s), (high, high_s) = self._at_knot(after - 1), self._at_knot(after)
        return low_s + (num_rows - low) / (high - low) * (high_s - low_s)

    def _at_knot(self, index: int) -> tuple[float, float]:
        """How many rows a knot stands for, and what they take."""
        num_rows = 2.0 ** (self._knots[index] / _KNOTS_PER_OCTAVE)
        return num_rows, self._prior(num_rows) * self._factors[index]
