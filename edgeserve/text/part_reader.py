"""The parts of one answer as its text arrives: a reader at work on a text that grows.

What a format's parts are its reader says; here is only how text gets to it and parts come out.
"""

from __future__ import annotations

from edgeserve.answer_parts import AnswerPart
from edgeserve.text.text_scanner import Reading, TextScanner


class PartReader:
    """Hands text to a reader, which begins first, and gathers what that adds to `parts`."""

    def __init__(self) -> None:
        self.text = TextScanner()
        self.parts: list[AnswerPart] = []
        self._reading: Reading[None] | None = None

    def begin(self, reading: Reading[None]) -> None:
        """Starts a reader of `text`, up to where it needs some."""
        self._reading = reading
        next(reading, None)

    def feed(self, text: str) -> list[AnswerPart]:
        """What the answer's next piece adds."""
        self.text.supply(text)
        return self._advance()

    def finish(self) -> list[AnswerPart]:
        """What was held back, once no more can come."""
        self.text.end()
        return self._advance()

    def _advance(self) -> list[AnswerPart]:
        if self._reading is not None:
            next(self._reading, None)
        parts = list(self.parts)
        self.parts.clear()
        return parts
