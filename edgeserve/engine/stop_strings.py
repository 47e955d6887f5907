"""Stop strings over streamed text: found across pieces, and never let out half."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text through until a stop string appears; holds back what might begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """(text that may go out, the stop string found or None).

        The earliest match wins, the shortest of those that begin together. Nothing from the
        match on goes out.
        """
        buffer = self._held + text
        found = [(at, len(stop), stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if found:
            at, _, stop = min(found)
            self._held = ""
            return buffer[:at], stop
        keep = self._length_to_hold(buffer)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep], None

    def finish(self) -> str:
        """What was held back: the text ended before it became a stop string."""
        held, self._held = self._held, ""
        return held

    def _length_to_hold(self, buffer: str) -> int:
        """The longest end of `buffer` that begins a stop string."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(buffer)), 0, -1):
            end = buffer[len(buffer) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0
