"""Decoding beside a program that keeps every core busy, as a share of the idle machine's rate.

    python benches/busy.py MODEL.gguf [MODEL.gguf ...] [--rounds 7] [--seconds 2]

In every round each contestant decodes alone, then beside one spinning process per core. What
counts is the median of the rounds' ratios, and the worst. llama.cpp runs as it comes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgeserve.bench.contestant import Contestant, open_native
from edgeserve.bench.llama_cpp import LlamaCpp, load_llama_cpp
from edgeserve.bench.workload import Kind, Measure
from edgeserve.loader.gguf import read_gguf
from edgeserve.models import build_plan
from edgeserve.runner.native_runner import num_cores

TOKEN = Measure(Kind.DECODE, num_tokens=1, depth=128)
WANTED_MEDIAN, WANTED_WORST = 0.40, 0.33
_SPIN = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(sys.argv[1])})
print(flush=True)
while True:
    pass
"""


@contextlib.contextmanager
def spinning(cores: Sequence[int]) -> Iterator[None]:
    """One process that does nothing else on each of the cores, from the start of the block on."""
    started = [
        subprocess.Popen([sys.executable, "-c", _SPIN, str(core)], stdout=subprocess.PIPE)
        for core in cores
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def usable_cores() -> list[int]:
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def decode_rate(who: Contestant, seconds: float) -> float:
    """Tokens a second, over at least one token and about `seconds`."""
    started = time.perf_counter()
    num_tokens, elapsed = 0, 0.0
    while elapsed < seconds:
        who.prepare(TOKEN)
        who.run(TOKEN)
        num_tokens += 1
        elapsed = time.perf_counter() - started
    return num_tokens / elapsed


def measure(path: Path, rounds: int, seconds: float) -> bool:
    """Prints what each contestant keeps; whether ours keeps enough."""
    threads, cores = num_cores(), usable_cores()
    file = read_gguf(path)
    plan = build_plan(file.metadata, file.tensors)
    who: list[Contestant] = [
        open_native(file, plan, [TOKEN], threads),
        LlamaCpp(load_llama_cpp(), path, [TOKEN], threads, repack=True),
    ]
    for one in who:
        decode_rate(one, seconds / 2)  # warms caches and clocks
    ratios: list[list[float]] = [[] for _ in who]
    idle_rates: list[list[float]] = [[] for _ in who]
    for _ in range(rounds):
        for index, one in enumerate(who):
            idle = decode_rate(one, seconds)
            with spinning(cores):
                busy = decode_rate(one, seconds)
            ratios[index].append(busy / idle)
            idle_rates[index].append(idle)
    print(f"{path.name}, {threads} threads, {len(cores)} spinning processes, {rounds} rounds")
    for one, found, rates in zip(who, ratios, idle_rates, strict=True):
        print(
            f"  {one.name}: {statistics.median(rates):.1f} tokens/s idle; busy over idle: median "
            f"{statistics.median(found):.2f}, worst {min(found):.2f}, best {max(found):.2f}",
            flush=True,
        )
    return statistics.median(ratios[0]) >= WANTED_MEDIAN and min(ratios[0]) >= WANTED_WORST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    enough = [measure(path, given.rounds, given.seconds) for path in given.models]
    if not all(enough):
        print(f"below {WANTED_MEDIAN} (median) or {WANTED_WORST} (worst)", file=sys.stderr)
    return int(not all(enough))


if __name__ == "__main__":
    sys.exit(main())
