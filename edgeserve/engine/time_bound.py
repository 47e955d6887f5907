"""How many rows of prompts a step has time for, beside the streams that are being read."""

from __future__ import annotations

from collections.abc import Iterable

from edgeserve.engine.step_load import KeysSeen, StepLoad
from edgeserve.engine.step_times import StepTimes

_LATE = 1.15
"""So many times the target is what steps beside streams may take, but for few of them."""
_FEW = 0.015
_FIRST_LATE = 1.08
"""What few steps take longer by than thought, before steps have told."""
_MOST_LATE = 1.3
"""As much is believed: on a machine that moves a lot, prompts go on nearly as fast."""
_LATE_WEIGHT = 0.1
_OUT_OF_REACH = 1.15
"""Where one row of a prompt is past the target, as many go in as make the step so much longer."""


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
        self._seen = seen
        self._load = StepLoad(seen)
        self._limit_s = max_step_s
        self._beside_streams = False
        # Few steps take more than this times what was thought.
        self._late = _FIRST_LATE

    @property
    def load(self) -> StepLoad:
        """What was let in so far."""
        return self._load

    def begin(self, decodes: Iterable[tuple[int, int]]) -> None:
        """A step with these decodes, (first position, rows) each, whatever they take."""
        self._load.begin(decodes)
        self._limit_s = self._max_step_s
        self._beside_streams = self._load.num_rows > 0
        if self._beside_streams:
            self._limit_s = self._limit_beside(
                self._times.seconds(self._load.num_rows, self._load.keys)
            )

    def take(self, first_position: int, wanted: int, least: int = 0) -> int:
        """How many of `wanted` rows of a prompt are let in; `least` always are, and beside streams
        as many more as cost little once those must be."""
        fits = self._rows_within(self._load, self._limit_s, first_position, wanted)
        if fits < least and self._beside_streams:
            keys = self._load.keys_with(first_position, least)
            inevitable = self._times.seconds(self._load.num_rows + least, keys)
            longer_s = _OUT_OF_REACH * inevitable
            fits = self._rows_within(self._load, longer_s, first_position, wanted)
        num_rows = min(wanted, max(least, fits))
        if num_rows > 0:
            self._load.add_prompt(first_position, num_rows)
        return num_rows

    def prompt_seconds(self, first: int, end: int, most_rows: int) -> float | None:
        """What a prompt's tokens from `first` to `end` should take with nobody beside them; None
        until a step has told."""
        if first >= end:
            return 0.0
        if not self._times.were_seen:  # priors are far too slow, to be safe
            return None
        # Costs grow with the position in a straight line: the chunk in the middle is the mean.
        load, middle = StepLoad(self._seen), (first + end) // 2
        most = min(most_rows, end - first)
        num_rows = max(1, self._rows_within(load, self._max_step_s, middle, most))
        keys = load.keys_with(max(0, middle - num_rows // 2), num_rows)
        return self._times.seconds(num_rows, keys) * (end - first) / num_rows

    def observe(self, seconds: float) -> None:
        """The step that was put together took so long."""
        num_rows, keys = self._load.num_rows, self._load.keys
        thought = self._times.seconds(num_rows, keys)
        if self._beside_streams and thought > 0.0:
            # A quantile by stochastic approximation (Robbins and Monro, 1951): the few that take
            # longer raise it by as much as the many others lower it.
            is_late = seconds > self._late * thought
            self._late *= 1 + _LATE_WEIGHT * (is_late - _FEW)
            self._late = min(max(self._late, 1.0), _MOST_LATE)
        self._times.observe(num_rows, keys, seconds)

    def _limit_beside(self, alone_s: float) -> float:
        if self._target_itl_s is not None:
            return min(self._max_step_s, self._target_itl_s * min(1.0, _LATE / self._late))
        # Where decodes alone take the whole step, prompts get as long again: a large model on a
        # slow machine must not read them a row at a time.
        return max(2 * alone_s, min(self._max_step_s, self.itl_factor * alone_s))

    def _rows_within(self, load: StepLoad, seconds: float, first_position: int, most: int) -> int:
        """The most rows, up to `most`, that keep the step within `seconds`. May be 0."""
        if not self._times.are_known:
            return most
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            keys = load.keys_with(first_position, middle)
            if self._times.seconds(load.num_rows + middle, keys) <= seconds:
                low = middle
            else:
                high = middle - 1
        return low
