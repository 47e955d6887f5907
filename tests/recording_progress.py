"""A progress that remembers what it heard, and can interrupt."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RecordingProgress:
    """`interrupt_at` raises KeyboardInterrupt once that many bytes of a transfer are done."""

    interrupt_at: int | None = None
    labels: list[tuple[str, int | None]] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    num_open: int = 0

    def begin(self, label: str, total_bytes: int | None) -> None:
        self.labels.append((label, total_bytes))
        self.num_open += 1

    def update(self, done_bytes: int) -> None:
        self.updates.append(done_bytes)
        if self.interrupt_at is not None and done_bytes >= self.interrupt_at:
            self.interrupt_at = None
            raise KeyboardInterrupt

    def end(self) -> None:
        self.num_open -= 1

    def say(self, line: str) -> None:
        self.said.append(line)
