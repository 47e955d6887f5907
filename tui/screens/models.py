"""Models: those here, whoever keeps them, and those to be fetched, with what that would mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.cells import set_cell_size
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
from edgeserve.tui.terminal_text import cut, shown_line
from edgeserve.tui.widgets.long_list import LongList
from edgeserve.tui.wording import loading, size

_TICK_S = 0.25
_FIRST_RUN = 6
_NAME_CELLS = (12, 46)
_BESIDE_NAME_CELLS = 47
"""Size, room and speed, the mark, and the box around."""

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
        with Vertical(classes="box -broad"):
            yield Static("Models", classes="dialog-title")
            yield LongList()
            yield Static(id="loading", markup=False)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    async def on_mount(self) -> None:
        self.set_interval(_TICK_S, self._tick)
        self._tick()
        await self._fill()

    async def _fill(self) -> None:
        found = await self._offered()
        groups = (
            ("On this machine", [m for m in found if m.here]),
            ("To fetch", [m for m in found if not m.here]),
        )
        lines: list[str | OfferedModel] = []
        for title, models in groups:
            lines += [*([title] if models else []), *models]
        self._names = [None if isinstance(each, str) else each.name for each in lines]
        in_use = "" if self._client.model is None else self._client.model.name
        wanted = self._names.index(in_use) if in_use in self._names else 1
        options = self.query_one(LongList)
        options.fill(
            len(lines),
            lambda index: self._option(lines[index], index, in_use),
            wanted if len(lines) > wanted else None,
        )
        options.focus()

    def _option(self, line: str | OfferedModel, index: int, in_use: str) -> Option:
        """A heading, or a model."""
        if isinstance(line, str):
            return Option(Content.styled("\n" * (index > 0) + line, "$quiet"), disabled=True)
        cells, is_used = name_cells(self.size.width), line.name == in_use
        return Option(model_line(line, self._signs, cells, is_used=is_used))

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
            cells = name_cells(self.size.width)
            lines = [
                model_line(each, self._signs, cells, mark=str(n))
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


def name_cells(screen_cells: int) -> int:
    """The room that a name has in a list over a screen of this width."""
    least, most = _NAME_CELLS
    return max(least, min(most, 92 * screen_cells // 100 - _BESIDE_NAME_CELLS))


def model_line(
    model: OfferedModel, signs: Signs, cells: int, *, mark: str = "", is_used: bool = False
) -> Content:
    """Its name in so many cells, size, whether it fits, how fast it should be; below it what else
    is to say, and first of that a name that was too long."""
    mark = signs.here if is_used else mark
    room = {True: "fits", False: "too large", None: ""}[model.fits]
    speed = f"{signs.about} {model.tokens_per_s:.0f} tokens/s" if model.tokens_per_s else ""
    how_large = "" if model.size_bytes is None else size(model.size_bytes)
    kept = f"kept by {model.owner}" if model.owner else ""
    full_name = shown_line(model.name)
    name = cut(full_name, cells, signs.ellipsis)
    more = signs.joined(full_name * (name != full_name), kept, model.license, model.note)
    return Content.assemble(
        (f"{mark:<2}", "bold $accent"),
        (set_cell_size(name, cells), "bold $accent" if is_used else "bold"),
        (f"{how_large:>9}", ""),
        (f"   {room:<9}", "$error" if model.fits is False else "$quiet"),
        (f"{speed:>14}", ""),
        (f"\n  {shown_line(more)}" if more else "", "$quiet"),
    )
