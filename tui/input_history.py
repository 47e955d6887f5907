"""What was sent before, to go back to with the arrow keys."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_KEPT = 200


class InputHistory:
    """What is being written is the newest entry while one looks at older ones."""

    def __init__(self) -> None:
        self._sent: list[str] = []
        self._at = 0
        self._being_written = ""

    def fill(self, sent: Iterable[str]) -> None:
        """Begins anew, with these, oldest first."""
        self._sent = [text for text in sent if text.strip()][-_MAX_KEPT:]
        self._at = len(self._sent)

    def add(self, text: str) -> None:
        if text.strip() and self._sent[-1:] != [text]:
            self._sent = [*self._sent, text][-_MAX_KEPT:]
        self._at = len(self._sent)

    def older(self, written: str) -> str | None:
        """None where there is none."""
        if self._at == 0:
            return None
        if self._at == len(self._sent):
            self._being_written = written
        self._at -= 1
        return self._sent[self._at]

    def newer(self) -> str | None:
        """None where nothing older is being looked at."""
        if self._at >= len(self._sent):
            return None
        self._at += 1
        return self._being_written if self._at == len(self._sent) else self._sent[self._at]
