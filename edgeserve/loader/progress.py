"""Who is told how far a long transfer is. Decides nothing, and knows no terminal."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears about one transfer at a time: begin, updates in bytes done so far, end."""

    def begin(self, label: str, total_bytes: int | None) -> None: ...

    def update(self, done_bytes: int) -> None: ...

    def end(self) -> None: ...

    def say(self, line: str) -> None: ...


class SilentProgress:
    """For callers that do not want to hear."""

    def begin(self, label: str, total_bytes: int | None) -> None:
        pass

    def update(self, done_bytes: int) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        pass
