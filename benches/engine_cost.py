"""What the engine costs beside the model: a decode step's time in C, in the runner, and around it.

    python benches/engine_cost.py MODEL.gguf [--sequences 64] [--tokens 64] [--threads 2]
        [--temperature 0] [--speculation auto] [--rounds 3] [--profile 25] [--json FILE]

So many streams decode at once through AsyncLLM. A step runs from one forward pass's end of sampling
to the next one's, so that everything is in it: scheduling, block tables, the batch's arrays, the
forward pass, sampling, text, and handing the tokens to their streams. Only steps in which every
sequence decodes count, and medians of their parts are what is printed. --profile lists the Python
functions that take most; profiling slows them, so that its shares mean more than its times.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import io
import json
import os
import pstats
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from load import words

from edgeserve import AsyncLLM, SamplingParams
from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.engine_options import EngineOptions
from edgeserve.runner.native_runner import num_cores

_BLOCK = 16
_PROMPT = _BLOCK + 1
WANTED = 0.04


@dataclass
class Step:
    """Seconds: of C's two calls, of the runner's two around them, of Engine.step, of everything."""

    num_decodes: int = 0
    forward: float = 0.0
    sampling: float = 0.0
    runner: float = 0.0
    engine_step: float = 0.0
    whole: float = 0.0


@dataclass
class Recorder:
    """The steps that an engine takes, by clocks around its calls."""

    steps: list[Step] = field(default_factory=list[Step])
    profile: cProfile.Profile | None = None
    _now: Step = field(default_factory=Step)
    _ended: float | None = None

    def watch(self, model: LoadedModel) -> None:
        """Puts itself around the engine's step, its runner, and the calls into C."""
        engine: Any = model.engine
        runner = engine._runner
        executor = runner._executor
        executor._functions = _Functions(executor._functions, self)
        execute, sample, step = runner.execute, runner.sample, engine.step

        def timed_execute(batch: Any) -> None:
            # All rows of a decode, and of its draft, have logits; a prompt's do not.
            if batch.num_rows == batch.num_logits_rows.sum():
                self._now.num_decodes = batch.num_groups
            self._now.runner += _timed(execute, batch)[1]

        def timed_sample(rows: Any) -> Any:
            results, seconds = _timed(sample, rows)
            self._now.runner += seconds
            return results

        def timed_step() -> Any:
            if self.profile is not None:
                self.profile.enable()
            events, seconds = _timed(step)
            if self.profile is not None:
                self.profile.disable()
            self._end(seconds)
            return events

        runner.execute, runner.sample, engine.step = timed_execute, timed_sample, timed_step

    def call(self, name: str, function: Callable[..., Any], *arguments: object) -> Any:
        result, seconds = _timed(function, *arguments)
        setattr(self._now, name, getattr(self._now, name) + seconds)
        return result

    def _end(self, engine_step: float) -> None:
        now = time.perf_counter()
        if self._ended is not None:
            self._now.engine_step, self._now.whole = engine_step, now - self._ended
            self.steps.append(self._now)
        self._now, self._ended = Step(), now


class _Functions:
    """The library's functions, two of them timed."""

    def __init__(self, functions: Any, recorder: Recorder) -> None:
        self._functions = functions
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._functions, name)

    def es_step(self, *arguments: object) -> Any:
        return self._recorder.call("forward", self._functions.es_step, *arguments)

    def es_sample(self, *arguments: object) -> Any:
        return self._recorder.call("sampling", self._functions.es_sample, *arguments)


@dataclass(frozen=True)
class Cost:
    """Medians over steps, in milliseconds, and how many steps those are."""

    model: str
    num_sequences: int
    num_steps: int
    whole: float
    forward: float
    sampling: float
    runner: float
    engine: float
    delivery: float

    @classmethod
    def of(cls, model: str, num_sequences: int, steps: Sequence[Step]) -> Cost:
        def median(part: Callable[[Step], float]) -> float:
            return 1e3 * statistics.median(map(part, steps))

        return cls(
            model=model,
            num_sequences=num_sequences,
            num_steps=len(steps),
            whole=median(lambda step: step.whole),
            forward=median(lambda step: step.forward),
            sampling=median(lambda step: step.sampling),
            runner=median(lambda step: step.runner - step.forward - step.sampling),
            engine=median(lambda step: step.engine_step - step.runner),
            delivery=median(lambda step: step.whole - step.engine_step),
        )

    @property
    def share(self) -> float:
        """Of a step, what scheduler, cache, text and delivery take."""
        return (self.engine + self.delivery) / self.whole

    def lines(self) -> Iterator[str]:
        yield f"{self.model}: {self.num_sequences} sequences, {self.num_steps} steps, medians"
        parts = {
            "forward pass, in C": self.forward,
            "sampling, in C": self.sampling,
            "the runner's Python": self.runner,
            "scheduler, cache, batch and text": self.engine,
            "to the streams, and back": self.delivery,
        }
        for name, milliseconds in parts.items():
            yield f"  {name:34}{milliseconds:8.2f} ms {milliseconds / self.whole:7.1%}"
        yield f"  {'a step':34}{self.whole:8.2f} ms"
        kept = "kept" if self.share <= WANTED else "NOT KEPT"
        python = (self.whole - self.forward - self.sampling) / self.whole
        yield (
            f"  the engine's share {self.share:.1%} (wanted {WANTED:.0%}: {kept}); "
            f"all Python {python:.1%}"
        )


def _timed(function: Callable[..., Any], *arguments: object) -> tuple[Any, float]:
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


async def stream(llm: AsyncLLM, index: int, given: argparse.Namespace) -> None:
    # A block that the cache holds and a token of its own: all decode from their first step on.
    shared, own = words(llm.tokenize, _BLOCK, 0), words(llm.tokenize, 1, index)
    prompt = {"prompt_token_ids": (*shared, *own)}
    params = SamplingParams(
        temperature=given.temperature, seed=index, max_tokens=given.tokens, ignore_eos=True
    )
    async for _ in llm.stream(prompt, params):
        pass


async def record(given: argparse.Namespace, recorder: Recorder) -> None:
    longest = -(-(_PROMPT + given.tokens) // _BLOCK) * _BLOCK
    options = EngineOptions(
        num_threads=given.threads,
        max_num_seqs=given.sequences,
        max_model_len=longest,
        speculation=given.speculation,
        disk_cache=0,
    )
    model = load_model(
        str(given.model), options, config=Config.from_environment(), clock=time.monotonic
    )
    recorder.watch(model)
    async with AsyncLLM(model) as llm:
        await stream(llm, 0, given)
        for _ in range(given.rounds):
            await asyncio.gather(*(stream(llm, i, given) for i in range(given.sequences)))


def measure(given: argparse.Namespace) -> Cost:
    recorder = Recorder()
    asyncio.run(record(given, recorder))
    steps = [step for step in recorder.steps if step.num_decodes == given.sequences]
    if not steps:
        raise SystemExit("all sequences never decoded at once: give more --tokens")
    return Cost.of(given.model.name, given.sequences, steps)


def functions(given: argparse.Namespace) -> str:
    """A profile of Engine.step: the functions that take most of their own time."""
    recorder = Recorder(profile=cProfile.Profile())
    asyncio.run(record(given, recorder))
    text = io.StringIO()
    stats = pstats.Stats(recorder.profile, stream=text)
    stats.strip_dirs().sort_stats("tottime").print_stats(given.profile)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--threads", type=int, default=num_cores())
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--speculation", default="auto", help="auto, or off")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=int, default=0, help="how many functions to list")
    parser.add_argument("--json", type=Path, help="where the figures go")
    given = parser.parse_args()
    print(f"{given.threads} threads; load {os.getloadavg()[0]:.1f} before", flush=True)
    cost = measure(given)
    print("\n".join(cost.lines()))
    if given.profile:
        print(functions(given))
    if given.json is not None:
        given.json.write_text(json.dumps({**asdict(cost), "share": cost.share}, indent=1) + "\n")


if __name__ == "__main__":
    main()
