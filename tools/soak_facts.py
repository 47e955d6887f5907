"""What a soak counts: what happened, what should not have, and a process's memory over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MOST_GROWTH = 0.5  # MiB a minute
JUDGED_FROM = 4.0  # minutes from which on growth is judged: before that, memory is still warming up


@dataclass
class Tally:
    """What happened, by name, and what should not have."""

    counts: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])

    def expect(self, right: bool, what: str) -> None:
        if not right:
            self.failures.append(what)


class Memory:
    """A process's resident memory over time, in MiB. Linux only; elsewhere nothing is judged.

    Growth is judged by the last `judged` of the samples."""

    def __init__(self, process: int | str = "self", judged: float = 2 / 3) -> None:
        self._judged = judged
        self.samples: list[tuple[float, float]] = []
        self._path = Path(f"/proc/{process}/status")

    def look(self, minutes: float) -> None:
        found = self._status("VmRSS")
        if found is not None:
            self.samples.append((minutes, found))

    @property
    def peak(self) -> float | None:
        return self._status("VmHWM")

    @property
    def growth(self) -> float:
        """MiB a minute, by a straight line."""
        late = self.samples[round(len(self.samples) * (1 - self._judged)) :]
        if len(late) < 3:
            return 0.0
        minutes, sizes = zip(*late, strict=True)
        return float(np.polyfit(minutes, sizes, 1)[0])

    def judge(self, tally: Tally, peak: float | None, bound: float, minutes: float) -> None:
        """Against what was declared, in MiB."""
        tally.expect(peak is None or peak <= bound, f"memory reached {peak} MiB, past {bound:.0f}")
        grew = minutes >= JUDGED_FROM and self.growth > MOST_GROWTH
        tally.expect(not grew, f"memory grows by {self.growth:.2f} MiB a minute")

    def _status(self, name: str) -> float | None:
        if not self._path.exists():
            return None
        lines = self._path.read_text(encoding="ascii", errors="replace").splitlines()
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), None)
