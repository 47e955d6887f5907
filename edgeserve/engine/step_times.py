"""How long steps take, learned from real ones: what bounds a step in time, not only in tokens.

Answers never depend on it, only how they are cut into steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import log2

from edgeserve.frozen import frozen

_BASE_ROWS = 4.0
"""A step's fixed cost, reading the weights, in rows: before real steps have told."""
_ROWS_OF_KEYS = 4000.0
"""As many keys as cost what a row does, roughly, whatever the model."""
_WEIGHT = 0.3
"""Of the newest step against all before it."""
_MOST_SURPRISE = 2.0
"""A step may be slower or faster than thought by so much; what is beyond is an accident."""
_KNOTS_PER_OCTAVE = 2


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


class StepTimes:
    """Seconds of a step of so many rows, which look at so many keys all together.

    Priors are seconds a row and a key; 0 is unknown, and nothing is bounded until a step has told.
    A factor on the prior is learned for row counts of a kind, one for keys.
    """

    def __init__(self, prior_s_per_row: float, prior_s_per_key: float = 0.0) -> None:
        self._s_per_row = prior_s_per_row
        self._s_per_key = prior_s_per_key
        self._knots: list[int] = []
        self._factors: list[float] = []

    def seconds(self, num_rows: int, num_keys: float = 0.0) -> float:
        """What such a step should take."""
        return self._rows_s(num_rows) + self._s_per_key * num_keys

    def observe(self, num_rows: int, num_keys: float, seconds: float) -> None:
        """A step of `num_rows` that looked at `num_keys` took `seconds`."""
        if num_rows <= 0 or seconds <= 0.0:
            return
        if self._s_per_row <= 0.0:
            self._s_per_row = seconds / (num_rows + _BASE_ROWS)
        for_keys = self._s_per_key * num_keys
        knot = round(log2(num_rows) * _KNOTS_PER_OCTAVE)
        at = bisect_left(self._knots, knot)
        if at == len(self._knots) or self._knots[at] != knot:
            for_rows = max(seconds - for_keys, seconds / 2)
            self._knots.insert(at, knot)
            self._factors.insert(at, for_rows / self._prior(num_rows))
            return
        for_rows = self._factors[at] * self._prior(num_rows)
        thought = for_rows + for_keys
        seconds = min(max(seconds, thought / _MOST_SURPRISE), thought * _MOST_SURPRISE)
        # A normalised least-mean-squares step: each part learns by how much it weighs.
        rows, keys = self._prior(num_rows), self._s_per_row * num_keys / _ROWS_OF_KEYS
        step = _WEIGHT * (seconds - thought) / (rows * rows + keys * keys)
        self._factors[at] = max(self._factors[at] + step * rows, self._factors[at] / 4)
        self._s_per_key = max(
            self._s_per_key + step * keys * self._s_per_row / _ROWS_OF_KEYS, self._s_per_key / 4
        )

    def rows_within(self, seconds: float, rest: StepLoad, first_position: int, most: int) -> int:
        """The most rows, up to `most`, from `first_position` on, that keep a step with the `rest`
        within `seconds`. May be 0."""
        if self._s_per_row <= 0.0:
            return most
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            num_keys = rest.num_keys + rest.seen.by(first_position, middle)
            if self.seconds(rest.num_rows + middle, num_keys) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low

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


class StepLoad:
    """Rows of a step that is being put together, and the keys that they look at."""

    def __init__(self, seen: KeysSeen) -> None:
        self.seen = seen
        self.num_rows = 0
        self.num_keys = 0.0

    def add(self, first_position: int, num_rows: int) -> None:
        self.num_rows += num_rows
        self.num_keys += self.seen.by(first_position, num_rows)


class TimeBound:
    """How many rows of prompts fit one step: it should end within `max_step_s`, and beside streams
    that are being read within `target_itl_s`, by default `itl_factor` times what they take alone
    as far as `max_step_s` goes, and twice that in any case.
    """

    itl_factor = 4.0

    def __init__(
        self,
        times: StepTimes,
        seen: KeysSeen,
        *,
        max_step_s: float,
        target_itl_s: float | None = None,
    ) -> None:
        self._times = times
        self._max_step_s = max_step_s
        self._target_itl_s = target_itl_s
        self._load = StepLoad(seen)
        self._limit_s = max_step_s

    @property
    def load(self) -> StepLoad:
        """What was let in so far."""
        return self._load

    def begin(self, decodes: Iterable[tuple[int, int]]) -> None:
        """A step with these decodes, (first position, rows) each, whatever they take."""
        self._load = StepLoad(self._load.seen)
        self._limit_s = self._max_step_s
        for first_position, num_rows in decodes:
            self._load.add(first_position, num_rows)
        if self._load.num_rows > 0:
            self._limit_s = self._beside_streams(
                self._times.seconds(self._load.num_rows, self._load.num_keys)
            )

    def _beside_streams(self, alone_s: float) -> float:
        if self._target_itl_s is not None:
            return min(self._max_step_s, self._target_itl_s)
        # Where decodes alone take the whole step, prompts get as long again: a large model on a
        # slow machine must not read them a row at a time.
        return max(2 * alone_s, min(self._max_step_s, self.itl_factor * alone_s))

    def take(self, first_position: int, wanted: int, least: int = 0) -> int:
        """How many of `wanted` rows of a prompt are let in; `least` always are."""
        fits = self._times.rows_within(self._limit_s, self._load, first_position, wanted)
        num_rows = min(wanted, max(least, fits))
        self._load.add(first_position, num_rows)
        return num_rows
