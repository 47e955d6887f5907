"""A long prompt arrives while streams decode: what the streams feel, and how long the prompt takes.

    python benches/stall.py MODEL.gguf [MODEL.gguf ...] [--streams 4] [--prompt 4096]
        [--times 2,4] [--rounds 2] [--threads 2] [--json FILE]

First the streams decode alone, which gives the time of a decode-only step; target_itl_ms is then
2 and 4 times that. Tokens are timed where a caller gets them. What the machine permits the prompt
comes from steps that are timed beforehand, through the runner alone: as many streams decode, and
so many rows of a prompt go with them, at several depths of both. The prompt may then have the
most rows that keep a step within the target, and one where none do; the sum of those steps' times
is the least time to its first token: the mean of what was timed before the prompt and after it.
Each of these steps leaves the streams a token deeper, and their own reading slower: `out of
reach` is the share of the steps that even one row of the prompt takes past the target. Nothing is
drafted, so that a step brings each stream one token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from load import Spread, words

from edgeserve import AsyncLLM, AsyncTokenStream, SamplingParams
from edgeserve.bench.contestant import token_ids
from edgeserve.engine_options import EngineFields
from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, ChooseToken, RowGroup
from edgeserve.runner.native_runner import NativeRunner, num_cores
from edgeserve.types import SamplingDefaults

FloatArray = npt.NDArray[np.float64]

WANTED = 1.15
_OWN = 32  # tokens of each stream's prompt
_SETTLE = 24  # tokens that each stream has got before anything is measured
_ALONE = 48  # tokens of each that say what a decode-only step takes
_ROWS = (1, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_DEPTHS = 3
_REPEATS = 3
_GREEDY = SamplingParams(temperature=0.0).resolved(SamplingDefaults())


@dataclass(frozen=True)
class Setting:
    model: Path
    num_streams: int
    num_prompt: int
    num_threads: int

    def options(self, target_itl_ms: float | None = None) -> EngineFields:
        return {
            "num_threads": self.num_threads,
            "target_itl_ms": target_itl_ms,
            "disk_cache": 0,  # or a second run would find the first one's prompts
            "speculation": "off",
        }


class StepClock:
    """Times steps of the streams' decodes and some rows of a prompt, on a runner of its own."""

    def __init__(self, setting: Setting) -> None:
        file = read_gguf(setting.model)
        plan = build_plan(file.metadata, file.tensors)
        self._streams = (_OWN + _SETTLE, _OWN + _SETTLE + setting.num_prompt // 2)
        self._each = -(-(self._streams[1] + 1) // BLOCK_SIZE)
        self._num_streams = setting.num_streams
        self._prompt_blocks = -(-setting.num_prompt // BLOCK_SIZE)
        with TensorReader(file) as tensors:
            self._runner = NativeRunner(
                plan,
                tensors,
                num_blocks=self._each * self._num_streams + self._prompt_blocks,
                num_threads=setting.num_threads,
                max_rows=self._num_streams + max(_ROWS),
            )
        self._fill()
        self._vocab_size = plan.vocab_size
        self._rows = [n for n in _ROWS if n <= setting.num_prompt]
        last = setting.num_prompt - self._rows[-1]
        self._depths = [round(float(d)) for d in np.linspace(0, last, _DEPTHS)]

    def close(self) -> None:
        self._runner.close()

    def table(self, limit_s: float) -> StepTable:
        """Medians for all depths, and for row counts up to the first that is past the limit."""
        found: dict[tuple[int, int, int], float] = {}
        for depth in self._depths:
            for num_rows in self._rows:
                for stream in self._streams:
                    found[stream, depth, num_rows] = statistics.median(
                        self._seconds(stream, depth, num_rows) for _ in range(_REPEATS)
                    )
                if found[self._streams[0], depth, num_rows] > limit_s:
                    break
        return StepTable(found)

    def _fill(self) -> None:
        """Memory that was never written is one page of zeros, which is read from the nearest cache
        however long the prompt is."""
        rng = np.random.default_rng(0)
        for group in range(len(self._runner.cache_groups)):
            size = self._runner.block_bytes(group)
            for block in range(self._each * self._num_streams + self._prompt_blocks):
                # Halves below 1, or codes with scales as small: nothing overflows.
                data = rng.integers(0, 60, size, dtype=np.uint8).tobytes()
                self._runner.write_blocks(group, [block], data)

    def _seconds(self, stream: int, depth: int, num_rows: int) -> float:
        num_groups = len(self._runner.cache_groups)
        groups = [
            RowGroup(
                token_ids(stream, 1, self._vocab_size),
                stream,
                [range(i * self._each, (i + 1) * self._each)] * num_groups,
                1,
            )
            for i in range(self._num_streams)
        ]
        first = self._each * self._num_streams
        table = range(first, first + self._prompt_blocks)
        ids = token_ids(depth, num_rows, self._vocab_size)
        groups.append(RowGroup(ids, depth, [table] * num_groups, 0))
        started = time.perf_counter()
        self._runner.execute(Batch.from_groups(groups, num_groups))
        self._runner.sample([ChooseToken(_GREEDY, i, stream) for i in range(self._num_streams)])
        return time.perf_counter() - started


@dataclass(frozen=True)
class Permitted:
    """Seconds to a prompt's first token, and the share of steps where not even one row fits."""

    seconds: float
    out_of_reach: float


class StepTable:
    """Seconds by (position of the streams, depth of the prompt, rows of it)."""

    def __init__(self, found: Mapping[tuple[int, int, int], float]) -> None:
        self._streams = sorted({stream for stream, _, _ in found})
        self._depths = sorted({depth for _, depth, _ in found})
        self._curves = np.array(
            [[_curve(found, s, d) for d in self._depths] for s in self._streams]
        )

    def at(self, stream: int, depth: int) -> FloatArray:
        """Of 1, 2, ... rows: straight lines between what was timed, and past it for streams, whose
        keys cost alike however many there are."""
        first, *rest = (self._at_depth(curves, depth) for curves in self._curves)
        if not rest:
            return first
        share = (stream - self._streams[0]) / (self._streams[-1] - self._streams[0])
        return first + share * (rest[-1] - first)

    def permitted(self, num_prompt: int, target_s: float) -> Permitted:
        """A prompt that gets the most rows that fit each step, and one where none do."""
        depth, seconds, num_steps, num_beyond = 0, 0.0, 0, 0
        while depth < num_prompt:
            times = self.at(self._streams[0] + num_steps, depth)[: num_prompt - depth]
            fitting = np.flatnonzero(times <= target_s)
            num_rows = 1 + (int(fitting[-1]) if fitting.size else 0)
            num_beyond += not fitting.size
            num_steps += 1
            seconds += float(times[num_rows - 1])
            depth += num_rows
        return Permitted(seconds, num_beyond / num_steps)

    def _at_depth(self, curves: FloatArray, depth: int) -> FloatArray:
        after = min(max(bisect_right(self._depths, depth), 1), len(self._depths) - 1)
        if after == 0:
            return curves[0]
        low, high = self._depths[after - 1], self._depths[after]
        return curves[after - 1] + (depth - low) / (high - low) * (
            curves[after] - curves[after - 1]
        )


def _curve(found: Mapping[tuple[int, int, int], float], stream: int, depth: int) -> FloatArray:
    """Of 1 to most rows; of rows past what was timed, in proportion."""
    rows = sorted(n for s, d, n in found if (s, d) == (stream, depth))
    times = [found[stream, depth, n] for n in rows]
    wanted = np.arange(1, max(_ROWS) + 1)
    past = np.maximum(wanted / rows[-1], 1.0)
    return np.interp(wanted, rows, times) * past


@dataclass(frozen=True)
class Arrival:
    """One arrival: what streams felt until the prompt's first token, and when that came."""

    gaps_ms: Spread
    first_token_s: float
    permitted_s: float
    out_of_reach: float

    @property
    def first_token_ratio(self) -> float:
        return self.first_token_s / self.permitted_s


@dataclass(frozen=True)
class Found:
    model: str
    times: float
    alone_ms: float
    alone_p99_ms: float
    target_ms: float
    arrivals: list[Arrival]

    def lines(self) -> Iterator[str]:
        yield (
            f"{self.model}: decode-only {self.alone_ms:.1f} ms, "
            f"p99 {self.alone_p99_ms:.1f}, "
            f"target {self.times:g} x = {self.target_ms:.1f} ms"
        )
        for arrival in self.arrivals:
            p99 = arrival.gaps_ms.p99 / self.target_ms
            first = arrival.first_token_ratio
            yield (
                f"  streams: {arrival.gaps_ms} ms; p99 is {p99:.2f} of the target: {_verdict(p99)}"
            )
            yield (
                f"  prompt: {arrival.first_token_s:.2f} s, permitted {arrival.permitted_s:.2f} s, "
                f"{first:.2f} of it: {_verdict(first)}; "
                f"{arrival.out_of_reach:.0%} of those steps out of reach"
            )


def _verdict(ratio: float) -> str:
    return "kept" if ratio <= WANTED else "NOT KEPT"


class Streams:
    """Chats that decode to the end of the context; when each got its tokens."""

    def __init__(self, llm: AsyncLLM, num_streams: int) -> None:
        params = SamplingParams(temperature=0.0, ignore_eos=True)
        self._times: list[list[float]] = [[] for _ in range(num_streams)]
        self._streams = [
            llm.stream({"prompt_token_ids": words(llm.tokenize, _OWN, 1 + i)}, params)
            for i in range(num_streams)
        ]
        self._moved = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._read(stream, times))
            for stream, times in zip(self._streams, self._times, strict=True)
        ]

    async def reach(self, num_tokens: int) -> None:
        """Until each has got so many more."""
        wanted = [len(times) + num_tokens for times in self._times]
        while any(len(t) < n for t, n in zip(self._times, wanted, strict=True)):
            self._moved.clear()
            await self._moved.wait()
            for task in self._tasks:
                if task.done():
                    task.result()
                    raise RuntimeError("a stream ended before the prompt: give more context")

    def gaps(self, begin: float, end: float) -> list[float]:
        """Seconds between tokens, of those gaps that end between the two times."""
        return [
            after - before
            for times in self._times
            for before, after in pairwise(times)
            if begin < after <= end
        ]

    async def close(self) -> None:
        for stream in self._streams:
            await stream.aclose()
        await asyncio.gather(*self._tasks)

    async def _read(self, stream: AsyncTokenStream, times: list[float]) -> None:
        try:
            async for _ in stream:
                times.append(time.perf_counter())
                self._moved.set()
        finally:
            self._moved.set()


async def alone(setting: Setting) -> Spread:
    """Decode-only steps, as the streams' callers see them: p99 is what the machine does to them."""
    async with await AsyncLLM.create(str(setting.model), **setting.options()) as llm:
        streams = Streams(llm, setting.num_streams)
        await streams.reach(_SETTLE)
        begin = time.perf_counter()
        await streams.reach(_ALONE)
        gaps = streams.gaps(begin, time.perf_counter())
        await streams.close()
    return Spread.of(gaps)


async def arrive(llm: AsyncLLM, setting: Setting, seed: int) -> tuple[Spread, float]:
    """Gaps of the streams while the prompt is computed, and seconds to its first token."""
    streams = Streams(llm, setting.num_streams)
    await streams.reach(_SETTLE)
    ids = words(llm.tokenize, setting.num_prompt, 1000 + seed)
    begin = time.perf_counter()
    await llm.generate({"prompt_token_ids": ids}, max_tokens=1, temperature=0.0)
    end = time.perf_counter()
    await streams.reach(1)
    gaps = streams.gaps(begin, end)
    await streams.close()
    return Spread.of(gaps), end - begin


async def measure(setting: Setting, times: float, num_rounds: int) -> Found:
    without = await alone(setting)
    target = times * without.p50 / 1e3
    clock = StepClock(setting)
    arrivals: list[Arrival] = []
    try:
        options = setting.options(target_itl_ms=1e3 * target)
        async with await AsyncLLM.create(str(setting.model), **options) as llm:
            for number in range(num_rounds):
                before = clock.table(target).permitted(setting.num_prompt, target)
                gaps, first_token = await arrive(llm, setting, number)
                after = clock.table(target).permitted(setting.num_prompt, target)
                permitted_s = (before.seconds + after.seconds) / 2
                out_of_reach = (before.out_of_reach + after.out_of_reach) / 2
                arrivals.append(Arrival(gaps, first_token, permitted_s, out_of_reach))
    finally:
        clock.close()
    return Found(setting.model.name, times, without.p50, without.p99, 1e3 * target, arrivals)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=4096, help="tokens of the one that arrives")
    parser.add_argument("--times", default="2,4", help="target_itl_ms over a decode-only step")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=num_cores())
    parser.add_argument("--json", type=Path, help="where all figures go")
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    print(f"{given.threads} threads; load {os.getloadavg()[0]:.1f} before", flush=True)
    found: list[Found] = []
    for model in given.models:
        setting = Setting(model, given.streams, given.prompt, given.threads)
        for times in given.times.split(","):
            found.append(await measure(setting, float(times), given.rounds))
            print("\n".join(found[-1].lines()), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
