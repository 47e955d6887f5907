"""How far the native core's distributions, and llama.cpp's, lie from the oracle's, over real text.

    python benches/kl.py MODEL.gguf [TEXT ...] [--tokens 4096] [--window 512] [--float64]
                         [--kv-cache-dtype q8_0]

The texts are cut into windows; every position of every window counts. KL(oracle || other) is in
nats. Both run as they come (keys and values of 16 bits, activations rounded to 8), so their own
rounding is most of what is measured. The ratio is of the two means, over the same positions.
With --kv-cache-dtype KL(f16 || that type) is measured, of the native core alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup
from edgeserve.runner.kv_types import KV_TYPES
from edgeserve.runner.native_runner import NativeRunner, num_cores
from edgeserve.runner.oracle_runner import OracleRunner
from edgeserve.runner.runner import Runner

TEXTS = Path(__file__).parent.parent / "tests" / "data" / "texts"
Floats = NDArray[np.floating]
_PIECE = 64


@dataclass(frozen=True)
class Divergence:
    """Over `num_tokens` positions: mean KL and its standard error in nats, share of equal tops."""

    name: str
    num_tokens: int
    mean: float
    standard_error: float
    largest: float
    same_top: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name}, {self.num_tokens} tokens: KL {self.mean:.3e} ± "
            f"{self.standard_error:.1e} nats (largest {self.largest:.2g}), "
            f"same top-1 {self.same_top:.2%}; {self.seconds:.0f} s"
        )


@dataclass(frozen=True)
class Comparison:
    """The reference's divergence from the oracle and ours; both over the same positions."""

    reference: Divergence
    native: Divergence
    oracle_seconds: float

    def __str__(self) -> str:
        ratio = self.native.mean / self.reference.mean
        return (
            f"{self.reference}\n{self.native}\n"
            f"ratio of the means {ratio:.3f}; oracle {self.oracle_seconds:.0f} s"
        )


class _Tally:
    """Divergences of one contestant, a position at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds = 0.0
        self._kl: list[float] = []
        self._same: list[bool] = []

    def add(self, oracle: Floats, other: Floats) -> None:
        self._kl.append(_kl(oracle, other))
        self._same.append(bool(oracle.argmax() == other.argmax()))

    def result(self) -> Divergence:
        values = np.array(self._kl)
        return Divergence(
            name=self.name,
            num_tokens=len(values),
            mean=float(values.mean()),
            standard_error=float(values.std(ddof=1) / np.sqrt(len(values))),
            largest=float(values.max()),
            same_top=float(np.mean(self._same)),
            seconds=self.seconds,
        )


def compare(
    path: Path,
    texts: Sequence[str],
    *,
    num_tokens: int,
    window: int,
    dtype: type[np.floating] = np.float32,
) -> Comparison:
    """Measures the first `num_tokens` tokens of `texts`, in windows of `window`."""
    reference = llama_cpp.Llama(
        str(path), n_ctx=window, n_batch=window, n_threads=1, logits_all=True, verbose=False
    )
    oracle, native = _open(path, window, dtype), _open(path, window, None)
    oracle_time, theirs, ours = _Tally("oracle"), _Tally("llama.cpp"), _Tally("edgeserve")
    for ids in _windows(reference, texts, num_tokens, window):
        started = time.perf_counter()
        reference.reset()
        reference.eval(ids)
        theirs.seconds += time.perf_counter() - started
        # A row at a time: vocabularies are large.
        rows = zip(
            _logits(oracle, ids, oracle_time),
            _logits(native, ids, ours),
            reference.scores[: len(ids)],
            strict=True,
        )
        for exact, own, other in rows:
            ours.add(exact, own)
            theirs.add(exact, other)
    for runner in (oracle, native):
        runner.close()
    reference.close()
    return Comparison(theirs.result(), ours.result(), oracle_time.seconds)


def compare_kv(
    path: Path, texts: Sequence[str], *, num_tokens: int, window: int, kv_cache_dtype: str
) -> Divergence:
    """How far the native core lies from itself with a cache of f16."""
    tokenizer = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    exact, other = _open(path, window, None), _open(path, window, None, kv_cache_dtype)
    tally = _Tally(f"{kv_cache_dtype} against f16")
    for ids in _windows(tokenizer, texts, num_tokens, window):
        unused = _Tally("f16")
        for a, b in zip(_logits(exact, ids, unused), _logits(other, ids, tally), strict=True):
            tally.add(a, b)
    for runner in (exact, other):
        runner.close()
    tokenizer.close()
    return tally.result()


def _open(
    path: Path, window: int, dtype: type[np.floating] | None, kv_cache_dtype: str = "f16"
) -> Runner:
    """The oracle in `dtype`, or the native core for None."""
    model = read_gguf(path)
    plan = build_plan(model.metadata, model.tensors, max_model_len=window)
    num_blocks = -(-window // BLOCK_SIZE)
    with TensorReader(model) as source:
        if dtype is not None:
            return OracleRunner(plan, source, num_blocks=num_blocks, dtype=dtype)
        return NativeRunner(
            plan,
            source,
            num_blocks=num_blocks,
            num_threads=num_cores(),
            max_rows=_PIECE,
            kv_cache_dtype=kv_cache_dtype,
        )


def _logits(runner: Runner, ids: Sequence[int], tally: _Tally) -> Iterator[Floats]:
    """A row for each token, computed some at a time so that a large vocabulary's fit."""
    num_groups = len(runner.cache_groups)
    tables = [range(runner.num_blocks)] * num_groups
    for first in range(0, len(ids), _PIECE):
        piece = ids[first : first + _PIECE]
        started = time.perf_counter()
        runner.execute(Batch.from_groups([RowGroup(piece, first, tables, len(piece))], num_groups))
        rows = runner.logits()
        tally.seconds += time.perf_counter() - started
        yield from rows


def _windows(
    reference: llama_cpp.Llama, texts: Sequence[str], num_tokens: int, window: int
) -> Iterator[list[int]]:
    """Token ids, a window at a time, each beginning as the model's prompts begin."""
    left = num_tokens
    for text in texts:
        ids = reference.tokenize(text.encode(), add_bos=False)
        start = reference.tokenize(b"", add_bos=True)
        size = window - len(start)
        for first in range(0, len(ids), size):
            piece = [*start, *ids[first : first + size]][:left]
            left -= len(piece)
            if piece:
                yield piece


def _kl(ours: Floats, theirs: Floats) -> float:
    a, b = _log_softmax(ours), _log_softmax(theirs)
    return float((np.exp(a) * (a - b)).sum())


def _log_softmax(logits: Floats) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path, nargs="*", default=sorted(TEXTS.glob("*.txt")))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--kv-cache-dtype", choices=[name for name in KV_TYPES if name != "f16"])
    given = parser.parse_args()
    texts = [path.read_text() for path in given.texts]
    if given.kv_cache_dtype is not None:
        print(
            compare_kv(
                given.model,
                texts,
                num_tokens=given.tokens,
                window=given.window,
                kv_cache_dtype=given.kv_cache_dtype,
            )
        )
        return
    print(
        compare(
            given.model,
            texts,
            num_tokens=given.tokens,
            window=given.window,
            dtype=np.float64 if given.float64 else np.float32,
        )
    )


if __name__ == "__main__":
    main()
