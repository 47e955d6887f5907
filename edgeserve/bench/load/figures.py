"""Figures of a load, from its exchanges alone: percentiles, rates, goodput, errors by kind."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from edgeserve.bench.load.exchange import Exchange
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen


@frozen
class Spread:
    """Of one quantity over many requests."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@frozen
class Slo:
    """What a request must keep to count as good; None asks for nothing."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("--slo-ttft", self.ttft_s), ("--slo-tpot", self.tpot_s)):
            if value is not None and not value > 0:
                raise InvalidRequestError(name, value * 1e3, "more than 0 milliseconds")

    @property
    def asks(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None

    def is_kept_by(self, exchange: Exchange) -> bool:
        """A failed request keeps nothing; an answer of one token has no TPOT to miss."""
        if exchange.failure is not None:
            return False
        return _within(exchange.ttft_s, self.ttft_s) and _within(exchange.tpot_s, self.tpot_s)


def _within(value: float | None, limit: float | None) -> bool:
    return limit is None or value is None or value <= limit


@frozen
class Figures:
    """All of one load. Seconds, and tokens or requests a second of `wall_s`.

    Spreads are over answered requests, None where none had the quantity. `cached_tokens` is None
    where the server does not count them; `is_counted` is false where it does not count tokens.
    `late_s` is by how much the load itself sent a request after its time, at most.
    """

    num_requests: int
    num_answered: int
    wall_s: float
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    is_counted: bool
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    e2e: Spread | None
    good_requests: int | None
    failures: Mapping[str, int]
    late_s: float

    @property
    def output_tokens_per_s(self) -> float:
        return self.output_tokens / self.wall_s

    @property
    def requests_per_s(self) -> float:
        return self.num_answered / self.wall_s

    @property
    def goodput(self) -> float | None:
        """Requests a second that kept the SLO; None where none was set."""
        return None if self.good_requests is None else self.good_requests / self.wall_s


def figures_of(exchanges: Sequence[Exchange], slo: Slo) -> Figures:
    """From the first sending to the last end; `exchanges` in any order, at least one."""
    answered = [each for each in exchanges if each.failure is None]
    usages = [each.usage for each in answered if each.usage is not None]
    cached = [usage.cached for usage in usages if usage.cached is not None]
    started = min(each.sent for each in exchanges)
    return Figures(
        num_requests=len(exchanges),
        num_answered=len(answered),
        wall_s=max(each.ended for each in exchanges) - started,
        prompt_tokens=sum(usage.prompt for usage in usages),
        cached_tokens=sum(cached) if cached else None,
        output_tokens=sum(each.num_tokens for each in answered),
        is_counted=len(usages) == len(answered),
        ttft=spread(each.ttft_s for each in answered),
        tpot=spread(each.tpot_s for each in answered),
        itl=spread(gap for each in answered for gap in each.gaps_s),
        e2e=spread(each.ended - each.sent for each in answered),
        good_requests=sum(map(slo.is_kept_by, exchanges)) if slo.asks else None,
        failures=_failures(exchanges),
        late_s=max(each.sent - each.due for each in exchanges),
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """None is left out. Percentiles between two values are on the line between them."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    cuts = statistics.quantiles(found, n=100, method="inclusive") if len(found) > 1 else found * 99
    return Spread(len(found), statistics.fmean(found), cuts[49], cuts[89], cuts[98], found[-1])


def _failures(exchanges: Iterable[Exchange]) -> dict[str, int]:
    """By kind, the most frequent first."""
    counts = Counter(each.failure.label for each in exchanges if each.failure is not None)
    return dict(counts.most_common())
