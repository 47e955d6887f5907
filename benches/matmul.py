"""Matrix products of every quant type, as checkasm does: compared with ref by bits, then timed.

    python benches/matmul.py [--set avx2,avx512 | all] [--types Q4_K,Q8_0] [--rows 1,4,8,16,512]
                             [--shape 2048x2048] [--threads 2] [--rounds 5] [--check] [--error]

Prints operations and bytes a second, as shares of the most int8 products and of a raw read, both
measured beside them; and the ratio to llama.cpp, where llama-cpp-python is installed: the same
weights, which its quantiser made, the same rows, as many threads, in alternation, and repacked or
not, whichever is faster. --check compares only. --error compares the error of both with a product
in float64. The machine should be quiet; where it is not, --threads 1 helps: then processor time is
measured. Exit code 1: some bits differ.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from bench_library import load_built
from numpy.typing import NDArray

try:
    import ggml
except (ImportError, OSError):
    ggml = None

TYPES = "F32,F16,BF16,Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL,MXFP4,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS"
Floats = NDArray[np.float32]
P, I64, F64 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
I32, TEXT = ctypes.c_int32, ctypes.c_char_p
FUNCTIONS: dict[str, tuple[object, list[object]]] = {
    "bench_create": (P, [TEXT, I32, I64, I64, P, ctypes.c_size_t, I32]),
    "bench_rows": (None, [P, I64, P]),
    "bench_matmul": (F64, [P]),
    "bench_different": (I64, [P]),
    "bench_read": (F64, [P]),
    "bench_out": (ctypes.POINTER(ctypes.c_float), [P]),
    "bench_ld": (I64, [P]),
    "bench_free": (None, [P]),
    "es_kernel_set": (TEXT, [I32, ctypes.POINTER(I32)]),
    "es_meter_create": (I32, [TEXT, I32, I64, ctypes.POINTER(P)]),
    "es_meter_int8": (F64, [P]),
}
METER_BYTES = 1 << 20  # int8 is measured with it, no memory


def sets_here(bench: ctypes.CDLL) -> list[str]:
    """The kernel sets that run here, best first."""
    runs, found = I32(), []
    for index in range(100):
        name = bench.es_kernel_set(index, ctypes.byref(runs))
        if name is None:
            break
        if runs.value:
            found.append(name.decode())
    return found


class Ours:
    def __init__(
        self,
        bench: ctypes.CDLL,
        kernel_set: str,
        type_id: int,
        shape: tuple[int, int],
        blocks: NDArray[np.uint8],
        threads: int,
    ) -> None:
        self.bench, self.shape = bench, shape
        self.handle = bench.bench_create(
            kernel_set.encode(), type_id, *shape, blocks.ctypes.data, blocks.nbytes, threads
        )
        if not self.handle:
            sys.exit(f"no kernel set {kernel_set} on this processor")

    def rows(self, x: Floats) -> None:
        self.n_rows = len(x)
        self.bench.bench_rows(self.handle, len(x), x.ctypes.data)

    def run(self) -> None:
        self.bench.bench_matmul(self.handle)

    def read(self) -> None:
        self.bench.bench_read(self.handle)

    def num_different(self) -> int:
        """Rows of panels in which the last product is not ref's, bit for bit."""
        return self.bench.bench_different(self.handle)

    def out(self) -> Floats:
        ld = self.bench.bench_ld(self.handle)
        pointer = self.bench.bench_out(self.handle)
        return np.ctypeslib.as_array(pointer, (self.n_rows, ld))[:, : self.shape[0]].copy()

    def close(self) -> None:
        self.bench.bench_free(self.handle)


class Int8Peak:
    """The most int8 operations a second of a kernel set, measured whenever asked."""

    def __init__(self, bench: ctypes.CDLL, kernel_set: str, threads: int) -> None:
        self._bench, self._handle = bench, P()
        name = kernel_set.encode()
        bench.es_meter_create(name, threads, METER_BYTES, ctypes.byref(self._handle))

    def __call__(self) -> float:
        return self._bench.es_meter_int8(self._handle)


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one type, as a GGUF file would hold them."""

    name: str
    shape: tuple[int, int]
    blocks: NDArray[np.uint8]

    @property
    def type_id(self) -> int:
        return gguf.GGMLQuantizationType[self.name].value


@dataclass(frozen=True, slots=True)
class Case:
    """One product by one kernel set, and by llama.cpp: plain, and repacked where there is that."""

    weights: Weights
    kernel_set: str
    ours: Ours
    theirs: Sequence[ggml.LlamaCpp] if ggml else tuple[()]


def make_weights(name: str, shape: tuple[int, int], rng: np.random.Generator) -> Weights | None:
    """None for a type that only llama.cpp's quantiser makes, where that is missing."""
    weights = rng.standard_normal(shape, np.float32) * np.float32(0.05)
    kind = gguf.GGMLQuantizationType[name]
    if ggml is not None:
        return Weights(name, shape, ggml.quantise(kind.value, weights))
    try:
        blocks = gguf.quants.quantize(weights, kind)
    except NotImplementedError:
        return None
    return Weights(name, shape, np.ascontiguousarray(blocks).view(np.uint8).reshape(-1))


def make_theirs(weights: Weights, threads: int) -> list[ggml.LlamaCpp]:
    if ggml is None:
        return []
    forms = [False, True] if weights.name in ggml.REPACKED else [False]
    return [
        ggml.LlamaCpp(weights.type_id, weights.shape, weights.blocks, threads, form)
        for form in forms
    ]


def check_case(case: Case, n_rows: int, rng: np.random.Generator) -> int:
    """Computes once, and says what differs; how much does."""
    case.ours.rows(rng.standard_normal((n_rows, case.weights.shape[1]), np.float32))
    case.ours.run()
    different = case.ours.num_different()
    if different:
        where = f"{case.kernel_set} {case.weights.name}, {n_rows} rows"
        print(f"{where}: DIFFERS from ref in {different} rows of panels", flush=True)
    return different


def alternate(
    contestants: list[Callable[[], None]], rounds: int, clock: Callable[[], float]
) -> list[float]:
    """The median seconds of each; short ones run often enough in every round to be measured."""

    def seconds(run: Callable[[], None], repeat: int) -> float:
        start = clock()
        for _ in range(repeat):
            run()
        return (clock() - start) / repeat

    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(rounds):
        for own, run in zip(times, contestants, strict=True):
            repeat = max(1, int(0.001 / max(seconds(run, 1), 1e-6)))
            samples = max(1, min(20, int(0.02 / max(seconds(run, 1) * repeat, 1e-6))))
            own.append(min(seconds(run, repeat) for _ in range(samples)))
    return [statistics.median(own) for own in times]


HEADER = (
    "set     type     rows    GOP/s  of int8    GB/s  of read  llama.cpp             ratio\n"
    "                                                            GOP/s"
)


def time_case(
    case: Case, n_rows: int, peak: Int8Peak, arguments: argparse.Namespace, rng: np.random.Generator
) -> str:
    weights = case.weights
    x = rng.standard_normal((n_rows, weights.shape[1]), np.float32)
    for contestant in [case.ours, *case.theirs]:
        contestant.rows(x)
    runs = [case.ours.run, case.ours.read, *(each.run for each in case.theirs)]
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    before = peak()
    ours, read, *theirs = alternate(runs, arguments.rounds, clock)
    int8 = max(before, peak()) / 1e9
    operations = 2.0 * n_rows * weights.shape[0] * weights.shape[1] / 1e9
    line = (
        f"{case.kernel_set:7} {weights.name:7} {n_rows:5}  {operations / ours:7.1f}  "
        f"{operations / ours / int8:7.2f}  {weights.blocks.nbytes / ours / 1e9:6.1f}  "
        f"{read / ours:7.2f}"
    )
    if not theirs:
        return line
    best = min(theirs)
    form = "repacked" if len(theirs) > 1 and theirs[1] == best else "plain"
    return f"{line}  {operations / best:9.1f} {form:8}  {best / ours:6.2f} x"


def relative_errors(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    """RMS error over RMS value against float64, ours and llama.cpp's, of inputs with outliers."""
    shape = case.weights.shape
    x = rng.standard_normal((16, shape[1])).astype(np.float32)
    x *= np.where(rng.random(shape[1]) < 0.01, 10.0, 1.0).astype(np.float32)
    kind = gguf.GGMLQuantizationType[case.weights.name]
    weights = gguf.dequantize(case.weights.blocks.reshape(shape[0], -1), kind)
    weights = weights.view(np.float32).reshape(shape).astype(np.float64)
    exact = x.astype(np.float64) @ weights.T
    scale = np.sqrt(np.mean(exact**2))
    errors: list[float] = []
    for contestant in (case.ours, case.theirs[0]):
        contestant.rows(x)
        contestant.run()
        errors.append(float(np.sqrt(np.mean((contestant.out() - exact) ** 2)) / scale))
    return errors[0], errors[1]


def shape_of(text: str) -> tuple[int, int]:
    n_rows, n_cols = text.split("x")
    return int(n_rows), int(n_cols)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--rows", default="1,4,8,16,512")
    parser.add_argument("--shape", type=shape_of, default=(2048, 2048), help="rows x columns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", help="kernel sets, or all that run here; the best by default")
    parser.add_argument("--check", action="store_true", help="compare with ref, and time nothing")
    parser.add_argument("--error", action="store_true")
    parser.add_argument("--build", type=Path, help="a folder that keeps the build")
    return parser.parse_args()


def wanted_sets(bench: ctypes.CDLL, given: str | None) -> list[str]:
    here = sets_here(bench)
    if given is None:
        return here[:1]
    return here if given == "all" else given.split(",")


def cases(bench: ctypes.CDLL, arguments: argparse.Namespace) -> Iterator[Case]:
    """One type after the other, by every set; memory is given back in between."""
    rng = np.random.default_rng(1)
    for name in arguments.types.split(","):
        weights = make_weights(name, arguments.shape, rng)
        if weights is None:
            print(f"{name}: left out; only llama-cpp-python's quantiser makes it", flush=True)
            continue
        theirs = [] if arguments.check else make_theirs(weights, arguments.threads)
        for kernel_set in wanted_sets(bench, arguments.set):
            ours = Ours(
                bench,
                kernel_set,
                weights.type_id,
                weights.shape,
                weights.blocks,
                arguments.threads,
            )
            yield Case(weights, kernel_set, ours, theirs)
            ours.close()


def compare_errors(bench: ctypes.CDLL, arguments: argparse.Namespace) -> int:
    rng = np.random.default_rng(1)
    for case in cases(bench, arguments):
        ours, theirs = relative_errors(case, rng)
        name = case.weights.name
        print(f"{name:7} error {ours:.3e}, llama.cpp {theirs:.3e}: {ours / theirs:.3f} x")
    return 0


def check_and_time(bench: ctypes.CDLL, arguments: argparse.Namespace) -> int:
    """How many cases differ from ref; those are not timed."""
    rng = np.random.default_rng(1)
    num_cases = num_wrong = 0
    peaks = {
        name: Int8Peak(bench, name, arguments.threads) for name in wanted_sets(bench, arguments.set)
    }
    if not arguments.check:
        print(HEADER)
    for case in cases(bench, arguments):
        for n_rows in map(int, arguments.rows.split(",")):
            num_cases += 1
            if check_case(case, n_rows, rng):
                num_wrong += 1
            elif not arguments.check:
                print(time_case(case, n_rows, peaks[case.kernel_set], arguments, rng), flush=True)
    print(f"{num_cases} cases compared with ref, {num_wrong} differ")
    return num_wrong


def main() -> int:
    arguments = parse()
    if arguments.error and ggml is None:
        sys.exit("--error compares with llama.cpp: pip install llama-cpp-python")
    with tempfile.TemporaryDirectory() as folder:
        bench = load_built("matmul_bench", arguments.build or Path(folder), FUNCTIONS)
        return int((compare_errors if arguments.error else check_and_time)(bench, arguments) > 0)


if __name__ == "__main__":
    sys.exit(main())
