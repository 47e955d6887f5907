"""The C side of a benchmark: builds one of CMake's bench targets and loads it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

Functions = Mapping[str, tuple[Any, Sequence[Any]]]
"""By name, what a function gives and takes."""


def load_built(target: str, folder: Path, functions: Functions) -> ctypes.CDLL:
    """The library `target`, built in `folder`, with its functions' types."""
    for command in (
        ["cmake", "-S", ROOT, "-B", folder, "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", folder, "--parallel", "2", "--target", target],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    loaded = ctypes.CDLL(str(folder / f"lib{target}.so"))
    for name, (result, arguments) in functions.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
