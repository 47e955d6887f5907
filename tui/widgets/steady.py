"""Lines that are shown over and over, and are seldom another: only then they cost anything."""

from __future__ import annotations

from textual.widgets import Static


class SteadyLine(Static):
    """One line of text as it is. `keeps_width` where its text does not decide how wide it is: what
    is around it need not be laid out again then."""

    def __init__(self, *, keeps_width: bool = False, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._keeps_width = keeps_width
        self._text = ""

    def show(self, text: str) -> None:
        if text != self._text:
            self._text = text
            self.update(text, layout=not self._keeps_width)
