"""How far a model's distributions under the oracle lie from llama.cpp's, over real text.

    python benches/kl.py MODEL.gguf [TEXT ...] [--tokens 4096] [--window 512] [--float64]

The texts are cut into windows; every position of every window counts. KL(oracle || llama.cpp) is
in nats. llama.cpp runs as it comes (keys and values of 16 bits, activations rounded to 8), so its
own rounding is most of what is measured.
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
from edgeserve.runner.oracle_runner import OracleRunner

TEXTS = Path(__file__).parent.parent / "tests" / "data" / "texts"
Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Divergence:
    """Over `num_tokens` positions: mean KL and its standard error in nats, share of equal tops."""

    num_tokens: int
    mean: float
    standard_error: float
    largest: float
    same_top: float
    oracle_seconds: float
    reference_seconds: float

    def __str__(self) -> str:
        return (
            f"{self.num_tokens} tokens: KL {self.mean:.3e} ± {self.standard_error:.1e} nats "
            f"(largest {self.largest:.2g}), same top-1 {self.same_top:.2%}; "
            f"oracle {self.oracle_seconds:.0f} s, llama.cpp {self.reference_seconds:.0f} s"
        )


def divergence(
    path: Path,
    texts: Sequence[str],
    *,
    num_tokens: int,
    window: int,
    dtype: type[np.floating] = np.float32,
) -> Divergence:
    """Measures the first `num_tokens` tokens of `texts`, in windows of `window`."""
    reference = llama_cpp.Llama(
        str(path), n_ctx=window, n_batch=window, n_threads=1, logits_all=True, verbose=False
    )
    oracle = _Oracle(path, window, dtype)
    kl: list[float] = []
    same: list[bool] = []
    reference_seconds = 0.0
    for ids in _windows(reference, texts, num_tokens, window):
        started = time.perf_counter()
        reference.reset()
        reference.eval(ids)
        reference_seconds += time.perf_counter() - started
        # A row at a time: vocabularies are large.
        for ours, theirs in zip(oracle.logits(ids), reference.scores[: len(ids)], strict=True):
            kl.append(_kl(ours, theirs))
            same.append(bool(ours.argmax() == theirs.argmax()))
    reference.close()
    values = np.array(kl)
    return Divergence(
        num_tokens=len(values),
        mean=float(values.mean()),
        standard_error=float(values.std(ddof=1) / np.sqrt(len(values))),
        largest=float(values.max()),
        same_top=float(np.mean(same)),
        oracle_seconds=oracle.seconds,
        reference_seconds=reference_seconds,
    )


class _Oracle:
    """The oracle over one window at a time, and how long it has computed."""

    def __init__(self, path: Path, window: int, dtype: type[np.floating]) -> None:
        model = read_gguf(path)
        plan = build_plan(model.metadata, model.tensors, max_model_len=window)
        num_blocks = -(-window // BLOCK_SIZE)
        with TensorReader(model) as source:
            self._runner = OracleRunner(plan, source, num_blocks=num_blocks, dtype=dtype)
        self.seconds = 0.0

    def logits(self, ids: Sequence[int]) -> Iterator[Floats]:
        """A row for each token, computed 64 at a time so that a large vocabulary's fit."""
        num_groups = len(self._runner.cache_groups)
        tables = [range(self._runner.num_blocks)] * num_groups
        for first in range(0, len(ids), 64):
            piece = ids[first : first + 64]
            group = RowGroup(piece, first, tables, len(piece))
            started = time.perf_counter()
            self._runner.execute(Batch.from_groups([group], num_groups))
            self.seconds += time.perf_counter() - started
            yield from self._runner.logits()


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
    given = parser.parse_args()
    print(
        divergence(
            given.model,
            [path.read_text() for path in given.texts],
            num_tokens=given.tokens,
            window=given.window,
            dtype=np.float64 if given.float64 else np.float32,
        )
    )


if __name__ == "__main__":
    main()
