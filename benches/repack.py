"""Repacking: bytes a second of every quant type, out of memory that the processor holds.

    python benches/repack.py [--types Q4_K,Q8_0] [--cols 2048] [--rounds 9] [--fresh]

One thread, processor time, the best of the rounds: a busy machine lengthens it less. Random bytes
are repacked as a load does it, from a buffer of a few hundred KiB. Into the same weight every time,
or with --fresh into new memory, whose pages the system clears first.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from edgeserve.binding.library import load_library
from edgeserve.binding.weights import NativeWeight

PIECE_BYTES = 256 << 10
NUM_PIECES = 64


def gigabytes_a_second(name: str, num_cols: int, rounds: int, *, fresh: bool) -> float:
    kind = load_library().quant_types[name]
    row_bytes = num_cols // kind.block_elements * kind.block_bytes
    piece_rows = max(16, PIECE_BYTES // row_bytes // 16 * 16)
    random = np.random.default_rng(1)
    data = random.integers(0, 256, piece_rows * row_bytes, dtype=np.uint8).data
    weight = NativeWeight(name, piece_rows * NUM_PIECES, num_cols)
    best = 0.0
    for _ in range(rounds + 1):  # the first one brings memory
        if fresh:
            weight.close()
            weight = NativeWeight(name, piece_rows * NUM_PIECES, num_cols)
        started = time.thread_time()
        for piece in range(NUM_PIECES):
            weight.fill(piece * piece_rows, piece_rows, data)
        seconds = time.thread_time() - started
        best = max(best, NUM_PIECES * data.nbytes / seconds / 1e9)
    weight.close()
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--types", default=",".join(load_library().quant_types))
    parser.add_argument("--cols", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fresh", action="store_true")
    given = parser.parse_args()
    for name in given.types.split(","):
        speed = gigabytes_a_second(name, given.cols, given.rounds, fresh=given.fresh)
        print(f"{name:8} {speed:6.2f} GB/s", flush=True)


if __name__ == "__main__":
    main()
