"""Models: those here, whoever keeps them, and those to be fetched, with what that would mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from edgeserve.tui.client import ChatClient, OfferedModel
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.signs import Signs
from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.wording import loading, size

_TICK_S = 0.25
_FIRST_RUN = 6
_NAME_CELLS = 26

_KEYS = Content.assemble(
    ("enter", "bold"),
    (" use, or fetch and use   ", ""),
    ("x", "bold"),
    (" stop fetching   ", ""),
    ("esc", "bold"),
    (" back", ""),
)

_FETCH_KEYS = Content.assemble(
    ("enter", "bold"),
    (" or its number fetches   ", ""),
    ("esc", "bold"),
    (" later (f4)", ""),
)


class ModelsScreen(ModalScreen[str | None]):
    """The name of a chosen model, None for Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f4", "dismiss(None)", show=False),
        Binding("x", "cancel", show=False),
    ]

    def __init__(
        self,
        offered: Callable[[], Awaitable[Sequence[OfferedModel]]],
        client: ChatClient,
        switch: ModelSwitch,
        signs: Signs,
    ) -> None:
        super().__init__(classes="dialog")
        self._offered = offered
        self._client = client
        self._switch = switch
        self._signs = signs
        self._names: list[str | None] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -tall"):
            yield Static("Models", classes="dialog-title")
            yield OptionList(compact=True, markup=False)
            yield Static(id="loading", markup=False)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    async def on_mount(self) -> None:
        self.set_interval(_TICK_S, self._tick)
        self._tick()
        await self._fill()

    async def _fill(self) -> None:
        found = await self._offered()
        options = self.query_one(OptionList)
        options.clear_options()
        self._names = []
        groups = (
            ("On this machine" if any(m.here for m in found) else "", [m for m in found if m.here]),
            ("To fetch", [m for m in found if not m.here]),
        )
        in_use = "" if self._client.model is None else self._client.model.name
        for title, models in groups:
            if models and title:
                self._add(None, Content.styled(title, "bold $accent"))
            for model in models:
                self._add(model.name, model_line(model, self._signs, is_used=model.name == in_use))
        options.focus()
        wanted = self._names.index(in_use) if in_use in self._names else 1
        options.highlighted = wanted if len(self._names) > wanted else None

    def _add(self, name: str | None, line: Content) -> None:
        self._names.append(name)
        self.query_one(OptionList).add_option(Option(line, disabled=name is None))

    def _tick(self) -> None:
        line = self.query_one("#loading", Static)
        line.display = bool(self._switch.loading)
        if line.display:
            line.update(
                shown_line(loading(self._switch.loading, self._switch.progress, self._signs))
            )

    async def action_cancel(self) -> None:
        if self._switch.loading:
            await self._switch.cancel()
            self._tick()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])


class FirstRunScreen(ModalScreen[str | None]):
    """No model is here: a few that fit, one key to fetch."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        *(Binding(str(n), f"take({n})", show=False) for n in range(1, _FIRST_RUN + 1)),
    ]

    def __init__(self, offered: Sequence[OfferedModel], signs: Signs) -> None:
        super().__init__(classes="dialog")
        self._models = [each for each in offered if each.fits is not False][:_FIRST_RUN]
        self._signs = signs

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Welcome", classes="dialog-title")
            text = "No model is on this machine yet. These fit; one key fetches one, then you chat."
            if not self._models:
                text = _NOTHING_FITS
            yield Static(text, classes="dialog-text")
            lines = [
                Content.assemble((f"{n}  ", "bold $accent"), model_line(each, self._signs))
                for n, each in enumerate(self._models, 1)
            ]
            yield OptionList(*(Option(line) for line in lines), compact=True, markup=False)
            yield Static(_FETCH_KEYS, classes="dialog-keys")

    def action_take(self, number: int) -> None:
        if number <= len(self._models):
            self.dismiss(self._models[number - 1].name)

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.action_take(event.option_index + 1)


_NOTHING_FITS = (
    "No model is on this machine, and none that is known fits its memory. A GGUF file is taken by "
    "its path: edgeserve chat FILE.gguf; a server elsewhere by edgeserve chat --url URL."
)


def model_line(model: OfferedModel, signs: Signs, *, is_used: bool = False) -> Content:
    """Its name, size, whether it fits, how fast it should be; below it what else is to say."""
    mark = f"{signs.here} " if is_used else "  "
    room = {True: "fits", False: "too large", None: ""}[model.fits]
    speed = f"{signs.about}{model.tokens_per_s:.0f} tokens/s" if model.tokens_per_s else ""
    how_large = "" if model.size_bytes is None else size(model.size_bytes)
    kept = f"kept by {model.owner}" if model.owner else ""
    more = signs.joined(kept, model.license, model.note)
    return Content.assemble(
        (mark, "$accent"),
        (f"{shown_line(model.name):<{_NAME_CELLS}}", "bold $accent" if is_used else "bold"),
        (f" {how_large:>8}", ""),
        (f"  {room:<10}", "$error" if model.fits is False else "$quiet"),
        (speed, ""),
        (f"\n  {shown_line(more)}" if more else "", "$quiet"),
    )
