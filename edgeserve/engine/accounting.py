"""What the engine has done so far, and where its time went: for metrics, benchmarks and people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edgeserve.frozen import frozen
from edgeserve.types import RequestOutput


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


@frozen
class EngineStats:
    """Since the engine was made. Tokens of prompts are counted when their request ends; requests by
    how they ended: "stop", "length", "abort" or "error"; blocks by what happened to them."""

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


class Accounts:
    """Counts. The engine tells it what happens."""

    def __init__(self) -> None:
        self.last_step: StepReport | None = None
        self._seconds = StepSeconds()
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()

    def note_step(self, report: StepReport) -> None:
        self.last_step = report
        self._seconds += report.seconds
        self._counts["steps"] += 1
        self._counts["rows"] += report.num_rows
        self._counts["preemptions"] += report.num_preempted

    def note_end(self, output: RequestOutput) -> None:
        """A request that ended by itself, by the reason of its first choice."""
        self._counts["prompt"] += output.usage.prompt_tokens
        self._counts["cached"] += output.usage.cached_tokens
        self._counts["output"] += output.usage.completion_tokens
        self._requests[output.outputs[0].finish_reason or "abort"] += 1

    def note_failure(self, how: str) -> None:
        """One that did not: "abort" or "error"."""
        self._requests[how] += 1

    def stats(self, num_blocks: Mapping[str, int]) -> EngineStats:
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
        )
