"""The error of matrix products against float64, beside llama.cpp's, of the same weights and rows.
Bits are tests/test_kernels.py's business."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINE = re.compile(r"(\w+) +error (\S+), llama.cpp (\S+): (\S+) x")
N_TYPES = 16


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[float, float]]:
    """Ours and llama.cpp's, by type: RMS of the error over RMS of the exact product."""
    pytest.importorskip("llama_cpp")
    pytest.importorskip("gguf")
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    command = [sys.executable, ROOT / "benches" / "matmul.py", "--error", "--shape", "512x1536"]
    command += ["--build", tmp_path_factory.mktemp("build")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return {
        name: (float(ours), float(theirs)) for name, ours, theirs, _ in LINE.findall(ran.stdout)
    }


def test_quantised_products_are_as_exact_as_the_references(
    errors: dict[str, tuple[float, float]],
) -> None:
    assert len(errors) == N_TYPES
    worse = {name: each for name, each in errors.items() if each[0] > 1.02 * each[1]}
    assert worse == {}
