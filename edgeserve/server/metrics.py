"""What the engines did, in Prometheus's text form, read from them when it is asked for.

The names are vLLM's where vLLM has one, so that what watches it watches this; the rest begin with
`edgeserve_`. A registry of its own: two servers in a process share nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from edgeserve.engine.accounting import EngineStats
from edgeserve.engine.histogram import Distribution
from edgeserve.frozen import frozen
from edgeserve.server.models import ModelRegistry

_MODEL = "model_name"


@frozen
class _Number:
    """A metric with one value a model, or one for each of a further label's values."""

    name: str
    help: str
    of: Callable[[EngineStats], float | Mapping[str, float]]
    label: str | None = None


@frozen
class _Spread:
    """A histogram."""

    name: str
    help: str
    of: Callable[[EngineStats], Distribution]


_GAUGES = (
    _Number(
        "vllm:num_requests_running",
        "Requests' choices that are being computed.",
        lambda s: s.load.num_running,
    ),
    _Number(
        "vllm:num_requests_waiting",
        "Requests that no step has begun.",
        lambda s: s.load.num_waiting,
    ),
    _Number(
        "vllm:kv_cache_usage_perc",
        "Held share of the fullest KV cache group's blocks, 0 to 1.",
        lambda s: s.load.occupancy,
    ),
)
_COUNTERS = (
    _Number(
        "vllm:prefix_cache_queries",
        "Tokens of prompts that were looked up in the prefix cache.",
        lambda s: s.num_prompt_tokens,
    ),
    _Number(
        "vllm:prefix_cache_hits",
        "Tokens of prompts that were found in the prefix cache.",
        lambda s: s.num_cached_tokens,
    ),
    _Number(
        "vllm:prompt_tokens",
        "Tokens of prompts, of requests that were not given up, when they end.",
        lambda s: s.num_prompt_tokens,
    ),
    _Number(
        "vllm:generation_tokens",
        "Tokens of answers when they are made, given up later or not.",
        lambda s: s.num_sampled_tokens,
    ),
    _Number(
        "vllm:num_preemptions",
        "Sequences that gave their blocks to others.",
        lambda s: s.num_preemptions,
    ),
    _Number(
        "vllm:request_success",
        "Requests by how they ended.",
        lambda s: {how: s.num_requests.get(how, 0) for how in ("stop", "length", "abort", "error")},
        "finished_reason",
    ),
    _Number(
        "vllm:spec_decode_num_drafts",
        "Drafts that a step verified.",
        lambda s: sum(each.num_drafts for each in s.drafts.values()),
    ),
    _Number(
        "vllm:spec_decode_num_draft_tokens",
        "Tokens of drafts.",
        lambda s: sum(each.num_tokens for each in s.drafts.values()),
    ),
    _Number(
        "vllm:spec_decode_num_accepted_tokens",
        "Tokens of drafts that were right.",
        lambda s: sum(each.num_accepted for each in s.drafts.values()),
    ),
    _Number(
        "edgeserve_draft_tokens",
        "Tokens of drafts, by who proposed them.",
        lambda s: {name: each.num_tokens for name, each in s.drafts.items()},
        "proposer",
    ),
    _Number(
        "edgeserve_accepted_draft_tokens",
        "Tokens of drafts that were right, by who proposed them.",
        lambda s: {name: each.num_accepted for name, each in s.drafts.items()},
        "proposer",
    ),
    _Number(
        "edgeserve_prefix_hit_blocks",
        "Blocks that prompts found, by where they were.",
        lambda s: {
            "memory": s.num_blocks["hit"] - s.num_blocks["restored"],
            "disk": s.num_blocks["restored"],
        },
        "tier",
    ),
    _Number(
        "edgeserve_kv_blocks",
        "KV blocks by what happened to them.",
        lambda s: s.num_blocks,
        "event",
    ),
    _Number(
        "edgeserve_step_seconds",
        "Seconds of steps by phase: choosing rows, computing, sampling, handing out.",
        lambda s: {
            "schedule": s.seconds.schedule,
            "forward": s.seconds.forward,
            "sample": s.seconds.sample,
            "emit": s.seconds.emit,
        },
        "phase",
    ),
    _Number("edgeserve_steps", "Steps, which are forward passes.", lambda s: s.num_steps),
    _Number("edgeserve_step_rows", "Rows of steps: tokens computed.", lambda s: s.num_rows),
)
_SPREADS = (
    _Spread(
        "vllm:time_to_first_token_seconds",
        "From arrival to the first token.",
        lambda s: s.latencies.first_token,
    ),
    _Spread(
        "vllm:inter_token_latency_seconds",
        "From one token of a choice to the next.",
        lambda s: s.latencies.inter_token,
    ),
    _Spread(
        "vllm:time_per_output_token_seconds",
        "The same under its older name.",
        lambda s: s.latencies.inter_token,
    ),
    _Spread(
        "vllm:request_time_per_output_token_seconds",
        "A request's average from one token to the next.",
        lambda s: s.latencies.per_token,
    ),
    _Spread(
        "vllm:e2e_request_latency_seconds",
        "From arrival to the end.",
        lambda s: s.latencies.whole,
    ),
    _Spread(
        "vllm:request_queue_time_seconds",
        "From arrival to the first step.",
        lambda s: s.latencies.queue,
    ),
)


CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


def exposition(models: ModelRegistry) -> bytes:
    """All metrics as they are now, in the form that every Prometheus reads: in OpenMetrics'
    the library writes `vllm_` for `vllm:`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Engines(models))
    return generate_latest(registry)


class _Engines(Collector):
    """All models of a server. What is now is said of those that are loaded; what was counted, also
    of those that were: a counter goes on where it was when its model comes back."""

    def __init__(self, models: ModelRegistry) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        cards = self._models.cards()
        served = {each.name: each for card in cards if (each := card.served) is not None}
        found = [(name, each.llm.stats) for name, each in served.items()]
        totals = dict(self._models.earlier())
        for name, stats in found:
            totals[name] = totals[name] + stats if name in totals else stats
        yield _states((card.name, card.state) for card in cards)
        for gauge in _GAUGES:
            labels = [_MODEL, *([gauge.label] if gauge.label else [])]
            yield _filled(GaugeMetricFamily(gauge.name, gauge.help, labels=labels), gauge, found)
        for counter in _COUNTERS:
            labels = [_MODEL, *([counter.label] if counter.label else [])]
            family = CounterMetricFamily(counter.name, counter.help, labels=labels)
            yield _filled(family, counter, totals.items())
        for spread in _SPREADS:
            yield _histogram(spread, totals.items())


def _states(models: Iterable[tuple[str, str]]) -> Metric:
    family = GaugeMetricFamily(
        "edgeserve_model_state", "1 for the state that a model is in.", labels=[_MODEL, "state"]
    )
    for name, state in models:
        family.add_metric([name, state], 1)
    return family


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    number: _Number,
    found: Iterable[tuple[str, EngineStats]],
) -> Metric:
    for name, stats in found:
        value = number.of(stats)
        if isinstance(value, Mapping):
            for label, part in value.items():
                family.add_metric([name, label], part)
        else:
            family.add_metric([name], value)
    return family


def _histogram(spread: _Spread, found: Iterable[tuple[str, EngineStats]]) -> Metric:
    """Prometheus's buckets count all that is at most their bound."""
    family = HistogramMetricFamily(spread.name, spread.help, labels=[_MODEL])
    for name, stats in found:
        seen = spread.of(stats)
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, seen.bounds), "+Inf"), seen.counts, strict=True):
            total += count
            buckets.append((bound, total))
        family.add_metric([name], buckets, seen.total)
    return family
