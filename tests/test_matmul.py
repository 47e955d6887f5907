"""benches/matmul.py: the error of products against float64, beside llama.cpp's, of the same weights
and rows; and that it compares with ref what it times. Bits are tests/test_kernels.py's business.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeserve.binding.executor import kernel_sets

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"(\w+) +error (\S+), llama.cpp (\S+): (\S+) x")
N_TYPES = 16


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the library under test is built, once."""
    pytest.importorskip("gguf")
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    return tmp_path_factory.mktemp("build")


def bench(build: Path, *arguments: str) -> str:
    """What the program prints."""
    command = [sys.executable, ROOT / "benches" / "matmul.py", "--build", build, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(scope="module")
def errors(build: Path) -> dict[str, tuple[float, float]]:
    """Ours and llama.cpp's, by type: RMS of the error over RMS of the exact product."""
    pytest.importorskip("llama_cpp")
    printed = bench(build, "--error", "--shape", "512x1536")
    return {name: (float(ours), float(theirs)) for name, ours, theirs, _ in LINE.findall(printed)}


def test_quantised_products_are_as_exact_as_the_references(
    errors: dict[str, tuple[float, float]],
) -> None:
    assert len(errors) == N_TYPES
    worse = {name: each for name, each in errors.items() if each[0] > 1.02 * each[1]}
    assert worse == {}


def test_every_set_type_and_row_count_is_compared_with_ref(build: Path) -> None:
    arguments = ("--types", "F32,Q4_1,Q8_0", "--rows", "1,5,33", "--shape", "80x512")
    num_sets = sum(runs for _, runs in kernel_sets())
    printed = bench(build, *arguments, "--set", "all", "--check")
    assert printed == f"{3 * 3 * num_sets} cases compared with ref, 0 differ\n"


def test_what_was_compared_is_timed_and_set_beside_the_limits(build: Path) -> None:
    arguments = ("--types", "Q8_0", "--rows", "1,5", "--shape", "80x512", "--rounds", "1")
    best = next(name for name, runs in kernel_sets() if runs)
    _, _, *lines, last = bench(build, *arguments).splitlines()
    assert last == "2 cases compared with ref, 0 differ"
    for line, num_rows in zip(lines, ("1", "5"), strict=True):
        kernel_set, kind, rows, *figures = line.split()
        assert (kernel_set, kind, rows) == (best, "Q8_0", num_rows)
        assert all(float(figure) >= 0 for figure in figures[:4])


def test_a_product_of_other_bits_is_found(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benches")
    matmul = importlib.import_module("matmul")
    library = matmul.load_built("matmul_bench", build, matmul.FUNCTIONS)
    weights = matmul.make_weights("Q8_0", (80, 512), np.random.default_rng(1))
    ours = matmul.Ours(library, "ref", weights.type_id, weights.shape, weights.blocks, 1)
    ours.rows(np.ones((3, 512), np.float32))
    ours.run()
    assert ours.num_different() == 0
    out = np.ctypeslib.as_array(library.bench_out(ours.handle), (3, 80))
    out[1, 70] = np.nextafter(out[1, 70], np.float32(np.inf))
    assert ours.num_different() == 1
    ours.close()


def test_attention_of_every_cache_type_is_compared(build: Path) -> None:
    arguments = ["--build", build, "--check", "--heads", "4x2x64", "--depths", "200"]
    arguments += ["--prefill", "130", "--rows", "20"]
    ran = subprocess.run(
        [sys.executable, ROOT / "benches" / "attention.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout == "6 cases compared with ref, 0 differ\n"
