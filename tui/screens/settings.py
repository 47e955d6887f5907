"""How one chat is answered: system prompt, sampling, thinking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from edgeserve.chats.records import Chat
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.tui.chat_settings import (
    NUMBERS,
    as_setting,
    auto,
    auto_explained,
    explained,
    thinking,
)
from edgeserve.tui.client import ModelInUse
from edgeserve.tui.terminal_text import shown, shown_line
from edgeserve.tui.widgets.bound_keys import Field

_SAMPLING = tuple(name for name in NUMBERS if name != "thinking_budget")
_KEYS = Content.assemble(
    ("ctrl+s", "bold"),
    (" keep   ", ""),
    ("tab", "bold"),
    (" next   ", ""),
    ("esc", "bold"),
    (" back", ""),
)


@frozen
class ChosenSettings:
    """`settings` has all of them; None takes one away."""

    system_prompt: str
    settings: Mapping[str, object]


class SettingsScreen(ModalScreen[ChosenSettings | None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("ctrl+s", "keep", show=False, priority=True),
    ]

    def __init__(self, chat: Chat, model: ModelInUse | None) -> None:
        super().__init__(classes="dialog")
        self._chat = chat
        self._model = model

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static("Settings of this chat", classes="dialog-title")
            with VerticalScroll(can_focus=False, classes="-fields"):
                yield Static("System prompt", classes="field-name")
                yield TextArea(
                    self._chat.system_prompt,
                    id="system-prompt",
                    compact=True,
                    tab_behavior="focus",
                    placeholder="None: the model answers as it was trained to",
                )
                text = shown_line(auto_explained(self._model))
                yield Static(text, classes="about-auto", markup=False)
                for name in _SAMPLING:
                    yield from self._field(name, self._shown(name), explained(name))
                about = "on, off, auto or a token budget"
                if self._model is not None and not self._model.thinks:
                    about = "this model cannot think first"
                yield from self._field("thinking", self._thinking(), about)
            yield Static(id="wrong", markup=False)
            yield Static(_KEYS, classes="dialog-keys", markup=False)

    def _field(self, name: str, value: str, about: str) -> ComposeResult:
        with Horizontal(classes="field"):
            yield Static(name.replace("_", " "), classes="field-name", markup=False)
            placeholder = auto(name, self._model)
            yield Field(value, id=f"set-{name}", placeholder=placeholder, compact=True)
            yield Static(about, classes="field-about", markup=False)

    def _shown(self, name: str) -> str:
        value = self._chat.settings.get(name)
        return "" if value is None else str(value)

    def _thinking(self) -> str:
        settings = self._chat.settings
        if settings.get("thinking_budget") is not None:
            return str(settings["thinking_budget"])
        thinks = settings.get("thinking")
        return "" if thinks is None else "on" if thinks else "off"

    @on(Input.Submitted)
    def action_keep(self) -> None:
        """Nothing is kept while one value cannot be."""
        try:
            chosen = {name: as_setting(name, self._typed(name)) for name in _SAMPLING}
            chosen.update(thinking(self._typed("thinking")))
        except InvalidRequestError as error:
            wrong = self.query_one("#wrong", Static)
            wrong.update(shown(str(error)))
            wrong.display = True
            return
        prompt = self.query_one("#system-prompt", TextArea).text.strip()
        self.dismiss(ChosenSettings(prompt, chosen))

    def _typed(self, name: str) -> str:
        return self.query_one(f"#set-{name}", Input).value
