"""Attention alone, over every type of KV cache: compared with ref by bits, then timed.

    python benches/attention.py [--heads 9x3x64,32x8x64] [--depths 512,4096,8192]
                                [--prefill 0,4096] [--rows 512] [--types f16,q8_0,q4_0]
                                [--set avx2] [--threads 1] [--rounds 15] [--check]

--heads are query heads x KV heads x head size. A decode is one row at a depth, through layers of
200 MB in all, so that its cache comes from memory; a prefill is --rows of them in one layer. Prints
bytes a second as a share of a plain read of the same memory, operations a second as a share of the
most that float32 multiply-adds reach, and each type's speed over f16's. Types run in alternation;
the best of all rounds counts. With one thread processor time is measured, which neighbours disturb
less. Exit code 1: some bits differ.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_library import load_built

TYPES = {"f16": 0, "q8_0": 1, "q4_0": 2}
P, I32, F64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_double
COLD_BYTES = 200_000_000
"""Of f16, in as many layers as that takes, so that a decode finds nothing in the processor."""
HEADER = "heads    rows       depth type          us    GB/s  of read   GFLOP/s of peak  to f16"
CHECKED_ROWS = 70
"""Of a prefill: ref takes long."""


class Shape(ctypes.Structure):
    _fields_ = [
        (name, I32)
        for name in (
            "type",
            "n_kv_heads",
            "n_heads",
            "head_size",
            "depth",
            "n_rows",
            "n_threads",
            "n_layers",
        )
    ]


FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "bench_create": (P, [ctypes.c_char_p, ctypes.POINTER(Shape)]),
    "bench_run": (F64, [P]),
    "bench_different": (I32, [P, P]),
    "bench_bytes": (ctypes.c_int64, [P]),
    "bench_read": (F64, [P]),
    "bench_peak": (F64, []),
    "bench_free": (None, [P]),
}


@dataclass(frozen=True, slots=True)
class Case:
    """n_rows rows at `depth`, of `heads` (query heads, KV heads, head size)."""

    heads: tuple[int, int, int]
    depth: int
    n_rows: int
    n_threads: int

    def shape(self, kind: str) -> Shape:
        n_heads, n_kv_heads, size = self.heads
        kept = 4 * n_kv_heads * size * (self.depth + self.n_rows)
        return Shape(
            type=TYPES[kind],
            n_kv_heads=n_kv_heads,
            n_heads=n_heads,
            head_size=size,
            depth=self.depth,
            n_rows=self.n_rows,
            n_threads=self.n_threads,
            n_layers=1 if self.n_rows > 1 else min(256, -(-COLD_BYTES // kept)),
        )

    @property
    def operations(self) -> float:
        """A product and its sum are two; only what is visible counts."""
        n_visible = sum(self.depth + row + 1 for row in range(self.n_rows))
        return 4.0 * n_visible * self.heads[0] * self.heads[2]

    def __str__(self) -> str:
        rows = "decode" if self.n_rows == 1 else f"{self.n_rows} rows"
        return f"{'x'.join(map(str, self.heads)):8} {rows:9} {self.depth:6}"


def check(bench: ctypes.CDLL, kernel_set: str | None, case: Case, kind: str) -> bool:
    """Whether a set's bits are ref's; says so where not."""
    small = Case(case.heads, case.depth, min(case.n_rows, CHECKED_ROWS), case.n_threads)
    name = None if kernel_set is None else kernel_set.encode()
    both = [bench.bench_create(each, small.shape(kind)) for each in (name, b"ref")]
    if not all(both):
        sys.exit(f"no kernel set {kernel_set} on this processor")
    for each in both:
        if bench.bench_run(each) < 0:
            sys.exit(f"{small} {kind}: the step failed")
    different = bench.bench_different(*both)
    for each in both:
        bench.bench_free(each)
    if different:
        print(f"{case} {kind}: DIFFERS from ref in {different} rows", flush=True)
    return not different


def time_case(
    bench: ctypes.CDLL, case: Case, kinds: Sequence[str], arguments: argparse.Namespace
) -> None:
    name = None if arguments.set is None else arguments.set.encode()
    handles = {kind: bench.bench_create(name, case.shape(kind)) for kind in kinds}
    best = dict.fromkeys(kinds, float("inf"))
    read = dict.fromkeys(kinds, float("inf"))
    peak = 0.0
    for _ in range(arguments.rounds):
        peak = max(peak, bench.bench_peak() * case.n_threads)
        for kind, handle in handles.items():
            best[kind] = min(best[kind], bench.bench_run(handle))
            read[kind] = min(read[kind], bench.bench_read(handle))
    for kind, handle in handles.items():
        rate = bench.bench_bytes(handle) / best[kind]
        operations = case.operations / best[kind]
        print(
            f"{case} {kind:5} {best[kind] * 1e6:10.1f} {rate / 1e9:7.2f} {rate * read[kind]:8.2f} "
            f"{operations / 1e9:8.1f} {operations / peak:7.2f} {best[kinds[0]] / best[kind]:7.2f}",
            flush=True,
        )
        bench.bench_free(handle)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def heads_of(text: str) -> list[tuple[int, int, int]]:
    found = [tuple(int(part) for part in one.split("x")) for one in text.split(",")]
    return [(q, kv, size) for q, kv, size in found]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--heads", type=heads_of, default=heads_of("9x3x64,32x8x64"))
    parser.add_argument("--depths", type=numbers, default=[512, 4096, 8192])
    parser.add_argument("--prefill", type=numbers, default=[0, 4096], help="depths")
    parser.add_argument("--rows", type=int, default=512, help="of a prefill")
    parser.add_argument("--types", type=lambda text: text.split(","), default=list(TYPES))
    parser.add_argument("--set", help="a kernel set; the best by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true", help="compare with ref, and time nothing")
    parser.add_argument("--build", type=Path, help="a folder that keeps the build")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    num_cases = num_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bench = load_built("attention_bench", arguments.build or Path(folder), FUNCTIONS)
        if not arguments.check:
            print(HEADER)
        for heads in arguments.heads:
            decodes = [Case(heads, depth, 1, arguments.threads) for depth in arguments.depths]
            prefills = [
                Case(heads, depth, arguments.rows, arguments.threads) for depth in arguments.prefill
            ]
            for case in [*decodes, *prefills]:
                right = [check(bench, arguments.set, case, kind) for kind in arguments.types]
                num_cases += len(right)
                num_wrong += right.count(False)
                if all(right) and not arguments.check:
                    time_case(bench, case, arguments.types, arguments)
    print(f"{num_cases} cases compared with ref, {num_wrong} differ")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
