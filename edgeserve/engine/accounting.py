"""What the engine has done so far, and where its time went: for metrics, benchmarks and people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from edgeserve.engine.histogram import Distribution, Histogram
from edgeserve.frozen import frozen
from edgeserve.types import EmbeddingOutput, RequestOutput


@frozen
class StepSeconds:
    """Of one step, or of all together: choosing its rows, computing them, sampling, and making
    events of the answers."""

    schedule: float = 0.0
    forward: float = 0.0
    sample: float = 0.0
    emit: float = 0.0

    @property
    def total(self) -> float:
        return self.schedule + self.forward + self.sample + self.emit

    def __add__(self, other: StepSeconds) -> StepSeconds:
        return StepSeconds(
            self.schedule + other.schedule,
            self.forward + other.forward,
            self.sample + other.sample,
            self.emit + other.emit,
        )


@frozen
class StepReport:
    """One step. Rows of decodes are those of sequences that had no more than their newest token to
    compute. `occupancy` is the fullest pool's held share, 0 to 1."""

    seconds: StepSeconds
    num_rows: int
    num_decodes: int
    num_running: int
    num_waiting: int
    num_preempted: int
    occupancy: float


# vLLM's, so that its dashboards read ours.
_FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


@frozen
class Latencies:
    """Seconds, of requests that ended by themselves: from arrival to the first token, from token
    to token, on average over a request's tokens after the first, to the end, to the first step."""

    first_token: Distribution
    inter_token: Distribution
    per_token: Distribution
    whole: Distribution
    queue: Distribution

    def __add__(self, other: Latencies) -> Latencies:
        return Latencies(
            self.first_token + other.first_token,
            self.inter_token + other.inter_token,
            self.per_token + other.per_token,
            self.whole + other.whole,
            self.queue + other.queue,
        )


@frozen
class DraftCounts:
    """What one proposer guessed: drafts, their tokens, and how many of those were right."""

    num_drafts: int = 0
    num_tokens: int = 0
    num_accepted: int = 0

    def __add__(self, other: DraftCounts) -> DraftCounts:
        return DraftCounts(
            self.num_drafts + other.num_drafts,
            self.num_tokens + other.num_tokens,
            self.num_accepted + other.num_accepted,
        )


@frozen
class EngineLoad:
    """Right now. Waiting are those that no step has begun; `occupancy` as in StepReport."""

    num_running: int
    num_waiting: int
    occupancy: float


@frozen
class EngineStats:
    """Since the engine was made. Tokens of prompts and answers are counted when their request ends,
    `num_sampled_tokens` when they are made; requests by how they ended: "stop", "length", "abort"
    or "error"; blocks by what happened to them; drafts by proposer."""

    num_steps: int
    num_rows: int
    num_preemptions: int
    seconds: StepSeconds
    num_output_tokens: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_requests: Mapping[str, int]
    num_blocks: Mapping[str, int]
    last_step: StepReport | None
    num_sampled_tokens: int
    latencies: Latencies
    drafts: Mapping[str, DraftCounts]
    load: EngineLoad

    def __add__(self, later: EngineStats) -> EngineStats:
        """Of two engines, of which one came after the other: what is now is the later one's."""
        names = {**self.drafts, **later.drafts}
        none = DraftCounts()
        return EngineStats(
            num_steps=self.num_steps + later.num_steps,
            num_rows=self.num_rows + later.num_rows,
            num_preemptions=self.num_preemptions + later.num_preemptions,
            seconds=self.seconds + later.seconds,
            num_output_tokens=self.num_output_tokens + later.num_output_tokens,
            num_prompt_tokens=self.num_prompt_tokens + later.num_prompt_tokens,
            num_cached_tokens=self.num_cached_tokens + later.num_cached_tokens,
            num_requests=_sum(self.num_requests, later.num_requests),
            num_blocks=_sum(self.num_blocks, later.num_blocks),
            last_step=later.last_step,
            num_sampled_tokens=self.num_sampled_tokens + later.num_sampled_tokens,
            latencies=self.latencies + later.latencies,
            drafts={
                name: self.drafts.get(name, none) + later.drafts.get(name, none) for name in names
            },
            load=later.load,
        )


def _sum(a: Mapping[str, int], b: Mapping[str, int]) -> Mapping[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


class Accounts:
    """Counts. The engine tells it what happens."""

    def __init__(self) -> None:
        self.last_step: StepReport | None = None
        self.num_sampled_tokens = 0
        self._first_token = Histogram(_FIRST_TOKEN_S)
        self._inter_token = Histogram(_TOKEN_S)
        self._per_token = Histogram(_TOKEN_S)
        self._whole = Histogram(_REQUEST_S)
        self._queue = Histogram(_REQUEST_S)
        self._seconds = StepSeconds()
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def note_step(self, report: StepReport) -> None:
        self.last_step = report
        self._seconds += report.seconds
        self._counts["steps"] += 1
        self._counts["rows"] += report.num_rows
        self._counts["preemptions"] += report.num_preempted

    def note_end(self, output: RequestOutput, waits: Sequence[float]) -> None:
        """A request that ended by itself, by the reason of its first choice. `waits` are seconds
        from one token to the next of the same choice."""
        self._note_latencies(output, waits)
        self._counts["prompt"] += output.usage.prompt_tokens
        self._counts["cached"] += output.usage.cached_tokens
        self._counts["output"] += output.usage.completion_tokens
        self._requests[output.outputs[0].finish_reason or "abort"] += 1

    def note_embedding(self, output: EmbeddingOutput) -> None:
        """A request that ended with its prompt's vector, as vLLM has it by "stop"."""
        self._counts["prompt"] += output.usage.prompt_tokens
        self._counts["cached"] += output.usage.cached_tokens
        self._requests["stop"] += 1

    def _note_latencies(self, output: RequestOutput, waits: Sequence[float]) -> None:
        timings = output.timings
        self._first_token.add([timings.first_token_ms / 1e3])
        self._inter_token.add(waits)
        if waits:
            self._per_token.add([sum(waits) / len(waits)])
        self._whole.add([timings.total_ms / 1e3])
        self._queue.add([timings.queue_ms / 1e3])

    def note_failure(self, how: str) -> None:
        """One that did not: "abort" or "error"."""
        self._requests[how] += 1

    def stats(
        self,
        num_blocks: Mapping[str, int],
        drafts: Mapping[str, DraftCounts],
        load: EngineLoad,
    ) -> EngineStats:
        counts = self._counts
        return EngineStats(
            num_steps=counts["steps"],
            num_rows=counts["rows"],
            num_preemptions=counts["preemptions"],
            seconds=self._seconds,
            num_output_tokens=counts["output"],
            num_prompt_tokens=counts["prompt"],
            num_cached_tokens=counts["cached"],
            num_requests=dict(self._requests),
            num_blocks=num_blocks,
            last_step=self.last_step,
            num_sampled_tokens=self.num_sampled_tokens,
            latencies=Latencies(
                self._first_token.seen(),
                self._inter_token.seen(),
                self._per_token.seen(),
                self._whole.seen(),
                self._queue.seen(),
            ),
            drafts=drafts,
            load=load,
        )
