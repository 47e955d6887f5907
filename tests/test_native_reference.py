"""The native core's error beside llama.cpp's: every family in every quant type, tiny.

Files are written in F32 and quantised by llama.cpp itself. The error of either is against the
oracle in float64 on the same quantised file: the root mean square over all logits of a prompt,
relative to the logits' own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.tensors import TensorReader
from edgeserve.models import build_plan
from edgeserve.runner.batch import BLOCK_SIZE, Batch, RowGroup
from edgeserve.runner.native_runner import NativeRunner

from .test_oracle_reference import oracle, oracle_logits
from .tiny_models import DEFAULTS, write_tiny_model

PROMPT = [int(i) for i in np.random.default_rng(2).integers(3, 300, 96)]
CONTEXT = 128

# Type -> llama.cpp's name for a file of it.
NARROW = {
    "F16": "F16",
    "BF16": "BF16",
    "Q4_0": "Q4_0",
    "Q4_1": "Q4_1",
    "Q5_0": "Q5_0",
    "Q5_1": "Q5_1",
    "Q8_0": "Q8_0",
    "IQ4_NL": "IQ4_NL",
    "MXFP4": "MXFP4_MOE",
}
WIDE = {
    "Q2_K": "Q2_K",
    "Q3_K": "Q3_K_S",
    "Q4_K": "Q4_K_S",
    "Q5_K": "Q5_K_S",
    "Q6_K": "Q6_K",
    "IQ4_XS": "IQ4_XS",
}
BOUND = 1.2


def quantize(llama_cpp: ModuleType, source: Path, target: Path, file_type: str) -> Path:
    """`source` with every matrix in one type."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{file_type}")
    params.pure = True
    params.nthread = 1
    status = llama_cpp.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    assert status == 0
    return target


def native_logits(path: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    model = read_gguf(path)
    plan = build_plan(model.metadata, model.tensors, max_model_len=CONTEXT)
    num_blocks = CONTEXT // BLOCK_SIZE
    with TensorReader(model) as source:
        runner = NativeRunner(plan, source, num_blocks=num_blocks, num_threads=1, max_rows=CONTEXT)
    tables = [range(num_blocks)] * len(plan.cache_groups)
    runner.execute(Batch.from_groups([RowGroup(ids, 0, tables, len(ids))], len(tables)))
    logits = runner.logits()
    runner.close()
    return logits


def reference_logits(llama_cpp: ModuleType, path: Path, ids: Sequence[int]) -> NDArray[np.float32]:
    """llama.cpp as it comes."""
    model = llama_cpp.Llama(
        str(path), n_ctx=CONTEXT, n_batch=CONTEXT, n_threads=1, logits_all=True, verbose=False
    )
    try:
        model.eval(list(ids))
        return np.array(model.scores[: len(ids)])
    finally:
        model.close()


def relative_error(got: NDArray[np.floating], exact: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.square(got - exact).mean() / np.square(exact).mean()))


@pytest.mark.parametrize("quant", [*NARROW, *WIDE])
@pytest.mark.parametrize("family", DEFAULTS)
def test_error_is_no_larger_than_llama_cpps(
    llama_cpp: ModuleType, tmp_path: Path, family: str, quant: str
) -> None:
    """32-wide types at widths of 288 and 96, no multiples of 256; the others at 256 and 512."""
    narrow = quant in NARROW
    sizes = {"width": 288 if narrow else 256, "feed_forward": 96 if narrow else 512}
    heads = {"heads": 9, "kv_heads": 3} if narrow else {"heads": 8, "kv_heads": 4}
    if family == "phi3":
        heads["kv_heads"] = heads["heads"]
    if DEFAULTS[family].experts:
        # All of them for every row: where rounding turns a choice around, on either side, that
        # alone would be the error.
        sizes |= {"expert_size": sizes["feed_forward"], "experts": 4, "experts_used": 4}
    # Per-layer rows differ, head sizes too: attn_output reads heads x head_size.
    source = write_tiny_model(
        tmp_path / "f32.gguf", family, layers=2, head_size=32, window=None, **sizes, **heads
    )
    file_type = (NARROW | WIDE)[quant]
    path = quantize(llama_cpp, source, tmp_path / f"{quant}.gguf", file_type)
    model = read_gguf(path)
    assert quant in {info.quant_type for info in model.tensors.values()}
    exact = oracle_logits(oracle(path, CONTEXT, np.float64), PROMPT)
    ours = relative_error(native_logits(path, PROMPT), exact)
    theirs = relative_error(reference_logits(llama_cpp, path, PROMPT), exact)
    print(f"{family} {quant}: {ours:.2e}, llama.cpp {theirs:.2e}, ratio {ours / theirs:.3f}")
    assert ours <= BOUND * theirs
