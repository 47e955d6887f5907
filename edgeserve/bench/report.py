"""What a run of the bench found, as values and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from edgeserve.bench.profile import OperationTime, Profile
from edgeserve.bench.timing import Limits, Timing
from edgeserve.bench.workload import LeftOut, Work
from edgeserve.frozen import frozen

_BUSY_LOAD = 0.5  # programs that run or wait to, on average over the last minute


@frozen
class ModelFacts:
    """`weight_bytes` are those in memory; they are what a token has to read, but for a lookup."""

    name: str
    path: Path
    architecture: str
    size_bytes: int
    weight_bytes: int
    max_position: int


@frozen
class Machine:
    """What computed. `cores` are this process's; `load` is what ran before, None where unknown."""

    processor: str
    system: str
    cores: int
    threads: int
    kernels: str
    load: float | None
    kv_cache_dtype: str = "f16"

    @property
    def is_busy(self) -> bool:
        """Whether figures are of a machine shared with others."""
        return self.load is not None and self.load > _BUSY_LOAD


@frozen
class Measured:
    """A measure's times, and what its steps had to do at the least."""

    timing: Timing
    work: Work

    @property
    def of_read(self) -> float:
        return self.timing.of_read(self.work)

    @property
    def of_int8(self) -> float:
        return self.timing.of_int8(self.work)


@frozen
class Report:
    """Everything, in the order it was measured. `versions` by program."""

    model: ModelFacts
    machine: Machine
    versions: Mapping[str, str]
    rounds: int
    measured: tuple[Measured, ...]
    left_out: tuple[LeftOut, ...]
    profiles: tuple[Profile, ...]

    @property
    def limits(self) -> Limits:
        """Medians over all rounds of all measures."""
        return Limits.usual(limits for each in self.measured for limits in each.timing.limits)

    def as_dict(self) -> dict[str, object]:
        """For JSON: plain values, speeds in units a second."""
        return {
            "model": {**asdict(self.model), "path": str(self.model.path)},
            "machine": asdict(self.machine),
            "versions": dict(self.versions),
            "rounds": self.rounds,
            "limits": asdict(self.limits),
            "measures": [_measured(each) for each in self.measured],
            "left_out": [
                {"name": each.measure.name, "reason": each.reason} for each in self.left_out
            ],
            "profiles": [_profile(each) for each in self.profiles],
        }


def _measured(found: Measured) -> dict[str, object]:
    timing, measure = found.timing, found.timing.measure
    return {
        "name": measure.name,
        "kind": measure.kind.value,
        "tokens": measure.num_tokens,
        "depth": measure.depth,
        "sequences": measure.num_sequences,
        "tokens_per_s": {name: timing.tokens_per_s(name) for name in timing.seconds},
        "seconds": {name: list(seconds) for name, seconds in timing.seconds.items()},
        "limits": [asdict(limits) for limits in timing.limits],
        "bytes_per_token": found.work.num_bytes / measure.total_tokens,
        "operations_per_token": found.work.operations / measure.total_tokens,
        "of_read": found.of_read,
        "of_int8": found.of_int8,
        "best_other": timing.best_other,
        "ratio": timing.ratio,
    }


def _profile(profile: Profile) -> dict[str, object]:
    return {
        "measure": profile.measure.name,
        "steps": profile.num_steps,
        "seconds": profile.seconds,
        "operations": [_operation(each, profile) for each in profile.operations],
    }


def _operation(operation: OperationTime, profile: Profile) -> dict[str, object]:
    return {
        "name": operation.name,
        "seconds": operation.seconds,
        "share": operation.share,
        "bytes": operation.work.num_bytes,
        "operations": operation.work.operations,
        "of_read": operation.bytes_per_s / profile.limits.read_bytes_per_s,
        "of_int8": operation.weight_operations_per_s / profile.limits.int8_per_s,
    }
