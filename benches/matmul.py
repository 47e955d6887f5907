"""Matrix products of every quant type beside llama.cpp, in alternation: GOP/s, GB/s and ratios.

    python benches/matmul.py [--types Q4_K,Q8_0] [--rows 1,4,8,16,512] [--shape 2048x2048]
                             [--threads 2] [--rounds 5] [--set avx2] [--error]

Both sides multiply the same random weights, which llama.cpp's own quantiser made, with the same
rows, on as many threads; llama.cpp repacks them where it can, or not, whichever is faster. --error
compares both with a product in float64 instead of timing them. The machine should be quiet; where
it is not, --threads 1 helps: then processor time is measured.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
TYPES = "F32,F16,BF16,Q4_0,Q4_1,Q5_0,Q5_1,Q8_0,IQ4_NL,MXFP4,Q2_K,Q3_K,Q4_K,Q5_K,Q6_K,IQ4_XS"
Floats = NDArray[np.float32]
P, I64, F64 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


def library(path: Path, **functions: tuple[object, list[object]]) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


# --- llama.cpp -----------------------------------------------------------------------------------


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", P), ("no_alloc", ctypes.c_bool)]


LIBRARIES = Path(llama_cpp.__file__).parent / "lib"
BASE = library(
    LIBRARIES / "libggml-base.so",
    ggml_init=(P, [InitParams]),
    ggml_free=(None, [P]),
    ggml_new_tensor_2d=(P, [P, ctypes.c_int, I64, I64]),
    ggml_mul_mat=(P, [P, P, P]),
    ggml_new_graph=(P, [P]),
    ggml_build_forward_expand=(None, [P, P]),
    ggml_backend_alloc_ctx_tensors_from_buft=(P, [P, P]),
    ggml_backend_alloc_ctx_tensors=(P, [P, P]),
    ggml_backend_buffer_free=(None, [P]),
    ggml_backend_tensor_set=(None, [P, P, ctypes.c_size_t, ctypes.c_size_t]),
    ggml_backend_tensor_get=(None, [P, P, ctypes.c_size_t, ctypes.c_size_t]),
    ggml_backend_graph_compute=(ctypes.c_int, [P, P]),
    ggml_backend_buffer_set_usage=(None, [P, ctypes.c_int]),
    ggml_quantize_chunk=(ctypes.c_size_t, [ctypes.c_int, P, P, I64, I64, I64, P]),
)
CPU = library(
    LIBRARIES / "libggml-cpu.so",
    ggml_backend_cpu_init=(P, []),
    ggml_backend_cpu_set_n_threads=(None, [P, ctypes.c_int]),
    _Z35ggml_backend_cpu_repack_buffer_typev=(P, []),
    ggml_backend_cpu_buffer_type=(P, []),
)
# What it repacks on x86; elsewhere, and without AVX-512, it repacks fewer or others.
REPACKED = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}


def quantise(type_id: int, weights: Floats) -> NDArray[np.uint8]:
    n_rows, n_cols = weights.shape
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_id)]
    out = np.zeros(n_rows * n_cols // block * size, np.uint8)
    BASE.ggml_quantize_chunk(type_id, weights.ctypes.data, out.ctypes.data, 0, n_rows, n_cols, None)
    return out


class LlamaCpp:
    """One product as a graph of its own."""

    def __init__(
        self,
        type_id: int,
        shape: tuple[int, int],
        blocks: NDArray[np.uint8],
        threads: int,
        repack: bool,
    ) -> None:
        self.shape, self.blocks, self.type_id = shape, blocks, type_id
        self.backend = CPU.ggml_backend_cpu_init()
        CPU.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self.context = BASE.ggml_init(InitParams(1 << 16, None, True))
        self.weight = BASE.ggml_new_tensor_2d(self.context, type_id, shape[1], shape[0])
        kind = (
            CPU._Z35ggml_backend_cpu_repack_buffer_typev()
            if repack
            else CPU.ggml_backend_cpu_buffer_type()
        )
        self.buffer = BASE.ggml_backend_alloc_ctx_tensors_from_buft(self.context, kind)
        BASE.ggml_backend_buffer_set_usage(self.buffer, 1)
        BASE.ggml_backend_tensor_set(self.weight, blocks.ctypes.data, 0, blocks.nbytes)

    def rows(self, x: Floats) -> None:
        context = BASE.ggml_init(InitParams(1 << 20, None, True))
        rows = BASE.ggml_new_tensor_2d(context, 0, self.shape[1], len(x))
        self.product = BASE.ggml_mul_mat(context, self.weight, rows)
        self.graph = BASE.ggml_new_graph(context)
        BASE.ggml_build_forward_expand(self.graph, self.product)
        BASE.ggml_backend_alloc_ctx_tensors(context, self.backend)
        BASE.ggml_backend_tensor_set(rows, x.ctypes.data, 0, x.nbytes)
        self.n_rows = len(x)

    def run(self) -> None:
        BASE.ggml_backend_graph_compute(self.backend, self.graph)

    def out(self) -> Floats:
        out = np.zeros((self.n_rows, self.shape[0]), np.float32)
        BASE.ggml_backend_tensor_get(self.product, out.ctypes.data, 0, out.nbytes)
        return out


# --- ours ----------------------------------------------------------------------------------------


def built(folder: Path) -> ctypes.CDLL:
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", folder, "--parallel", "2", "--target", "matmul_bench"],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return library(
        folder / "libmatmul_bench.so",
        bench_create=(
            P,
            [ctypes.c_char_p, ctypes.c_int32, I64, I64, P, ctypes.c_size_t, ctypes.c_int32],
        ),
        bench_rows=(None, [P, I64, P]),
        bench_matmul=(F64, [P]),
        bench_read=(F64, [P]),
        bench_out=(ctypes.POINTER(ctypes.c_float), [P]),
        bench_ld=(I64, [P]),
        bench_free=(None, [P]),
    )


class Ours:
    def __init__(
        self,
        bench: ctypes.CDLL,
        kernel_set: str | None,
        type_id: int,
        shape: tuple[int, int],
        blocks: NDArray[np.uint8],
        threads: int,
    ) -> None:
        self.bench, self.shape = bench, shape
        name = kernel_set.encode() if kernel_set else None
        self.handle = bench.bench_create(
            name, type_id, *shape, blocks.ctypes.data, blocks.nbytes, threads
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

    def out(self) -> Floats:
        ld = self.bench.bench_ld(self.handle)
        pointer = self.bench.bench_out(self.handle)
        return np.ctypeslib.as_array(pointer, (self.n_rows, ld))[:, : self.shape[0]].copy()


# --- comparing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    shape: tuple[int, int]
    blocks: NDArray[np.uint8]
    ours: Ours
    theirs: list[LlamaCpp]  # plain, and repacked where there is such a form


def make_case(
    name: str, bench: ctypes.CDLL, arguments: argparse.Namespace, rng: np.random.Generator
) -> Case:
    shape: tuple[int, int] = arguments.shape
    type_id = gguf.GGMLQuantizationType[name].value
    weights = rng.standard_normal(shape, np.float32) * np.float32(0.05)
    blocks = quantise(type_id, weights)
    ours = Ours(bench, arguments.set, type_id, shape, blocks, arguments.threads)
    forms = [False, True] if name in REPACKED else [False]
    theirs = [LlamaCpp(type_id, shape, blocks, arguments.threads, form) for form in forms]
    return Case(name, shape, blocks, ours, theirs)


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


def time_case(
    case: Case, n_rows: int, arguments: argparse.Namespace, rng: np.random.Generator
) -> str:
    x = rng.standard_normal((n_rows, case.shape[1]), np.float32)
    for contestant in [case.ours, *case.theirs]:
        contestant.rows(x)
    runs = [case.ours.run, case.ours.read, *(each.run for each in case.theirs)]
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    ours, read, *theirs = alternate(runs, arguments.rounds, clock)
    operations = 2.0 * n_rows * case.shape[0] * case.shape[1] / 1e9
    best = min(theirs)
    form = "repacked" if len(theirs) > 1 and theirs[1] == best else "plain"
    return (
        f"{case.name:7} {n_rows:4}  {operations / ours:7.1f} {operations / best:7.1f} GOP/s "
        f"{form:8} {best / ours:5.2f} x   {case.blocks.nbytes / ours / 1e9:6.1f} GB/s, "
        f"{read / ours:4.2f} of a read at {case.blocks.nbytes / read / 1e9:5.1f}"
    )


def relative_errors(case: Case, rng: np.random.Generator) -> tuple[float, float]:
    """RMS error over RMS value against float64, ours and llama.cpp's, of inputs with outliers."""
    x = rng.standard_normal((16, case.shape[1])).astype(np.float32)
    x *= np.where(rng.random(case.shape[1]) < 0.01, 10.0, 1.0).astype(np.float32)
    kind = gguf.GGMLQuantizationType[case.name]
    weights = gguf.dequantize(case.blocks.reshape(case.shape[0], -1), kind)
    weights = weights.view(np.float32).reshape(case.shape).astype(np.float64)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--rows", default="1,4,8,16,512")
    parser.add_argument("--shape", type=shape_of, default=(2048, 2048), help="rows x columns")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", help="a kernel set; the best one by default")
    parser.add_argument("--error", action="store_true")
    parser.add_argument("--build", type=Path, help="a folder that keeps the build")
    return parser.parse_args()


def compare(arguments: argparse.Namespace, folder: Path) -> None:
    bench = built(folder)
    rng = np.random.default_rng(1)
    for name in arguments.types.split(","):
        case = make_case(name, bench, arguments, rng)
        if arguments.error:
            ours, theirs = relative_errors(case, rng)
            print(f"{name:7} error {ours:.3e}, llama.cpp {theirs:.3e}: {ours / theirs:.3f} x")
            continue
        for n_rows in map(int, arguments.rows.split(",")):
            print(time_case(case, n_rows, arguments, rng), flush=True)


def main() -> None:
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        compare(arguments, arguments.build or Path(folder))


if __name__ == "__main__":
    main()
