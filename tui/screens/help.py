"""Keys and commands, from the table that makes them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from edgeserve.tui.commands import COMMANDS, GROUPS

_WRITING = (
    ("enter", "send"),
    ("ctrl+j, alt+enter", "new line"),
    ("up, down", "what was sent before"),
    ("tab", "complete; else to the chat and back"),
    ("@path", "attach a text file"),
    ("pageup, pagedown", "scroll; ctrl+home, ctrl+end"),
    ("esc, ctrl+c", "stop; ctrl+c twice leaves"),
)
_READING = (
    ("up, down", "message above, below"),
    ("enter", "unfold the thinking"),
    ("[ ]", "branch before, after"),
    ("y", "copy the message"),
    ("c", "copy its code, the next on again"),
    ("e", "edit it as another branch"),
    ("r", "another answer"),
    ("left, right", "token by token, when tinted"),
)
_DIALOG_KEYS = Content.assemble(
    ("up, down", "bold"), (" scroll   ", ""), ("esc", "bold"), (" back", "")
)
_KEY_CELLS = 19
_NAME_CELLS = 20


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q", "dismiss(None)", show=False),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(classes="box -tall"):
            yield Static("Help", classes="dialog-title")
            with VerticalScroll():
                yield Static(help_text(), markup=False)
            yield Static(
                Content.assemble(
                    ("up, down", "bold"), (" scroll   ", ""), ("esc", "bold"), (" back", "")
                ),
                classes="dialog-keys",
            )

    def on_mount(self) -> None:
        self.add_class("dialog")
        self.query_one(VerticalScroll).focus()


def help_text() -> Content:
    lines = [_heading("Writing"), *(_line(*each, _KEY_CELLS) for each in _WRITING)]
    lines += [Content(""), _heading("In the chat (tab goes there)")]
    lines += [_line(*each, _KEY_CELLS) for each in _READING]
    for group, title in GROUPS.items():
        lines += [Content(""), _heading(title)]
        for command in COMMANDS:
            if command.group == group:
                keys = f"  {', '.join(command.keys)}" if command.keys else ""
                name = f"/{command.name} {command.argument}".rstrip()
                line = _line(name, command.summary, _NAME_CELLS)
                lines.append(Content.assemble(line, (keys, "$quiet")))
    return Content("\n").join(lines)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $accent")


def _line(left: str, right: str, cells: int) -> Content:
    return Content.assemble((left.ljust(cells) + " ", "bold"), (right, ""))
