"""Random arrivals, cancels and overflows on a small pool: nothing leaks, and no text is wrong.

    python tools/soak.py MODEL.gguf [--minutes 10] [--pool-tokens 1024] [--over 3] [--seed 0]
                         [--threads 2] [--json FILE]

A few dozen requests (prompts that begin alike, greedy and at temperature 1, penalties, stops,
logprobs, two choices) are answered one at a time first, with no prefix cache and no drafts. Then
they arrive at random through AsyncLLM, so many at once that they want `--over` times the pool's
tokens, and sometimes in a burst that overflows the queue. Some are cancelled in the middle; some
are too long, or find the queue full, and must be refused with the error that says so. Every answer,
and every part of a cancelled one, must be the recorded one. In the end no block is held, and memory
neither grew nor went past what was declared: the model's file and a fifth, the pool, and 100 MiB.
Blocks are checked every few steps. Exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from soak_facts import Memory, Tally

from edgeserve import LLM, AsyncLLM, RequestOutput, SamplingParams
from edgeserve.build import LoadedModel, load_model
from edgeserve.config import Config
from edgeserve.engine_options import EngineOptions
from edgeserve.errors import ContextLengthError, QueueFullError
from edgeserve.loader.gguf import read_gguf
from edgeserve.models import build_plan
from edgeserve.plan.ops import Plan
from edgeserve.runner.native_runner import num_cores
from edgeserve.types import CompletionOutput

MIB = 1 << 20
NUM_ASKED = 32
MAX_SEQUENCES = 16
MAX_QUEUED = 8
_KV_BYTES = 2  # f16
_CHECK_EVERY = 7  # steps
_SHOWN = 20


@dataclass(frozen=True)
class Asked:
    """A request, and what it was answered with when it was alone."""

    prompt: tuple[int, ...]
    params: SamplingParams
    answer: tuple[CompletionOutput, ...]
    scores: object

    @property
    def num_tokens(self) -> int:
        """Tokens whose keys and values all of its choices may need at once."""
        return self.params.n * (len(self.prompt) + (self.params.max_tokens or 0))


def prompts(rng: random.Random, vocab_size: int, most: int) -> list[tuple[int, ...]]:
    """Some begin with one of three heads, some are of their own."""

    def ids(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(vocab_size // 8, vocab_size) for _ in range(count))

    heads = [ids(most // 2) for _ in range(3)]
    found: list[tuple[int, ...]] = []
    for _ in range(NUM_ASKED):
        head = rng.choice(heads)[: rng.randrange(most // 2)] if rng.random() < 0.7 else ()
        found.append((*head, *ids(rng.randint(1, most // 2))))
    return found


def sampling(rng: random.Random) -> SamplingParams:
    return SamplingParams(
        temperature=rng.choice((0.0, 1.0)),
        seed=rng.randrange(1 << 30),
        max_tokens=rng.randint(1, 48),
        ignore_eos=rng.random() < 0.5,
        repetition_penalty=rng.choice((1.0, 1.0, 1.2)),
        presence_penalty=rng.choice((0.0, 0.0, 0.5)),
        stop=rng.choice((None, None, "e", " the")),
        logprobs=rng.choice((None, None, 3)),
        prompt_logprobs=rng.choice((None, None, None, 2)),
        n=rng.choice((1, 1, 1, 2)),
    )


class Soak:
    """Everybody who asks. One task each, on one event loop."""

    def __init__(self, llm: AsyncLLM, asked: Sequence[Asked], rng: random.Random) -> None:
        self.tally = Tally()
        self._llm = llm
        self._asked = asked
        self._rng = rng
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted = 0

    async def run(self, seconds: float, most_wanted: int, memory: Memory) -> None:
        """Arrivals for so long, of up to `most_wanted` tokens at once; then waits for all."""
        started = time.monotonic()
        looked = 0.0
        self._burst()
        while (now := time.monotonic() - started) < seconds:
            if now - looked >= 1.0:
                memory.look(now / 60)
                looked = now
            if self._rng.random() < 0.005:
                await self._drain()  # now and then nobody is left, and then all come at once
                self._burst()
            if self._wanted < most_wanted:
                self._arrive(self._rng.choice(self._asked))
            await asyncio.sleep(self._rng.expovariate(1 / 0.01))
        await self._drain()
        memory.look(seconds / 60)

    def _burst(self) -> None:
        for _ in range(2 * (MAX_SEQUENCES + MAX_QUEUED)):
            self._arrive(self._rng.choice(self._asked))

    def _arrive(self, asked: Asked) -> None:
        kind = self._rng.random()
        if kind < 0.03:
            work = self._too_long()
        elif asked.params.n > 1 or kind < 0.4:
            patience = self._rng.uniform(0.0, 2.0) if self._rng.random() < 0.2 else None
            work = self._generate(asked, patience)
        else:
            most = self._rng.randrange(1, 24) if self._rng.random() < 0.3 else None
            work = self._stream(asked, most)
        self._wanted += asked.num_tokens
        task = asyncio.create_task(self._guard(work))
        self._tasks.add(task)

        def gone(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._wanted -= asked.num_tokens

        task.add_done_callback(gone)

    async def _drain(self) -> None:
        self.tally.counts["drained"] += 1
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _guard(self, work: Any) -> None:
        try:
            await work
        except QueueFullError:
            self.tally.counts["refused: queue full"] += 1
        except Exception as error:
            self.tally.failures.append(f"{type(error).__name__}: {error}")

    async def _too_long(self) -> None:
        try:
            await self._llm.generate({"prompt_token_ids": [1] * self._llm.max_model_len})
        except ContextLengthError:
            self.tally.counts["refused: too long"] += 1
        else:
            self.tally.failures.append("a prompt past the context was answered")

    async def _generate(self, asked: Asked, patience: float | None) -> None:
        prompt = {"prompt_token_ids": asked.prompt}
        try:
            async with asyncio.timeout(patience):
                output = await self._llm.generate(prompt, asked.params)
        except TimeoutError:
            self.tally.counts["cancelled"] += 1
            return
        self._compare(asked, output)

    async def _stream(self, asked: Asked, most: int | None) -> None:
        """Up to `most` pieces, if given: what came must be how the answer begins."""
        text, token_ids, num_pieces = "", list[int](), 0
        stream = self._llm.stream({"prompt_token_ids": asked.prompt}, asked.params)
        async with stream:
            async for chunk in stream:
                text += chunk.text
                token_ids += chunk.token_ids
                num_pieces += 1
                if num_pieces == most:
                    break
        answer = asked.answer[0]
        if stream.output is None:
            self.tally.counts["cancelled"] += 1
            begins = answer.text.startswith(text)
            begins = begins and answer.token_ids[: len(token_ids)] == tuple(token_ids)
            self.tally.expect(begins, f"a stream began with {text!r}, alone with {answer.text!r}")
            return
        self.tally.expect(text == answer.text, f"streamed {text!r}, alone {answer.text!r}")
        self._compare(asked, stream.output)

    def _compare(self, asked: Asked, output: RequestOutput) -> None:
        self.tally.counts["answered"] += 1
        self.tally.counts["tokens"] += output.usage.completion_tokens
        same = output.outputs == asked.answer and output.prompt_logprobs == asked.scores
        self.tally.expect(same, f"answered {output.text!r}, alone {asked.answer[0].text!r}")


def check_often(model: LoadedModel) -> None:
    """Has the engine's blocks checked every few steps, on its thread."""
    engine: Any = model.engine
    step, numbers = engine.step, count(1)

    def checked_step() -> Any:
        events = step()
        if next(numbers) % _CHECK_EVERY == 0:
            engine.check()
        return events

    engine.step = checked_step


def record(given: argparse.Namespace, kv_bytes: int) -> list[Asked]:
    """What each request is answered with when nobody else is there, and nothing is cached."""
    rng = random.Random(given.seed)
    vocab_size = plan_of(given.model).vocab_size
    with LLM(
        str(given.model),
        num_threads=given.threads,
        kv_cache_memory=kv_bytes,
        max_num_seqs=2,
        prefix_caching=False,
        disk_cache=0,
        speculation="off",
    ) as llm:
        asked: list[Asked] = []
        for prompt in prompts(rng, vocab_size, llm.max_model_len // 4):
            params = sampling(rng)
            (output,) = llm.generate({"prompt_token_ids": prompt}, params, progress=False)
            asked.append(Asked(prompt, params, output.outputs, output.prompt_logprobs))
    return asked


def plan_of(path: Path) -> Plan:
    file = read_gguf(path)
    return build_plan(file.metadata, file.tensors)


@dataclass(frozen=True)
class Report:
    minutes: float
    counts: dict[str, int]
    peak_mib: float | None
    bound_mib: float
    growth_mib_per_minute: float
    failures: list[str]

    def lines(self) -> list[str]:
        peak = "unknown" if self.peak_mib is None else f"{self.peak_mib:.0f} MiB"
        return [
            f"{self.minutes:g} minutes: "
            + ", ".join(f"{number} {name}" for name, number in self.counts.items()),
            f"memory: {peak} at most (declared {self.bound_mib:.0f}), "
            f"growing by {self.growth_mib_per_minute:+.2f} MiB a minute",
            *[f"FAILED: {failure}" for failure in self.failures[:_SHOWN]],
            f"{len(self.failures)} failures",
        ]


async def soak(given: argparse.Namespace, asked: Sequence[Asked], kv_bytes: int) -> Report:
    options = EngineOptions(
        num_threads=given.threads,
        kv_cache_memory=kv_bytes,
        max_num_seqs=MAX_SEQUENCES,
        disk_cache=0,
    )
    model = load_model(
        str(given.model), options, config=Config.from_environment(), clock=time.monotonic
    )
    memory = Memory()
    check_often(model)
    engine: Any = model.engine
    rng = random.Random(given.seed + 1)
    async with AsyncLLM(model, max_queued_requests=MAX_QUEUED) as llm:
        people = Soak(llm, asked, rng)
        pool_tokens = llm.max_model_len
        await people.run(60 * given.minutes, int(given.over * pool_tokens), memory)
        await llm.generate({"prompt_token_ids": [1]}, max_tokens=1)  # after all cancellations
        tally = people.tally
        tally.expect(not engine.has_work, "requests are left that nobody waits for")
        engine.check()
        held = engine._cache.occupancy()
        tally.expect(held == 0.0, f"{held:.1%} of the blocks are held by nobody")
        stats = engine.stats
    bound = (1.2 * given.model.stat().st_size + kv_bytes) / MIB + 100
    judge(tally, memory, bound, given.minutes)
    happened = {**tally.counts, "steps": stats.num_steps, "preempted": stats.num_preemptions}
    happened |= {f"blocks {name}": number for name, number in stats.num_blocks.items()}
    return Report(given.minutes, happened, memory.peak, bound, memory.growth, tally.failures)


def judge(tally: Tally, memory: Memory, bound: float, minutes: float) -> None:
    memory.judge(tally, memory.peak, bound, minutes)
    for name in ("answered", "cancelled", "refused: queue full", "refused: too long"):
        tally.expect(tally.counts[name] > 0, f"nothing was {name}: the soak proves little")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pool-tokens", type=int, default=1024, help="that the KV pool holds")
    parser.add_argument("--over", type=float, default=3.0, help="times the pool that is wanted")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=num_cores())
    parser.add_argument("--json", type=Path, help="where all figures go")
    given = parser.parse_args()
    plan = plan_of(given.model)
    kv_bytes = int(given.pool_tokens * plan.kv_bytes_per_token(_KV_BYTES))
    asked = record(given, kv_bytes)
    report = asyncio.run(soak(given, asked, kv_bytes))
    if threading.active_count() > 1:
        report.failures.append(f"threads are left: {threading.enumerate()}")
    print("\n".join(report.lines()))
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(report), indent=1) + "\n")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main())
