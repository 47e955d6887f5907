"""Alternation: in every round each contestant computes the same, one after the other."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from edgeserve.bench.contestant import Contestant
from edgeserve.bench.workload import Measure, Work
from edgeserve.frozen import frozen

Clock = Callable[[], float]


class Meter(Protocol):
    """How fast this machine reads and multiplies, measured now."""

    def read_bytes_per_s(self) -> float: ...

    def int8_per_s(self) -> float: ...


@frozen
class Limits:
    """The machine's, in one round."""

    read_bytes_per_s: float
    int8_per_s: float

    @classmethod
    def usual(cls, limits: Iterable[Limits]) -> Limits:
        """The medians."""
        found = list(limits)
        return cls(
            statistics.median(each.read_bytes_per_s for each in found),
            statistics.median(each.int8_per_s for each in found),
        )


@frozen
class Timing:
    """Seconds of each contestant by round, ours first, and the machine's limits in each."""

    measure: Measure
    seconds: Mapping[str, tuple[float, ...]]
    limits: tuple[Limits, ...]

    def tokens_per_s(self, name: str) -> float:
        """The median over the rounds."""
        return self.measure.total_tokens / statistics.median(self.seconds[name])

    @property
    def usual_limits(self) -> Limits:
        return Limits.usual(self.limits)

    @property
    def ours(self) -> str:
        return next(iter(self.seconds))

    @property
    def best_other(self) -> str | None:
        """Whoever else was fastest; None where nobody was measured beside us."""
        others = list(self.seconds)[1:]
        return max(others, key=self.tokens_per_s) if others else None

    @property
    def ratio(self) -> float | None:
        """Our rate over the best other's."""
        other = self.best_other
        return None if other is None else self.tokens_per_s(self.ours) / self.tokens_per_s(other)

    def of_read(self, work: Work) -> float:
        """Bytes a second over those of a raw read in the same round: the median."""
        return statistics.median(
            work.num_bytes / seconds / limits.read_bytes_per_s
            for seconds, limits in zip(self.seconds[self.ours], self.limits, strict=True)
        )

    def of_int8(self, work: Work) -> float:
        """Operations with weights a second over the best that int8 gives: the median."""
        return statistics.median(
            work.weight_operations / seconds / limits.int8_per_s
            for seconds, limits in zip(self.seconds[self.ours], self.limits, strict=True)
        )


def alternate(
    contestants: Sequence[Contestant], measure: Measure, rounds: int, *, meter: Meter, clock: Clock
) -> Timing:
    """Times `rounds` rounds, after one that warms caches and clocks."""
    seconds: dict[str, list[float]] = {one.name: [] for one in contestants}
    limits: list[Limits] = []
    for turn in range(rounds + 1):
        found = Limits(meter.read_bytes_per_s(), meter.int8_per_s())
        for one in contestants:
            one.prepare(measure)
            started = clock()
            one.run(measure)
            elapsed = clock() - started
            if turn > 0:
                seconds[one.name].append(elapsed)
        if turn > 0:
            limits.append(found)
    return Timing(measure, {name: tuple(found) for name, found in seconds.items()}, tuple(limits))
