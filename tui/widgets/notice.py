"""What somebody has to know: a few lines above the composer, until they are dismissed."""

from __future__ import annotations

from typing import Literal

from textual.widgets import Static

from edgeserve.tui.terminal_text import shown

Kind = Literal["note", "trouble", "question"]


class Notice(Static):
    """`kind` of what is shown: trouble stays until Esc, a note until something else is done."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.kind: Kind = "note"
        self.text = ""
        self.display = False

    def show(self, text: str, kind: Kind = "note") -> None:
        self.kind, self.text = kind, text
        self.update(shown(text))
        self.set_class(kind == "trouble", "-trouble")
        self.set_class(kind == "question", "-question")
        self.display = bool(text)

    def dismiss(self) -> bool:
        """Whether there was something."""
        was_there = self.display
        if was_there:
            self.show("")
        return was_there
