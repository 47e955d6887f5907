"""A Python program in a process of its own, beside a test, that is where the test wants it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def process_that_said(word: str, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """It has written `word` as its first line, and is killed in the end if it still runs. Its
    standard input is a pipe."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"{word}\n"
        yield process
    finally:
        process.kill()
        process.communicate()
