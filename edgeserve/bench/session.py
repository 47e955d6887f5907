"""A run of the bench from a model's file to a report: who is opened, what is measured, in order."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from edgeserve.bench.contestant import Contestant, open_native
from edgeserve.bench.llama_cpp import LlamaCpp, load_llama_cpp
from edgeserve.bench.profile import profile
from edgeserve.bench.report import Machine, Measured, ModelFacts, Report
from edgeserve.bench.timing import Clock, Meter, Timing, alternate
from edgeserve.bench.workload import (
    Kind,
    LeftOut,
    Measure,
    Sizes,
    fitting,
    work_of,
)
from edgeserve.binding.meter import NativeMeter
from edgeserve.errors import InvalidRequestError, OutOfMemoryError
from edgeserve.frozen import frozen
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.machine import available_memory
from edgeserve.loader.processor import read_processor
from edgeserve.loader.recommend import human_size
from edgeserve.models import build_plan
from edgeserve.plan.ops import Plan
from edgeserve.runner.kv_types import KV_TYPES
from edgeserve.runner.native_runner import num_cores

_KV_SHARE_OF_MEMORY = 0.4


@frozen(kw_only=True)
class Options:
    """How to measure. `kernels` None is the best set; `against` measures llama.cpp too."""

    sizes: Sizes
    rounds: int
    num_threads: int | None = None
    kernels: str | None = None
    kv_cache_dtype: str = "f16"
    against_llama_cpp: bool = False

    def __post_init__(self) -> None:
        least = LEAST_ROUNDS_AGAINST if self.against_llama_cpp else 1
        if self.rounds < least:
            raise InvalidRequestError("--rounds", self.rounds, f"{least} or more")
        if self.num_threads is not None and not 1 <= self.num_threads <= MOST_THREADS:
            raise InvalidRequestError("--threads", self.num_threads, f"from 1 to {MOST_THREADS}")
        if self.kv_cache_dtype not in tuple(KV_TYPES):
            raise InvalidRequestError(
                "--kv-cache-dtype", self.kv_cache_dtype, " or ".join(KV_TYPES)
            )
        if self.against_llama_cpp and self.kv_cache_dtype != "f16":
            raise InvalidRequestError(
                "--kv-cache-dtype", self.kv_cache_dtype, "f16 with --against: llama.cpp's is"
            )


LEAST_ROUNDS_AGAINST = 5
MOST_THREADS = 1024


def bench(
    name: str, path: Path, options: Options, *, clock: Clock, say: Callable[[str], None]
) -> Report:
    """Measures the model in `path`. `say` hears what is being measured, before it is.

    Raises PeerMissingError, InvalidRequestError where nothing fits, and what loading raises.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    module = load_llama_cpp() if options.against_llama_cpp else None
    num_threads = options.num_threads or num_cores()
    file = read_gguf(path)
    _require_memory(file, copies=1 if module is None else 3)
    plan = build_plan(file.metadata, file.tensors)
    measures, left_out = _choose(plan, options)
    with ExitStack() as opened:
        say("loading")
        ours = open_native(
            file, plan, measures, num_threads, options.kernels, options.kv_cache_dtype
        )
        opened.callback(ours.close)
        contestants: list[Contestant] = [ours]
        for repack in (True, False) if module is not None else ():
            contestants.append(LlamaCpp(module, path, measures, num_threads, repack=repack))
            opened.callback(contestants[-1].close)
        meter = NativeMeter(num_threads=num_threads, kernels=options.kernels)
        opened.callback(meter.close)
        timings = list(_time(contestants, measures, options.rounds, meter, clock, say))
        costs = ours.runner.region_costs()
        return Report(
            model=_model(name, file, plan, ours.runner.weight_bytes),
            machine=_machine(num_threads, ours.runner.kernels, options.kv_cache_dtype, load),
            versions=_versions(module is not None),
            rounds=options.rounds,
            measured=tuple(Measured(t, work_of(costs, t.measure.steps())) for t in timings),
            left_out=left_out,
            profiles=tuple(
                profile(ours, timing.measure, timing.usual_limits, clock)
                for timing in timings
                if timing.measure in _profiled(measures)
            ),
        )


def _require_memory(file: ModelFile, *, copies: int) -> None:
    """All contestants hold the model at once. Raises OutOfMemoryError."""
    if _size_bytes(file) * copies > available_memory():
        times = "" if copies == 1 else f", {copies} times over"
        raise OutOfMemoryError(f"a model of {human_size(_size_bytes(file))}{times}")


def _size_bytes(file: ModelFile) -> int:
    return sum(part.stat().st_size for part in file.paths)


def _choose(plan: Plan, options: Options) -> tuple[tuple[Measure, ...], tuple[LeftOut, ...]]:
    """What fits. Raises InvalidRequestError if nothing does."""
    sizes, memory = options.sizes, available_memory() * _KV_SHARE_OF_MEMORY
    token_bytes = KV_TYPES[options.kv_cache_dtype].token_bytes(plan)
    kept, left_out = fitting(
        sizes.measures(),
        max_position=plan.max_position,
        max_kv_tokens=int(memory / max(1.0, token_bytes)),
    )
    if not kept:
        reason = left_out[0].reason if left_out else "at least one depth is needed"
        raise InvalidRequestError("--depths", sizes.depths, f"such that something fits: {reason}")
    return kept, left_out


def _time(
    contestants: Sequence[Contestant],
    measures: Sequence[Measure],
    rounds: int,
    meter: Meter,
    clock: Clock,
    say: Callable[[str], None],
) -> Iterator[Timing]:
    for measure in measures:
        say(f"measuring {measure.name}")
        yield alternate(contestants, measure, rounds, meter=meter, clock=clock)


def _profiled(measures: Sequence[Measure]) -> set[Measure]:
    """The first prefill, the shallowest and the deepest decode, the most sequences."""
    prefills = [m for m in measures if m.kind is Kind.PREFILL]
    decodes = [m for m in measures if m.kind is Kind.DECODE]
    alone = [m for m in decodes if m.num_sequences == 1]
    together = [m for m in decodes if m.num_sequences > 1]
    return {*prefills[:1], *alone[:1], *alone[-1:], *together[-1:]}


def _model(name: str, file: ModelFile, plan: Plan, weight_bytes: int) -> ModelFacts:
    size, path = _size_bytes(file), file.paths[0]
    return ModelFacts(name, path, plan.architecture, size, weight_bytes, plan.max_position)


def _machine(num_threads: int, kernels: str, kv_cache_dtype: str, load: float | None) -> Machine:
    processor = read_processor()
    return Machine(
        processor=processor.name or processor.machine,
        system=f"{platform.system()} {processor.machine}",
        cores=num_cores(),
        threads=num_threads,
        kernels=kernels,
        load=load,
        kv_cache_dtype=kv_cache_dtype,
    )


def _versions(with_llama_cpp: bool) -> dict[str, str]:
    packages = {"edgeserve": "edgeserve-llm"}
    if with_llama_cpp:
        packages["llama-cpp-python"] = "llama-cpp-python"
    found = {name: _version(package) for name, package in packages.items()}
    return {**found, "python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
