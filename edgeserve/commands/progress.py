"""How far a transfer is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from edgeserve.config import Config
from edgeserve.loader.progress import Progress
from edgeserve.loader.recommend import human_size

_SECONDS_BETWEEN_LINES = 5.0


def progress_on(stream: TextIO, config: Config) -> Progress:
    """The right kind for where `stream` goes."""
    if stream.isatty():
        return BarProgress(stream, config.no_color)
    return LineProgress(stream)


class LineProgress:
    """A line at the start, and one every five seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._label = ""
        self._total: int | None = None
        self._done = 0
        self._next_line = 0.0

    def begin(self, label: str, total_bytes: int | None) -> None:
        self._label, self._total, self._done = label, total_bytes, 0
        self._next_line = self._clock() + _SECONDS_BETWEEN_LINES
        if total_bytes is not None:
            self.say(f"{label} ({human_size(total_bytes)})")

    def update(self, done_bytes: int) -> None:
        self._done = done_bytes
        if self._clock() >= self._next_line:
            self._next_line = self._clock() + _SECONDS_BETWEEN_LINES
            self.say(f"{self._label}: {self._share()}")

    def end(self) -> None:
        self._total = None

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)

    def _share(self) -> str:
        if not self._total:
            return human_size(self._done)
        return f"{100 * self._done // self._total} % of {human_size(self._total)}"


class BarProgress:
    """A bar with rate and remaining time, drawn by rich."""

    def __init__(self, stream: TextIO, no_color: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )
        from rich.progress import Progress as Bars

        self._console = Console(file=stream, no_color=no_color, highlight=False)
        self._columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._make_bars = lambda: Bars(*self._columns, console=self._console)
        self._bars: Bars | None = None

    def begin(self, label: str, total_bytes: int | None) -> None:
        self.end()
        self._bars = self._make_bars()
        self._bars.add_task(label, total=total_bytes)
        self._bars.start()

    def update(self, done_bytes: int) -> None:
        if self._bars is not None:
            self._bars.update(self._bars.task_ids[0], completed=done_bytes)

    def end(self) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def say(self, line: str) -> None:
        self._console.print(line, markup=False)
