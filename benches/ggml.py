"""llama.cpp's own matrix product and quantiser, as ctypes reach them in llama-cpp-python's library.

Importing it raises ImportError or OSError where that is not installed.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
P, I64 = ctypes.c_void_p, ctypes.c_int64
# What it repacks on x86; elsewhere, and without AVX-512, it repacks fewer or others.
REPACKED = {"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"}


def library(path: Path, **functions: tuple[object, list[object]]) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


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
