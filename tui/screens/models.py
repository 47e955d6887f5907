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
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from edgeserve.errors import EdgeServeError
from edgeserve.tui.client import ChatClient, OfferedModel
from edgeserve.tui.drawing import on_its_way
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.signs import Signs
from edgeserve.tui.terminal_text import cut, shown, shown_line
from edgeserve.tui.widgets.long_list import LongList
from edgeserve.tui.wording import size

_TICK_S = 0.25
_MOVES = {
    "down": "cursor_down",
    "up": "cursor_up",
    "pagedown": "page_down",
    "pageup": "page_up",
}
_FIRST_RUN = 6
_NAME_CELLS = (12, 46)
_BESIDE_NAME_CELLS = 47
"""Size, room and speed, the mark, and the box around."""

_KEYS = Content.assemble(
    ("enter", "bold"),
    (" use, or fetch and use   ", ""),
    ("ctrl+x", "bold"),
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
    """The name of a chosen model, None for Esc. What is typed leaves those that have all of it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f4", "dismiss(None)", show=False),
        Binding("ctrl+x", "cancel", show=False, priority=True),
        *(Binding(key, f"move('{key}')", show=False) for key in _MOVES),
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
        self._found: Sequence[OfferedModel] | None = None
        self._lines: list[str | OfferedModel] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -broad"):
            yield Static("Models", classes="dialog-title")
            yield Input(placeholder="Type to find one", compact=True)
            models = LongList()
            models.can_focus = False  # what is typed goes on finding
            yield models
            yield Static(id="wrong", markup=False)
            yield Static(id="loading", markup=False)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    def on_mount(self) -> None:
        self.set_interval(_TICK_S, self._tick)
        self._tick()
        self._fill()
        self.run_worker(self._ask())  # Esc need not wait for it

    async def _ask(self) -> None:
        try:
            self._found = await self._offered()
        except EdgeServeError as error:
            wrong = self.query_one("#wrong", Static)
            wrong.update(shown(str(error)))
            wrong.display = True
            self._found = ()
        self._fill()

    @on(Input.Changed)
    def _fill(self) -> None:
        words = self.query_one(Input).value.casefold().split()
        found = [each for each in self._found or () if _has(each, words)]
        self._lines = []
        for title, is_here in (("On this machine", True), ("To fetch", False)):
            models = [each for each in found if each.here is is_here]
            self._lines += [*([title] if models else []), *models]
        in_use = "" if self._client.model is None else self._client.model.name
        names = [None if isinstance(each, str) else each.name for each in self._lines]
        wanted = names.index(in_use) if in_use in names else 1
        options = self.query_one(LongList)
        options.fill(len(names), lambda at: self._option(at, in_use), wanted if names else None)
        if not names:
            text = "Looking" + self._signs.ellipsis if self._found is None else _NOTHING
            options.add_option(Option(Content.styled(text, "$quiet"), disabled=True))

    def _option(self, index: int, in_use: str) -> Option:
        """A heading, or a model."""
        line = self._lines[index]
        if isinstance(line, str):
            return Option(Content.styled("\n" * (index > 0) + line, "$quiet"), disabled=True)
        cells, is_used = name_cells(self.size.width), line.name == in_use
        return Option(model_line(line, self._signs, cells, is_used=is_used))

    def _tick(self) -> None:
        line = self.query_one("#loading", Static)
        line.display = bool(self._switch.loading)
        if line.display:
            line.update(shown_line(on_its_way(self._switch, self._signs)))

    async def action_cancel(self) -> None:
        if self._switch.loading:
            await self._switch.cancel()
            self._tick()

    async def action_move(self, key: str) -> None:
        """In the list, while one types."""
        await self.query_one(LongList).run_action(_MOVES[key])

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _chosen(self) -> None:
        at = self.query_one(LongList).marked
        if at is not None and isinstance(model := self._lines[at], OfferedModel):
            self.dismiss(model.name)


_NOTHING = "None is called so. /model takes any name: a file's path, hf:OWNER/REPOSITORY"


def _has(model: OfferedModel, words: Sequence[str]) -> bool:
    parts = (model.name, model.title, model.owner, model.license, model.note)
    text = "\n".join(parts).casefold()
    return all(word in text for word in words)


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
