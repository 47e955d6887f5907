"""Stop strings over streamed text: found across pieces, and never let out half.

What comes out depends on the text alone, never on how it was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text through until a stop string appears; holds back what might begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._beginnings = frozenset(stop[0] for stop in stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """(text that may go out, the stop string found or None).

        The match that is complete first wins, the longest of those that end together. Nothing
        from its beginning on goes out.
        """
        if not self._held and self._beginnings.isdisjoint(text):
            return text, None
        buffer = self._held + text
        found = [
            (at + len(stop), at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0
        ]
        if found:
            _, at, stop = min(found)
            self._held = ""
            return buffer[:at], stop
        end = min((_begun(buffer, stop) for stop in self._stops), default=len(buffer))
        self._held = buffer[end:]
        return buffer[:end], None

    def finish(self) -> str:
        """What was held back: the text ended before it became a stop string."""
        held, self._held = self._held, ""
        return held


def _begun(buffer: str, stop: str) -> int:
    """Where in `buffer` a stop string begins that is not complete; the end if none does."""
    at = buffer.find(stop[0], max(0, len(buffer) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(buffer[at:]):
            return at
        at = buffer.find(stop[0], at + 1)
    return len(buffer)
