"""`edgeserve serve` as a program, for tests that need a real one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 60


class Program:
    """A running `edgeserve serve`. `said` is its standard error so far."""

    def __init__(self, arguments: list[str], cache: Path) -> None:
        environment = {
            **os.environ,
            "EDGESERVE_CACHE": str(cache),
            "EDGESERVE_DISK_CACHE": str(2**28),
        }
        environment.pop("EDGESERVE_LOG_LEVEL", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "edgeserve.cli", "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.said = ""

    def until(self, pattern: str) -> str:
        """Reads on to a line with the pattern; its first group."""
        assert self.process.stderr is not None
        while True:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
            found = re.search(pattern, line)
            if found is not None:
                return found[1]

    def read_on(self) -> None:
        """Reads to its end."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        self.said += self.process.stderr.read()
        return self.process.wait(SECONDS)


@contextmanager
def serving(path: Path, cache: Path, *arguments: str) -> Iterator[tuple[Program, str]]:
    """A program that is ready, and its URL."""
    program = Program([str(path), *arguments], cache)
    try:
        yield program, program.until(r"is ready at (\S+)/v1")
    finally:
        program.process.kill()
        program.process.wait()
        assert program.process.stderr is not None
        program.process.stderr.close()
