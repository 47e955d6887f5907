"""Prefill and decode beside llama.cpp, in alternation, as ratios.

    python benches/speed.py MODEL.gguf [--prefill 512] [--decode 64] [--depth 0] [--rounds 5]

Both run in this process, one after the other in every round, on the same number of threads.
llama.cpp runs in its best mode: flash attention on, weights repacked or not, whichever is faster
(both are measured). Timed: forward passes alone; sampling, loading and text are not. The machine
should be quiet: a compiler on one core costs half.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import llama_cpp
import numpy as np

from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup
from edgeserve.runner.native_runner import NativeRunner, num_cores


@llama_cpp.llama_log_callback
def _silent(level: int, text: bytes, data: object) -> None:
    """llama.cpp's own chatter."""


class Contestant(Protocol):
    name: str

    def feed(self, ids: Sequence[int], first: int) -> None:
        """Computes `ids` at positions `first`, …, and the logits of the last."""
        ...


class Ours:
    def __init__(self, path: Path, context: int, num_threads: int, max_rows: int) -> None:
        model = read_gguf(path)
        plan = build_plan(model.metadata, model.tensors, max_model_len=context)
        blocks = -(-context // BLOCK_SIZE)
        with TensorReader(model) as tensors:
            self._runner = NativeRunner(
                plan, tensors, num_blocks=blocks, num_threads=num_threads, max_rows=max_rows
            )
        self.name = f"edgeserve ({self._runner.kernels})"
        self._max_rows = max_rows
        self._tables = [list(range(blocks))] * len(plan.cache_groups)

    def feed(self, ids: Sequence[int], first: int) -> None:
        for at in range(0, len(ids), self._max_rows):
            piece = ids[at : at + self._max_rows]
            group = RowGroup(piece, first + at, self._tables, int(at + len(piece) == len(ids)))
            self._runner.execute(Batch.from_groups([group], len(self._tables)))


class Theirs:
    def __init__(
        self, path: Path, context: int, num_threads: int, max_rows: int, *, repack: bool
    ) -> None:
        self.name = f"llama.cpp ({'repacked' if repack else 'as in the file'})"
        llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repack
        params.use_mmap = not repack
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        context_params = llama_cpp.llama_context_default_params()
        context_params.n_ctx = context
        context_params.n_batch = context_params.n_ubatch = max_rows
        context_params.n_threads = context_params.n_threads_batch = num_threads
        context_params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = llama_cpp.llama_init_from_model(self._model, context_params)
        self._max_rows = max_rows

    def feed(self, ids: Sequence[int], first: int) -> None:
        memory = llama_cpp.llama_get_memory(self._context)
        llama_cpp.llama_memory_seq_rm(memory, 0, first, -1)
        for at in range(0, len(ids), self._max_rows):
            piece = ids[at : at + self._max_rows]
            tokens = (llama_cpp.llama_token * len(piece))(*piece)
            batch = llama_cpp.llama_batch_get_one(tokens, len(piece))
            if llama_cpp.llama_decode(self._context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self._context)


@dataclass(frozen=True)
class Measure:
    name: str
    num_tokens: int
    run: Callable[[Contestant], None]


def measures(prefill: int, decode: int, depth: int, vocab_size: int) -> list[Measure]:
    rng = np.random.default_rng(1)
    ids = [int(i) for i in rng.integers(10, vocab_size - 10, depth + max(prefill, decode) + 1)]

    def prefill_run(who: Contestant) -> None:
        who.feed(ids[:prefill], 0)

    def decode_run(who: Contestant) -> None:
        for at in range(depth, depth + decode):
            who.feed(ids[at : at + 1], at)

    return [
        Measure(f"pp{prefill}", prefill, prefill_run),
        Measure(f"tg{decode} at depth {depth}", decode, decode_run),
    ]


def compare(who: Sequence[Contestant], measure: Measure, depth: int, rounds: int) -> None:
    """Prints each one's median rate, and ours over the better of the others."""
    rates: dict[str, list[float]] = {one.name: [] for one in who}
    for turn in range(rounds + 1):
        for one in who:
            if depth and turn == 0 and "tg" in measure.name:
                one.feed([11 + i % 1000 for i in range(depth)], 0)
            started = time.perf_counter()
            measure.run(one)
            seconds = time.perf_counter() - started
            if turn > 0:  # the first round warms caches and clocks
                rates[one.name].append(measure.num_tokens / seconds)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ours, *theirs = medians.values()
    shown = ", ".join(f"{name} {rate:.1f}" for name, rate in medians.items())
    print(f"{measure.name}: {shown} tokens/s; ratio {ours / max(theirs):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=num_cores())
    given = parser.parse_args()
    context = -(-(given.depth + max(given.prefill, given.decode) + 1) // 256) * 256
    sizes = (context, given.threads, min(512, given.prefill))
    who: list[Contestant] = [
        Ours(given.model, *sizes),
        Theirs(given.model, *sizes, repack=True),
        Theirs(given.model, *sizes, repack=False),
    ]
    vocab_size = len(read_gguf(given.model).metadata.values["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    print(f"{given.model.name}, {given.threads} threads, {given.rounds} rounds, medians")
    for measure in measures(given.prefill, given.decode, given.depth, vocab_size):
        compare(who, measure, given.depth, given.rounds)


if __name__ == "__main__":
    main()
