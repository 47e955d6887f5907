"""Small questions over the chat: a choice, a line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from edgeserve.frozen import frozen
from edgeserve.tui.terminal_text import shown
from edgeserve.tui.widgets.bound_keys import Field


@frozen
class Offer:
    """One thing to choose: what comes back, its name, and what it means."""

    value: str
    label: str
    note: str = ""


class ChoiceDialog(ModalScreen[str | None]):
    """None for Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, text: str, offers: Sequence[Offer]) -> None:
        super().__init__(classes="dialog")
        self._title = title
        self._text = text
        self._offers = offers

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(shown(self._title), classes="dialog-title", markup=False)
            if self._text:
                yield Static(shown(self._text), classes="dialog-text", markup=False)
            lines = [_offer_line(offer) for offer in self._offers]
            yield OptionList(*(Option(line) for line in lines), compact=True, markup=False)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._offers[event.option_index].value)


class LineDialog(ModalScreen[str | None]):
    """A line of text; None for Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, text: str = "", value: str = "") -> None:
        super().__init__(classes="dialog")
        self._title = title
        self._text = text
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(shown(self._title), classes="dialog-title", markup=False)
            if self._text:
                yield Static(shown(self._text), classes="dialog-text", markup=False)
            yield Field(self._value, compact=True)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


def _offer_line(offer: Offer) -> Content:
    parts: list[tuple[str, str]] = [(shown(offer.label), "bold")]
    if offer.note:
        parts.append((f"\n{shown(offer.note)}", "$quiet"))
    return Content.assemble(*parts)


_KEYS = Content.assemble(("enter", "bold"), (" take   ", ""), ("esc", "bold"), (" back", ""))
